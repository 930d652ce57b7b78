"""Loop detection on recorded runs: prints the rows of the evals table and fails below the floor.

Successful runs are replayed answer by answer: each is judged as the candidate after the history before it.
Loops are made from the same runs: up to four turns with their results are repeated, with other ids, another key order
and meters added to the results. Run it with a file of runs; without one it reads the recorded runs, or a small set that
stands in for them.

What those runs don't show stands in `fixtures/agent_loops.jsonl`: loops and pollers as agents' issue trackers tell of
them (`after`), each with the answers at which it must be nudged and broken, null for never. Each is there for one rule
and fails without it.

`fixtures/agent_laps.jsonl.gz` are runs of published agents against a tier that loops (`loadtests/real_agents`): what
each asked and was answered, lap by lap, while nobody ended the loop. Each must be nudged, and then broken, in eight
laps; an agent that ends by itself before that need only be nudged.
"""

import gzip
import json
import random
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reliability.loops import LoopConfig, Memo, Stage, answer_turn, find_loop, read_turns
from tests.evals.answer_loop_cases import ANSWER_CASES, stop_call, stop_text
from tests.evals.loop_cases import build_cases
from tests.evals.made_laps import METERS, Message, Meter, Run, lap, laps_of

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT.parent / "shared" / "data" / "agent_traces.jsonl.gz"
FIXTURE = Path(__file__).parent / "fixtures" / "agent_runs.jsonl"
CASES = Path(__file__).parent / "fixtures" / "agent_loops.jsonl"
LAPS = Path(__file__).parent / "fixtures" / "agent_laps.jsonl.gz"
CONFIG = LoopConfig()
NUDGED_MAX, BROKEN_MAX = 0.004, 0.001
COST_MAX_S, LOOP_COST_MAX_S = 0.001, 0.020


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    on: str
    got: str
    must: str
    ok: bool


def load_runs(path: Path | None = None) -> list[Run]:
    """The runs of `path`, else the recorded runs, else the project's own few where those aren't at hand."""
    path = path or (RECORDED if RECORDED.exists() else FIXTURE)
    packed = path.read_bytes()
    text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
    return [json.loads(line) for line in text.splitlines()]


def stage_at(history: list[Message], answer: Message) -> Stage | None:
    """The stage of the loop that the answer would continue."""
    loop = find_loop(read_turns(history, CONFIG.turns_needed), CONFIG, answer_turn(answer))
    return loop.stage if loop else None


def stages_of(messages: list[Message]) -> list[Stage | None]:
    """The stage at every answer of the run."""
    answers = [index for index, message in enumerate(messages) if message.get("role") == "assistant"]
    return [stage_at(messages[:index], messages[index]) for index in answers]


def worst_stage(messages: list[Message]) -> Stage | None:
    """The worst stage that any answer of the run reaches."""
    stages = stages_of(messages)
    return Stage.BREAK if Stage.BREAK in stages else next((stage for stage in stages if stage), None)


def synthetic(runs: list[Run], period: int, meter: Meter, seed: int) -> Iterator[list[Stage | None]]:
    """The stages at lap 2, 3, 4 and 5 of a loop made from each run; who polls is spared by design."""
    for number, run in enumerate(runs):
        dice = random.Random(f"{seed}:{number}:{period}")
        found = laps_of(run["messages"], period, dice)
        if found is None or run.get("polls"):
            continue
        _, turns = found
        history: list[Message] = [{"role": "user", "content": "And now, please."}]
        stages = []
        for count in range(5):
            answer = lap(turns, meter, dice, count)
            if count:
                stages.append(stage_at(history, answer[0]))
            history += answer
        yield stages


def long_history(runs: list[Run], size: int = 200) -> list[Message]:
    """So many messages of calls and results after one user message."""
    acting = [m for run in runs for m in run["messages"] if m.get("tool_calls") or m["role"] == "tool"]
    while len(acting) < size:
        acting = acting + acting
    return [{"role": "user", "content": "Go."}, *acting[: size - 1]]


