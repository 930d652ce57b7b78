"""The nouns of loop detection: frozen values that can be compared, pickled and replayed.

A *repetition* is one round of a cycle, its *period* the number of turns in it. Ids are no part of any of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from typing import Any, TypeVar

from rapidfuzz import fuzz

T = TypeVar("T")
_COUNTED_CHARS_MAX = 200_000
MASKED_CHARS_MAX = 24_000
_PARSED_MAX = 8  # values of results that are kept: each is compared with its neighbours
_NO_ARGUMENTS = frozenset({"", "{}", "null"})
_SUMMARY_CHARS = 240
_PARSED_CHARS_MAX = 500_000
_EMPTY: frozenset[str] = frozenset()
_EDGE_CHARS = 400
#: How a part of a message that is no text (an image, a file) stands in its text.
PART = re.compile("<part [0-9a-f]{12}>")
_EXIT_CODES = ("exit_code", "exitCode", "exit_status", "returncode", "return_code")
_FLAGS = ("is_error", "isError")
_DENIALS = ("success", "ok")
#: Where a failure is told in words, beside `error`; `content` is MCP's.
_TOLD = ("stderr", "message", "msg", "detail", "details", "reason", "description", "errors", "content")
_ERROR = r"(?:[\w.]{0,60}(?:error|exception)|fatal|panic|failed|failure|traceback \(most recent call last\))"
#: How agents answer an edit that found no place, and a call that a person or a rule has refused.
_REFUSED = (
    r"(?:no replacement was (?:made|performed)|unable to (?:apply|edit|patch|locate|find|open|read|load|access|connect"
    r"|resolve|reach|fetch|write|create|run|execute|start))\b|.{0,200}(?:\byou haven't granted\b"
    r"|\bedits?\b.{0,60}\bnone of them could be applied\b"
    r"|\b(?:old_?str(?:ing)?|string to replace|search (?:block|text|string))\b.{0,40}\bnot found\b"
    r"|\b(?:tool (?:use|call|execution)|permission|command|operation)\b.{0,40}"
    r" (?:denied|rejected|declined|blocked)\b"
    r"|\buser (?:has )?(?:denied|rejected|declined) (?:this|the|your) (?:operation|tool|command|action|call)\b)"
)
#: A rate, a share or nothing of what failed, and a count behind "failed:": a figure that was asked for.
_FIGURE = (
    r"(?:errors?|failures?|failed)\b(?:[ _-](?:\w{1,20}[ _-])?(?:rate|ratio|count|percentage|percent|total)s?\b"
    r"(?: ?\([^)\n]{1,20}\))?[^\w\n]{0,4}(?:(?:is|was|of) )?\d"
    r"|(?: [^\W\d]{1,20}\b){0,2}[^\w\n]{0,3}\b(?:\d{1,9}(?:\.\d{1,9})? ?%|0+(?:\.0+)?) ?(?:$|[,;)|/]|(?:out )?of\b))"
    r"|fail(?:ures?|ed)(?: [^\W\d]{1,20}\b){0,2} ?[:=] ?\d{1,9} ?(?:$|[,;)|/]|(?:out )?of\b)"
)
_MARKER = re.compile(
    rf"[\s\[(<*#❌]*+(?!{_FIGURE})(?:{_ERROR})\b"
    r"|.{0,80}\b(?:command not found|no such file or directory|permission denied)\b"
    r"|(?:the )?tool (?:execution|call) failed\b|[\w ]{1,40}\bfailed: *[^\W\d]"
    rf"|{_REFUSED}"
    r"|.{0,40}\bexit(?:ed with)?(?: code| status)?:? [1-9]|.{0,20}\b(?:unknown|invalid|no such) tool\b",
    re.IGNORECASE,
)
_REFUSES = re.compile(
    r"\b(?:already|unchanged|cannot|can't|could not|unable|rejected|denied|refused|invalid|failed|failure|blocked|"
    r"no (?:change|effect|more|such|navigation)\w{0,1}|nothing|not (?!e\b)\w+|"
    r"but|same|by 0|(?:end|top|bottom) of|last (?:page|track|item)|maximum|minimum|"
    r"bereits|fehl\w+|nicht|erreur|échec|impossible|déjà|no se|ya est\w+|imposible)\b",
    re.IGNORECASE,
)
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)


class Stage(StrEnum):
    """How far a loop has gone: WARN asks for a nudge, BREAK breaks the circuit."""

    WARN = "warn"
    BREAK = "break"


class Kind(StrEnum):
    """Which rule detected the loop. The first six read the history, the last three one answer while it decodes."""

    CALLS = "calls"  # the same calls with the same results, again and again
    NEAR = "near"  # the same calls with results that are nearly, and never quite, the same
    ERRORS = "errors"  # the same error of one tool, whatever the arguments
    TEXTS = "texts"  # the same text with no tool call between
    REVISITS = "revisits"  # the same looks in any order, with the same results, or once more behind a nudge
    UNSEEN = "unseen"  # an answer in words about what nobody has looked at
    CYCLE = "cycle"  # one answer that repeats its own text
    WHITESPACE = "whitespace"  # one answer that prints nothing but white space
    ANSWER_CALLS = "answer_calls"  # one answer that asks for the same call three times


@dataclass(frozen=True, slots=True)
class SeenCall:
    """One tool call. `arguments` is the text as it was sent: two texts may mean the same (`canonical`)."""

    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model. `results`: what the tools answered, in the order of `calls`; None: not known. A turn
    with `continued` set is no answer: it marks a user message that only says "go on". `written`: its calls stand in its
    text, and its results came as a user message. `pushed`: the user said something again behind it; `asked`: behind the
    answer that it led to, or asked for that text again. `folded`: it came in one answer with the turn before it.
    `request`: what the user said last."""

    calls: tuple[SeenCall, ...] = ()
    results: tuple[str | None, ...] = ()
    text: str = ""
    continued: bool = False
    written: bool = False
    pushed: bool = False
    asked: bool = False
    folded: bool = False
    request: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A detected loop. `key` names the streak: it stays the same from repetition to repetition and across processes.
    `keep` counts the characters of an answer that are worth keeping (the first two repetitions); it is None where whole
    turns repeat. `looks`: the tools with which to look up what an unseen answer tells."""

    kind: Kind
    stage: Stage
    repetitions: int
    period: int = 1
    tool: str = ""
    evidence: str = ""
    key: str = ""
    keep: int | None = None
    looks: tuple[str, ...] = ()


def build_answer_loop(
    kind: Kind, count: int, period: int, unit: str, *, tool: str = "", keep: int | None = None
) -> Loop:
    """Build the loop of an answer that repeats a unit while it decodes: it is stopped at once."""
    stage, said, key = Stage.BREAK, summary(unit), digest(kind, tool, unit)
    return Loop(kind=kind, stage=stage, repetitions=count, period=period, tool=tool, evidence=said, key=key, keep=keep)


def choose_loop(found: Iterable[Loop | None]) -> Loop | None:
    """Return the strictest of the loops that were found, of those the one with the most repetitions."""
    detected = (loop for loop in found if loop is not None)
    return max(detected, key=lambda loop: (loop.stage is Stage.BREAK, loop.repetitions), default=None)


class Memo:
    """The answers so far. It belongs to the turns of one request."""

    __slots__ = ("_known", "_left", "_masked", "_masking_left", "_parsed", "blind")

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._parsed: dict[str, tuple[bool, Any]] = {}
        self._masked: dict[str, str] = {}
        self._left, self._masking_left = _COUNTED_CHARS_MAX, MASKED_CHARS_MAX
        #: True once a line was left as it is: results may be more alike than is seen.
        self.blind = False

    def __contains__(self, key: Hashable) -> bool:
        return key in self._known

    def once(self, key: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` returns, called the first time only."""
        try:
            found: T = self._known[key]
        except KeyError:
            found = self._known[key] = find()
        return found

    def parse(self, text: str) -> tuple[bool, Any]:
        """Parse as `canonical.parse` does."""
        found = self._parsed.get(text)
        if found is None:
            found = self._parsed[text] = parse(text)
            if len(self._parsed) > _PARSED_MAX:
                del self._parsed[next(iter(self._parsed))]
        return found

    def mask(self, line: str, make: Callable[[str], str]) -> str | None:
        """Return what `make` makes of the line; None once the lines of this request have used up what may be masked."""
        found = self._masked.get(line)
        if found is None and self._masking_left >= len(line):
            self._masking_left -= len(line)
            found = self._masked[line] = make(line)
        self.blind |= found is None
        return found

    @property
    def spent(self) -> bool:
        """True once a streak may be longer than was counted."""
        return self._left < 0

    def affords(self, chars: int) -> bool:
        """Tell whether another comparison of so many characters may be made past a verdict; it is taken as made."""
        self._left -= chars
        return self._left >= 0


