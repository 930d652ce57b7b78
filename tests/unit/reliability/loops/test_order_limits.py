"""Every loop ends: at which lap, for orders, lengths of the lap, and kinds of calls."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from reliability.loops import Stage, calls_turn, find_loop, read_turns
from reliability.loops.content import NUMBER_MAX
from reliability.loops.thresholds import LoopLimits
from tests.support.conversation import CONFIG, Message

USUAL = CONFIG.duplicate_threshold, CONFIG.break_threshold
POLLS = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold


class Kind(NamedTuple):
    """What the k-th step of a lap calls, and what that answers in the n-th lap. `limits`: without an order; `makes`: an
    order of so many things covers it; `copies`: in one answer; `thinks`: before each step."""

    tool: str
    argument: str
    answer: Callable[[str, int], str]
    limits: tuple[int, int] = USUAL
    makes: bool = False
    copies: int = 1
    thinks: bool = False


def fail(step: str, _lap: int) -> str:
    return f"Error: step {step} has failed, there is no such thing"


def show_log(step: str, lap: int) -> str:
    line = f"2026-11-28T10:{lap % 60:02d}:0%d worker {step} finished a block, took 0.{lap % 90 + 10} s"
    return "\n".join(line % (row % 10) for row in range(40))


KINDS = {
    "failure": Kind("run_step", "step", fail),
    "failures at once": Kind("run_step", "step", fail, copies=3),
    "failures behind thoughts": Kind("run_step", "step", fail, thinks=True),
    "tests": Kind("bash", "command", lambda step, lap: f"FAILED test_{step}.py\n1 failed in 0.{lap % 50 + 11}s"),
    "file": Kind("read_file", "path", lambda step, _lap: f"import {step}\n"),
    "query": Kind("run_sql", "sql", lambda _step, _lap: "count\n0"),
    "log": Kind("read_log", "name", show_log),
    "poll": Kind("job_poll", "job", lambda _step, _lap: '{"status": "running"}', POLLS, makes=True),
    "key": Kind("press_key", "key", lambda _step, _lap: "ok", POLLS, makes=True),
    "deed": Kind("create_user", "group", lambda _step, _lap: "created", POLLS, makes=True),
    "message": Kind("send_invitation", "list", lambda _step, _lap: "Your message is on its way.", makes=True),
    "command": Kind("bash", "command", lambda step, _lap: f"a user in {step}", makes=True),
}


def build_lap(kind: Kind, period: int, lap: int) -> list[Message]:
    messages: list[Message] = []
    for place in range(period):
        step = chr(ord("a") + place)
        calls = [(kind.tool, spell(kind, step, copy)) for copy in range(kind.copies)]
        names = [f"c{lap}_{place}_{copy}" for copy in range(kind.copies)]
        if kind.thinks:
            messages += [ask([("think", json.dumps({"thought": f"now {lap}"}))], ["t"]), told("t", "noted")]
        messages += [ask(calls, names), *(told(name, kind.answer(step, lap)) for name in names)]
    return messages


def spell(kind: Kind, step: str, copy: int) -> str:
    value = {"sql": f"SELECT count(*) FROM {step}", "command": f"./add_user.sh {step}"}.get(kind.argument, step)
    value = f"pytest test_{step}.py" if kind is KINDS["tests"] else value
    return json.dumps({kind.argument: value} | ({"copy": copy} if copy else {}))


def ask(calls: list[tuple[str, str]], names: list[str]) -> Message:
    made = [
        {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}
        for name, (tool, arguments) in zip(names, calls, strict=True)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def told(name: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": name, "content": text}


class Run:
    """An agent that repeats its lap for ever, under one request."""

    def __init__(self, request: str, kind: Kind, period: int = 1) -> None:
        self._request: list[Any] = [{"role": "user", "content": request}]
        self._kind, self._period = kind, period

    def judge(self, lap: int) -> Stage | None:
        """Return the stage at the first answer of a lap, the first lap being 1."""
        before = [message for number in range(lap - 1) for message in build_lap(self._kind, self._period, number)]
        calls = [(self._kind.tool, spell(self._kind, "a", copy)) for copy in range(self._kind.copies)]
        loop = find_loop(read_turns([*self._request, *before], CONFIG.turns_needed), CONFIG, calls_turn(calls))
        return None if loop is None else loop.stage

    def ends_at(self, warn: int, limit: int) -> bool:
        """Return whether the nudge comes at this lap and none before, the break at that one, and ever after."""
        laps = (warn - 1, warn, limit - 1, limit, limit + 40)
        before, nudged, still, broken, after = map(self.judge, laps)
        return (before, nudged, broken, after) == (None, Stage.WARN, Stage.BREAK, Stage.BREAK) and still is not broken


def behind(limits: tuple[int, int], number: int) -> tuple[int, int]:
    return max(limits[0], number + 1), max(limits[1], number + 2)


#: An order, and the limits that it gives to what has others without it.
ORDERS: dict[str, Callable[[Kind], tuple[int, int]]] = {
    "Mend the parser.": lambda kind: kind.limits,
    "Run it 8 times.": lambda kind: behind(kind.limits, 8),
    "Run it 50 times.": lambda kind: behind(kind.limits, 50),
    f"Run it {NUMBER_MAX} times.": lambda kind: behind(kind.limits, NUMBER_MAX),
    "Create 12 sample users.": lambda kind: behind(kind.limits, 12) if kind.makes else kind.limits,
    "Generate 150 users.": lambda kind: behind(kind.limits, 150) if kind.makes else kind.limits,
    "Check it again and again.": lambda _kind: POLLS,
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("request_text", ORDERS)
def test_a_loop_that_goes_on_for_ever_ends(request_text: str, name: str) -> None:
    """Law: whatever is ordered and called, and however long the lap is, a loop is nudged and then broken, at its limits
    or where no more laps are read. A number of repetitions covers every call, one of things those that make them."""
    limits = ORDERS[request_text](KINDS[name])
    periods = (1, 2, 5, CONFIG.max_period)
    runs = {period: Run(request_text, KINDS[name], period) for period in periods}
    wrong = [period for period in periods if not runs[period].ends_at(*CONFIG.fit_laps(period, LoopLimits(*limits)))]
    assert wrong == []


THINGS = """
Generate 50 sample users in users.json.
Add 30 icons to the sprite sheet.
Create 100 unit tests for parser.py.
Send 150 invitations from list.csv.
Do the 20 exercises in ex.md.
Insert 200 rows of test data into the orders table.
The callback should be invoked 100 times but is invoked only once. Fix it.
The client must retry 20 times.
Write a script that prints hello 50 times.
Implement a loop that runs 100 times.
Write a script that checks the site every 5 minutes.
""".strip().split("\n")


@pytest.mark.parametrize("request_text", THINGS)
@pytest.mark.parametrize("name", ["failure", "tests", "file", "query"])
def test_an_order_of_things_spares_no_call_that_makes_none(request_text: str, name: str) -> None:
    """Law: looks, tests and failures have the usual limits, whatever number of things is to be made or built."""
    assert Run(request_text, KINDS[name]).ends_at(*USUAL)
    assert Run(request_text, KINDS[name], 2).ends_at(*USUAL)


@pytest.mark.parametrize("request_text", ["Poll it 30 times.", "Read the sensor 30 times.", "Do 30 test runs.", "30x"])
@pytest.mark.parametrize("name", ["failure", "tests", "file", "query", "log", "poll"])
def test_an_order_of_repetition_holds_for_every_call(request_text: str, name: str) -> None:
    """Law: what is ordered so many times is neither nudged nor broken before, be it a look, a test or a failure."""
    assert Run(request_text, KINDS[name]).ends_at(*behind(KINDS[name].limits, 30))


Step = tuple[str, str, str]
EDIT_AND_RUN: list[Step] = [
    ("edit_file", '{"path": "check.py", "old": "a", "new": "b"}', "Error: text not found in check.py"),
    ("bash", '{"command": "python check.py"}', "ModuleNotFoundError: No module named 'request'"),
    ("read_file", '{"path": "check.py"}', "from urllib import request\n"),
]
MAKE_AND_FAIL: list[Step] = [
    ("create_user", '{"group": "a"}', "created"),
    ("check_user", '{"group": "a"}', "Error: there is no user in this group"),
    ("read_log", '{"name": "users"}', "nothing was written"),
]


@pytest.mark.parametrize(("request_text", "steps"), [
    ("Write a script that checks the site every 5 minutes.", EDIT_AND_RUN),
    ("Generate 40 sample users with gen.py.", EDIT_AND_RUN), ("Create 40 sample users.", MAKE_AND_FAIL),
])  # fmt: skip
def test_a_lap_with_the_same_failure_is_none_of_those_that_are_ordered(request_text: str, steps: list[Step]) -> None:
    """Law: three calls in turn, one of which fails each time, have the usual limits, though another makes something."""
    messages: list[Any] = [{"role": "user", "content": request_text}]
    found = []
    for lap in range(5):
        for place, (tool, arguments, result) in enumerate(steps):
            loop = find_loop(read_turns(messages, CONFIG.turns_needed), CONFIG, calls_turn([(tool, arguments)]))
            found.append(None if loop is None else loop.stage)
            messages += [ask([(tool, arguments)], [f"c{lap}{place}"]), told(f"c{lap}{place}", result)]
    assert found[:6] == [None] * 6
    assert found[6] is Stage.WARN
    assert found[12] is Stage.BREAK
