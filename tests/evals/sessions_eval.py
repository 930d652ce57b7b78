"""Does every request of a crowd of agents find its own session? Seeded worlds of made runs, at once and one after
another, many of them with equal beginnings; and the loops of clients whose histories shrink.

`python -m tests.evals.sessions_eval` prints the table; exit code 1 where a row is below its floor.
"""

import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from reliability.loops.comparison.findings import call_key
from reliability.loops.transcript import answer_turn
from reliability.sessions import Conversations, describe_answer, read_trail
from tests.evals.loops_eval import Row, find_stages, print_rows
from tests.support.made_agents import HABITS, MARK, SHAPES, MadeRun, make_answer, make_run
from tests.support.shrunk_histories import SHAPES as SHAPES_SHRUNK
from tests.support.shrunk_histories import run_laps

SEEDS = 40
RUNS = 24
AT_ONCE = 5
LOST = 0.06
LOOK_UP_MS_MAX = 1.0

HEADLESS = ("last 2", "last 4")  # their clients drop the task
GUESSED = "folded by the client"  # where others began alike nobody can tell whose it is: a new session, never another's
Right = Counter[tuple[str, str, bool]]


class Crowd:
    """Some runs at a time against one owner of conversations."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.known = Conversations(10_000, 10**15)
        self.now_ns = 0
        self.owner: dict[str, MadeRun] = {}
        self.right, self.all = Right(), Right()
        self.wrong: list[tuple[int, str, str, int]] = []

    def play(self) -> None:
        """Play all runs to their ends."""
        live: list[MadeRun] = []
        made = 0
        while made < RUNS or live:
            while made < RUNS and len(live) < AT_ONCE:
                twin = self.dice.choice(live) if live and self.dice.random() < 0.4 else None
                live.append(make_run(made, self.dice, twin))
                made += 1
            run = self.dice.choice(live)
            self.ask(run)
            if run.answers >= run.turns:
                live.remove(run)

    def ask(self, run: MadeRun) -> None:
        """Send one request, perhaps in vain, and take its answer."""
        request = run.request()
        while True:
            self.now_ns += 10**9
            ticket = f"{self.dice.getrandbits(48):x}"
            trail = read_trail(request)
            name = self.known.find("k", trail, ticket, self.now_ns)
            self.score(run, name)
            if self.dice.random() >= LOST:
                break
            self.known.answer("k", name, ticket, None, self.now_ns)
        answer = make_answer(run, ticket)
        ids = [call["id"] for call in answer.get("tool_calls") or ()]
        self.known.answer("k", name, ticket, describe_answer(answer_turn(answer), ids), self.now_ns)
        run.take(answer)

    def score(self, run: MadeRun, name: str) -> None:
        """Whoever is equal to another run to the letter may change names with it: nobody can tell them apart."""
        group = (run.shape, run.habit, run.twin is not None)
        self.all[group] += 1
        may_begin_anew = not run.name or (run.habit == GUESSED and name not in self.owner)
        owner = self.owner.setdefault(name, run) if may_begin_anew else self.owner.get(name)
        run.name = name if may_begin_anew else run.name
        if owner is not None and owner is not run and _look_alike(owner, run):
            self.owner[run.name], self.owner[name] = owner, run
            owner.name, run.name = run.name, name
            owner = run
        if owner is run:
            self.right[group] += 1
        else:
            self.wrong.append((run.number, run.shape, run.habit, run.answers))


def _look_alike(a: MadeRun, b: MadeRun) -> bool:
    """Whether nothing of what the second one's client shows tells the two apart, but for what came last."""
    shown = [[_say(message) for message in run.said if message["role"] == "assistant"] for run in (a, b)]
    shorter = min(map(len, shown))
    heads = [[m for m in run.head if m["role"] == "system" or b.habit not in HEADLESS] for run in (a, b)]
    return heads[0] == heads[1] and shown[0][:shorter] == shown[1][:shorter]


def _say(message: dict[str, Any]) -> str:
    turn = answer_turn(message)
    return (
        repr([call_key(call) for call in turn.calls])
        if turn.calls
        else " ".join(turn.text.rpartition("</think>")[2].removesuffix(MARK).split())
    )


def play_all(seeds: int = SEEDS) -> tuple[Right, Right, list[tuple[int, str, str, int]]]:
    """Play so many worlds; return the requests that found their session, all of them, and those that didn't."""
    right, total, wrong = Right(), Right(), []
    for seed in range(seeds):
        crowd = Crowd(seed)
        crowd.play()
        right += crowd.right
        total += crowd.all
        wrong += crowd.wrong
    return right, total, wrong


def look_up_cost_ms(size: int = 500, rounds: int = 100) -> float:
    """The median time to read the trail of so many messages and to find its conversation."""
    dice = random.Random(7)
    run = make_run(0, dice)
    run.shape, run.habit, run.head = "native", "all", SHAPES["native"]("Go.")
    known, costs = Conversations(10_000, 10**15), []
    while len(run.said) < size:
        ticket = str(len(run.said))
        request = run.request()
        begun = time.perf_counter()
        trail = read_trail(request)
        name = known.find("k", trail, ticket, 0)
        costs.append(time.perf_counter() - begun)
        answer = make_answer(run, ticket)
        for message in run.said[-1:]:
            message["content"] = f"{message['content']} {'x' * 4_000}"
        ids = [call["id"] for call in answer["tool_calls"]]
        known.answer("k", name, ticket, describe_answer(answer_turn(answer), ids), 0)
        run.take(answer)
    return 1e3 * statistics.median(costs[-rounds:])


def rows(seeds: int = SEEDS) -> Iterator[Row]:
    """The rows of the table."""
    yield from shrunk_rows()
    right, total, _ = play_all(seeds)
    for at, names in ((0, SHAPES), (1, HABITS)):
        for name in names:
            yield _share_row(f"sessions of runs: {name}", at, name, right, total)
    yield _share_row("sessions of runs that begin alike", 2, True, right, total)
    cost = look_up_cost_ms()
    yield Row("session of 500 messages, median", f"{cost:.3f} ms", f"< {LOOK_UP_MS_MAX:g} ms", cost < LOOK_UP_MS_MAX)


def shrunk_rows() -> Iterator[Row]:
    """The rows of loops whose clients show less and less of them."""
    for name, shape in SHAPES_SHRUNK.items():
        stages = run_laps(shape, ["the same"] * 6)
        found = find_stages(stages)
        ok = found == {"nudged": 3, "broken": 5}
        yield Row(f"loop, {name}", ", ".join(f"{word} at {at}" for word, at in found.items()), "at 3, at 5", ok)


def _share_row(on: str, at: int, value: object, right: Right, total: Right) -> Row:
    hits = sum(count for group, count in right.items() if group[at] == value)
    all_of = sum(count for group, count in total.items() if group[at] == value)
    return Row(on, f"{hits}/{all_of} requests in their own", "all", hits == all_of > 0)


def main() -> int:
    """Print the table; 1 where a row is below its floor."""
    return print_rows(rows())


if __name__ == "__main__":
    sys.exit(main())
