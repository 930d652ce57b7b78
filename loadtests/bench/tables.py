"""The benchmark's two tables: what was measured, and the bars that it must meet. Written into loadtests/README.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from loadtests.bench.measure import Cell
from loadtests.table import Figure, put, stamp

__all__ = ["written"]

Rounds = Sequence[Sequence[Cell]]
Used = Mapping[str, Mapping[str, float]]  # of a scenario, of a process: CPU milliseconds a request
ROUTER = "ray::ServeReplica:on:Router"
MIB = 1024 * 1024
CHUNKS = 64


def written(rounds: Rounds, memory: Mapping[str, int], used: Used, command: str, *, keep: bool) -> str:
    """Both tables and where the time goes; with `keep` they are put into the README."""
    bars = "\n".join(["| what | medians | measured | must | met |", "|---|---|---|---|---|", *_bars(rounds, used)])
    text = f"{stamp(command)}\n\n{bars}\n\n{_cells(rounds)}\n\n{_memory(memory)}\n\n{_used(used)}"
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
        "state, controller, HAProxy) serve all three apps and are in none of these."
    )


def _used(used: Used) -> str:
    shown = (
        f"CPU milliseconds a request by process, side `on`, {scenario}, 32 clients: "
        + ", ".join(f"`{name}` {used_ms:.2f}" for name, used_ms in shares.items())
        for scenario, shares in used.items()
    )
    return ".\n\n".join(shown) + "."


def _all(rounds: Rounds, scenario: str, clients: int, side: str) -> list[Cell]:
    return [c for cells in rounds for c in cells if (c.scenario, c.clients, c.side) == (scenario, clients, side)]


def _added(rounds: Rounds, scenario: str, clients: int, side: str, quantile: str, base: str = "direct") -> list[float]:
    """Of each round: the side's quantile less the base's; nothing of a side that was not asked."""
    asked = _all(rounds, scenario, clients, side)
    pairs = zip(asked, _all(rounds, scenario, clients, base) if asked else (), strict=True)
    return [getattr(mine, quantile) - getattr(theirs, quantile) for mine, theirs in pairs]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the rounds' ratios; NaN where one side was not asked."""
    return _median([a / b for a, b in zip(mine, theirs, strict=True)]) if mine and theirs else math.nan


def _both(mine: Sequence[float], theirs: Sequence[float], shape: str, unit: str) -> str:
    return f"{_median(mine):{shape}} against {_median(theirs):{shape}}{unit}"


def _bars(rounds: Rounds, used: Used) -> list[str]:
    """The rows of what the issue asks for, as far as it was measured in this run."""
    whole, streamed = "at-once whole", "at-once stream"
    out = []

    def bar(what: str, detail: str, measured: float, bound: float, unit: str) -> None:
        if not math.isnan(measured):
            out.append(Figure(what, detail, measured, bound, unit).row())

    for quantile, bound in (("p50", 2.0), ("p99", 10.0)):
        layer = _median(_added(rounds, whole, 1, "on", quantile, "off"))
        bar(f"the reliability layer (on less off), 1 client, {quantile}", whole, layer, bound, "ms")
    for what, scenario in (("against LiteLLM with one worker", whole), ("the same, streamed", streamed)):
        mine, theirs = ([c.per_second for c in _all(rounds, scenario, 32, s)] for s in ("on", "litellm"))
        bar(f"requests/s at 32 clients, {what}", _both(mine, theirs, ".0f", ""), _ratio(mine, theirs), 4, "x")
    for clients, quantile in ((1, "p50"), (32, "p99")):
        mine, theirs = (_added(rounds, whole, clients, s, quantile) for s in ("on", "litellm"))
        what = f"added {quantile} at {clients} clients: LiteLLM's over ours"
        bar(what, _both(theirs, mine, ".2f", " ms"), _ratio(theirs, mine), 3, "x")
    chunk = _per_chunk(used)
    bar("CPU in the Router per streamed chunk of the upstream, 32 clients", "paced stream", chunk, 100, "us")
    calls = _median([c.calls for c in _all(rounds, "faulty whole", 8, "on")])
    bar("upstream calls a request, a tenth of them faults", "", calls, 1.2, "calls")
    return out


def _per_chunk(used: Used) -> float:
    """What a streamed answer costs the Router beyond a whole one, by the upstream's chunks. Microseconds."""
    whole, streamed = (shares.get(ROUTER, math.nan) for shares in used.values())
    return (streamed - whole) * 1000 / CHUNKS
