"""Arguments that satisfy the schema and still say nothing: empty ones, and texts that only stand in for a value.

Empty is only a call whose required strings are all blank. A placeholder is convicted by its schema and its place, never
by a word alone, which a search may well be for:

    <your_city>, [insert city here], YOUR_API_KEY   an instruction to fill it in
    <city>, {{city}}, city, city_name               the argument's own name
    string, <string>                                its own type
    The city to look in                             its own description
    /path/to/file, ...                              a gap

Instructions and names in brackets count anywhere, the others only in a required free text of a known conversation.
Honest is what the schema names, what occurs in the conversation, and what stands where such texts belong. What may as
well be a name (`your_song.txt`) is only suspected; certain is what asks in brackets for this very argument.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reliability.steps import Steps
from reliability.tool_calls import Flaws, Uncertainty, Violation, join
from reliability.tools.check.placeholder_forms import (
    Argument,
    Matcher,
    Standin,
    build_matcher,
    may_be_description,
    split_words,
)
from reliability.tools.schema.complaint import Path
from reliability.tools.schema.toolbox import Tool

_PLACEHOLDER_CHARS_MAX = 400
_STEPS_A_WORD = 8
CHARS_A_STEP = 1_000  # of the conversation, searched for a word
_FOUND_MAX = 100
_EMPTY = "is empty, and nothing else is given (if that is meant, write it again)"
_PLAIN = "{!r} only stands in for a value"
_SUSPECTED = "{!r} seems to stand in for a value (if it is meant, write it again)"
_REQUEST_CHARS_MAX = 2_000  # a longer text of the conversation is a prompt or a result, and speaks of everything


def _list_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Arguments that hold text of which such a thing may be a part, and may be all.
_TEXTS = _list_words("""
    template pattern regex regexp glob content contents body text code html xml markup markdown snippet command
    cmd script source old new replacement replace find needle expression sql comment note patch diff prompt
""")
# Arguments that take the name of something: any word is one.
_NAMES = _list_words("""
    app callback handler object type kind dtype datatype format schema column columns field fields key name
    value tag tags label labels keyword keywords attribute property class variable symbol identifier id method
    function branch module package word term group role state status category topic table index target action
    mode option selector element placeholder language unit
