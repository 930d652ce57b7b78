"""The forms that a placeholder takes: which of the configured patterns a text is, if it is one.

A pattern stands for a whole value, without case. In it

    < >                     stand for any brackets: `<x>`, `[x]`, `{x}`, `{{x}}`, `${x}`, `%x%`; also
                            as part of a text without white space (`https://<your-host>/`)
    a space                 for any joint of words: `your city`, `your_city`, `your-city`, `yourCity`
    _                       for a joint of an identifier: `your_city`, `YOUR-CITY`, and not `your city`
    *                       for anything; in brackets, for words
    {name}                  for the argument's own name, `user_id` as well as `<the user's ID>`
    {type}, {description}   for the argument's own type, and what the schema says of it
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

PLACEHOLDERS: tuple[str, ...] = (
    "<your *>", "<insert *>", "<enter *>", "<replace *>", "<provide *>", "<specify *>", "<fill *>", "<put *>",
    "<paste *>", "<placeholder*>", "<* here>", "<{name}>", "<{type}>", "<{description}>", "{name}", "{type}",
    "{description}", "your_*", "insert_*_here", "enter_*_here", "put_*_here", "add_*_here", "insert_your_*",
    "enter_your_*", "replace_with_*", "replace_me", "path/to/*", "...",
    "<result of *>", "<result from *>", "<output of *>", "<output from *>", "<* from previous *>", "<* from step *>",
    "<*.result>", "<*.output>", "$*.result", "$*.output", "result_of_*", "output_of_*", "result_from_*",
    "output_from_*",
)  # fmt: skip

_CHARS_COMPARED = 12  # of a text and a description, before more is done
_OWN_CHARS_MAX = 24  # that a text may have beside its argument's own name

_OPENS, _CLOSES = r"<<|<|\[\[|\[|\$\{\{|\$\{|\{\{\{|\{\{|\{|%", r">>|>|\]\]|\]|\}\}\}|\}\}|\}|%"
_FRAME = re.compile(rf"(?P<before>\S*?)(?:{_OPENS})\s*(?P<inner>[^<>\[\]{{}}%]+?)\s*(?:{_CLOSES})(?P<after>\S*)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NO_WORD = re.compile(r"[\W_]+")
_JOINT = re.compile(r"[\s_-]+")
_ADDRESS = re.compile(r"\A(?:[a-z][a-z0-9+.-]{1,15}://(?:www\.)?|(?:[a-z]:)?(?:\.{0,2}|~)[/\\]+)", re.IGNORECASE)
_WORDS_IN_BRACKETS = r"[\w\s'’.,/()&-]*"
_TYPES = frozenset({"string", "str", "a string", "string value", "some string", "string required", "any string"})
_FILLERS = {
    "the", "a", "an", "your", "some", "this", "insert", "enter", "provide", "specify", "put", "fill", "replace", "with",
    "here", "placeholder", "example", "sample", "dummy", "value", "string", "in", "of", "for", "s",
}  # fmt: skip
_ASKS = {
    "your", "insert", "enter", "provide", "specify", "put", "fill", "replace", "here", "placeholder", "example",
    "sample", "dummy",
}  # fmt: skip
_OWNERS = frozenset({"user", "users", "customer", "s"})
_VAGUE = frozenset({"name", "value", "string", "text", "here", "placeholder", "id"})


@dataclass(frozen=True, slots=True)
class Argument:
    """What a schema says of one argument, and the words of its tool's name."""

    name: str
    description: str = ""
    tool: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Standin:
    """A text in the form of a placeholder. `framed`: in brackets; `own`: it says the argument's own name, type
    (`by_type`) or description; `instructs_own`: it asks for this very argument."""

    framed: bool
    own: bool = False
    by_type: bool = False
    instructs_own: bool = False


@dataclass(frozen=True, slots=True)
class _Text:
    inner: str
    words: tuple[str, ...]
    plain: str
    framed: bool
    joined: bool
    part: bool


def split_words(text: str) -> tuple[str, ...]:
    """Split a text into its words, without case."""
    return tuple(word for word in _NO_WORD.split(_CAMEL.sub(" ", text).casefold()) if word)


def _squash(text: str) -> str:
    return _NO_WORD.sub("", text.casefold())


