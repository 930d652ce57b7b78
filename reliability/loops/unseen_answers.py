"""The unseen answer: a weak model answers in words what it would have to look up.

    user: read part_11.txt …   assistant: (reads it) The owner's name is Mira-433.
    user: read part_12.txt …   -> "The owner's name is Tomas-919." rests on nothing: part_12.txt was never read

No rule of the history sees it, since each request of the user's re-arms them. It is no more than nudged, since the
words may be right: the model must call a tool that only looks. A request wants a look where an earlier one in nearly
the same words was looked up, also before a summary, or the last ones got the very same answer, word for word.

Invariants: the newest request names a place (a file, an address) of which nobody has told: what is thanked for, and
what brings its own data (a price, a reading, a ticket), is answered alike. A place that is only listed is not told of.
The conversation is an agent's: it has called tools, or a harness has added its elements. One of its tools only looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from reliability.loops.comparison.findings import Kind, Loop, SeenCall, Stage, Turn, digest, summary
from reliability.loops.comparison.tool_verbs import names_look
from reliability.loops.comparison.volatile_fields import word_set
from reliability.loops.content import Who, classify_speaker, drop_elements, read_own_text, text_of
from reliability.loops.revisits import looks
from reliability.loops.thresholds import LoopConfig
from reliability.loops.transcript import read_calls
from reliability.tools.turns import HARNESS_TAGS

_MESSAGES_MAX = 64
_ANSWER_CHARS_MIN, _ANSWER_CHARS_MAX = 24, 4_000  # a shorter answer ("Done.", "Yes.") is right often.
_REQUEST_CHARS_MAX, _READ_CHARS_MAX = 4_000, 64_000
#: An address, or the name of a file by its ending; what a library or a thing of code is called is none.
_PLACE = re.compile(
    r"https?://[^\s<>\"'`)\]]{1,200}"
    r"|(?<![A-Za-z0-9_./~-])(?!(?:next|node|nuxt|vue|react|three|express|d3)\.js\b)[A-Za-z0-9_./~-]{0,200}?[A-Za-z0-9_-]\."
    r"(?:txt|mdx?|rst|adoc|log|csv|tsv|jsonl?|ya?ml|toml|ini|cfg|conf|env|xml|html?|css|scss|py|ipynb|m?[jt]sx?|vue|svelte"
    r"|java|kt|scala|go|rs|rb|php|pl|lua|r|jl|swift|c|h|cc|cpp|hpp|cs|m|sh|bash|zsh|ps1|bat|sql|proto|tf|lock|pdf|docx?"
    r"|xlsx?|pptx?)(?![A-Za-z0-9_]|\.\w)",
    re.IGNORECASE,
)
_PLACES_MAX = 8
#: How a request is asked: its words but for the places. A longer one brings its own data.
_WORDS_MAX, _LOOKED_MAX, _ALIKE = 40, 8, 0.7
_LETTERS = re.compile(r"[^\W\d_]+")
#: What "And part_12.txt?" asks is what the request before it asked, and these turn a request around.
_LINKS = word_set(
    "and now next then the same for also please file of what about one in und jetzt dann auch bitte datei et aussi "
    "maintenant y ahora"
)
_NEGATES = word_set("not no don t without never skip nicht kein keine ohne pas sans sin would could should")
#: A line of a result tells of a place by so many words of three letters near it, or by what it says behind its name; a
#: listing says less.
_TOLD_MIN, _NEAR_CHARS, _TOLD_PLACES_MAX = 5, 80, 32
_SAID, _SHOWS = re.compile(r"[^\W\d_]{3,}"), re.compile(r"(?::\d+)?(?::| \||[ ]<==|[ ]==)\s*\S")


class Looked(NamedTuple):
    """How a request was asked that was looked up, and by which tool."""

    words: str
    tool: str


class Ask(NamedTuple):
    """A request that may want a look. `words`: those that it is asked in, if it names places nobody has told of;
    `looked`: the requests before it that led to a look, `tools` those that may be called; `copied`: the answer that the
    last ones got."""

    words: str | None
    tools: frozenset[str]
    looked: tuple[Looked, ...] = ()
    copied: str = ""


@dataclass(frozen=True, slots=True)
class _Round:
    """A request of the user's, and what came of it: the calls, and the answer in words."""

    request: str
    calls: tuple[SeenCall, ...]
    answer: str

    @property
    def places(self) -> list[str]:
        return list(dict.fromkeys(_PLACE.findall(self.request)))[:_PLACES_MAX]

    @property
    def words(self) -> str | None:
        words = sorted(set(_LETTERS.findall(_PLACE.sub(" ", self.request).casefold())))
        return " ".join(words) if len(words) <= _WORDS_MAX else None

    def find_look(self) -> str:
        """Find the tool that looked at one of the places; "" where none did."""
        ends = [place.rstrip("/").rpartition("/")[2] for place in self.places]
        named = (call for call in self.calls if any(end in call.arguments for end in ends))
        return next((call.name for call in named if names_look(call.name) and looks(call)), "")


