"""The benchmark's two tables: what was measured, and the bars that it must meet. Written into loadtests/README.md.

A figure is the median of the rounds' figures, in brackets the least and the most of them. What few answers can't tell
isn't printed: a 99th percentile of less than `ANSWERS_MIN` is one answer that happened to be slow, and CPU time, of
which what idling takes was subtracted, is then mostly what Ray did meanwhile. The bars' cells are asked for longer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from loadtests.bench.measure import Cell
from loadtests.bench.upstream import BRIEF, TOKENS
from loadtests.table import Figure, put, stamp

__all__ = ["written"]

Rounds = Sequence[Sequence[Cell]]
Used = Mapping[str, Mapping[str, float]]  # of a scenario, of a process: CPU milliseconds a request
ROUTER = "ray::ServeReplica:on:Router"
MIB = 1024 * 1024
ANSWERS_MIN = {"p50": 1, "p95": 40, "p99": 200, "cpu": 100}  # good ones, over all rounds
LEGEND = (
    "In brackets: the least and the most of the rounds. Empty: too few good answers over all rounds (p95 has at least "
    f"{ANSWERS_MIN['p95']}, p99 {ANSWERS_MIN['p99']}, CPU time {ANSWERS_MIN['cpu']}), or nothing to compare with."
)
GAPS = (
    "Not asked: `litellm-2` below 32 clients and with faults; `off`, which has no spare, with faults; `always-faulty` "
    "of any but the two sides that mend; tools with any manner but `at-once`; `paced` but at 1 and 32 clients, "
    "`faulty` but whole at 8, `always-faulty` but whole at 1. `--quick` leaves out more. CPU time by process, and from "
    "it what a chunk costs, is told of `on` alone. After a 503 `on` waits and calls the same model again, up to three "
    "times, before it calls the spare; LiteLLM, told to retry nothing, calls the spare at once."
)


def written(
    rounds: Rounds, memory: Mapping[str, int], used: Sequence[Used], command: str, rival: str, *, keep: bool
) -> str:
    """Both tables, what a fault costs and where the time goes; with `keep` they are put into the README. `used` is of
    each round, `rival` the version of LiteLLM."""
    bars = "\n".join(["| what | medians | measured | must | met |", "|---|---|---|---|---|", *_bars(rounds, used)])
    by = f", LiteLLM {rival}" if rival else ""
    parts = (f"{stamp(command)}{by}", bars, LEGEND, GAPS, _cells(rounds), _fault(rounds), _memory(memory), _used(used))
    text = "\n\n".join(part for part in parts if part)
    if keep:
        put("sides", text)
    return text


def _cells(rounds: Rounds) -> str:
    head = (
        "| asked | clients | side | p50 ms | added p50 | added p95 | added p99 | first token p50 | requests/s "
        "| CPU ms a request | requests/s a core | upstream calls | failed |\n" + "|---" * 13 + "|"
    )
    keys = list(dict.fromkeys((c.scenario, c.clients, c.side) for cells in rounds for c in cells))
    order = {key[:2]: at for at, key in reversed(list(enumerate(keys)))}
    sides = list(dict.fromkeys(c.side for c in rounds[0]))
    keys.sort(key=lambda key: (order[key[:2]], sides.index(key[2])))
    return "\n".join([head, *(_row(rounds, *key) for key in keys)])


def _row(rounds: Rounds, scenario: str, clients: int, side: str) -> str:
    asked = _all(rounds, scenario, clients, side)

    def mid(value: Callable[[Cell], float]) -> float:
        return _median([value(c) for c in asked])

    def added(quantile: str) -> list[float]:
        compared = [asked, _all(rounds, scenario, clients, "direct")]
        told = side != "direct" and min(map(_good, compared)) >= ANSWERS_MIN[quantile]
        return _added(rounds, scenario, clients, side, quantile) if told else []

    cpu = [c.cpu_ms for c in asked] if _good(asked) >= ANSWERS_MIN["cpu"] else []
    told = [
        _shown(mid(lambda c: c.p50)),
        _spread(added("p50")),
        _shown(_median(added("p95"))),
        _spread(added("p99")),
        _shown(mid(lambda c: c.first_p50)),
        _spread([c.per_second for c in asked]),
        _spread(cpu),
        _shown(1000 / middle if (middle := _median(cpu)) else math.nan),
        f"{mid(lambda c: c.calls):.2f}",
        str(sum(c.failed for c in asked)),
    ]
    return f"| {scenario} | {clients} | {side} | {' | '.join(told)} |"


def _good(cells: Sequence[Cell]) -> int:
    return sum(c.requests - c.failed for c in cells)


def _shown(value: float) -> str:
    """Three digits or so; empty where there is no number."""
    return "" if math.isnan(value) else f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def _spread(values: Sequence[float]) -> str:
    """The median, and the least and the most of more than one."""
    middle = _median(values)
    if math.isnan(middle) or len(values) < 2:
        return _shown(middle)
    return f"{_shown(middle)} ({_shown(min(values))} to {_shown(max(values))})"


def _fault(rounds: Rounds) -> str:
    """What it costs a request to meet one fault, of each side that mends; nothing where none was asked."""
    told = []
    for side in ("on", "litellm"):
        met, spared = (_all(rounds, scenario, 1, side) for scenario in ("always-faulty whole", "at-once whole"))
        failed = sum(c.failed for c in (*met, *spared))
        cost = [mine.p50 - free.p50 for mine, free in zip(met, spared, strict=True)] if met else []
        if cost:
            told.append(f"`{side}` {f'no figure, {failed} failed' if failed else f'{_spread(cost)} ms'}")
    what = "What one fault adds, whole, 1 client (p50 of `always-faulty` less that of `at-once`)"
    return f"{what}: {', '.join(told)}." if told else ""


def _memory(memory: Mapping[str, int]) -> str:
    held = ", ".join(f"{side} {held / MIB:.0f} MiB" for side, held in memory.items())
    return (
        f"Memory that each side's own processes hold alone (USS), after the run: {held}. Ray's processes (scheduler, "
        "controller, HAProxy) and the node's memory monitor serve all three apps and are in none of these."
    )


def _used(used: Sequence[Used]) -> str:
    shown = []
    for scenario in used[0]:
        names = list(dict.fromkeys(name for one in used for name in one[scenario]))
        told = {name: _median([one[scenario].get(name, 0.0) for one in used]) for name in names}
        words = ", ".join(f"`{name}` {told[name]:.2f}" for name in sorted(told, key=lambda name: -told[name]))
        shown.append(f"CPU milliseconds a request by process, side `on`, {scenario}, 32 clients: {words}.")
    return "\n\n".join(shown)


def _all(rounds: Rounds, scenario: str, clients: int, side: str) -> list[Cell]:
    return [c for cells in rounds for c in cells if (c.scenario, c.clients, c.side) == (scenario, clients, side)]


def _added(rounds: Rounds, scenario: str, clients: int, side: str, quantile: str, base: str = "direct") -> list[float]:
    """Of each round: the side's quantile less the base's; nothing where one of them was not asked."""
    asked, bases = (_all(rounds, scenario, clients, one) for one in (side, base))
    pairs = zip(asked, bases, strict=True) if asked and bases else ()
    return [getattr(mine, quantile) - getattr(theirs, quantile) for mine, theirs in pairs]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values and not any(map(math.isnan, values)) else math.nan


def _ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of each round; none where one side was not asked."""
    if not (mine and theirs):
        return []
    return [a / b if b else math.nan for a, b in zip(mine, theirs, strict=True)]