""")
# Arguments that take a piece of a program by its name.
_OBJECTS = frozenset({"function", "callback", "handler", "object", "class", "method", "variable", "component"})
# Arguments that take a space as a character or a key; tools that press keys.
_CHARACTERS = _list_words("key keys char chars character characters delimiter separator sep joiner padding indent")
_PRESSES = _list_words("press type keyboard keystroke keystrokes keys stdin")
# What stands in brackets by nature: an element, a variable of the shell.
_IN_BRACKETS = {
    "<": frozenset({"tag", "element", "selector", "html", "xml", "markup", "node"}),
    "$": frozenset({"command", "cmd", "script", "code", "expression"}),
    "%": frozenset({"command", "cmd", "script", "code", "expression"}),
}
_TEMPLATES = re.compile(
    r"\b(?:template|placeholder|mustache|handlebars|jinja|boilerplate|merge field|dummy|slot)s?\b|\.env\.|\{\{",
    re.IGNORECASE,
)
_SPEAKS_OF_CODE = re.compile(r"grep|regex|pattern|symbol|schema|\bcode|\btypes?\b", re.IGNORECASE)

_MAY_BE_EMPTY = re.compile(
    r"(?<!non-)(?<!not be )(?<!not be an )\bempty (?:string|text|value|path|query|prefix)"
    r"|\bleave (?:it |\w+ )?(?:empty|blank)",
    re.IGNORECASE,
)
_ENDING = re.compile(r"\.\w{1,5}\Z")


def find_implausible(
    arguments: Mapping[str, Any],
    tool: Tool,
    i: int,
    placeholders: Sequence[str],
    conversation: Sequence[str] | None,
    steps: Steps,
) -> list[Violation]:
    """Find what stands in the i-th call's arguments without saying anything, at most `_FOUND_MAX` things. Raises
    `OutOfSteps`, unless the steps are final: then what hasn't been looked at passes."""
    blanks = _find_blank(arguments, tool, steps)
    place = (i, "arguments")
    found = [Violation(Flaws.EMPTY, join(*place, key), _EMPTY, tool.name, Uncertainty.SUSPECTED) for key in blanks]
    if not placeholders:
        return found
    matcher = build_matcher(tuple(placeholders))
    search_steps = sum(map(len, conversation or ())) // CHARS_A_STEP
    looked = tool.places.looked
    for path, text in _list_strings(arguments):
        _spend(tool.places.looked - looked, steps)
        looked = tool.places.looked
        if len(found) >= _FOUND_MAX or (steps.final and steps.left < _STEPS_A_WORD + search_steps):
            break
        steps.spend(1)
        if len(text) > _PLACEHOLDER_CHARS_MAX:
            continue
        steps.spend(_STEPS_A_WORD)
        standin, argument, schema = _find_standin(text, path, tool, matcher)
        if standin is None:
            continue
        _spend(search_steps, steps)
        if not standin.framed and (
            conversation is None or not _is_required(path, tool) or not _is_free_text(schema, tool)
        ):
            continue
        honest = _belongs_there(text, standin, argument, tool) or _is_named(text, standin, schema, steps)
        doubt = _find_doubt(text, standin, argument)
        if not honest and (conversation is None or not _is_said(text, standin, conversation, doubt)):
            words = _SUSPECTED if doubt is Uncertainty.SUSPECTED else _PLAIN
            found.append(Violation(Flaws.PLACEHOLDER, join(*place, *path), words.format(text), tool.name, doubt))
    return found


def _spend(wanted: int, steps: Steps) -> None:
    steps.spend(min(wanted, max(0, steps.left)) if steps.final else wanted)


def _find_standin(text: str, path: Path, tool: Tool, matcher: Matcher) -> tuple[Standin | None, Argument, Any]:
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    likely = matcher.may_match(text, name)
    if not likely and " " not in text:
        return None, Argument(name), None
    schema = _find_schema(path, tool)
    description = schema.get("description") if isinstance(schema, Mapping) else None
    description = description if isinstance(description, str) else ""
    argument = Argument(name, description, split_words(tool.name))
    if not likely and not may_be_description(text, description):
        return None, argument, None
    return matcher.match(text, argument), argument, schema


