"""The session window, for clients that don't send their history, and the library's simple face, `LoopDetector`.

No result is known here, so the rule is the careful one: only complete answers in a row count, or a cycle of up to
`_PERIOD_MAX` of them; calls are compared exactly, texts by likeness; an answer to the same request counts once.

Invariants: a `Window` holds `window_size` fingerprints. A `LoopDetector` holds at most `sessions_max` windows, drops
the least recently used first, and belongs to one thread.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from reliability.loops.answer_history import Kept
from reliability.loops.comparison import findings
from reliability.loops.comparison.findings import Kind, Loop, Stage, Turn
from reliability.loops.content import text_of
from reliability.loops.repeatable_calls import is_poll
from reliability.loops.thresholds import LoopConfig
from reliability.loops.transcript import answer_turn
from reliability.loops.unseen_answers import Looked
from reliability.types import SYSTEM_ROLES

_TEXT_CHARS = 1_000
_QUOTED_CHARS = 32
_FIGURES = re.compile(r"\d+")
_PERIOD_MAX = 4


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The fingerprint of one answer. `calls` is empty for a text, `text` for calls: models reword."""

    calls: str = ""
    text: str = ""
    tool: str = ""
    polls: bool = False
    request: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """The answers of one session, oldest first: `answers` those to requests that brought no history, `kept` all of
    them since the user last spoke (see `kept`). `tools`: some of its requests have declared tools;
    `looked`: see `keep_looked`."""

    answers: tuple[Fingerprint, ...] = ()
    kept: tuple[Kept, ...] = ()
    tools: bool = False
    looked: tuple[Looked, ...] = ()


class LoopStatus(StrEnum):
    """The state of a session, as `LoopDetector.check` reports it."""

    NORMAL = "NORMAL"
    WARNING = "WARNING"
    CIRCUIT_BREAK = "CIRCUIT_BREAK"


def observe(window: Window, answer: Turn, config: LoopConfig, request: str = "") -> tuple[Window, Loop | None]:
    """Add an answer; `request` names what it answers, and a second answer to it replaces the first."""
    newest = _take_fingerprint(answer, config, request)
    if not config.enabled or not (newest.calls or newest.text):
        return window, None
    kept = (old for old in window.answers if not (request and old.request == request))
    window = replace(window, answers=(*kept, newest)[-config.window_size :])
    found = [_find_cycle(window.answers, period, config) for period in range(1, _PERIOD_MAX + 1)]
    return window, findings.choose_loop(found)


def name_asked(messages: Sequence[Mapping[str, Any]], name: str, shared: bool = False) -> str:
    """Name a request without a history for `keep_continued`; in a `shared` session its figures count, too."""
    text = _join_texts(messages)
    return f"{name}:{len(text)}:{findings.digest(text)}:{'' if shared else _digest_words(text)}"


def keep_continued(window: Window, messages: Sequence[Mapping[str, Any]], *, tools: bool = False) -> Window:
    """Keep the answers to requests that this one, without a history either, goes on with: it begins with their whole
    text, or is it but for a part before its last paragraph that quotes the answer, or differs from it in figures alone
    (see `name_asked`). `tools`: it declares some. With a system prompt and
    without tools, in a session that has them, it is an agent's side request: its figures count, too."""
    text = _join_texts(messages)
    aside = window.tools and not tools and any(message.get("role") in SYSTEM_ROLES for message in messages)
    words = None if aside else _digest_words(text)
    return replace(window, answers=tuple(one for one in window.answers if _goes_on(text, words, one)))


def _goes_on(text: str, words: str | None, answer: Fingerprint) -> bool:
    parts = answer.request.rsplit(":", 3)
    if len(parts) < 4 or parts[3] == words or findings.digest(text[: int(parts[1])]) == parts[2]:
        return True
    last = max(0, text.rfind("\n\n"))
    at = int(parts[1]) - len(text) + last  # where the rest was written in, if it stands before the last paragraph
    return (
        0 < at < last and findings.digest(text[:at] + text[last:]) == parts[2] and _quotes(text[at:last], answer.text)
    )


