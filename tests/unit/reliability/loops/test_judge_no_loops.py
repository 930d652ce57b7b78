"""What must not be called a loop: one test for each case that detectors are known to get wrong.

Every test goes the way of a real request: messages in, the answer about to leave as the candidate.
"""

import json
import random
import re
from typing import Any

import pytest

from reliability.loops import (
    LoopConfig,
    Stage,
)
from tests.support.conversation import (
    USER,
    Message,
    acted,
    ask,
    in_answer,
    loop_at,
    quiet,
    said,
    stages,
)


def test_02_different_calls_are_no_loop() -> None:
    """Fifteen reads of fifteen files are no loop, even if every file is empty."""
    assert quiet([USER, *[m for i in range(15) for m in acted("read", {"path": f"f{i}"}, "")]])


def test_03_the_next_page_of_a_file_is_no_repetition() -> None:
    """The same tool on another offset is another call."""
    pages = [m for i in range(8) for m in acted("read_file", {"path": "a", "offset": 1 + 2000 * i}, f"page {i}")]
    assert quiet([USER, *pages])


@pytest.mark.parametrize(
    "result",
    [
        lambda i: f"progress {4 * i}%",
        lambda i: json.dumps({"state": "building", "percent": 4 * i}),
        lambda i: f"Tue Mar  3 10:{i:02}:01 UTC 2026",
        lambda i: f"2026-03-03T10:{i:02}:01Z",
        lambda i: f"line {i}",
        lambda i: "log start of a long enough text\n" + "\n".join(f"step {n} finished" for n in range(i)),
        lambda i: "\n".join(f"step {chr(97 + n % 26) * 4} finished" for n in range(i, i + 30)),
        lambda i: json.dumps({"status": f"at step {chr(97 + i) * 3}", "log": "x" * 300}),
    ],
)
def test_04_a_result_that_changes_every_time_is_progress(result: Any) -> None:
    """The same call twenty-five times is no loop while its result moves on."""
    assert quiet([USER, *[m for i in range(25) for m in acted("look", {"id": 7}, result(i))]])


@pytest.mark.parametrize("tool", ["mcp_ci_job_status", "inspect"])
@pytest.mark.parametrize("extra", [{}, {"status": "running"}, {"job": "build"}, {"status": "success", "id": 7}])
def test_05_a_duration_that_grows_in_whole_seconds_is_output(tool: str, extra: dict[str, Any]) -> None:
    """`duration_seconds` 10 to 15 of one job is the age of the job, not the meter of the call."""
    calls = [m for i in range(6) for m in acted(tool, {"job": 7}, {**extra, "duration_seconds": 10 + i})]
    assert quiet([USER, *calls])


def test_06_editing_and_testing_again_is_work() -> None:
    """Twelve rounds of another edit and the same failing test are no loop."""
    rounds: list[Message] = []
    for i in range(12):
        rounds += acted("edit", {"path": "a.py", "new": f"attempt {i}"}, "ok")
        rounds += acted("run_tests", {}, "1 failed: test_total\nAssertionError: 3 != 4")
    assert quiet([USER, *rounds])


def test_06_a_browser_that_fails_on_other_pages_is_no_loop() -> None:
    """Eight pages that time out alike are eight failures, and not one loop."""
    pages = [
        m
        for i in range(8)
        for m in acted("browser_navigate", {"url": f"https://host/{i}"}, {"error": "Timeout 30000ms exceeded"})
    ]
    assert quiet([USER, *pages])


def test_03_the_next_page_of_a_list_is_no_repetition() -> None:
    """Clicks on one link whose pages are nine tenths navigation are no loop, if each page shows other things."""
    random.seed(3)
    frame = "\n".join(f'- link "{chr(97 + n % 26)} department" [ref=e{n}]' for n in range(200))
    things = [["".join(random.choices("aeioulnrst", k=6)) for _ in range(24)] for _ in range(25)]
    pages = ["\n".join((frame, *map(" ".join, zip(*[iter(lap)] * 2, strict=True)), frame)) for lap in things]
    clicks = [m for page in pages for m in acted("browser_click", {"element": "Next", "ref": "e9"}, page)]
    assert quiet([USER, *clicks])


@pytest.mark.parametrize("result", [{"exit_code": 1, "output": ""}, "", {"exit_code": 1, "error": "exit status 1"}])
def test_07_failing_searches_are_a_search(result: Any) -> None:
    """Twelve different greps that find nothing are no loop."""
    greps = [m for i in range(12) for m in acted("terminal", {"command": f"grep -r word{i} ."}, result)]
    assert quiet([USER, *greps])


