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
    "of any but the two sides that fall back; tools with any manner but `at-once`; `paced` but at 1 and 32 clients, "
    "`faulty` but whole at 8, `always-faulty` but whole at 1. `--quick` leaves out more. CPU time by process, and from "
    "it what a chunk costs, is of `on` alone. After a 503 `on` waits and calls the same model again, up to three "
    "times, before it calls the spare; LiteLLM, configured to retry nothing, calls the spare at once."
)


def write_tables(
    rounds: Rounds, memory: Mapping[str, int], used: Sequence[Used], command: str, rival: str, *, keep: bool
) -> str:
    """Return both tables, what a fault costs and where the time goes; with `keep`, put them into the README. `used` is
    of each round, `rival` the version of LiteLLM."""
    head = ["| what | medians | measured | must | met |", "|---|---|---|---|---|"]
    bars = "\n".join([*head, *_render_bars(rounds, used)])
    by = f", LiteLLM {rival}" if rival else ""
    parts = (
        f"{stamp(command)}{by}",
        bars,
        LEGEND,
        GAPS,
        _render_cells(rounds),
        _render_fault_cost(rounds),
        _render_memory(memory),
        _render_cpu(used),
    )
    text = "\n\n".join(part for part in parts if part)
    if keep:
        put("sides", text)
    return text


def _render_cells(rounds: Rounds) -> str:
    head = (
        "| asked | clients | side | p50 ms | added p50 | added p95 | added p99 | first token p50 | requests/s "
        "| CPU ms a request | requests/s a core | upstream calls | failed |\n" + "|---" * 13 + "|"
    )
    keys = list(dict.fromkeys((c.scenario, c.clients, c.side) for cells in rounds for c in cells))
    order = {key[:2]: at for at, key in reversed(list(enumerate(keys)))}
    sides = list(dict.fromkeys(c.side for c in rounds[0]))
    keys.sort(key=lambda key: (order[key[:2]], sides.index(key[2])))
    return "\n".join([head, *(_render_row(rounds, *key) for key in keys)])


def _render_row(rounds: Rounds, scenario: str, clients: int, side: str) -> str:
    asked = _select_cells(rounds, scenario, clients, side)

    def find_median(value: Callable[[Cell], float]) -> float:
        return _median([value(c) for c in asked])

    def find_added(quantile: str) -> list[float]:
        compared = [asked, _select_cells(rounds, scenario, clients, "direct")]
        enough = side != "direct" and min(map(_count_good, compared)) >= ANSWERS_MIN[quantile]
        return _compute_added(rounds, scenario, clients, side, quantile) if enough else []

    cpu = [c.cpu_ms for c in asked] if _count_good(asked) >= ANSWERS_MIN["cpu"] else []
    columns = [
        _format_figure(find_median(lambda c: c.p50)),
        _format_spread(find_added("p50")),
        _format_figure(_median(find_added("p95"))),
        _format_spread(find_added("p99")),
        _format_figure(find_median(lambda c: c.first_p50)),
        _format_spread([c.per_second for c in asked]),
        _format_spread(cpu),
        _format_figure(1000 / middle if (middle := _median(cpu)) else math.nan),
        f"{find_median(lambda c: c.calls):.2f}",
        str(sum(c.failed for c in asked)),
    ]
    return f"| {scenario} | {clients} | {side} | {' | '.join(columns)} |"


def _count_good(cells: Sequence[Cell]) -> int:
    return sum(c.requests - c.failed for c in cells)


def _format_figure(value: float) -> str:
    """Format to three digits or so; empty where there is no number."""
    if math.isnan(value):
        return ""
    if abs(value) < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _format_spread(values: Sequence[float]) -> str:
    """Format the median, and the least and the most of more than one."""
    middle = _median(values)
    if math.isnan(middle) or len(values) < 2:
        return _format_figure(middle)
    return f"{_format_figure(middle)} ({_format_figure(min(values))} to {_format_figure(max(values))})"


def _render_fault_cost(rounds: Rounds) -> str:
    """Describe what one fault costs a request, of each side that falls back; nothing where none was asked."""
    costs = []
    for side in ("on", "litellm"):
        faulty = _select_cells(rounds, "always-faulty whole", 1, side)
        free = _select_cells(rounds, "at-once whole", 1, side)
        failed = sum(c.failed for c in (*faulty, *free))
        cost = (
            [with_fault.p50 - without.p50 for with_fault, without in zip(faulty, free, strict=True)] if faulty else []
        )
        if cost:
            figure = f"no figure, {failed} failed" if failed else f"{_format_spread(cost)} ms"
            costs.append(f"`{side}` {figure}")
    what = "What one fault adds, whole, 1 client (p50 of `always-faulty` less that of `at-once`)"
    return f"{what}: {', '.join(costs)}." if costs else ""