def _quotes(text: str, said: str) -> bool:
    """Return whether a text quotes a part of what was said."""
    text = " ".join(text.split())
    return any(said[at : at + _QUOTED_CHARS] in text for at in range(0, len(said) - _QUOTED_CHARS, _QUOTED_CHARS // 2))


def _digest_words(text: str) -> str:
    return findings.digest(_FIGURES.sub("0", text))


def _join_texts(messages: Sequence[Mapping[str, Any]]) -> str:
    said = [message for message in messages if message.get("role") not in SYSTEM_ROLES]
    return "\n".join(text_of(message.get("content")) for message in said).rstrip()


def _take_fingerprint(answer: Turn, config: LoopConfig, request: str) -> Fingerprint:
    if not answer.calls:
        return Fingerprint(text=" ".join(answer.text[:_TEXT_CHARS].split()), request=request)
    keys = sorted({findings.call_key(call, config.ignored_arguments) for call in answer.calls})
    polls = all(is_poll(call, None, config.pollers) for call in answer.calls)
    tool = findings.join_names(answer.calls)
    return Fingerprint(calls=findings.digest(*keys), tool=tool, polls=polls, request=request)


def window_repeats_already(window: Window, config: LoopConfig) -> bool:
    """Return whether the newest answer of a session stood in it shortly before."""
    if not config.enabled or not window.answers:
        return False
    return any(_is_alike(window.answers[-1], older, config) for older in window.answers[-_PERIOD_MAX - 1 : -1])


def _is_alike(a: Fingerprint, b: Fingerprint, config: LoopConfig) -> bool:
    return a.calls == b.calls and (bool(a.calls) or findings.is_alike(a.text, b.text, config.similarity_threshold))


def _find_cycle(answers: tuple[Fingerprint, ...], period: int, config: LoopConfig) -> Loop | None:
    newest, count = answers[-period:], findings.count_rounds(answers[::-1], period, partial(_is_alike, config=config))
    limits = config.poll_limits if all(answer.polls for answer in newest) else config.limits
    stage = limits.stage(count)
    if stage is None or (period > 1 and not all(answer.calls for answer in newest)):
        return None
    last, key = newest[-1], findings.digest(*sorted(answer.calls or "text" for answer in newest))
    kind, said = Kind.CALLS if last.calls else Kind.TEXTS, findings.summary(last.text)
    return Loop(kind=kind, stage=stage, repetitions=count, period=period, tool=last.tool, evidence=said, key=key)


class LoopDetector:
    """Windows for many sessions. Two repetitions after the warning the circuit breaks."""

    def __init__(
        self,
        window_size: int = 10,
        threshold: int = 3,
        similarity: float = 0.95,
        *,
        break_threshold: int | None = None,
        pollers: tuple[str, ...] = (),
        sessions_max: int = 1_024,
    ) -> None:
        after = threshold + 2 if threshold > 0 else 0
        self.config = LoopConfig(
            window_size=window_size,
            duplicate_threshold=threshold,
            break_threshold=after if break_threshold is None else break_threshold,
            similarity_threshold=similarity,
            pollers=pollers,
        )
        self._sessions_max = max(1, sessions_max)
        self._windows: OrderedDict[str, Window] = OrderedDict()

    def __len__(self) -> int:
        return len(self._windows)

    def check(self, session_id: str, response: Any, request: str = "") -> LoopStatus:
        """Add the response (a completion, a message or a text) to its session and report the session's state."""
        window = self._windows.pop(session_id, Window())
        window, loop = observe(window, answer_turn(response), self.config, request)
        self._windows[session_id] = window
        while len(self._windows) > self._sessions_max:
            self._windows.popitem(last=False)
        if loop is None:
            return LoopStatus.NORMAL
        return LoopStatus.CIRCUIT_BREAK if loop.stage is Stage.BREAK else LoopStatus.WARNING
