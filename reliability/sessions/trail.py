"""What a request shows of the conversation that it belongs to: its trail.

    messages ──▶ Trail: the last answers that it shows, each with what stands before it
    answer   ──▶ Answered: the same digests, as the answer left

Clients change what they send back (ids, spelling, reasoning, old results, the date), so an answer is seen at several
strengths, from the id that we gave a call, over what stood before it, down to the bare words.

Invariants: the last `_ANSWERS_MAX` answers, `_DEEP` messages before each and `_TEXT_CHARS` at either end of a text are
read. Total: what can't be read is digested as nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

from reliability.loops.answer_history import is_summary
from reliability.loops.comparison.findings import Turn, call_key, dumps
from reliability.loops.content import text_of
from reliability.loops.transcript import answer_turn
from reliability.types import SYSTEM_ROLES

Message = Mapping[str, Any]

_ANSWERS_MAX = 6
_CONTEXT, _DEEP = 4, 12
_CALLS_MAX = 4
_PERSONA_CHARS = 24
_TEXT_CHARS = 32_768
_ENDS = 8  # of the messages at either end of a request, for its name
_OPENING_MAX = 16  # messages that a client puts before its first request's answer
_QUOTED_CHARS_MIN = 40
_QUOTED_LINES_MAX = 64
_QUOTED_CHARS_MAX = 65_536
#: Words that stand by themselves in many conversations prove nothing.
_WORDS_CHARS_MIN = 24
_LEAD_CHARS = 24
_FRONT_CHARS = 512
_DIGEST_BYTES = 12
_HEADING = re.compile(rf"^[#*=<\[][^\n]{{0,{_LEAD_CHARS}}}\n", re.MULTILINE)
_PLAIN = frozenset({"role", "content"})


class Before(NamedTuple):
    """What stands before an answer: `before` is one message, `context` a few, and `deep` so many that runs differ which
    do the same for a while; `front` is how the one message begins: clients add reminders behind their newest one."""

    before: bytes = b""
    context: bytes = b""
    deep: bytes = b""
    front: bytes = b""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer, as it left or as a request shows it. `calls`: each with its id; `words`: what it says or calls, `weak`
    where many say the same; `lead`: how it begins; `said`: all of its text, also around a call. `quotes`: two of its
    lines that a summary would quote."""

    calls: tuple[bytes, ...]
    words: bytes
    lead: bytes = b""
    weak: bool = False
    said: bytes = b""
    quotes: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """The trail of one request. `whole` names the request, `start` its first message, `system` its system prompt,
    `persona` the beginning of that, in front of a date; `place` is that of the answer that it asks for; `size` counts
    its messages but for the system's; `seen` are the answers that it shows and their places, the newest first.
    `folded`: it ends with a summary of what came before; `quotes` are lines of that. `opening` names its first
    messages, of a folded one those before the summary; empty where there are none or too many. See `_name_grown`."""

    whole: bytes
    start: bytes
    opening: bytes
    persona: bytes
    system: bytes
    size: int = 0
    place: Before
    owner: bytes = b""
    seen: tuple[tuple[Before, Answered], ...] = ()
    folded: bool = False
    quotes: tuple[bytes, ...] = ()
    grown: tuple[bytes, ...] = ()
    filled: tuple[bytes, ...] = ()


def digest_parts(*parts: bytes) -> bytes:
    """Digest some parts: the same in every process."""
    sizes = b",".join([b"%d" % len(part) for part in parts])
    return blake2b(b"".join([sizes, b":", *parts]), digest_size=_DIGEST_BYTES).digest()


class _Digests:
    """The digests of a conversation's messages, each made once and only where it is asked for. Nothing here refers to
    itself: the messages would stay in memory until Python's collector comes."""

    def __init__(self, said: Sequence[Message]) -> None:
        self._said = said
        self.read_at = functools.cache(lambda index: _read_answer(said[index]))
        self._digests: dict[int, bytes] = {}

    def _is_answer(self, index: int) -> bool:
        return self._said[index].get("role") == "assistant"

    def digest_at(self, index: int) -> bytes:
        """Digest a message, an answer by its words."""
        if index not in self._digests:
            said = self._said[index]
            self._digests[index] = self.read_at(index).words if self._is_answer(index) else _digest_message(said)
        return self._digests[index]

    def place_at(self, index: int) -> Before:
        """Return the digests of what stands before a message: the newest one, a few, and more to the letter."""
        newest = [self.digest_at(i) for i in range(max(0, index - _CONTEXT), index)]
        if not newest:
            return Before()
        before = range(max(0, index - _DEEP), index)
        exact = (self.read_at(i).said if self._is_answer(i) else self.digest_at(i) for i in before)
        return Before(newest[-1], digest_parts(*newest), digest_parts(*exact), _digest_front(self._said[index - 1]))


