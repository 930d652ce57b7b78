"""What must not be called a loop: one test for each case that detectors are known to get wrong.

Every test goes the way of a real request: messages in, the answer about to leave as the candidate.
"""

import random
from typing import Any

import pytest

from reliability.loops import LoopConfig, Stage
from tests.support.conversation import USER, Message, acted, ask, loop_at, quiet, said, stages


def test_06_editing_and_testing_again_is_work() -> None:
    """Twelve rounds of another edit and the same failing test are no loop."""
    rounds: list[Message] = []
    for i in range(12):
        rounds += acted("edit", {"path": "a.py", "new": f"attempt {i}"}, "ok")
        rounds += acted("run_tests", {}, "1 failed: test_total\nAssertionError: 3 != 4")
    assert quiet([USER, *rounds])


def test_03_the_next_page_of_a_list_is_no_repetition() -> None:
    """Clicks on one link whose pages are nine tenths navigation are no loop, if each page shows other things."""
    random.seed(3)
    frame = "\n".join(f'- link "{chr(97 + n % 26)} department" [ref=e{n}]' for n in range(200))
    things = [["".join(random.choices("aeioulnrst", k=6)) for _ in range(24)] for _ in range(25)]
    pages = ["\n".join((frame, *map(" ".join, zip(*[iter(lap)] * 2, strict=True)), frame)) for lap in things]
    clicks = [m for page in pages for m in acted("browser_click", {"element": "Next", "ref": "e9"}, page)]
    assert quiet([USER, *clicks])


@pytest.mark.parametrize(
    ("tool", "key", "what", "result"),
    [
        *(("terminal", "command", "grep -r word{} .", {"exit_code": 1} | more) for more in ({}, {"error": "status 1"})),
        ("terminal", "command", "grep -r word{} .", ""),
        ("browser_navigate", "url", "https://host/{}", {"error": "Timeout 30000ms exceeded"}),
    ],
)
def test_07_failures_of_a_shell_or_a_browser_are_a_search(tool: str, key: str, what: str, result: Any) -> None:
    """Twelve different greps that find nothing, or pages that time out alike, are no loop."""
    assert quiet([USER, *[m for i in range(12) for m in acted(tool, {key: what.format(i)}, result)]])


def test_09_the_results_of_a_poller_are_taken_as_they_are() -> None:
    """A poll whose duration moves is progress, though the same duration of another tool would be a meter."""
    results = [{"ok": True, "took_ms": 100 - i} for i in range(25)]
    assert quiet([USER, *[m for result in results for m in acted("job_poll", {"id": 1}, result)]])
    assert not quiet([USER, *[m for result in results for m in acted("read", {"id": 1}, result)]])


def test_11_an_alternation_that_is_interrupted_is_no_loop() -> None:
    """A, B, A, B, then C, then A, B, A, B holds no third lap."""
    a, b, c = (acted(name, {"n": 1}) for name in ("one", "two", "three"))
    assert quiet([USER, *a, *b, *a, *b, *c, *a, *b, *a, *b])


@pytest.mark.parametrize("config", [
    LoopConfig(enabled=False), LoopConfig(duplicate_threshold=0, break_threshold=0),
    LoopConfig(duplicate_threshold=-1, break_threshold=-3),
])  # fmt: skip
def test_16_off_is_off(config: LoopConfig) -> None:
    """A disabled detector and thresholds of 0 or less never convict."""
    assert quiet([USER, *[m for _ in range(9) for m in acted("read", {"p": 1}, "Error: no access")]], config)
    assert quiet([USER, *[said("I am done.")] * 9], config)


def test_18_work_that_looks_alike_is_work() -> None:
    """Paging down, descending with the same `ls`, other files, dates, numbers: results or arguments differ. Only from
    the fourth lap on the line of an error is but a figure that counts the laps."""
    files = [m for i in range(15) for m in acted("read", {"path": f"f{i}"}, "")]
    pages = [m for i in range(8) for m in acted("read_file", {"path": "a", "offset": 1 + 2000 * i}, f"page {i}")]
    errors = [m for i in range(3) for m in acted("python", {"code": "run()"}, f"SyntaxError: line {10 + i}")]
    scroll = [m for i in range(6) for m in acted("scroll_down", {}, f"[lines {i}00-{i}99]\nsome other text {i * 7}")]
    listing = [m for i in range(4) for m in [*acted("sh", {"c": f"cd d{i}"}, ""), *acted("sh", {"c": "ls"}, f"d{i}/")]]
    dates = [m for i in range(1, 7) for m in acted("search_flights", {"date": f"2026-05-0{i}"}, "[]")]
    sums = [m for i in range(6) for m in acted("calculate", {"expression": f"2*{i}"}, "10.0")]
    for run in (files, pages, errors, scroll, listing, dates, sums):
        assert quiet([USER, *run])


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
