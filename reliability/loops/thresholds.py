"""What a person may set about loops. A threshold of 0 or less switches its stage off.

On recorded runs three equal repetitions were mostly left by the agent itself, so three only nudge; five hardly ever
ended by themselves, so five break. Pollers wait for the world, which is no loop for far longer.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from reliability.loops.comparison.findings import Stage

#: So many answers are read at most for the limits that are later than the usual ones: behind them no loop runs on.
_LONG_LAPS_TURNS = 240
_Share = Annotated[float, Field(gt=0.0, le=1.0)]
_Threshold = Annotated[int, Field(le=64)]


class LoopLimits(NamedTuple):
    """At which repetition the model is nudged, and at which the circuit breaks; 0 or less: at none."""

    warn: int
    end: int

    def stage(self, count: int, *, ends: bool = True) -> Stage | None:
        """Return the stage that so many repetitions have reached; with `ends` False the circuit doesn't break yet."""
        if ends and 0 < self.end <= count:
            return Stage.BREAK
        return Stage.WARN if 0 < self.warn <= count else None

    def after(self, number: int) -> LoopLimits:
        """Return the limits where so many repetitions are ordered."""
        if number <= 0:
            return self
        warn = max(self.warn, number + 1) if self.warn > 0 else self.warn
        return LoopLimits(warn, max(self.end, number + 2) if self.end > 0 else self.end)

    def times(self, number: int) -> LoopLimits:
        """Return limits that are so many times as late."""
        return LoopLimits(number * self.warn, number * self.end)

    def behind(self, things: int, most: LoopLimits) -> LoopLimits:
        """Return the limits of repetitions that are about so many things: each counts once more, up to `most`."""
        pairs = zip(self, most, strict=True)
        return LoopLimits(*(min(limit + things - 1, last) if min(limit, last) > 0 else limit for limit, last in pairs))


class LoopConfig(BaseModel):
    """Repetition of an agent: the same calls with the same results, or the same text, since the user last spoke."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="false: nobody counts repetitions")
    window_size: Annotated[int, Field(ge=1, le=256)] = Field(
        default=10, description="answers of a session that are remembered, for clients that send no history"
    )
    duplicate_threshold: _Threshold = Field(
        default=3, description="repetitions (same calls, same results) until the model is nudged; 0: never"
    )
    break_threshold: _Threshold = Field(default=5, description="repetitions until the circuit breaks; 0: never")
    similarity_threshold: _Share = Field(
        default=0.95, description="how alike two texts must be to count as the same text"
    )
    near_threshold: _Share = Field(
        default=0.9, description="how alike results must be to count as a repetition although they differ"
    )
    max_period: Annotated[int, Field(ge=1, le=16)] = Field(
        default=12, description="the longest cycle that is looked for, in answers"
    )
    pollers: tuple[str, ...] = Field(
        default=(), description="tools that wait or page: a name, or a name with `*` at one of its ends"
    )
    poller_duplicate_threshold: _Threshold = Field(default=10, description="repetitions of a poller until the nudge")
    poller_break_threshold: _Threshold = Field(default=20, description="repetitions of a poller until the break")
    ignored_arguments: frozenset[str] = Field(
        default=frozenset({"task_progress"}),
        description="arguments that say something about the run and nothing about the call",
    )

    @property
    def limits(self) -> LoopLimits:
        """The limits of what repeats."""
        return LoopLimits(self.duplicate_threshold, self.break_threshold)

    @property
    def near_limits(self) -> LoopLimits:
        """The limits of what nearly repeats."""
        warn, end = self.limits
        return LoopLimits(max(warn, end - 1) if warn > 0 else 0, end)

    @property
    def poll_limits(self) -> LoopLimits:
        """The limits of what may take long."""
        return LoopLimits(self.poller_duplicate_threshold, self.poller_break_threshold)

    @property
    def turns_needed(self) -> int:
        """How many answers that call something are read back, so that every threshold can be reached (`fit_laps`)."""
        return max(self.max_period * (max(self.limits) - 1), _LONG_LAPS_TURNS) + 1

    def fit_laps(self, period: int, limits: LoopLimits) -> LoopLimits:
        """Return these limits of a cycle, earlier ones where so many laps of it are never read."""
        most = self.turns_needed // period + 1
        return LoopLimits(min(limits.warn, most - (limits.end > 0)), min(limits.end, most))


class JudgeConfig(BaseModel):
    """The auxiliary judge: a tier that is shown what looks stuck, and asked for another approach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=False, description="true: it is asked")
    consecutive_threshold: _Threshold = Field(
        default=5, description="calls of one tool in a row until it is asked; 0: never"
    )
    failure_threshold: _Threshold = Field(
        default=5, description="failures of one tool in a row until it is asked; 0: never"
    )
    judge_tier: str | None = Field(
        default=None, description="the tier that is asked; not set: the model gets a firm note instead"
    )
    timeout_s: Annotated[float, Field(gt=0.0)] = Field(
        default=20.0, description="how long the judge may take, in seconds"
    )
