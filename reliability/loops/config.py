"""What a person may set about loops. A threshold of 0 or less switches its stage off.

The defaults have reasons. On 2,382 recorded runs three equal laps (call and result) were true repetition each
time, and most agents left it by themselves: so three laps only nudge. Five laps hardly ever ended by
themselves: so five break. Pollers wait for the world, which is no loop until it has gone on for far longer.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["JudgeConfig", "LoopConfig"]

Share = Annotated[float, Field(gt=0.0, le=1.0)]
Threshold = Annotated[int, Field(le=64)]


class LoopConfig(BaseModel):
    """The section `loop_detection`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    #: Answers that the session window remembers, for clients that don't send their history.
    window_size: Annotated[int, Field(ge=1, le=256)] = 10
    #: Laps after which the model is nudged.
    duplicate_threshold: Threshold = 3
    #: Laps after which the circuit breaks.
    break_threshold: Threshold = 5
    #: How alike two texts must be to count as the same text.
    similarity_threshold: Share = 0.95
    #: How alike two results must be to count as nearly the same (`break_threshold` laps only).
    near_threshold: Share = 0.9
    #: The longest cycle that is looked for, in turns.
    max_period: Annotated[int, Field(ge=1, le=16)] = 5
    #: Tools that wait or page: a name, or a name with `*` at one of its ends.
    pollers: tuple[str, ...] = ()
    poller_duplicate_threshold: Threshold = 10
    poller_break_threshold: Threshold = 20
    #: Arguments that say something about the run and nothing about the call.
    ignored_arguments: frozenset[str] = frozenset({"task_progress"})

    @property
    def turns_needed(self) -> int:
        """How many answers back the transcript must be read so that every threshold can be reached."""
        cycles = self.max_period * max(self.duplicate_threshold, self.break_threshold)
        polls = 2 * max(self.poller_duplicate_threshold, self.poller_break_threshold)
        return max(cycles, polls, 1) + 1


class JudgeConfig(BaseModel):
    """The section `circuit_breaker`: the auxiliary judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = False
    consecutive_threshold: Threshold = 5
    failure_threshold: Threshold = 5
    judge_tier: str | None = None
    timeout_s: Annotated[float, Field(gt=0.0)] = 20.0