def _render_memory(memory: Mapping[str, int]) -> str:
    held = ", ".join(f"{side} {held / MIB:.0f} MiB" for side, held in memory.items())
    return (
        f"Memory that each side's own processes hold alone (USS), after the run: {held}. Ray's processes (scheduler, "
        "controller, HAProxy) and the node's memory monitor serve all three apps and are in none of these."
    )


def _render_cpu(used: Sequence[Used]) -> str:
    shown = []
    for scenario in used[0]:
        names = list(dict.fromkeys(name for one in used for name in one[scenario]))
        medians = {name: _median([one[scenario].get(name, 0.0) for one in used]) for name in names}
        words = ", ".join(f"`{name}` {medians[name]:.2f}" for name in sorted(medians, key=lambda name: -medians[name]))
        shown.append(f"CPU milliseconds a request by process, side `on`, {scenario}, 32 clients: {words}.")
    return "\n\n".join(shown)


def _select_cells(rounds: Rounds, scenario: str, clients: int, side: str) -> list[Cell]:
    return [c for cells in rounds for c in cells if (c.scenario, c.clients, c.side) == (scenario, clients, side)]


def _compute_added(
    rounds: Rounds, scenario: str, clients: int, side: str, quantile: str, base: str = "direct"
) -> list[float]:
    """Compute of each round the side's quantile less the base's; nothing where one of them was not asked."""
    asked, bases = (_select_cells(rounds, scenario, clients, one) for one in (side, base))
    pairs = zip(asked, bases, strict=True) if asked and bases else ()
    return [getattr(mine, quantile) - getattr(theirs, quantile) for mine, theirs in pairs]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values and not any(map(math.isnan, values)) else math.nan


def _compute_ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Compute the ratio of each round; none where one side was not asked."""
    if not (mine and theirs):
        return []
    return [a / b if b else math.nan for a, b in zip(mine, theirs, strict=True)]


def _format_both(mine: Sequence[float], theirs: Sequence[float], shape: str, unit: str) -> str:
    return f"{_median(mine):{shape}} against {_median(theirs):{shape}}{unit}"


def _render_bars(rounds: Rounds, used: Sequence[Used]) -> list[str]:
    """Render the rows of the bars, as far as they were measured in this run. Where one of our answers failed there is
    no figure, and the bar isn't met."""
    whole, streamed, faulty = "at-once whole", "at-once stream", "faulty whole"
    out = []

    def add_bar(what: str, detail: str, values: Sequence[float], bound: float, unit: str, failed: int = 0) -> None:
        if values:
            figures = [math.nan] if failed else values
            detail = f"{detail}, {failed} failed" if failed else detail
            out.append(Figure(what, detail, _median(figures), bound, unit, rounds=tuple(figures)).row())

    def count_failed(scenario: str, clients: int, *sides: str) -> int:
        return sum(c.failed for side in sides for c in _select_cells(rounds, scenario, clients, side))

    for quantile, bound in (("p50", 2.0), ("p99", 10.0)):
        layer = _compute_added(rounds, whole, 1, "on", quantile, "off")
        what = f"the reliability layer (on less off), 1 client, {quantile}"
        add_bar(what, whole, layer, bound, "ms", count_failed(whole, 1, "on", "off"))
    for against, scenario in (("against LiteLLM with one worker", whole), ("the same, streamed", streamed)):
        mine, theirs = ([c.per_second for c in _select_cells(rounds, scenario, 32, s)] for s in ("on", "litellm"))
        what = f"requests/s at 32 clients, {against}"
        detail = _format_both(mine, theirs, ".0f", "")
        add_bar(what, detail, _compute_ratios(mine, theirs), 4, "x", count_failed(scenario, 32, "on"))
    for clients, quantile in ((1, "p50"), (32, "p99")):
        mine, theirs = (_compute_added(rounds, whole, clients, s, quantile) for s in ("on", "litellm"))
        what = f"added {quantile} at {clients} clients: LiteLLM's over ours"
        detail = _format_both(theirs, mine, ".2f", " ms")
        add_bar(what, detail, _compute_ratios(theirs, mine), 3, "x", count_failed(whole, clients, "on"))
    chunks = [_compute_cpu_per_chunk(one) for one in used]
    add_bar("CPU in the Router per streamed chunk of the upstream, 32 clients", "64 less 8 chunks", chunks, 100, "us")
    calls = [c.calls for c in _select_cells(rounds, faulty, 8, "on")]
    what = "upstream calls a request, a tenth of them faults"
    add_bar(what, faulty, calls, 1.2, "calls", count_failed(faulty, 8, "on"))
    return out


def _compute_cpu_per_chunk(used: Used) -> float:
    """Compute what a longer answer costs the Router, by the chunks that it has more. Microseconds."""
    longer, brief = (used.get(f"{manner} stream", {}).get(ROUTER, math.nan) for manner in ("paced", "brief"))
    return (longer - brief) * 1000 / (TOKENS - BRIEF)