def read_ask(messages: Sequence[Any], tools: Iterable[str], config: LoopConfig) -> Ask | None:
    """Read whether the newest request may want a look by one of these tools; None where any answer to it is one."""
    looking = frozenset(filter(names_look, tools))
    if config.duplicate_threshold < 1 or not looking or not messages or messages[-1].get("role") != "user":
        return None
    rounds = list(_walk_rounds(messages))
    if not rounds or not _is_of_an_agent(messages):
        return None
    newest, *older = rounds
    copied = _find_copied(newest, older, config.duplicate_threshold)
    places, words = newest.places, newest.words
    answers_question = bool(older) and older[0].answer.endswith("?") and not set((words or "").split()) - _LINKS
    if not places or answers_question or any(_is_told_of(place, newest.request, messages) for place in places):
        words = None
    return None if words is None and not copied else Ask(words, looking, _list_looked(older), copied)


def read_looked(messages: Sequence[Any]) -> tuple[Looked, ...]:
    """Return how the newest request is asked, if it was looked up: what a session remembers of it."""
    return _list_looked(islice(_walk_rounds(messages), 1))


def keep_looked(known: tuple[Looked, ...], looked: tuple[Looked, ...]) -> tuple[Looked, ...]:
    """Keep what a session remembers, the newest last."""
    return (*(one for one in known if one not in looked), *looked)[-_LOOKED_MAX:]


def may_be_unseen(ask: Ask | None, remembered: Sequence[Looked] = ()) -> bool:
    """Return whether an answer in words may be unseen, by what the request shows and what its session remembers."""
    return ask is not None and (bool(ask.copied) or bool(_find_tool(ask, remembered)))


def find_unseen(ask: Ask | None, remembered: Sequence[Looked], candidate: Turn, config: LoopConfig) -> Loop | None:
    """Find whether an answer is unseen, and the tools to look with: the one by which its like was looked up, if any."""
    said = _squeeze(candidate.text)
    if ask is None or candidate.calls or not said:
        return None
    tool, copied = _find_tool(ask, remembered), said == ask.copied
    if not (tool or copied):
        return None
    return Loop(
        kind=Kind.UNSEEN,
        stage=Stage.WARN,
        repetitions=config.duplicate_threshold if copied else 1,
        evidence=summary(said),
        key=digest(Kind.UNSEEN, summary(said)),
        looks=(tool,) if tool else tuple(sorted(ask.tools)),
    )


def _find_tool(ask: Ask, remembered: Sequence[Looked]) -> str:
    """Find the tool by which a request in such words was looked up."""
    if ask.words is None:
        return ""
    known = (one for one in reversed((*remembered, *ask.looked[::-1])) if one.tool in ask.tools)
    return next((one.tool for one in known if _asks_alike(ask.words, one.words)), "")