def parse(text: str) -> tuple[bool, Any]:
    """Return (True, value) where the text is JSON, else (False, None)."""
    if len(text) > _PARSED_CHARS_MAX:
        return False, None
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


def see_call(name: str, arguments: str) -> SeenCall:
    """Build a call as it is compared: without the tool's name, which langroid writes among the arguments of past calls
    (`request`), and models copy from there."""
    known, value = parse(arguments) if f'"{name}"' in arguments else (False, None)
    if known and isinstance(value, dict) and value.get("request") == name:
        arguments = dumps({key: item for key, item in value.items() if key != "request"})
    return SeenCall(name, arguments)


def read_fields(call: SeenCall) -> dict[str, Any]:
    """Return a call's arguments by name; under "" the text of such as are no object."""
    known, value = parse(call.arguments)
    return value if known and isinstance(value, dict) else {"": call.arguments}


def is_number(value: Any) -> bool:
    """Return whether a JSON value is a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)


def dumps(value: Any) -> str:
    """Write JSON with sorted keys; a marker with the value's type where there is no JSON for it."""
    try:
        return _ENCODER.encode(value)
    except (ValueError, TypeError, RecursionError):
        return f"<{type(value).__name__}>"


def _normalize(value: Any) -> Any:
    """Return the value with every string composed (NFC) and every whole float as an integer."""
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {_normalize(str(k)): _normalize(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_normalize(v) for v in value]
    return value


def canonical(arguments: str, ignored: frozenset[str] = _EMPTY) -> str:
    """Return the one spelling of a call's arguments; keys of `ignored` are left out at the top level."""
    stripped = arguments.strip()
    if stripped in _NO_ARGUMENTS:
        return "{}"
    known, value = parse(stripped)
    if not known:
        return unicodedata.normalize("NFC", stripped) if len(stripped) <= _PARSED_CHARS_MAX else stripped
    if isinstance(value, dict) and not ignored.isdisjoint(value):
        value = {k: v for k, v in value.items() if k not in ignored}
    return spell(value) or stripped


def spell(value: Any) -> str:
    """Return the one spelling of a value that was parsed; empty where it nests too deeply."""
    try:
        return dumps(_normalize(value))
    except RecursionError:
        return ""


def join_names(calls: Iterable[SeenCall]) -> str:
    """Name the tools that are called, the first four of them."""
    return " → ".join(list(dict.fromkeys(call.name for call in calls))[:4])


def show_last(turns: Sequence[Turn]) -> str:
    """Return the newest known result on one line."""
    results = [result for turn in turns for result in turn.results if result is not None]
    return summary(results[-1]) if results else ""


def is_alike(a: str, b: str, similarity: float) -> bool:
    """Return whether two texts are alike, by a share of 1."""
    return a == b or fuzz.ratio(a, b, score_cutoff=100 * similarity) > 0


def count_rounds(newest_first: Sequence[T], period: int, alike: Callable[[T, T], bool]) -> int:
    """Count the rounds of `period` items at the beginning of a row; one that has begun counts."""
    paired = sum(1 for _ in takewhile(lambda two: alike(*two), zip(newest_first, newest_first[period:], strict=False)))
    return -(-(paired + period) // period) if paired else 1


def call_key(call: SeenCall, ignored: frozenset[str] = _EMPTY) -> str:
    """Return what two equal calls share: the name and the canonical arguments."""
    return f"{call.name}\x1f{canonical(call.arguments, ignored)}"


def digest(*parts: str) -> str:
    """Return twelve hex digits that name the parts, the same in every process."""
    joined = "\x1e".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(joined).hexdigest()[:12]


def summary(text: str, chars: int = _SUMMARY_CHARS) -> str:
    """Return the text on one line, cut."""
    flat = " ".join(text[: 4 * chars].split())
    return flat if len(flat) <= chars else flat[: chars - 1] + "…"


def has_failed(result: str | None) -> bool:
    """Return whether the result says that the call failed; an unknown result says nothing."""
    if result is None:
        return False
    known, value = parse(result)
    if known and isinstance(value, Mapping):
        return _object_failed(value)
    if known and isinstance(value, list):
        return False
    text = value if isinstance(value, str) else result
    lines = text.strip().splitlines() or [""]
    edges = (lines[0][:_EDGE_CHARS], lines[-1][:_EDGE_CHARS])
    return any(_MARKER.match(line) for line in edges) or bool(_TRACEBACK.search(text[-20 * _EDGE_CHARS :]))


def _object_failed(value: Mapping[str, Any]) -> bool:
    if value.get("error") or any(value.get(key) is True for key in _FLAGS):
        return True
    if any(value.get(key) is False for key in _DENIALS) or value.get("status") == "error":
        return True
    inner = value.get("metadata")
    codes = (value, inner) if isinstance(inner, Mapping) else (value,)
    return any(_nonzero(holder.get(key)) for holder in codes for key in _EXIT_CODES)


def _nonzero(code: Any) -> bool:
    if isinstance(code, str):
        return code.strip().lstrip("-").isdigit() and code.strip().lstrip("-0") != ""
    return isinstance(code, (int, float)) and code != 0


def refuses(text: str) -> bool:
    """Return whether a short text has a word that says that nothing was done."""
    return _REFUSES.search(text) is not None


def error_text(result: str) -> str:
    """Return the text of a failure; empty where there is an exit code and no word (a grep without a match)."""
    known, value = parse(result)
    if not known or not isinstance(value, Mapping):
        return result.strip()
    error = value.get("error")
    if isinstance(error, Mapping):
        error = error.get("message") or error
    for text in (error, *map(value.get, _TOLD)):
        if text and text is not True:
            return text.strip() if isinstance(text, str) else dumps(text)
    return ""