def test_08_an_error_that_moves_to_another_line_is_progress() -> None:
    """The same command whose error names another line each time is no loop at the lowest threshold: only from the
    fourth lap on the line is but a figure that counts the laps."""
    runs = [m for i in range(3) for m in acted("python", {"code": "run()"}, f"SyntaxError: line {10 + i}")]
    assert quiet([USER, *runs])


@pytest.mark.parametrize("tool", ["fetch_it", "job_poll", "wait_for_ci"])
def test_09_a_poller_may_wait_until_its_own_limit(tool: str) -> None:
    """An unchanged poll is spared for nine laps, nudged at ten and broken at twenty."""
    config = LoopConfig(pollers=("fetch_*",))
    polls = [m for _ in range(20) for m in acted(tool, {"id": 1}, {"state": "waiting for approval"})]
    assert stages([USER, *polls], config) == [None] * 9 + [Stage.WARN] * 10 + [Stage.BREAK]


def test_09_the_results_of_a_poller_are_taken_as_they_are() -> None:
    """A poll whose duration moves is progress, though the same duration of another tool would be a meter."""
    results = [{"ok": True, "took_ms": 100 - i} for i in range(25)]
    assert quiet([USER, *[m for result in results for m in acted("job_poll", {"id": 1}, result)]])
    assert not quiet([USER, *[m for result in results for m in acted("read", {"id": 1}, result)]])


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("bash", {"command": "sleep 5 && cat out.txt"}, ""),
        ("bash", {"command": ""}, "[still running]"),
        ("process", {"action": "poll", "id": 3}, "no new output"),
        ("ask_ci", {"id": 3}, {"status": "in_progress", "job": "lint"}),
    ],
)
def test_09_a_call_that_waits_is_a_poll_without_being_declared(tool: str, arguments: Any, result: Any) -> None:
    """A sleeping command, an empty one, `action: poll` and a result that says it is running are polls."""
    assert quiet([USER, *[m for _ in range(6) for m in acted(tool, arguments, result)]])


def test_11_an_alternation_that_is_interrupted_is_no_loop() -> None:
    """A, B, A, B, then C, then A, B, A, B holds no third lap."""
    a, b, c = (acted(name, {"n": 1}) for name in ("one", "two", "three"))
    assert quiet([USER, *a, *b, *a, *b, *c, *a, *b, *a, *b])


def test_15_a_mutating_tool_is_not_stopped_at_the_first_threshold() -> None:
    """The same successful write is nudged at three laps and broken at five, not before."""
    writes = [m for _ in range(5) for m in acted("append_row", {"row": "x"}, {"ok": True})]
    assert stages([USER, *writes]) == [None, None, Stage.WARN, Stage.WARN, Stage.BREAK]


@pytest.mark.parametrize(
    "config",
    [
        LoopConfig(enabled=False),
        LoopConfig(duplicate_threshold=0, break_threshold=0),
        LoopConfig(duplicate_threshold=-1, break_threshold=-3),
    ],
)
def test_16_off_is_off(config: LoopConfig) -> None:
    """A disabled detector and thresholds of 0 or less never convict."""
    assert quiet([USER, *[m for _ in range(9) for m in acted("read", {"p": 1}, "Error: no access")]], config)
    assert quiet([USER, *[said("I am done.")] * 9], config)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "".join(
            f"- Process the next file of a long list with a prefix that all share, number {word}\n"
            for word in re.findall(r"\w+", "one two three four five six seven eight nine ten eleven more last end all")
        ),
        "```python\n" + "print('hello world')\n" * 40 + "```\n",
        "| name | value |\n|------|-------|\n" + "| none | empty |\n" * 30,
        *("".join(f"{mark} the same old item of a list\n" for _ in range(20)) for mark in ("-", "*", "+", "1.")),
        "# The same heading again\n" * 20,
        "> the same quoted line of text\n" * 20,
        "-" * 600,
        "─" * 600,
        "=====\n" * 60,
        "".join(f"{i}: return value  # line of code\n" for i in range(40)),
        '{"a": 0, "b": 0, "c": null},\n' * 20,
    ],
)
def test_17_structure_is_no_chant(text: str) -> None:
    """Lists, tables, fences, headings, quotes, dividers and rows of data repeat by nature."""
    assert in_answer(text) is None


def test_17_repetition_far_apart_is_no_chant() -> None:
    """A sentence that comes back after more than five hundred characters is no cycle."""
    dice = random.Random(17)
    fillers = ["".join(dice.choice("abcdefghijklmnopqrstuvwxyz     ") for _ in range(520)) for _ in range(10)]
    assert in_answer("".join(f"This very sentence of fifty characters comes again. {one} " for one in fillers)) is None