def _find_copied(newest: _Round, older: Sequence[_Round], threshold: int) -> str:
    """Find the answer that the requests before this one got, word for word and without a call, so many that this is
    the `threshold`-th; "" where they got none such, or this one may be answered alike."""
    before = older[: threshold - 1]
    answers = {"" if one.calls else one.answer for one in before}
    answer = answers.pop() if threshold > 1 and len(before) == threshold - 1 else ""
    requests = {newest.request, *(one.request for one in before)}
    if answers or not _ANSWER_CHARS_MIN <= len(answer) <= _ANSWER_CHARS_MAX or len(requests) < threshold:
        return ""
    known = {place for one in before for place in one.places}.union(_PLACE.findall(answer))
    return answer if set(newest.places) - known else ""


def _asks_alike(words: str, known: str) -> bool:
    """Return whether a request is asked in the words of another, or only goes on with another place."""
    asked, others = set(words.split()), set(known.split())
    if not asked.difference(_LINKS):
        return True
    return len(asked & others) >= _ALIKE * len(asked | others) and _NEGATES.isdisjoint(asked - others)


def _list_looked(rounds: Iterable[_Round]) -> tuple[Looked, ...]:
    found = ((one.words, one.find_look()) for one in rounds if one.calls and one.places)
    return tuple(dict.fromkeys(Looked(words, tool) for words, tool in found if words is not None and tool))


def _is_told_of(place: str, request: str, messages: Sequence[Any]) -> bool:
    """Return whether a person or a call has named the place, or another says more of it than that it is there. What the
    model has said itself tells of nothing."""
    named = re.compile(rf"(?<![\w-]){re.escape(place)}(?!\w)")
    for message in messages:
        text, role = text_of(message.get("content")), message.get("role")
        if role == "assistant":
            if any(named.search(str(call)) for call in message.get("tool_calls") or ()):
                return True
        elif place in text:
            own = text.replace(request, " ", 1) if message is messages[-1] else text
            if named.search(own) and (role == "user" or _says_more(named, own)):
                return True
    return False


def _says_more(named: re.Pattern[str], text: str) -> bool:
    for found in islice(named.finditer(text), _TOLD_PLACES_MAX):
        before = text[max(0, found.start() - _NEAR_CHARS) : found.start()].rpartition("\n")[2]
        behind = text[found.end() : found.end() + _NEAR_CHARS].partition("\n")[0]
        others = _PLACE.sub(" ", f"{before} {behind}")
        if _SHOWS.match(behind) or len(set(_SAID.findall(others))) >= _TOLD_MIN:
            return True
    return False


def _is_of_an_agent(messages: Sequence[Any]) -> bool:
    if any(message.get("tool_calls") or message.get("role") == "tool" for message in messages):
        return True
    said = "\n".join(read_own_text(message) for message in messages if message.get("role") == "user")
    return any(f"<{tag}>" in said for tag in HARNESS_TAGS)


def _walk_rounds(messages: Sequence[Any]) -> Iterator[_Round]:
    """Yield the rounds, the newest first, which may have no answer yet."""
    said: list[str] = []
    calls: list[SeenCall] = []
    answer = ""
    for message in reversed(messages[-_MESSAGES_MAX:]):
        if message.get("role") == "assistant":
            if said:
                yield _Round("\n".join(said)[-_REQUEST_CHARS_MAX:], tuple(calls), answer)
                said, calls, answer = [], [], ""
            calls += [call for call, _ in read_calls(message)]
            answer = answer or _squeeze(read_own_text(message))
        elif message.get("role") == "user" and classify_speaker(message) is Who.SPEAKS:
            said.insert(0, drop_elements(read_own_text(message)[:_READ_CHARS_MAX]).strip()[:_REQUEST_CHARS_MAX])
    if said:
        yield _Round("\n".join(said)[-_REQUEST_CHARS_MAX:], tuple(calls), answer)


def _squeeze(text: str) -> str:
    return " ".join(text.split())