def _find_blank(arguments: Mapping[str, Any], tool: Tool, steps: Steps) -> list[str]:
    """Find the required strings, where all of them are blank and nothing else is given."""
    if not tool.required:
        return []
    presses = not _PRESSES.isdisjoint(split_words(tool.name))
    for key, value in arguments.items():
        if value is not None and value not in ([], {}) and not (isinstance(value, str) and not value.strip(" ")):
            return []
        if value and (presses or _CHARACTERS.issuperset(split_words(key))):
            return []
    if _MAY_BE_EMPTY.search(tool.description):
        return []
    keys = [key for key in tool.required if isinstance(arguments.get(key), str)]
    said: dict[str, str] = {}
    for key in keys:
        if steps.final and steps.left <= 0:
            return []
        looked = tool.places.looked
        said[key] = json.dumps(_find_schema((key,), tool))
        _spend(tool.places.looked - looked + len(said[key]) // CHARS_A_STEP, steps)
    return [key for key in keys if json.dumps(arguments[key]) not in said[key] and "empty" not in said[key].casefold()]


def _list_strings(value: Any) -> Iterator[tuple[Path, str]]:
    stack: list[tuple[Path, Any]] = [((), value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, str):
            yield path, item
        elif isinstance(item, Mapping):
            stack += [((*path, k), v) for k, v in reversed(list(item.items()))]
        elif isinstance(item, list):
            stack += [((*path, i), v) for i, v in reversed([*enumerate(item)])]


def _find_schema(path: Path, tool: Tool) -> Any:
    schema: Any = tool.parameters
    for part in path:
        if not isinstance(schema, Mapping):
            return None
        if isinstance(part, str):
            schema = tool.places.find_member(schema, part)
        else:
            forms = (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ()))
            schema = next((one["items"] for one in forms if isinstance(one, Mapping) and "items" in one), None)
    return schema


def _is_required(path: Path, tool: Tool) -> bool:
    while path and not isinstance(path[-1], str):
        path = path[:-1]
    return path[-1] in tool.places.find_required(_find_schema(path[:-1], tool))


def _is_free_text(schema: Any, tool: Tool) -> bool:
    if not isinstance(schema, Mapping) or any(key in schema for key in ("enum", "const", "format", "pattern")):
        return False
    kinds = tool.places.find_types(schema)
    return kinds is None or "string" in kinds


def _belongs_there(text: str, standin: Standin, argument: Argument, tool: Tool) -> bool:
    words = set(split_words(argument.name))
    about = " ".join((argument.description, *argument.tool, *split_words(argument.name)))
    if _TEMPLATES.search(f"{about} {tool.description}") and not standin.instructs_own:
        return True
    if standin.by_type:
        return not (_NAMES | _TEXTS).isdisjoint(words) or _SPEAKS_OF_CODE.search(about) is not None
    if standin.own and standin.framed:
        return not words.isdisjoint(_IN_BRACKETS.get(text.strip()[0], ()))
    if standin.own:
        return bool(words) and (words <= _NAMES or not words.isdisjoint(_OBJECTS))
    return not _TEXTS.isdisjoint(words)


def _is_named(text: str, standin: Standin, schema: Any, steps: Steps) -> bool:
    plain = text.strip().casefold()
    stack, said = [schema], []
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            said += [node[key] for key in ("const", "default") if key in node]
            for key in ("enum", "examples"):
                said += node[key] if isinstance(node.get(key), list) else []
            stack += [part for key in ("anyOf", "oneOf", "allOf") for part in node.get(key, ())]
            if standin.framed and plain in str(node.get("description", "")).casefold():
                return True
    _spend(len(said), steps)
    return any(isinstance(value, str) and value.strip().casefold() == plain for value in said)


def _find_doubt(text: str, standin: Standin, argument: Argument) -> Uncertainty | None:
    """Say how sure it is that a text stands in for a value; None: certain."""
    if standin.framed and standin.own:
        return None
    asks = standin.framed or standin.own or not set(split_words(text)).isdisjoint(split_words(argument.name))
    return Uncertainty.PLAIN if asks else Uncertainty.SUSPECTED


def _is_said(text: str, standin: Standin, conversation: Sequence[str], doubt: Uncertainty | None) -> bool:
    if not standin.instructs_own and any(
        len(message) <= _REQUEST_CHARS_MAX and _TEMPLATES.search(message) for message in conversation
    ):
        return True
    plain = text.strip().casefold()
    words = split_words(_ENDING.sub("", text.strip()))
    if doubt is Uncertainty.SUSPECTED and len(words) > 1:  # "Your Song" may become `your_song.txt`
        spelled = re.compile(rf"(?<!\w){'[^a-z0-9]{0,8}'.join(map(re.escape, words))}(?!\w)")
        folded = (re.sub("['’]", "", message.casefold()) for message in conversation)
        return any(words[0] in message and spelled.search(message) for message in folded)
    if plain and (plain[0].isalnum() and plain[-1].isalnum()):
        word = re.compile(rf"(?<!\w){re.escape(plain)}(?!\w)")
        return any(plain in folded and word.search(folded) for folded in map(str.casefold, conversation))
    return any(plain in message.casefold() for message in conversation)