def read_trail(messages: Sequence[Message], owner: str = "") -> Trail:
    """Read the trail of a request. Two of different owners are never of one conversation."""
    said = [message for message in messages if message.get("role") not in SYSTEM_ROLES]
    systems = [message for message in messages[:_ENDS] if message.get("role") in SYSTEM_ROLES]
    digests = _Digests(said)
    answers = [index for index in range(len(said) - 1, -1, -1) if said[index].get("role") == "assistant"]
    summary = _find_summary(said)
    opened = len(said) if summary is None else summary
    filled = () if answers else _name_filled(messages)
    return Trail(
        whole=name_request(messages),
        start=digests.digest_at(0) if said else b"",
        persona=digest_parts(*(_cut(text_of(m.get("content"))[:_PERSONA_CHARS]) for m in systems[:1])),
        system=digest_parts(*map(_digest_message, systems)),
        size=len(said),
        place=digests.place_at(len(said)),
        owner=digest_parts(owner.encode("utf-8", "surrogatepass")),
        seen=tuple((digests.place_at(index), digests.read_at(index)) for index in answers[:_ANSWERS_MAX]),
        opening=digest_parts(*map(digests.digest_at, range(opened))) if 0 < opened <= _OPENING_MAX else b"",
        folded=summary is not None,
        quotes=_digest_quotes(said[summary or 0 :]) if filled or summary is not None else (),
        grown=() if answers else _name_grown(messages),
        filled=filled,
    )


def _name_grown(messages: Sequence[Message]) -> tuple[bytes, ...]:
    """Name the first requests of which this one may be a later turn, where its client writes all turns into one prompt:
    each is the prompt up to a place where its last line stands ("Thought:")."""
    written = _read_prompt(messages)
    tail = "\n" + written.rpartition("\n")[2]
    if not 1 < len(tail) <= _LEAD_CHARS:
        return ()
    ends = [match.end() for match in re.finditer(re.escape(tail), written[:-1])][:_ENDS]
    return _name_begun(messages, [written[:end] + blank for end in ends for blank in ("", " ")])


def _name_filled(messages: Sequence[Message]) -> tuple[bytes, ...]:
    """Name the same where all turns are written into the middle of a prompt (DSPy), before its last paragraph: each is
    the prompt without what stands from a short line's end, a heading, to there."""
    written = _read_prompt(messages)
    last = max(0, written.rfind("\n\n"))
    headings = islice(_HEADING.finditer(written, 0, last), _ENDS)
    return _name_begun(messages, [written[: heading.end()] + written[last:] for heading in headings])


def _read_prompt(messages: Sequence[Message]) -> str:
    """Return the text of a request that is one prompt, behind a few other messages; empty where it is none."""
    last = messages[-1] if 0 < len(messages) <= _ENDS else {}
    written = text_of(last.get("content")).rstrip() if last.get("role") == "user" else ""
    return written if len(written) <= _QUOTED_CHARS_MAX else ""


def _name_begun(messages: Sequence[Message], prompts: Sequence[str]) -> tuple[bytes, ...]:
    """Name the request with each of these in place of its last message's text."""
    return tuple(name_request([*messages[:-1], {**messages[-1], "content": prompt}]) for prompt in prompts)


def name_request(messages: Sequence[Message]) -> bytes:
    """Name a request: sent again it has the same name. Of a long one its two ends and its length count."""
    ends = [*messages[:_ENDS], *messages[max(_ENDS, len(messages) - _ENDS) :]]
    return digest_parts(str(len(messages)).encode(), *(part for message in ends for part in _name_message(message)))