def cost_rows(runs: list[Run], rounds: int = 300) -> Iterator[Row]:
    """What the rules cost: a request reads its history and judges its answer. CPU time, so that other work beside it
    counts least."""
    acting = [run for run in runs if any(m.get("tool_calls") for m in run["messages"])]
    ordinary = [
        cost_s(*_last_answer(long_history(acting[at % max(1, len(acting) - 12) :], 500))) for at in range(rounds)
    ]
    yield _cost_row("500 messages, ordinary", ordinary, COST_MAX_S)
    looped = [cost_s(*_last_answer(messages)) for run in acting for messages in make_long_loops(run)]
    yield _cost_row("recorded turns in a loop of 5 to 40 laps", looped, LOOP_COST_MAX_S)


def _cost_row(name: str, costs: list[float], most: float) -> Row:
    middle, high = statistics.median(costs), sorted(costs)[int(0.99 * len(costs))]
    return Row(name, f"p50 {middle * 1e3:.2f}, p99 {high * 1e3:.2f} ms", f"p99 < {most * 1e3:.0f} ms", high < most)


def cost_s(history: list[Message], answer: Message) -> float:
    """The time to read a history and to judge its next answer."""
    begun = time.thread_time()
    find_loop(read_turns(history, CONFIG.turns_needed), CONFIG, answer_turn(answer), Memo())
    return time.thread_time() - begun


def _last_answer(messages: list[Message]) -> tuple[list[Message], Message]:
    at = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    return messages[:at], messages[at]


def make_long_loops(run: Run) -> Iterator[list[Message]]:
    """A run with one of its own turns, meters in the results, repeated at its end."""
    dice = random.Random(run["id"])
    found = laps_of(run["messages"], 1, dice)
    if found is None:
        return
    start, turns = found
    for laps in (5, 40):
        meter = METERS[dice.choice(sorted(METERS))]
        yield run["messages"][:start] + [m for count in range(laps) for m in lap(turns, meter, dice, count)]


def verdict_rows(runs: list[Run]) -> Iterator[Row]:
    """The rows that say what is found and what is left alone."""
    good = [run for run in runs if run.get("success")]
    stages = [worst_stage(run["messages"]) for run in good]
    broken, nudged = stages.count(Stage.BREAK), sum(stage is not None for stage in stages)
    share = nudged / max(1, len(good))
    ended = broken / max(1, len(good))
    yield Row(f"{len(good)} successful runs: circuit breaks", str(broken), f"<= {BROKEN_MAX:.1%}", ended <= BROKEN_MAX)
    yield Row(f"{len(good)} successful runs: nudged", f"{share:.2%}", f"<= {NUDGED_MAX:.1%}", share <= NUDGED_MAX)
    for name, meter in METERS.items():
        for period in range(1, 5):
            yield _synthetic_row(runs, name, meter, period)


def case_rows() -> Iterator[Row]:
    """The rows of the loops and pollers that the recorded runs don't show."""
    for case in load_runs(CASES):
        stages = stages_of(case["messages"])
        found, must = find_stages(stages), case["must"]
        ok = all(found[word] == answer for word, answer in must.items())
        yield Row(f"{case['rule']}: {case['id']}", _say(found), _say(must), ok)


def lap_rows() -> Iterator[Row]:
    """The rows of the recorded agents that go round, one an agent."""
    trials: dict[str, list[Run]] = {}
    for recorded in load_runs(LAPS):
        trials.setdefault(recorded["trial"], []).append(recorded)
    agents: dict[str, list[str | None]] = {}
    for name, laps in trials.items():
        agents.setdefault(name.rpartition("-")[0], []).append(find_miss(name, laps))
    for agent, misses in agents.items():
        missed = [miss for miss in misses if miss]
        got = f"{len(misses) - len(missed)}/{len(misses)}{' ' if missed else ''}{'; '.join(missed)}"
        yield Row(f"recorded {agent}: nudged, then ended", got, "all in 8 laps", bool(misses) and not missed)


