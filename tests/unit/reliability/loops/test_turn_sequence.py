"""Turns in a row, and how they compare."""

import json
from typing import Any

import pytest

from reliability.loops import Stage
from reliability.loops.comparison.findings import SeenCall, Turn
from reliability.loops.thresholds import LoopConfig
from reliability.loops.turn_sequence import TurnSequence
from tests.support.conversation import CONFIG, USER, acted, loop_at

SAID = "the sky is grey, the wall is red, the door is green"


def turn(arguments: dict[str, Any], result: str | None = None, *more: SeenCall) -> Turn:
    return Turn((SeenCall("read", json.dumps(arguments)), *more), (result, *["noted" for _ in more]))


def count(*turns: Turn, candidate: dict[str, Any] | None = None, near: bool = False) -> int:
    asked = None if candidate is None else turn(candidate)
    row = TurnSequence(turns, LoopConfig(), asked)
    return row.count_repetitions(1, row.has_near_results if near else row.has_same_results)


def test_figures_that_differ_are_the_same_call_where_the_results_say_something() -> None:
    """Other lines of a file with the same content are the same call; what both only acknowledge isn't."""
    ranges = [{"path": "a", "end": n} for n in (10, 20, 30)]
    assert count(*[turn(asked, SAID) for asked in ranges], candidate={"path": "a", "end": 40}) == 4
    assert count(*[turn(asked, "ok") for asked in ranges]) == 1


def test_who_corrects_a_figure_begins_something_new() -> None:
    """After equal calls one with another figure is no further repetition."""
    same = [turn({"path": "a", "end": 10}, SAID)] * 3
    assert count(*same, candidate={"path": "a", "end": 10}) == 4
    assert count(*same, candidate={"path": "a", "end": 40}) == 0


def test_blurred_calls_are_never_nearly_the_same() -> None:
    """Near results count only where the calls are equal to the letter."""
    results = [f"{SAID}; {n}" for n in (7, 3, 9)]
    assert count(*[turn({"path": "a"}, result) for result in results], near=True) == 3
    assert count(*[turn({"path": "a", "end": n}, r) for n, r in enumerate(results)], near=True) == 1


def test_a_thought_beside_a_call_is_none_of_it() -> None:
    """What a model notes beside a call makes no other call; thoughts alone are what they are."""
    thoughts = [SeenCall("think", json.dumps({"thought": word})) for word in ("one", "two")]
    first, second = (turn({"path": "a"}, SAID, thought) for thought in thoughts)
    assert count(first, second) == 2
    row = TurnSequence([Turn((thought,), ("",)) for thought in thoughts], LoopConfig(), None)
    assert row.key(0) != row.key(1)


RESTS = (
    ("sleep", {"seconds": 60}, "done"),
    ("mcp__playwright__browser_wait_for", {"time": 30}, "### Result\nWaited for 30"),
    ("bash", {"command": "sleep 60"}, ""),
    ("computer", {"action": "wait", "duration": 10}, "Waited 10 s"),
    ("wait", {"minutes": 5}, "ok"),
)
LOOKS = (
    ("get_render", {"id": 7}, '{"id": 7, "frames": 0, "worker": "gpu-2"}'),
    ("mcp__playwright__browser_snapshot", {}, "- text: Your export is being prepared."),
    ("computer", {"action": "screenshot"}, "[screenshot taken]"),
    ("GetLiveContext", {}, "- names: Washer\n  state: 'Run'"),
    ("bash", {"command": "cat /tmp/render.json"}, '{"frames": 0}'),
    ("list_unread", {}, "[]"),
)
DOES = (
    ("edit_file", {"path": "a", "old": "x", "new": "y"}, "Error: `old` not found in a"),
    ("browser_click", {"ref": "e5"}, "The page did not change."),
    ("computer", {"action": "type", "text": "x"}, "The page did not change."),
    ("bash", {"command": "git push"}, "everything is up-to-date"),
    ("send_email", {"to": "bob"}, "The letter is in the outbox."),
    ("bash_output", {"id": "b"}, "No shell found with ID: b"),
    ("get_render", {"id": 7}, '{"id": 7, "state": "failed"}'),
    ("get_render", {"id": 7}, "no such job: 7"),
)


#: Where any loop is nudged and broken, and where a poll is.
LAPS = (
    CONFIG.duplicate_threshold, CONFIG.break_threshold, CONFIG.poller_duplicate_threshold,
    CONFIG.poller_break_threshold,
)  # fmt: skip
POLLED = (None, None, Stage.WARN, Stage.BREAK)


@pytest.mark.parametrize("rest", RESTS, ids=[f"{rest[0]}" for rest in RESTS])
@pytest.mark.parametrize("first", [0, 1])
def test_a_lap_that_waits_and_then_looks_is_a_poll(rest: Any, first: int) -> None:
    """Law: over tools that let time pass and tools that look, in either order: nudged at the tenth lap, broken at the
    twentieth; a lap that does anything else, or looks at what is gone or over, breaks as any other, and so does a look
    without a wait."""
    for look in LOOKS:
        lap = [rest, look]
        assert find_stages(lap[first:] + lap[:first]) == POLLED, look
    assert find_stages([rest, LOOKS[0], LOOKS[1]]) == POLLED
    for deed in DOES:
        assert find_stages([rest, deed][first:] + [rest, deed][:first])[1] is Stage.BREAK, deed
    assert find_stages([LOOKS[0], LOOKS[1]])[1] is Stage.BREAK


