"""What a trial showed, read from its exchanges alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtests.real_agents.tap import Exchange
from loadtests.real_agents.trials import Trial

LAPS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One trial. `nudged_at`: the lap, from 1, that was nudged first; `ended_at`: the one that was refused for the
    loop, or the last one of an agent that stopped by itself; None: never. `laps`: different requests; `again`: requests
    that were only sent again, such as after the refusal."""

    name: str
    laps: int
    again: int
    nudged_at: int | None
    ended_at: int | None
    end: str
    seconds: float
    sessions: tuple[str, ...]

    @property
    def met(self) -> bool:
        """Whether it was nudged, and then ended, in time."""
        return (
            self.nudged_at is not None
            and self.ended_at is not None
            and self.nudged_at < self.ended_at <= LAPS_MAX
            and self.laps <= LAPS_MAX
        )


def is_lap(trial: Trial, body: Mapping[str, Any]) -> bool:
    """Return whether a request goes round: it is not for a title or a summary, as an agent asks for beside its work."""
    return bool(body.get(trial.mark)) and f"(Task {trial.name}.)" in json.dumps(body)


def judge_trial(trial: Trial, exchanges: Sequence[Exchange], code: int | None, seconds: float) -> Verdict:
    """Judge one run. `code`: with which the agent's process ended; None: it had to be stopped."""
    all_laps = [one for one in exchanges if is_lap(trial, one.body)]
    laps = [one for number, one in enumerate(all_laps) if number == 0 or one.body != all_laps[number - 1].body]
    nudged = next((number for number, one in enumerate(laps, 1) if one.loop == "nudged"), None)
    ended = next((number for number, one in enumerate(laps, 1) if is_refused(one)), None)
    if ended is None and code is not None:
        ended = len(laps)
    return Verdict(
        name=trial.name,
        laps=len(laps),
        again=len(all_laps) - len(laps),
        nudged_at=nudged,
        ended_at=ended,
        end=_describe_end(all_laps, code),
        seconds=seconds,
        sessions=tuple(sorted({one.session for one in all_laps if one.session})),
    )


def is_refused(exchange: Exchange) -> bool:
    """Return whether the server ended the loop here: by a status, or by an error frame in a stream."""
    return (exchange.answer.get("error") or {}).get("code") == "loop_detected"


def _describe_end(laps: Sequence[Exchange], code: int | None) -> str:
    stop = "was stopped" if code is None else f"ended itself (exit code {code})"
    if laps and "error" in laps[-1].answer:
        return f"{laps[-1].answer['error'].get('code')} (status {laps[-1].status}), then it {stop}"
    return f"it {stop}"
