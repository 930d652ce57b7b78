"""The nouns of loop detection: frozen values that can be compared, pickled and replayed.

A *turn* is one answer of the model: all calls of one parallel batch, or a text. A *repetition* is one round of a cycle,
its *period* the number of turns in it. Ids are no part of any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """How far a loop has gone: WARN asks for a nudge, BREAK breaks the circuit."""

    WARN = "warn"
    BREAK = "break"


class Kind(StrEnum):
    """Which rule detected the loop. The first four read the history, the last three one answer while it decodes."""

    CALLS = "calls"  # the same calls with the same results, again and again
    NEAR = "near"  # the same calls with results that are nearly, and never quite, the same
    ERRORS = "errors"  # the same error of one tool, whatever the arguments
    TEXTS = "texts"  # the same text with no tool call between
    CYCLE = "cycle"  # one answer that repeats its own text
    WHITESPACE = "whitespace"  # one answer that prints nothing but white space
    ANSWER_CALLS = "answer_calls"  # one answer that asks for the same call three times


@dataclass(frozen=True, slots=True)
class SeenCall:
    """One tool call. `arguments` is the text as it was sent: two texts may mean the same (`canonical`)."""

    name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered. `error` is True where the message itself is flagged as an error."""

    text: str
    error: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model. `results` stand in the order of `calls`; None where no result is known.

    A turn with `continued` set is no answer: it marks a user message that only says "go on". `written`: its calls stand
    in its text, and its results came as a user message. `asked`: the largest number that the user's last message names;
    `times`: how often it says that a thing is to be done; `endless`: it orders repetition without a number.
    """

    calls: tuple[SeenCall, ...] = ()
    results: tuple[Result | None, ...] = ()
    text: str = ""
    continued: bool = False
    written: bool = False
    pushed: bool = False
    asked: int = 0
    times: int = 0
    endless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A detected loop. `key` names the streak: it stays the same from repetition to repetition and across processes.

    `strike` is 2 where the same loop had been left before.
    `keep` counts the characters of an answer that are worth keeping (the first two repetitions); it is None where
    whole turns repeat.
    """

    kind: Kind
    stage: Stage
    repetitions: int
    period: int = 1
    tool: str = ""
    evidence: str = ""
    key: str = ""
    strike: int = 1
    keep: int | None = None