def test_18_work_that_looks_alike_is_work() -> None:
    """Paging down, descending with the same `ls`, other dates, other numbers: results or arguments differ."""
    scroll = [m for i in range(6) for m in acted("scroll_down", {}, f"[lines {i}00-{i}99]\nsome other text {i * 7}")]
    listing = [m for i in range(4) for m in [*acted("sh", {"c": f"cd d{i}"}, ""), *acted("sh", {"c": "ls"}, f"d{i}/")]]
    dates = [m for i in range(1, 7) for m in acted("search_flights", {"date": f"2026-05-0{i}"}, "[]")]
    sums = [m for i in range(6) for m in acted("calculate", {"expression": f"2*{i}"}, "10.0")]
    for run in (scroll, listing, dates, sums):
        assert quiet([USER, *run])


def test_18_boilerplate_across_user_turns_is_no_loop() -> None:
    """The same refusal to four different requests of the user is an answer each time."""
    refusal = said("I am sorry, I can't change a basic economy ticket.")
    turns = [m for i in range(4) for m in ({"role": "user", "content": f"What about reservation {i}?"}, refusal)]
    assert quiet(turns)


@pytest.mark.parametrize(
    ("orders", "calls"),
    [
        (lambda i: "Run the tests again, please.", [("bash", {"command": "pytest"}, "1 failed: 3 != 4 in test_total")]),
        (lambda i: "Run the tests again, please.", [("run_tests", {}, {"error": "1 failed: 3 != 4 in test_total"})]),
        (lambda i: f"It is 2026-11-{10 + i}. Mail?", [("inbox", {"n": 5}, "1 old mail"), ("read", {"id": 1}, "Hi!")]),
    ],
)
def test_18_who_orders_the_same_again_behind_each_answer_gets_it(orders: Any, calls: Any) -> None:
    """Equal orders, of which each was carried out and answered, have the limits of a poll; a loop within one breaks as
    any other."""
    done = [m for name, arguments, result in calls for m in acted(name, arguments, result)]
    asked = [m for i in range(30) for m in ({"role": "user", "content": orders(i)}, *done, said("Nothing is new."))]
    found = [stage for stage in stages(asked) if stage]
    assert (found[0], found[-1]) == (Stage.WARN, Stage.BREAK)
    assert found.count(Stage.WARN) <= len(calls)
    assert quiet(asked[: 9 * (2 + len(done))])
    for orders_before in (2, 3, 4):
        late = [*asked[: orders_before * (2 + len(done))], asked[0], *done * 12]
        found = [stage for stage in stages(late) if stage]
        assert (found[0], Stage.BREAK in found) == (Stage.WARN, True)


@pytest.mark.parametrize(
    ("urge", "answer"),
    [
        ("Please continue working on the task on whatever approach you think is suitable.", "I have finished."),
        ("[ERROR] You did not use a tool in your previous response! Please retry with a tool use.", "Done."),
        ("Continue. If you are done, reply DONE.", "DONE"),
    ],
)
def test_18_who_is_only_urged_on_gets_nothing_ordered(urge: str, answer: str) -> None:
    """A harness that wants the agent to go on behind each answer spares no loop."""
    laps = [[*acted("run_tests", {}, "1 failed"), said(answer), {"role": "user", "content": urge}] for _ in range(6)]
    assert stages([USER, *[m for lap in laps for m in lap]])[4:9:2] == [Stage.WARN, Stage.WARN, Stage.BREAK]


@pytest.mark.parametrize("order", ["Read HEARTBEAT.md. Reply OK if nothing is new.", "10:{:02}. OK or ALERT?"])
@pytest.mark.parametrize("done", [[], acted("read", {"path": "HEARTBEAT.md"}, "- check the inbox")])
def test_18_an_answer_that_the_order_names_is_no_repetition(order: str, done: list[Message]) -> None:
    """An agent that is asked on a schedule, and answers as it is told to, does so for as long as it is asked."""
    assert quiet([m for i in range(40) for m in ({"role": "user", "content": order.format(i)}, *done, said("OK."))])


def test_18_a_long_report_that_changed_once_is_news() -> None:
    """Equal results and then one word of another kind: the identical call is no noise, and is free."""
    report = " ".join(f"item {chr(97 + i % 26)}{chr(97 + i // 26)} on its way" for i in range(60))
    for results in (["waiting"] * 3 + ["shipped"], ["waiting", "shipped", "shipped", "shipped", "lost"]):
        calls = [m for state in results for m in acted("order", {"id": 1}, f"{report}; {state}")]
        assert loop_at([USER, *calls], ask("order", {"id": 1})) is None