def _both(mine: Sequence[float], theirs: Sequence[float], shape: str, unit: str) -> str:
    return f"{_median(mine):{shape}} against {_median(theirs):{shape}}{unit}"


def _bars(rounds: Rounds, used: Sequence[Used]) -> list[str]:
    """The rows of the bars, as far as they were measured in this run. Where one of our answers failed there is no
    figure, and the bar isn't met."""
    whole, streamed, faulty = "at-once whole", "at-once stream", "faulty whole"
    out = []

    def bar(what: str, detail: str, values: Sequence[float], bound: float, unit: str, failed: int = 0) -> None:
        if values:
            told = [math.nan] if failed else values
            detail = f"{detail}, {failed} failed" if failed else detail
            out.append(Figure(what, detail, _median(told), bound, unit, rounds=tuple(told)).row())

    def failed(scenario: str, clients: int, *sides: str) -> int:
        return sum(c.failed for side in sides for c in _all(rounds, scenario, clients, side))

    for quantile, bound in (("p50", 2.0), ("p99", 10.0)):
        layer = _added(rounds, whole, 1, "on", quantile, "off")
        what = f"the reliability layer (on less off), 1 client, {quantile}"
        bar(what, whole, layer, bound, "ms", failed(whole, 1, "on", "off"))
    for against, scenario in (("against LiteLLM with one worker", whole), ("the same, streamed", streamed)):
        mine, theirs = ([c.per_second for c in _all(rounds, scenario, 32, s)] for s in ("on", "litellm"))
        what, detail = f"requests/s at 32 clients, {against}", _both(mine, theirs, ".0f", "")
        bar(what, detail, _ratios(mine, theirs), 4, "x", failed(scenario, 32, "on"))
    for clients, quantile in ((1, "p50"), (32, "p99")):
        mine, theirs = (_added(rounds, whole, clients, s, quantile) for s in ("on", "litellm"))
        what, detail = f"added {quantile} at {clients} clients: LiteLLM's over ours", _both(theirs, mine, ".2f", " ms")
        bar(what, detail, _ratios(theirs, mine), 3, "x", failed(whole, clients, "on"))
    chunks = [_per_chunk(one) for one in used]
    bar("CPU in the Router per streamed chunk of the upstream, 32 clients", "64 less 8 chunks", chunks, 100, "us")
    calls = [c.calls for c in _all(rounds, faulty, 8, "on")]
    bar("upstream calls a request, a tenth of them faults", faulty, calls, 1.2, "calls", failed(faulty, 8, "on"))
    return out


def _per_chunk(used: Used) -> float:
    """What a longer answer costs the Router, by the chunks that it has more. Microseconds."""
    longer, brief = (used.get(f"{manner} stream", {}).get(ROUTER, math.nan) for manner in ("paced", "brief"))
    return (longer - brief) * 1000 / (TOKENS - BRIEF)