def find_miss(name: str, laps: list[Run]) -> str | None:
    """What a run of an agent misses; None: nothing."""
    stages = [stage_at(lap["messages"], lap["answer"]) for lap in laps]
    nudged, broken = find_stages(stages).values()
    if nudged is None or (broken is not None and broken < nudged):
        return f"{name} not nudged" if broken is None else f"{name} broken at {broken} without a nudge"
    return None if broken or laps[-1]["last"] else f"{name} not broken"


def find_stages(stages: list[Stage | None]) -> dict[str, int | None]:
    """The answers at which a run is nudged and broken; None: never."""
    words = {"nudged": Stage.WARN, "broken": Stage.BREAK}
    return {word: stages.index(stage) + 1 if stage in stages else None for word, stage in words.items()}


def _say(found: dict[str, int | None]) -> str:
    return ", ".join(f"{word} {'never' if answer is None else f'at {answer}'}" for word, answer in found.items())


def rows(runs: list[Run]) -> Iterator[Row]:
    """The rows of the table."""
    yield from verdict_rows(runs)
    yield from case_rows()
    yield from made_rows()
    yield from answer_rows(runs)
    yield from lap_rows()
    yield from cost_rows(runs)


def made_rows() -> Iterator[Row]:
    """The rows of made loops and honest repetitions: how agents hide the one, or look like the other."""
    for case in build_cases():
        found = find_stages(stages_of(case.build_conversation()))
        must = f"nudged by {case.nudged_by}, broken by {case.broken_by}" if case.loops else "neither"
        yield Row(case.name, _say(found), must, case.is_met(found["nudged"], found["broken"]))


def _synthetic_row(runs: list[Run], name: str, meter: Meter, period: int) -> Row:
    made = list(synthetic(runs, period, meter, 7))
    early = sum(stages[0] is not None for stages in made)
    found = sum(stages[1] is not None for stages in made)
    broken = sum(stages[3] is Stage.BREAK for stages in made)
    ok = bool(made) and found == broken == len(made) and not early
    got = f"{found}/{len(made)} at 3, {broken}/{len(made)} at 5, {early} at 2"
    return Row(f"loop, period {period}, {name}", got, "all at 3, all at 5, none at 2", ok)


def answer_rows(runs: list[Run]) -> Iterator[Row]:
    """The rows of repetition inside one answer: recorded ones, and made ones that no record has."""
    read = [found_in_answer(message) for run in runs for message in run["messages"] if message["role"] == "assistant"]
    count = sum(map(bool, read))
    yield Row(f"{len(read)} recorded answers: stopped", str(count), "0", count == 0)
    for case in ANSWER_CASES:
        at = case.find()
        got = "never" if at is None else f"after {at} characters"
        must = "never" if case.most is None else f"after at most {case.most}"
        ok = at is None if case.most is None else at is not None and at <= case.most
        yield Row(f"in an answer: {case.name}", got, must, ok)


def found_in_answer(message: Message) -> bool:
    """Whether anything in a recorded answer would have stopped it."""
    text, calls = message.get("content"), message.get("tool_calls") or []
    if isinstance(text, str) and stop_text(text) is not None:
        return True
    return any(stop_call(str(call["function"]["arguments"])) is not None for call in calls)


def main(arguments: list[str]) -> int:
    """Prints the table; 1 where a row is below its floor."""
    return print_rows(rows(load_runs(Path(arguments[0]) if arguments else None)))


def print_rows(table: Iterable[Row]) -> int:
    """Print them; 1 where one is below its floor."""
    table = list(table)
    for row in table:
        print(f"{'ok  ' if row.ok else 'FAIL'} | {row.on:<52} | {row.got:<36} | {row.must}")
    return 0 if all(row.ok for row in table) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
