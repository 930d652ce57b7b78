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
from reliability.loops.comparison.volatile_fields import word_set
from reliability.loops.content import Who, classify_speaker, drop_elements, read_own_text, text_of
from reliability.loops.revisits import looks
from reliability.loops.thresholds import LoopConfig
from reliability.loops.transcript import read_calls
from reliability.tools.turns import HARNESS_TAGS

_MESSAGES_MAX = 64
_ANSWER_CHARS_MIN, _ANSWER_CHARS_MAX = 24, 4_000  # a shorter answer ("Done.", "Yes.") is right often.
_REQUEST_CHARS_MAX = 4_000
_WORD = re.compile(r"[\w./-]*\w")
_PLACE = re.compile(r"(?=[\d./_-]*[^\W\d_]).*\w[./_]\w")
_PLACES_MAX = 8
#: How a request is asked: its words but for the places. A longer one brings its own data.
_WORDS_MAX, _LOOKED_MAX, _ALIKE = 40, 8, 0.6
_LETTERS = re.compile(r"[^\W\d_]+")
#: What "And part_12.txt?" asks is what the request before it asked, and these turn a request around.
_LINKS = word_set(
    "and now next then the same for also please file of what about one in und jetzt dann auch bitte datei et aussi "
    "maintenant y ahora"
)
_NEGATES = word_set("not no don t without never skip nicht kein keine ohne pas sans sin")
#: A line of a result tells of a place if it says so many words of three letters near it; a listing says fewer.
_TOLD_MIN, _NEAR_CHARS = 5, 80
_SAID = re.compile(r"[^\W\d_]{3,}")


class Ask(NamedTuple):
    """A request that may want a look. `words`: those that it is asked in, if it names a place nobody has told of;
    `looked`: those of the requests before it that led to a look; `copied`: the answer that the last ones got."""

    words: str | None
    looked: tuple[str, ...] = ()
    copied: str = ""


@dataclass(frozen=True, slots=True)
class _Round:
    """A request of the user's, and what came of it: the calls, and the answer in words."""

    request: str
    calls: tuple[SeenCall, ...]
    answer: str

    @property
    def places(self) -> list[str]:
        return list(dict.fromkeys(filter(_PLACE.match, _WORD.findall(self.request))))[:_PLACES_MAX]

    @property
    def words(self) -> str | None:
        others = (word for word in _WORD.findall(self.request) if not _PLACE.match(word))
        words = sorted({word for other in others for word in _LETTERS.findall(other.casefold())})
        return " ".join(words) if len(words) <= _WORDS_MAX else None

    def was_looked_up(self) -> bool:
        """Return whether a call that only looks named one of the places."""
        ends = [place.rpartition("/")[2] for place in self.places]
        return any(looks(call) for call in self.calls if any(end in call.arguments for end in ends))


def read_ask(messages: Sequence[Any], config: LoopConfig) -> Ask | None:
    """Read whether the newest request may want a look; None where any answer to it is one."""
    if config.duplicate_threshold < 1 or not messages or messages[-1].get("role") != "user":
        return None
    rounds = list(_walk_rounds(messages))
    if not rounds or not _is_of_an_agent(messages):
        return None
    newest, *older = rounds
    copied = _find_copied(newest, older, config.duplicate_threshold)
    places = [place for place in newest.places if not _is_told_of(place, messages[:-1])]
    words = newest.words if places else None
    return None if words is None and not copied else Ask(words, _list_looked(older), copied)


def read_looked(messages: Sequence[Any]) -> tuple[str, ...]:
    """Return the words of the newest request, if it was looked up: what a session remembers of it."""
    return _list_looked(islice(_walk_rounds(messages), 1))


def keep_looked(known: tuple[str, ...], looked: tuple[str, ...]) -> tuple[str, ...]:
    """Keep what a session remembers, the newest last."""
    return (*(words for words in known if words not in looked), *looked)[-_LOOKED_MAX:]


