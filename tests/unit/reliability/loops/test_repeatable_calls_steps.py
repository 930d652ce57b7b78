"""Steps, work that repeats a call, and the loops that look like it."""

import hashlib
import json
from collections.abc import Callable

import pytest

from reliability.loops import LoopConfig, Stage
from reliability.loops.comparison.findings import SeenCall
from reliability.loops.repeatable_calls import acts, find_entities, leads_on
from tests.evals.step_cases import COUNTS, StepCase, list_stuck, list_work
from tests.support.conversation import USER, acted, stages

CONFIG = LoopConfig()
POLL_NUDGE, POLL_BREAK = CONFIG.poller_duplicate_threshold, CONFIG.poller_break_threshold


def named(case: StepCase) -> str:
    return case.name


@pytest.mark.parametrize("case", list_work(), ids=named)
def test_work_without_a_number_has_the_limits_of_a_poll(case: StepCase) -> None:
    """Law: a step that leads on is nudged at most once, not before a poll, and not broken before a poll."""
    found = stages(case.build(max(COUNTS), "Please go on until it is right."))
    assert found[: POLL_NUDGE - 1] == [None] * (POLL_NUDGE - 1)
    assert Stage.BREAK not in found[: POLL_BREAK - 1]
    assert found.count(Stage.WARN) <= 1


@pytest.mark.parametrize("case", list_work(), ids=named)
def test_work_that_is_asked_for_is_done(case: StepCase) -> None:
    """Law: where the request names a number, no step up to that number is nudged or broken."""
    for count in COUNTS:
        assert set(stages(case.build(count, f"Do it {count} times, please."))) == {None}, count


@pytest.mark.parametrize("case", list_stuck(), ids=named)
def test_a_loop_that_looks_like_work_is_ended(case: StepCase) -> None:
    """Law: a loop is nudged by its fourth lap and broken by its sixth; an error that repeats what the call said by its
    eleventh; places where there is nothing, like a poll."""
    found = stages(case.build(POLL_BREAK, "Please find out what is wrong."))
    assert Stage.WARN in found[:4]
    error = "%a" in case.arguments and "error" in case.result.lower()
    limit = POLL_BREAK if case.empty else 2 * CONFIG.break_threshold + 1 if error else CONFIG.break_threshold + 1
    if "turns" in case.figures:
        limit = 2 * CONFIG.break_threshold - 1  # the two results in turn are one repetition
    assert Stage.BREAK in found[:limit]


@pytest.mark.parametrize("case", list_stuck(), ids=named)
def test_a_number_in_the_request_spares_no_loop(case: StepCase) -> None:
    """Law: a figure in the request is no licence for what isn't a step."""
    assert Stage.BREAK in stages(case.build(POLL_BREAK, "Look at all 12 of them."))


@pytest.mark.parametrize("case", list_stuck(), ids=named)
def test_so_many_times_are_asked_for(case: StepCase) -> None:
    """Law: who says how often a thing is to be done asks for no loop before that, whatever the thing is."""
    assert set(stages(case.build(12, "Do it 12 times."))) == {None}
    assert Stage.BREAK in stages(case.build(2 * POLL_BREAK, "Do it 12 times."))


def test_who_acts_and_who_leads_on() -> None:
    """Reading, checking, editing a file and shells are no steps; neither is a failure, a refusal or a page of text."""
    assert all(acts(SeenCall(name)) for name in ("press_key", "create_ticket", "nextTrack", "get_next_page", "roll"))
    assert not any(acts(SeenCall(name)) for name in ("read_file", "get_order", "edit_file", "bash", "run_tests", ""))
    assert not acts(SeenCall("insert", '{"path": "a.py", "text": "x"}'))
    assert leads_on("row 7 is selected")
    assert not any(map(leads_on, [None, "x" * 999, "Error: no", "already at the end"]))


def test_what_a_step_has_made_is_named_by_its_id() -> None:
    """A random id is what was made, but not where it names the request."""
    new = "5b0c9a52-1f7e-4a11-9d20-52f1b6a0c9aa"
    assert find_entities(f'{{"id": "{new}"}}') == {new}
    assert find_entities(f'{{"request_id": "{new}", "ts": 1760000001}}') == frozenset()


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("undo", "{}", "undone"),
        ("delete_line", "{}", "deleted"),
        ("next_step", "{}", "INFO ok"),
        ("remove_item", '{"index": 0}', "Item removed."),
        ("toggle_light", '{"lamp": "hall"}', "[INFO] toggled"),
        ("step_over", "{}", '{"status": "stepped"}'),
        ("press_key", '{"key": "Backspace"}', "Key pressed successfully"),
        ("press_key", '{"key": "Down"}', "ok"),
        # In the words of servers that agents use: Playwright, Chrome's developer tools, phones, players, games.
        (
            "browser_press_key",
            '{"key": "Down"}',
            "### Ran Playwright code\n```js\n// Press Down\nawait page.press();\n```",
        ),
        ("click", '{"uid": "1_12"}', "# click response\nSuccessfully clicked on the element"),
        ("send_keys", '{"keys": "Down"}', "⌨️  Sent keys: Down"),
        ("mobile_press_button", '{"button": "DPAD_DOWN"}', "Pressed the button: DPAD_DOWN"),
        ("next_track", "{}", "Skipped to next track."),
        ("volume_up", "{}", '{"status": "ok", "message": "Volume turned up by one step"}'),
        ("add_to_cart", '{"sku": "p1"}', "Added 1 item to your cart."),
        ("move", '{"direction": "north"}', "You moved one step north."),
        ("bash", '{"command": "adb shell input swipe 500 900 500 300"}', ""),
        ("adb_shell", '{"command": "input keyevent 20"}', ""),
        ("execute_sql", '{"query": "DELETE FROM logs WHERE old LIMIT 1000"}', "DELETE 1000"),
    ],
)
def test_a_step_that_only_says_it_was_done_has_the_limits_of_a_poll(tool: str, arguments: str, result: str) -> None:
    """Law: a step whose result says no more than that it was done is nudged once, and broken when a poll is."""
    found = stages(StepCase(tool, arguments, result).build(POLL_BREAK, "Please go on until it is right."))
    assert found[: POLL_NUDGE - 1] == [None] * (POLL_NUDGE - 1)
    assert found.count(Stage.WARN) == 1
    assert found.index(Stage.BREAK) == POLL_BREAK - 1