def find_stages(lap: list[Any]) -> tuple[Stage | None, ...]:
    """Find the stages of equal laps: where any is nudged and broken, where a poll is."""
    calls = [m for call in lap for m in acted(*call)]
    at = [loop_at([USER, *calls * (count - 1)], calls[0]) for count in LAPS]
    return tuple(loop and loop.stage for loop in at)


def wait(command: str, form: str, order: str = USER["content"], laps: int = 64) -> tuple[int | None, int | None]:
    """At which lap an agent is nudged and broken that polls so; `{n}` in the result counts up, `{t}` is a clock."""
    call = ("bash", {"command": command}) if " " in command else (command, {"id": 7})
    messages, found = [{"role": "user", "content": order}], []
    for lap in range(laps):
        loop = loop_at(messages, acted(*call)[0])
        found.append(loop.stage if loop else None)
        clock = f"2026-11-28T10:{lap // 2:02}:{30 * (lap % 2):02}Z"
        messages += acted(*call, form.replace("{n}", str(lap + 5)).replace("{t}", clock))
    return tuple(found.index(stage) + 1 if stage in found else None for stage in (Stage.WARN, Stage.BREAK))


PODS = "NAME   READY   STATUS   RESTARTS   AGE\nweb-7d9c   0/1   {}   {}   {{n}}m"
STILL = [
    ("get_build_status", '{"status": "queued", "checked_at": "{t}"}'),
    ("get_build_status", '{"status": "running", "elapsed_seconds": {n}}'),
    ("bash_output", "<status>running</status>\n<stdout>\n</stdout>\n<timestamp>{t}</timestamp>"),
    ("kubectl get pods", PODS.format("Pending", "0")),
    ("kubectl get pods", PODS.format("CrashLoopBackOff", "4 ({n}s ago)")),
    ("sleep 20; kubectl get pods", PODS.format("ImagePullBackOff", "0")),
    ("docker ps", "CONTAINER ID   IMAGE   STATUS\n3f2a   nginx   Up {n} minutes (healthy)"),
    ("docker ps -a", "3f2a   nginx   Up {n} minutes\n77ab   app   Exited (1) {n} minutes ago"),
    ("sleep 5; tail -3 app.log", "{t} ERROR cannot connect to db"),
    ("systemctl status app", "Active: activating (auto-restart) since {t}; {n}s ago"),
]


@pytest.mark.parametrize(("command", "form"), STILL)
def test_a_poll_that_only_tells_the_time_has_a_late_limit(command: str, form: str) -> None:
    """Law: over tools and commands, moments, clocks and ages: a wait that tells nothing but that time passes is nudged
    at three times the limits of a poll; one that a person ordered, or that takes long, goes on."""
    assert wait(command, form) == (30, 60)
    assert wait(command, form, "Wait until the server is up.") == (None, None)
    assert wait(command, form.replace("{t}", "10:00").replace("{n}", "5")) == (10, 20)
    if " " in command:
        assert wait(f"sleep 60; {command}", form) == (None, None)


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("get_build_status", '{"status": "running", "step": {n}, "checked_at": "{t}"}'),
        ("get_build_status", '{"status": "queued", "position": {n}}'),
        ("get_build_status", '{"status": "running", "eta_seconds": {n}}'),
        ("get_build_status", "Status: running, {n} seconds left"),
        ("sleep 5; tail -1 train.log", "{t} step {n}00 loss 0.{n}"),
        ("scroll_down", "Rows {n}1 to {n}9"),
        ("kubectl top pods", "NAME   CPU(cores)   MEMORY(bytes)\nweb   {n}m   120Mi"),
        ("kubectl get pods", PODS.format("Running", "{n}")),
    ],
)
def test_what_a_poll_tells_beside_the_time_is_news(command: str, form: str) -> None:
    """Law: a count, a step, a load, a place in a queue or what is left may move for as long as it likes."""
    assert wait(command, form) == (None, None)


@pytest.mark.parametrize("before", ["", "sleep 5; "])
@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("docker ps -a", "CONTAINER ID   IMAGE   STATUS\n3f2a   nginx   Exited (1) {n} minutes ago"),
        ("systemctl status app", "app.service - App\n   Active: failed (Result: exit-code) since {t}; {n}min ago"),
    ],
)
def test_what_has_stopped_is_not_waited_for(before: str, command: str, form: str) -> None:
    """Law: a command that would wait has the limits of any other where its result shows that nothing goes on."""
    assert max(filter(None, wait(before + command, form))) <= 20
    assert wait(before + command, form.replace("{t}", "10:00").replace("{n}", "5"), laps=6) == (3, 5)


def test_progress_beside_a_poll_is_no_wait() -> None:
    """Law: a lap that polls and makes progress with another call goes on for as long as it does."""
    messages, found = [USER], []
    for lap in range(64):
        found.append(loop_at(messages, acted("get_health", {})[0]))
        messages += acted("get_health", {}, f'{{"status": "running", "uptime": {lap}}}')
        messages += acted("list_tables", {}, f"The import has copied {lap}21 rows into the table of the orders")
    assert found == [None] * 64
