"""What a trial showed, read from its exchanges alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.real_agents.tap import Exchange
from loadtests.real_agents.trials import Trial

__all__ = ["LAPS_MAX", "Verdict", "judge_trial", "pick_laps"]

LAPS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One trial. `nudged_at`, `ended_at`: the lap, from 1, that was nudged first, and the one that was refused for the
    loop; None: never. `laps`: different requests; `again`: requests that were only sent again, such as after the
    refusal."""

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


def pick_laps(trial: Trial, exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Pick the requests that go round: not the titles and summaries that an agent asks for beside its work."""
    mark = f"(Task {trial.name}.)"
    return [one for one in exchanges if mark in json.dumps(one.body) and (one.body.get("tools") or not trial.native)]


def judge_trial(trial: Trial, exchanges: Sequence[Exchange], code: int | None, seconds: float) -> Verdict:
    """Judge one run. `code`: with which the agent's process ended; None: it had to be stopped."""
    all_laps = pick_laps(trial, exchanges)
    laps = [one for number, one in enumerate(all_laps) if number == 0 or one.body != all_laps[number - 1].body]
    nudged = next((number for number, one in enumerate(laps, 1) if one.loop == "nudged"), None)
    ended = next((number for number, one in enumerate(laps, 1) if _refuses_loop(one)), None)
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


def _refuses_loop(exchange: Exchange) -> bool:
    return (exchange.answer.get("error") or {}).get("code") == "loop_detected"


def _describe_end(laps: Sequence[Exchange], code: int | None) -> str:
    stop = "was stopped by the clock" if code is None else f"the agent ended (exit code {code})"
    if laps and "error" in laps[-1].answer:
        return f"{laps[-1].status} {laps[-1].answer['error'].get('code')}, then {stop}"
    return stop