@pytest.mark.parametrize("result", [
    "already deleted", "nothing deleted", "delete failed", "not removed", "denied", "The last line is selected.",
    "Pressed it, but the page stays as it was", "Moved by 0 pixels", "Moved to the end of the list",
    "Skipped: this is the last track of the list", "Volume raised to 100 (maximum)",
])  # fmt: skip
@pytest.mark.parametrize("tool", ["delete_line", "press_key"])
def test_a_refusal_is_no_deed(tool: str, result: str) -> None:
    """Law: a step that was refused, or has changed nothing, is broken like any loop."""
    found = stages(StepCase(tool, "{}", result).build(6, "Please go on until it is right."))
    assert Stage.BREAK in found


def _hash(seed: int, size: int = 40) -> str:
    return hashlib.sha256(str(seed).encode()).hexdigest()[:size]


_SUBJECTS = "add users,drop flags,rename ages,split address,index orders,seed roles,log audits,move tenants,cut names"
NAMED = _SUBJECTS.split(",")
CONFLICT = (
    "Auto-merging a.json\nCONFLICT (content): Merge conflict in a.json\n{}... {}\nhint: Resolve all conflicts manually"
)
STACKS = {
    "git rebase --skip": lambda n: CONFLICT.format(f"error: could not apply {_hash(n, 7)}", NAMED[n]),
    "cd /srv && git cherry-pick --skip": lambda n: CONFLICT.format(f"error: could not apply {_hash(n, 7)}", NAMED[n]),
    "git checkout HEAD~1": lambda n: f"HEAD is now at {_hash(n, 9)} wip",
    "git stash drop": lambda n: f"Dropped refs/stash@{{0}} ({_hash(n)})",
    "npx knex migrate:down": lambda n: f"Batch 1 rolled back the following migrations:\n2026{n}_{NAMED[n]}.js",
    "sequelize db:migrate:undo": lambda n: f"Loaded configuration file.\n== 2026{n}-{NAMED[n]}: reverted (0.0{n}s)",
    "flyway undo": lambda n: f"Successfully undid migration to version {n}.{n}, in schema public: {NAMED[n]} (V{n})",
}


@pytest.mark.parametrize("command", STACKS)
@pytest.mark.parametrize("tool", ["Bash", "shell", "run_command"])
def test_a_command_that_goes_one_step_through_a_stack(command: str, tool: str) -> None:
    """Law: equal commands, each of which ends at another commit, file or hash, have the limits of a poll."""
    again = [message for n in range(9) for message in acted(tool, {"command": command}, STACKS[command](n))]
    assert Stage.BREAK not in stages([USER, *again])


FRAME = "These are the lines of a long report. " * 20


@pytest.mark.parametrize(("command", "result"), [
    ("git rebase --skip", lambda n: f"{FRAME} It used {4000 + (7 * n) % 5} bytes."),
    ("git rebase --skip", lambda n: f"{FRAME} {_hash(n % 2)}"),
    ("git stash drop", lambda n: f"Error: {FRAME} {_hash(n)}"), ("pytest -x", lambda n: f"{FRAME} {_hash(n)}"),
    ("make check", lambda n: f"{FRAME} {_hash(n)}"), ("cat a.txt", lambda n: f"{FRAME} {_hash(n)}"),
    ("npm run deploy", lambda n: f"{FRAME} step{n}"),
])  # fmt: skip
def test_a_command_that_goes_nowhere(command: str, result: Callable[[int], str]) -> None:
    """Law: a command that looks, tests or fails, or whose every lap shows no other name, is ended as any loop."""
    found = stages([USER, *[message for n in range(9) for message in acted("Bash", {"command": command}, result(n))]])
    assert Stage.BREAK in found[:6]


def test_what_is_generated_has_another_address_each_time() -> None:
    """Law: a step whose results differ in the hash of what it made has the limits of a poll."""
    made = lambda n: json.dumps({"url": f"https://img.example/{_hash(n, 16)}.png"})  # noqa: E731
    images = [message for n in range(24) for message in acted("generate_image", {"prompt": "a cat"}, made(n))]
    found = stages([USER, *images])
    assert Stage.BREAK not in found[:19]
    assert Stage.BREAK in found