@dataclass(frozen=True, slots=True)
class Matcher:
    """The patterns, ready. `joined`: those that only an identifier can be; `own`: the tokens, in brackets and bare;
    `hint`: what stands in every text that any of them matches, but for the argument's own words."""

    framed: tuple[re.Pattern[str], ...]
    bare: tuple[re.Pattern[str], ...]
    joined: tuple[re.Pattern[str], ...]
    own: dict[bool, tuple[str, ...]]
    hint: re.Pattern[str]

    def may_match(self, text: str, name: str) -> bool:
        """Return whether a text may have one of the forms, its argument's description aside: a fast look."""
        folded = text.casefold()
        if self.hint.search(folded) is not None:
            return True
        more = len(folded) - _OWN_CHARS_MAX
        return more <= len(name) and (name[:2].strip("_-").casefold() in folded or (more <= 0 and "str" in folded))

    def match(self, text: str, argument: Argument) -> Standin | None:
        """Find what kind of placeholder a text is, if it is one."""
        read = _read_text(text)
        said = [] if read.part else [token for token in self.own[read.framed] if _SAYS[token](read, argument)]
        if said:
            by_type = "{type}" in said
            asks = read.framed and not by_type and not _ASKS.isdisjoint(read.words)
            return Standin(read.framed, own=True, by_type=by_type, instructs_own=asks)
        patterns = self.framed if read.framed else self.bare + (self.joined if read.joined else ())
        return Standin(read.framed) if any(pattern.fullmatch(read.plain) for pattern in patterns) else None


def may_be_description(text: str, description: str) -> bool:
    """Return whether a text may be a description: a fast look."""
    if " " not in text or not description:
        return False
    return _squash(text[:_CHARS_COMPARED]) in _squash(description[: 2 * _CHARS_COMPARED])


@lru_cache(maxsize=64)
def build_matcher(placeholders: tuple[str, ...]) -> Matcher:
    """Make the patterns ready; the same ones are made ready once."""
    plain = [word for word in placeholders if not any(token in word for token in _TOKENS)]
    bare = [word for word in plain if not _is_framed(word)]
    # What stands in every text that a pattern matches: its first word.
    firsts = [re.split(r"[\s_*-]", word.lstrip("*"), maxsplit=1)[0].casefold() for word in bare]
    own = {
        framed: tuple(
            token for token in _TOKENS if any(token in word and (word != token) is framed for word in placeholders)
        )
        for framed in (True, False)
    }
    return Matcher(
        framed=tuple(_compile_words(word[1:-1], _WORDS_IN_BRACKETS) for word in plain if _is_framed(word)),
        bare=tuple(_compile_words(word, ".*") for word in bare if "_" not in word),
        joined=tuple(_compile_words(word, ".*") for word in bare if "_" in word),
        own=own,
        hint=re.compile("|".join(dict.fromkeys([r"[<\[{%$]", *map(re.escape, firsts)]))),
    )


def _is_framed(word: str) -> bool:
    return len(word) > 2 and word[0] + word[-1] in ("<>", "[]", "{}")


def _compile_words(word: str, anything: str) -> re.Pattern[str]:
    return re.compile(re.escape(_JOINT.sub(" ", word.casefold())).replace(r"\*", anything), re.DOTALL)


def _read_text(text: str) -> _Text:
    stripped = text.strip()
    frame = _FRAME.fullmatch(stripped)
    inner = frame["inner"] if frame else _ADDRESS.sub("", stripped, count=1)
    joined = not re.search(r"\s", inner)
    plain = _JOINT.sub(" ", _CAMEL.sub(" ", inner) if joined else inner).strip().casefold()
    part = frame is not None and bool(frame["before"] or frame["after"])
    return _Text(inner, split_words(inner), plain.replace("\\", "/"), frame is not None, joined, part)


def _says_name(text: _Text, argument: Argument) -> bool:
    own = split_words(argument.name)
    if not own or not text.words:
        return False
    fillers = _FILLERS | _OWNERS if text.framed else _FILLERS
    said = [word for word in text.words if word not in fillers]
    loose = text.framed or text.joined or not _ASKS.isdisjoint(text.words)
    if "".join(text.words) == "".join(own):
        return True
    if not loose or not said:
        return False
    if "".join(said) == "".join(own) or _drop_vague(said) == _drop_vague(own) != "":
        return True
    return text.framed and "".join(word for word in said if word not in argument.tool) == "".join(own)


def _drop_vague(words: tuple[str, ...] | list[str]) -> str:
    return "".join(word for word in words if word not in _VAGUE)


def _says_description(text: _Text, argument: Argument) -> bool:
    said = _squash(text.inner)
    if not argument.description or len(text.words) < 2 or not (text.framed or " " in text.inner):
        return False
    first = re.split(r"[.;](?=\s|\Z)|[(\n]", argument.description, maxsplit=1)[0]
    bare = re.sub(r"^(?:the|a|an)\s+", "", first.strip(), flags=re.IGNORECASE)
    return said in (_squash(argument.description), _squash(first), _squash(bare))


_SAYS: dict[str, Callable[[_Text, Argument], bool]] = {
    "{name}": _says_name,
    "{type}": lambda text, _argument: text.plain in _TYPES,
    "{description}": _says_description,
}
_TOKENS = tuple(_SAYS)
