"""The benchmark's two tables: what was measured, and the bars that it must meet. Written into loadtests/README.md."""

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


def written(
    rounds: Rounds, memory: Mapping[str, int], used: Sequence[Used], command: str, rival: str, *, keep: bool
) -> str:
    """Both tables and where the time goes; with `keep` they are put into the README. `used` is of each round, `rival`
    the version of LiteLLM."""
    bars = "\n".join(["| what | medians | measured | must | met |", "|---|---|---|---|---|", *_bars(rounds, used)])
    by = f", LiteLLM {rival}" if rival else ""
    text = f"{stamp(command)}{by}\n\n{bars}\n\n{_cells(rounds)}\n\n{_memory(memory)}\n\n{_used(used)}"
    if keep:
        put("sides", text)
    return text


def _cells(rounds: Rounds) -> str:
    head = (
        "| asked | clients | side | p50 ms | added p50 (least to most) | added p95 | added p99 | first token p50 "
        "| requests/s | CPU ms a request | requests/s a core | upstream calls | failed |\n" + "|---" * 13 + "|"
    )
    keys = list(dict.fromkeys((c.scenario, c.clients, c.side) for cells in rounds for c in cells))
    order = {key[:2]: at for at, key in reversed(list(enumerate(keys)))}
    sides = list(dict.fromkeys(c.side for c in rounds[0]))
    keys.sort(key=lambda key: (order[key[:2]], sides.index(key[2])))
    return "\n".join([head, *(_row(rounds, *key) for key in keys)])


def _row(rounds: Rounds, scenario: str, clients: int, side: str) -> str:
    def mid(value: Callable[[Cell], float]) -> float:
        return _median([value(c) for c in _all(rounds, scenario, clients, side)])

    added = _added(rounds, scenario, clients, side, "p50")
    cpu = mid(lambda c: c.cpu_ms)
    least, most = (min(added), max(added)) if added else (math.nan, math.nan)
    shown = "" if side == "direct" else f"{_median(added):.2f} ({least:.2f} to {most:.2f})"
    tails = [
        "" if side == "direct" else f"{_median(_added(rounds, scenario, clients, side, q)):.2f}" for q in ("p95", "p99")
    ]
    failed = sum(c.failed for c in _all(rounds, scenario, clients, side))
    return (
        f"| {scenario} | {clients} | {side} | {mid(lambda c: c.p50):.2f} | {shown} | {tails[0]} | {tails[1]} "
        f"| {mid(lambda c: c.first_p50):.2f} | {mid(lambda c: c.per_second):.0f} | {cpu:.2f} "
        f"| {1000 / cpu if cpu else math.nan:.0f} | {mid(lambda c: c.calls):.2f} | {failed} |"
    )


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
    """Of each round: the side's quantile less the base's; nothing of a side that was not asked."""
    asked = _all(rounds, scenario, clients, side)
    pairs = zip(asked, _all(rounds, scenario, clients, base) if asked else (), strict=True)
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
