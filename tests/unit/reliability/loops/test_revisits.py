"""The revisit: looks at what was seen, in any order, that bring nothing new."""

import random

import pytest

from reliability.loops import Kind, LoopConfig, SeenCall, Stage, nudge
from reliability.loops.revisits import looks, names_look
from tests.support.conversation import USER, acted, ask, loop_at, quiet, said, stages
from tests.support.shrunk_histories import SHAPES, run_laps

TOOLS = ("Read", "read_file", "mcp__fs__read_text_file", "getIssue", "grep_search", "list_directory")
FOLDING = [name for name in SHAPES if name.startswith("folds every") and "without" not in name]


def look(name, tool="read_file"):
    return acted(tool, {"path": name}, f"This is what stands in {name}, and nothing else.")


def wander(files, count, seed):
    """Looks at files in an order that has no period: never the one of the call before."""
    dice, order = random.Random(seed), list(files)
    for _ in range(count):
        order.append(dice.choice([name for name in files if name != order[-1]]))
    return order


@pytest.mark.parametrize("files", range(3, 10))
@pytest.mark.parametrize("tool", TOOLS)
def test_looks_that_bring_nothing_new_are_nudged_and_then_broken(files, tool):
    """Law: in whatever order an agent looks again at what it has seen, each third such look in a row is nudged, and a
    look that it makes for the fifth time breaks the circuit."""
    names = [f"part_{n:02}.txt" for n in range(files)]
    order = wander(names, 36, files)
    found = stages([USER, *[message for name in order for message in look(name, tool)]])

    assert found[: files + 2] == [None] * (files + 2)
    assert found[files + 2] is Stage.WARN
    assert all(found[n] for n in range(files + 2, len(found), 3))
    assert Stage.BREAK not in found[: files + 3]
    fifth = next(n for n, name in enumerate(order) if n >= files + 9 and order[:n].count(name) >= 4)
    assert Stage.BREAK in found[: fifth + 1]


@pytest.mark.parametrize("shape", FOLDING)
def test_a_summary_makes_nothing_new(shape):
    """Law: an agent that reads the same files again behind each summary of its conversation is nudged."""
    names = ["a", "b", "c", "d", "e"]
    order = wander(names, 12, 1)
    found = run_laps(SHAPES[shape], [f"This is what stands in {name}." for name in order], paths="".join(order))

    assert Stage.WARN in found
    assert set(found[: len(names)]) == {None}


def test_what_was_cleared_may_be_read_once_more():
    """Law: an agent whose old results its client clears reads twelve files once more, and isn't stopped."""
    names = [f"f{n}" for n in range(12)]
    found = stages([USER, *[message for name in names * 2 for message in look(name)]])
    assert Stage.BREAK not in found
    assert found.count(Stage.WARN) == 4


SEEN = [message for name in "abcd" for message in look(name)]
AGAIN = [message for name in "cadb" for message in look(name)]


@pytest.mark.parametrize(
    "between",
    [
        acted("edit_file", {"path": "a", "new": "x"}, "ok"),
        acted("bash", {"command": "make"}, "built"),
        acted("wait", {"seconds": 5}, "5 s have gone by"),
        acted("ask_user", {"question": "Which?"}, "the second"),
        [said("I look again."), {"role": "user", "content": "Look at all four again."}],
    ],
    ids=["edit", "command", "wait", "question", "user"],
)
def test_what_may_have_changed_is_looked_at_again(between):
    """Law: behind anything but a look, a look is news once more."""
    assert quiet([USER, *SEEN, *between, *AGAIN])
    assert not quiet([USER, *SEEN, *AGAIN])


def test_a_note_between_changes_nothing():
    """Law: a plan that is written down between the looks makes none of them news."""
    note = acted("todo_write", {"todos": ["read a"]}, "Todos were modified.")
    assert not quiet([USER, *SEEN, *note, *AGAIN])


def test_one_result_that_has_changed_is_news():
    """Law: a look with another result ends the streak, and so does a look at something new."""
    changed = acted("read_file", {"path": "a"}, "Another text stands here by now, as somebody wrote it.")
    assert quiet([USER, *SEEN, *look("c"), *changed, *look("d"), *look("b")])
    assert quiet([USER, *SEEN, *look("c"), *look("a"), *look("e"), *look("d"), *look("b")])


@pytest.mark.parametrize("order", ["Read each file 5 times.", "Read them again and again until I stop you."])
def test_looks_that_a_person_orders_are_no_loop(order):
    """Law: who orders repetition gets it."""
    assert quiet([{"role": "user", "content": order}, *SEEN, *AGAIN])


def test_what_is_polled_is_no_revisit():
    """Law: a look at something that still goes on is a poll, whatever stands between."""
    jobs = [message for n in (1, 2, 3, 2, 1, 3, 2) for message in acted("get_job", {"id": n}, '{"status": "running"}')]
    assert quiet([USER, *jobs])


@pytest.mark.parametrize("config", [LoopConfig(duplicate_threshold=0), LoopConfig(enabled=False)])
def test_a_nudge_can_be_switched_off(config):
    """Law: the thresholds are those of equal calls."""
    assert Stage.WARN not in stages([USER, *SEEN, *AGAIN], config)


def test_the_nudge_says_what_is_wrong():
    """Law: the model is told that it has seen this, and to answer with what it knows."""
    loop = loop_at([USER, *SEEN, *look("c"), *look("a")], ask("read_file", {"path": "d"}))
    assert loop is not None
    assert (loop.kind, loop.repetitions) == (Kind.REVISITS, 3)
    assert "seen before" in nudge(loop)
    assert "Answer the user" in nudge(loop)


@pytest.mark.parametrize("name", [*TOOLS, "describe-pod", "WebFetch", "search", "list_pull_requests", "Grep", "Glob"])
def test_tools_that_look(name):
    """Law: a tool whose name says that it reads looks."""
    assert names_look(name)
    assert looks(SeenCall(name, "{}"))


@pytest.mark.parametrize(
    "name",
    [
        "set_status",
        "search_and_replace",
        "find_and_update",
        "place_order",
        "send_alert",
        "block_card",
        "click",
        "go",
        "get_next_page",
        "fetch_and_delete",
        "update_list",
        "create_view",
        "remove_post",
        "deny",
        "answer",
        "wait_for",
    ],
)
def test_tools_that_do_something(name):
    """Law: a tool that changes anything, leads on or waits does not only look, whatever else its name says."""
    assert not names_look(name)


@pytest.mark.parametrize(
    ("command", "only"),
    [("cat a.txt", True), ("grep -n x a.py | head", True), ("rm a.txt", False), ("make test", False), ("", False)],
)
def test_commands_that_look(command, only):
    """Law: of a shell the command counts."""
    assert looks(SeenCall("bash", f'{{"command": "{command}"}}')) is only