def describe_answer(turn: Turn, ids: Iterable[str] = ()) -> Answered:
    """Describe an answer as it leaves; `ids` are those of its calls."""
    if turn.calls:
        return _describe(turn, ids)
    lines = _long_lines(turn.text[:_QUOTED_CHARS_MAX].rpartition("</think>")[2])
    quotes = dict.fromkeys(_digest_lines([*lines[:1], *lines[-1:]]))
    # As it will be read in a history: its text may be a call to its client.
    return replace(_describe(answer_turn({"role": "assistant", "content": turn.text})), quotes=tuple(quotes))


def _name_message(message: Message) -> Iterator[bytes]:
    content = message.get("content")
    if message.keys() == _PLAIN:
        yield str(message["role"]).encode("utf-8", "surrogatepass")
    else:
        rest = {key: value for key, value in message.items() if key != "content"}
        yield dumps(rest).encode("utf-8", "surrogatepass")
    yield _cut(content if isinstance(content, str) else dumps(content))


def _shorten(text: str) -> str:
    if len(text) <= 2 * _TEXT_CHARS:
        return text
    return f"{text[:_TEXT_CHARS]}\x00{len(text)}\x00{text[-_TEXT_CHARS:]}"


def _cut(text: str) -> bytes:
    return _shorten(text).encode("utf-8", "surrogatepass")


def _digest_message(message: Message) -> bytes:
    role = message.get("role")
    kind = "tool" if role == "function" else str(role)
    return digest_parts(kind.encode(), _cut(text_of(message.get("content")).strip()))


def _digest_front(message: Message) -> bytes:
    """Digest the first line of a message of the user; empty where it has none."""
    text = text_of(message.get("content"))[:_FRONT_CHARS].strip() if message.get("role") == "user" else ""
    return digest_parts(b"front", _cut(text.splitlines()[0])) if text else b""


def _read_answer(message: Message) -> Answered:
    listed = message.get("tool_calls")
    calls = listed if isinstance(listed, list) else []
    ids = [str(call.get("id") or "") if isinstance(call, Mapping) else "" for call in calls]
    return _describe(answer_turn({**message}), ids, native=bool(listed or message.get("function_call")))


def _describe(turn: Turn, ids: Iterable[str] = (), *, native: bool = False) -> Answered:
    """Digest each call with its id, since a weak server gives the same ids again and again; then what the answer calls,
    else what it says without its reasoning, and how that begins, since clients add marks at its end. Where calls are
    written in the text, all of it counts, too. `native`: its calls don't stand in its text."""
    encoded = [_cut(call_key(call)) for call in turn.calls]
    named = zip(encoded[:_CALLS_MAX], ids, strict=False)
    calls = tuple(digest_parts(b"id", id.encode("utf-8", "surrogatepass"), call) for call, id in named if id)
    text = " ".join(_shorten(turn.text.rpartition("</think>")[2]).split())
    said = digest_parts(b"words", _cut(text))
    if encoded:
        words = digest_parts(b"calls", *encoded)
        return Answered(calls, words, said=said if text and not (native or calls) else words)
    lead = digest_parts(b"lead", _cut(text[:_LEAD_CHARS])) if len(text) >= _LEAD_CHARS else b""
    return Answered(calls, said, lead, len(text) < _WORDS_CHARS_MIN, said)


def _find_summary(said: Sequence[Message]) -> int | None:
    """Find the message behind the newest answer that seems to sum up what came before. Words of its client in the
    assistant's name may stand behind it ("Got it.")."""
    end = len(said)
    if said and _is_spoken(said[-1]):
        end -= 1
    for index in range(end - 1, max(-1, end - 4), -1):
        if said[index].get("role") == "user":
            if is_summary(said[index].get("content")):
                return index
        elif _is_spoken(said[index]) and index and is_summary(said[index - 1].get("content")):
            return index - 1
        else:
            return None
    return None


def _is_spoken(message: Message) -> bool:
    return message.get("role") == "assistant" and not message.get("tool_calls")


def _digest_quotes(said: Sequence[Message]) -> tuple[bytes, ...]:
    lines = [line for message in said for line in _long_lines(text_of(message.get("content"))[:_QUOTED_CHARS_MAX])]
    return _digest_lines(lines[-_QUOTED_LINES_MAX:])


def _long_lines(text: str) -> list[str]:
    return [line for raw in text.splitlines() if len(line := " ".join(raw.split())) >= _QUOTED_CHARS_MIN]


def _digest_lines(lines: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(digest_parts(b"line", _cut(line)) for line in lines)
