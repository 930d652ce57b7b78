"""The history rules: is the model going round in circles?

Everything is read from the tail: a loop that was left is no loop. For each period the rule counts how many
laps at the tail repeat the same calls **with the same results**; a repeated call whose result has changed is
progress. The answer that is about to leave (`candidate`) counts as the newest lap: its result can't be known,
so it counts as begun when its calls are those that would start the lap. At three, the history holds two full
laps and the answer starts the third.

    rule    repeats                                   warns at              breaks at
    CALLS   same calls, same results, period 1..max   duplicate_threshold   break_threshold
            (every call of the lap is a poll)         poller_duplicate_...  poller_break_...
    NEAR    same calls, results nearly the same       -                     break_threshold
    ERRORS  same error of one tool, any arguments     duplicate_threshold   break_threshold
    TEXTS   same text, no call between                duplicate_threshold   break_threshold

ERRORS and TEXTS live in `streaks`. A user message re-arms every rule, and so does any answer of another kind.
The strictest verdict wins, then the one with the most laps.
"""

from __future__ import annotations

from collections.abc import Sequence

from reliability.loops.canonical import digest, summary
from reliability.loops.findings import Kind, Loop, Stage, Turn
from reliability.loops.laps import Laps, stage_of
from reliability.loops.memo import Memo
from reliability.loops.streaks import same_error, same_text
from reliability.loops.thresholds import LoopConfig

__all__ = ["find_loop"]


def find_loop(
    turns: Sequence[Turn], config: LoopConfig, candidate: Turn | None = None, memo: Memo | None = None
) -> Loop | None:
    """The loop that the turns are in, or that the candidate would continue; None where there is none. `memo`: what was
    found out about these very turns, under this very configuration, before."""
    if not config.enabled:
        return None
    acting = candidate is None or bool(candidate.calls)
    found: list[Loop | None] = []
    if acting:
        laps = Laps(_acted(turns), config, candidate, memo)
        for period in range(1, config.max_period + 1):
            found.append(loop := _repeated(laps, period))
            if loop is not None and loop.stage is Stage.BREAK and laps.memo.spent:
                break  # so much is compared already that a verdict is enough
        found.append(same_error(laps))
    if candidate is None or not candidate.calls:
        found.append(same_text(turns, config, candidate))
    convicted = [loop for loop in found if loop is not None]
    return max(convicted, key=lambda loop: (loop.stage is Stage.BREAK, loop.laps), default=None)


def _acted(turns: Sequence[Turn]) -> list[Turn]:
    """The turns with calls since the user last said anything: texts between calls don't interrupt a loop."""
    last = max((i for i, turn in enumerate(turns) if turn.continued), default=-1)
    return [turn for turn in turns[last + 1 :] if turn.calls]


def _repeated(laps: Laps, period: int) -> Loop | None:
    """CALLS, else NEAR, for one period."""
    config, size = laps.config, laps.size
    count = laps.count(period, laps.same, max(config.duplicate_threshold, config.break_threshold))
    polled = count > 1 and all(laps.polled(i) for i in range(size - period, size))
    warn = config.poller_duplicate_threshold if polled else config.duplicate_threshold
    limit = config.poller_break_threshold if polled else config.break_threshold
    stage = stage_of(count, warn, limit)
    if stage is not None:
        return _calls_loop(laps, period, count, stage, Kind.CALLS)
    if polled or count == 0 or config.break_threshold <= 0:
        return None
    count = laps.count(period, laps.near, config.break_threshold)
    if count < config.break_threshold:
        return None
    return _calls_loop(laps, period, count, Stage.BREAK, Kind.NEAR)


def _calls_loop(laps: Laps, period: int, count: int, stage: Stage, kind: Kind) -> Loop:
    lap = laps.turns[laps.size - period :]
    names = list(dict.fromkeys(call.name for turn in lap for call in turn.calls))
    results = [result.text for turn in lap for result in turn.results if result is not None]
    return Loop(
        kind=kind,
        stage=stage,
        laps=count,
        period=period,
        tool=" → ".join(names[:4]),
        evidence=summary(results[-1]) if results else "",
        key=digest(*sorted(key for keys in laps.lap_key(period) for key in keys)),
        strike=2 if _struck_before(laps, period, count) else 1,
    )


def _struck_before(laps: Laps, period: int, count: int) -> bool:
    """True where the model was in this very loop before, since the user last spoke, and had left it. Where the streak
    was not counted to its end nobody knows where it began."""
    if laps.memo.spent:
        return False
    enough = max(laps.config.duplicate_threshold, 2)
    begin = laps.size - period * (count - (laps.candidate is not None))
    for end in range(begin, period, -1):
        earlier = laps.before(end)
        again = earlier.lap_key(period) == laps.lap_key(period)
        if again and earlier.count(period, earlier.same, enough) >= enough:
            return True
    return False