def may_be_unseen(ask: Ask | None, remembered: Sequence[str] = ()) -> bool:
    """Return whether an answer in words may be unseen, by what the request shows and what its session remembers."""
    return ask is not None and (bool(ask.copied) or _wants_look(ask, remembered))


def find_unseen(ask: Ask | None, remembered: Sequence[str], candidate: Turn, config: LoopConfig) -> Loop | None:
    """Find whether an answer is unseen."""
    said = _squeeze(candidate.text)
    if ask is None or candidate.calls or not said or not (said == ask.copied or _wants_look(ask, remembered)):
        return None
    count = config.duplicate_threshold if said == ask.copied else 1
    evidence = summary(said)
    kind = Kind.UNSEEN
    return Loop(kind=kind, stage=Stage.WARN, repetitions=count, evidence=evidence, key=digest(kind, evidence))


def _wants_look(ask: Ask, remembered: Sequence[str]) -> bool:
    return ask.words is not None and any(_asks_alike(ask.words, words) for words in (*ask.looked, *remembered))


def _find_copied(newest: _Round, older: Sequence[_Round], threshold: int) -> str:
    """Find the answer that the requests before this one got, word for word and without a call, so many that this is
    the `threshold`-th; "" where they got none such, or this one may be answered alike."""
    before = older[: threshold - 1]
    answers = {"" if one.calls else one.answer for one in before}
    answer = answers.pop() if threshold > 1 and len(before) == threshold - 1 else ""
    requests = {newest.request, *(one.request for one in before)}
    if answers or not _ANSWER_CHARS_MIN <= len(answer) <= _ANSWER_CHARS_MAX or len(requests) < threshold:
        return ""
    known = {place for one in before for place in one.places}.union(_WORD.findall(answer))
    return answer if set(newest.places) - known else ""


def _asks_alike(words: str, known: str) -> bool:
    """Return whether a request is asked in the words of another, or only goes on with another place."""
    asked, others = set(words.split()), set(known.split())
    if not asked.difference(_LINKS):
        return True
    return len(asked & others) >= _ALIKE * len(asked | others) and _NEGATES.isdisjoint(asked - others)


def _list_looked(rounds: Iterable[_Round]) -> tuple[str, ...]:
    looked = ((one.words, one.was_looked_up()) for one in rounds if one.places)
    return tuple(dict.fromkeys(words for words, looked_up in looked if words is not None and looked_up))


def _is_told_of(place: str, messages: Sequence[Any]) -> bool:
    """Return whether a person or a call has named the place, or a result says more of it than that it is there."""
    for message in messages:
        text, role = text_of(message.get("content")), message.get("role")
        if role not in ("system", "developer") and place in text and (role != "tool" or _says_more(place, text)):
            return True
        if any(place in str(call) for call in message.get("tool_calls") or ()):
            return True
    return False


def _says_more(place: str, text: str) -> bool:
    for found in re.finditer(re.escape(place), text):
        line = text[max(0, found.start() - _NEAR_CHARS) : found.end() + _NEAR_CHARS]
        before, _, behind = line.partition(place)
        words = _WORD.findall(before.rpartition("\n")[2]) + _WORD.findall(behind.partition("\n")[0])
        if len({said for word in words if not _PLACE.match(word) for said in _SAID.findall(word)}) >= _TOLD_MIN:
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
                yield _Round("\n".join(said), tuple(calls), answer)
                said, calls, answer = [], [], ""
            calls += [call for call, _ in read_calls(message)]
            answer = answer or _squeeze(read_own_text(message))
        elif message.get("role") == "user" and classify_speaker(message) is Who.SPEAKS:
            said.insert(0, drop_elements(read_own_text(message)).strip()[:_REQUEST_CHARS_MAX])
    if said:
        yield _Round("\n".join(said), tuple(calls), answer)


def _squeeze(text: str) -> str:
    return " ".join(text.split())
