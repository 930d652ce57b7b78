"""`make bench`: all sides on one scripted upstream, in one interleaved run; `--quick` takes about three minutes.

Each round asks every cell (a scenario at a number of clients) of every side in turn, in an order that rotates from
round to round. What is added to `direct` is the difference of two medians of the same round, so that a machine that
slows down slows both. The figures are medians over the rounds, with the least and the most beside them. What a fault
costs stands by itself: `always-faulty` less `at-once` of the same side and round, of the two sides that fall back.

CPU time is what a side's processes use under load less what they use idle. That is measured once a run, after the first
requests and before the first round, for five seconds in which nobody asks any side. What Ray does now and then is more
in one cell than in another, so a cell of few answers has no CPU figure.

Not all sides are asked all: see `GAPS` of `tables.py`, which stands above the table.

The table goes into loadtests/README.md, everything measured into loadtests/results/bench.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.bench.measure import Cell, Scenario, measure_cell, measure_idle_cpu
from loadtests.bench.shares import measure_shares
from loadtests.bench.sides import Side, read_litellm_version, start_sides
from loadtests.bench.tables import Used, write_tables
from loadtests.running import handle_end_signals, short_folder

IDLE_S = 5.0
RESULTS = Path(__file__).parents[1] / "results"
WHOLE, STREAM, PACED = Scenario(), Scenario(stream=True), Scenario("paced", stream=True)
FAULTS = ((Scenario("faulty"), 8), (Scenario("always-faulty"), 1))
SHARED = (WHOLE, PACED, Scenario("brief", stream=True))  # for these the CPU time is reported by process
# Asked longer: the bars are of these, and a 99th percentile needs some hundreds of answers.
LONGER = {(WHOLE, 1): 4, (WHOLE, 32): 2, (STREAM, 32): 2}
ALL = (
    WHOLE,
    STREAM,
    Scenario(tools=True),
    Scenario(tools=True, stream=True),
    Scenario("after-50"),
    Scenario("after-50", stream=True),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked, how long, and how often. `seconds`: of one cell of one side."""

    cells: tuple[tuple[Scenario, int], ...]
    rounds: int
    seconds: float


FULL = Plan(
    (
        *((scenario, clients) for scenario in ALL for clients in (1, 8, 32, 128)),
        *((PACED, clients) for clients in (1, 32)),
        *FAULTS,
    ),
    rounds=5,
    seconds=4.0,
)
QUICK = Plan(
    (
        (WHOLE, 1),
        (WHOLE, 8),
        (WHOLE, 32),
        (WHOLE, 128),
        (STREAM, 1),
        (STREAM, 32),
        (PACED, 32),
        (Scenario(tools=True), 1),
        (Scenario("after-50"), 32),
        *FAULTS,
    ),
    rounds=3,
    seconds=1.0,
)
TINY = Plan(((WHOLE, 1), (WHOLE, 8), (STREAM, 1), (PACED, 1), *FAULTS), 2, 0.3)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer cells, a second each")
    parser.add_argument("--tiny", action="store_true", help="try the benchmark itself; the table is printed only")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one cell of one side")
    parser.add_argument("--without-litellm", action="store_true")
    given = parser.parse_args(argv)
    handle_end_signals()
    plan = TINY if given.tiny else QUICK if given.quick else FULL
    plan = Plan(plan.cells, given.rounds or plan.rounds, given.seconds or plan.seconds)
    # Ray's sockets need a short path.
    with (
        short_folder() as folder,
        start_sides(folder, litellm=not given.without_litellm) as (found, upstream),
    ):
        rounds, used, memory = _run(found, upstream, plan)
    command = " ".join(["python -m loadtests.bench", *(argv if argv is not None else sys.argv[1:])])
    if not given.tiny:
        RESULTS.mkdir(exist_ok=True)
        cells = [[asdict(cell) for cell in cells] for cells in rounds]
        text = json.dumps({"command": command, "memory_bytes": memory, "cpu_ms": used, "rounds": cells}, indent=1)
        (RESULTS / "bench.json").write_text(text + "\n", encoding="utf-8")
    rival = "" if given.without_litellm else read_litellm_version()
    print(write_tables(rounds, memory, used, command, rival, keep=not given.tiny))


def _run(found: list[Side], upstream: str, plan: Plan) -> tuple[list[list[Cell]], list[Used], dict[str, int]]:
    for side in found:  # what is made at the first request is made here
        asyncio.run(measure_cell(side, upstream, WHOLE, 8, 1.0, 0.0))
        asyncio.run(measure_cell(side, upstream, STREAM, 8, 1.0, 0.0))
    idle = measure_idle_cpu(found, IDLE_S)
    on = next(side for side in found if side.name == "on")
    rounds, used = [], []
    for number in range(plan.rounds):
        cells = []
        for scenario, clients in plan.cells:
            for side in (*found[number % len(found) :], *found[: number % len(found)]):
                if not _is_asked(side, scenario, clients):
                    continue
                seconds = plan.seconds * LONGER.get((scenario, clients), 1)
                cell = asyncio.run(measure_cell(side, upstream, scenario, clients, seconds, idle[side.pid]))
                print(
                    f"{number + 1}/{plan.rounds} {scenario.name} x{clients} {side.name}: p50 {cell.p50:.2f} ms, "
                    f"{cell.per_second:.0f}/s, CPU {cell.cpu_ms:.2f} ms, failed {cell.failed} {dict(cell.faults)}",
                    flush=True,
                )
                cells.append(cell)
        rounds.append(cells)
        used.append({scenario.name: measure_shares(on, scenario, 32, 2 * plan.seconds) for scenario in SHARED})
    return rounds, used, {side.name: side.memory_bytes() for side in found}


def _is_asked(side: Side, scenario: Scenario, clients: int) -> bool:
    """Tell whether a side is asked this. Two workers matter under load only; the off side has no answer to faults
    worth timing, and the sides without a spare have none at all where there are only faults."""
    if scenario.manner == "always-faulty":
        return side.name in ("on", "litellm")
    if scenario.manner == "faulty":
        return side.name not in ("off", "litellm-2")
    return not (side.name == "litellm-2" and clients < 32)


if __name__ == "__main__":
    main()
