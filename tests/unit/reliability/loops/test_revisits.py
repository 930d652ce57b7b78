"""The revisit: looks at what was seen, in any order, that bring nothing new."""

import json
import random
import re

import pytest

from reliability.loops import Kind, LoopConfig, SeenCall, Stage, nudge
from reliability.loops.comparison.tool_verbs import names_look
from reliability.loops.revisits import looks
from tests.support.conversation import USER, acted, ask, loop_at, quiet, said, stages, user
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


def page(name, first, last, **bounds):
    """Reads lines of a file that shows their numbers."""
    shown = "\n".join(f"{n + bounds.get('offset', 1)}\tEntry {n} of {name} is in order." for n in range(first, last))
    return acted("Read", {"file_path": f"/repo/{name}", **bounds}, shown)


@pytest.mark.parametrize("again", [{}, {"limit": 2000}, {"offset": 1, "limit": None}], ids=["whole", "limit", "offset"])
def test_other_bounds_of_what_was_seen_show_nothing_new(again):
    """Law: a file that is read once more is a revisit however its lines are numbered, unless it shows another line."""
    names = [f"part_{n}" for n in range(5)]
    seen = [message for name in names for message in page(name, 0, 9, offset=0, limit=1000)]
    looks_again = [message for name in reversed(names) for message in page(name, 0, 9, **again)]
    assert stages([USER, *seen, *looks_again])[-3:] == [Stage.WARN, None, None]

    longer = [message for name in reversed(names) for message in page(name, 0, 10, **again)]
    assert set(stages([USER, *seen, *longer])) == {None}


@pytest.mark.parametrize(
    "says",
    [
        "[File part_0 unchanged since last read in this session \u2014 the full content was provided earlier.]",
        "File unchanged since last read. The content from the earlier Read tool_result is still current.",
        "The file hasn't changed since you last read it.",
        "Showing lines 1-5 of 9 total lines.\n\n---\n\n"
        + "\n".join(f"Entry {n} of part_0 is in order." for n in range(5)),
        "Displaying lines 3 to 7 (of 9)\n"
        + "\n".join(f"{n}: Entry {n - 1} of part_0 is in order." for n in range(3, 7)),
    ],
)
def test_what_a_reader_says_instead_of_a_file_or_of_its_bounds_is_nothing_new(says):
    """Law: a file that is said to be unchanged, and lines that were seen under a word of the reader's on which they
    are, are revisits; other lines under the same word are news."""
    whole, bounds = page("part_0", 0, 9), {"file_path": "/repo/part_0", "limit": 5}
    assert stages([USER, *whole, *(3 * acted("Read", bounds, says))])[-1] is Stage.WARN
    other = [acted("Read", bounds | {"offset": n}, f"{says}\nItem {n}\nItem {n + 1}\nItem {n + 2}") for n in range(4)]
    news = [message for lap in other for message in lap]
    assert says.count("\n") < 2 or set(stages([USER, *whole, *news])) == {None}


@pytest.mark.parametrize("step", [3, 50])
def test_a_file_that_is_read_part_by_part_is_news(step):
    """Law: each further part of a file is news, also where a part is read that begins before the end of the last."""
    parts = range(0, 20 * step, step)
    read = [message for at in parts for message in page("log", at, at + step + 1, offset=at, limit=step + 1)]
    assert set(stages([USER, *read])) == {None}


SEEN = [message for name in "abcd" for message in look(name)]
AGAIN = [message for name in "cadb" for message in look(name)]


@pytest.mark.parametrize(("between", "free"), [
    (acted("edit_file", {"path": "a", "new": "x"}, "ok"), True), (acted("bash", {"command": "make"}, "built"), True),
    (acted("wait", {"seconds": 5}, "5 s have gone by"), True),
    (acted("ask_user", {"question": "Which?"}, "the second"), True),
    ([said("I look again."), user("Look at all four again.")], True), ([], False),
    (acted("todo_write", {"todos": ["read a"]}, "Todos were modified."), False),
], ids=["edit", "command", "wait", "question", "user", "nothing", "note"])  # fmt: skip
def test_what_may_have_changed_is_looked_at_again(between, free):
    """Law: behind anything but a look, a look is news once more; a plan that is written down makes none of it news."""
    assert quiet([USER, *SEEN, *between, *AGAIN]) is free


NOT_FOUND = "<tool_use_error>String to replace not found in file.\nString: {}</tool_use_error>"
NOT_REPLACED = "ERROR:\nNo replacement was performed, old_str `{}` did not appear."
FAILING = {
    "Claude Code": ("Edit", "old_string", NOT_FOUND),
    "Codex": ("apply_patch", "patch", "Failed to apply patch: context not found in a.py"),
    "OpenHands": ("str_replace_editor", "old_str", NOT_REPLACED),
    "Cline": ("replace_in_file", "diff", '{{"error": "The SEARCH block was not found in the file: {}"}}'),
}
SHOWN = "     1\tdef fooo():\n     2\t    pass\n"
LOOKING = [
    acted("Read", {"file_path": "a.py"}, SHOWN),
    acted("str_replace_editor", {"command": "view", "path": "a.py"}, SHOWN),
    acted("shell", {"command": ["cat", "a.py"]}, SHOWN),
    acted("Bash", {"command": "cat a.py"}, SHOWN),
    [*acted("Grep", {"pattern": "foo"}, "1:def fooo():"), *acted("Read", {"file_path": "a.py"}, SHOWN)],
]


def fail(client, n):
    tool, key, error = FAILING[client]
    text = f"def foo({'x' * n}): return {n}"
    return acted(tool, {"command": "str_replace", "path": "a.py", key: text}, error.format(text))


@pytest.mark.parametrize("client", FAILING)
@pytest.mark.parametrize("looking", LOOKING, ids=lambda looking: looking[0]["tool_calls"][0]["function"]["name"])
def test_edits_that_fail_make_nothing_new(client, looking):
    """Law: edits that fail with one error, however they differ, and equal looks between them are a loop."""
    found = stages([USER, *[message for n in range(14) for message in [*fail(client, n), *looking]]])
    assert Stage.WARN in found[:12]
    assert Stage.BREAK in found
    assert Stage.BREAK not in found[:9]


GONE = "write_stdin failed: Unknown process id 1"


def poke(n):
    return acted("write_stdin", {"chars": f"cat part_{n}.txt", "session_id": 1}, GONE)


@pytest.mark.parametrize("otherwise", [
    lambda n: acted("view_image", {"path": f"{n}.txt"}, f"unable to locate image at `{n}.txt`"),
    lambda n: acted("exec_command", {"cmd": f"cat {n}.txt"}, f"Process exited with code 1\nno {n}.txt"),
    lambda n: acted("apply_patch", {"patch": f"+{n}"}, f"Failed to apply patch: line {n} isn't there"),
], ids=["another tool", "a look of a shell", "an edit"])  # fmt: skip
def test_what_fails_otherwise_between_equal_errors_changes_nothing(otherwise):
    """Law: a call that fails with the same error is a loop, too, where other calls fail between."""
    found = stages([USER, *[message for n in range(12) for message in [*poke(n), *poke(n + 1), *otherwise(n)]]])
    assert Stage.WARN in found[:6]
    assert Stage.BREAK in found[:10]
    assert Stage.BREAK not in found[:4]


@pytest.mark.parametrize("between", [
    lambda n: acted("exec_command", {"cmd": f"make {n}"}, f"make: *** [{n}] Error 1\nProcess exited with code 2"),
    lambda n: acted("exec_command", {"cmd": f"cat {n}.txt"}, f"This stands in {n}"),
    lambda n: acted("wait", {"seconds": 5}, "5 s have gone by"),
], ids=["a command that fails", "another file", "a wait"])  # fmt: skip
def test_what_may_have_changed_something_between_equal_errors_is_news(between):
    """Law: a command of a shell that fails may have done its first half."""
    assert quiet([USER, *[message for n in range(12) for message in [*poke(n), *poke(n + 1), *between(n)]]])


@pytest.mark.parametrize("client", FAILING)
@pytest.mark.parametrize(
    "between",
    [
        lambda n: acted("Read", {"file_path": f"{n}.py"}, f"{SHOWN} of {n}"),
        lambda n: acted("Read", {"file_path": "a.py"}, SHOWN + "# somebody wrote here too\n" * n),
        lambda n: acted("edit_file", {"path": "a.py", "new": f"x{n}"}, "The file was changed."),
        lambda n: acted("Bash", {"command": f"sed -i {n}d a.py"}, ""),
        lambda n: acted("wait", {"seconds": 5}, "5 s have gone by"),
    ],
    ids=["another file", "another text", "another edit", "command", "wait"],
)
def test_news_between_edits_that_fail_is_news(client, between):
    """Law: what shows something new, changes something or waits between such errors ends their streak."""
    look = acted("Read", {"file_path": "b.py"}, SHOWN)
    assert quiet([USER, *[message for n in range(12) for message in [*fail(client, n), *look, *between(n)]]])


def cycle(period, laps, act):
    looks = [message for k in range(period - 1) for message in look(f"{k}.py")]
    return [USER, *[message for n in range(laps) for message in [*looks, *act(n)]]]


@pytest.mark.parametrize("period", [13, 16, 20])
@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("Write", {"file_path": "s.md", "content": "x"}, "The file is written."),
        ("Bash", {"command": "pytest"}, "1 failed, 3 passed in {}.12s"),
        ("run_tests", {}, "1 failed, 3 passed in {}.12s"),
    ],
)
def test_a_deed_that_is_done_again_makes_nothing_new(period, tool, arguments, result):
    """Law: in a cycle of looks longer than any that is compared, one equal deed with an equal result is no news; one
    that differs, or ends differently, is."""
    found = stages(cycle(period, 6, lambda n: acted(tool, arguments, result.format(n))))
    assert found[: 2 * period] == [None] * (2 * period)
    assert Stage.WARN in found[: 2 * period + 4]
    assert Stage.BREAK in found
    assert quiet(cycle(period, 6, lambda n: acted(tool, arguments | {"content": f"v{n}"}, result.format(n))))
    assert quiet(cycle(period, 6, lambda n: acted(tool, arguments, f"{n + 1} things differ from what was before")))


def test_an_agent_that_edits_between_equal_test_runs_goes_on():
    """Law: other edits that succeed make all news, however often the same tests fail alike behind them and the
    same files are read, two of them twice."""
    tests = acted("Bash", {"command": "pytest"}, "1 failed")
    laps = (
        [*acted("edit_file", {"new": f"x{n}"}, "changed"), *tests, *SEEN, *look("a"), *look("b"), *tests]
        for n in range(8)
    )
    assert quiet([USER, *[message for lap in laps for message in lap]])


def test_one_result_that_has_changed_is_news():
    """Law: a look with another result ends the streak, and so does a look at something new."""
    changed = acted("read_file", {"path": "a"}, "Another text stands here by now, as somebody wrote it.")
    assert quiet([USER, *SEEN, *look("c"), *changed, *look("d"), *look("b")])
    assert quiet([USER, *SEEN, *look("c"), *look("a"), *look("e"), *look("d"), *look("b")])


@pytest.mark.parametrize("order", ["Read each file 5 times.", "Read them again and again until I stop you."])
def test_looks_that_a_person_orders_are_no_loop(order):
    """Law: who orders repetition gets it."""
    assert quiet([user(order), *SEEN, *AGAIN])


TOLD = "User: Alice, Role: Engineer, Team: Platform, ID: U-1001"
NAMES = [
    f"{first}{last}" for first in ("Bo", "Cara", "Dina", "Emi") for last in ("", "lyn", "beth", "mar", "nor", "tess")
]


@pytest.mark.parametrize(("tool", "key"), [("lookup_user", "name"), ("search_docs", "query"), ("get_page", "url")])
def test_guesses_that_are_told_the_same_are_nudged_and_then_broken(tool, key):
    """Law: who asks for one thing after another that nobody has named, and is told the same of each, is nudged at each
    third, and broken at the end of a poll's patience."""
    asked = ["Alice", *NAMES]
    found = stages([user("What may Alice do?"), *(m for name in asked for m in acted(tool, {key: name}, TOLD))])
    assert found[:21] == [Stage.WARN if n % 3 == 0 else None for n in range(1, 20)] + [Stage.BREAK] * 2


@pytest.mark.parametrize(("request_text", "before", "results"), [
    (f"Look up {', '.join(NAMES)}.", [], [TOLD]),  # named by the user
    ("Look up the team.", acted("list_team", {}, "\n".join(NAMES)), [TOLD]),  # named by a result
    ("Look up each of the twenty-five kings.", [], [TOLD]),
    ("Find a free name.", [], ["free"]),  # says too little to be the same
    ("Find a free name.", [], ["No such user was found in any of the directories."]),
    ("Who is there?", [], [TOLD.replace("Alice", name) for name in NAMES]),
])  # fmt: skip
def test_looks_at_one_thing_after_another_are_no_guesses(request_text, before, results):
    """Law: what was named is asked for once each, and what says little, or nothing was found, may come again."""
    asked = [acted("lookup_user", {"name": name}, results[n % len(results)]) for n, name in enumerate(NAMES)]
    assert Stage.BREAK not in stages([user(request_text), *before, *(m for two in asked for m in two)])
    assert quiet([user(request_text), *before, *(m for two in asked[:9] for m in two)])


def test_what_is_polled_is_no_revisit():
    """Law: a look at something that still goes on is a poll, whatever stands between."""
    jobs = [message for n in (1, 2, 3, 2, 1, 3, 2) for message in acted("get_job", {"id": n}, '{"status": "running"}')]
    assert quiet([USER, *jobs])


@pytest.mark.parametrize("config", [LoopConfig(duplicate_threshold=0), LoopConfig(enabled=False)])
def test_a_nudge_can_be_switched_off(config):
    """Law: the thresholds are those of equal calls."""
    assert Stage.WARN not in stages([USER, *SEEN, *AGAIN], config)


def test_the_nudge_says_what_is_wrong():
    """Law: the model is told that it has seen this, and to answer in words."""
    loop = loop_at([USER, *SEEN, *look("c"), *look("a")], ask("read_file", {"path": "d"}))
    assert (loop.kind, loop.repetitions) == (Kind.REVISITS, 3)
    assert "You have seen this already" in nudge(loop)
    assert "Now answer the request in words" in nudge(loop)


@pytest.mark.parametrize(("tool", "result", "has_seen"), [
    ("read_file", "the owner is Mira", True), ("read_file", "Error: no such file", False),
    ("set_owner", "the owner is Mira", False),
    ("touch {0} && cat {0}", "the owner is Mira", True), ("cat {0}; touch {0}", "the owner is Mira", False),
])  # fmt: skip
@pytest.mark.parametrize("period", [1, 2])
def test_who_looks_again_behind_a_nudge_answers_in_words(tool, result, has_seen, period):
    """Law: the first nudge leaves the way open. Behind it the same look brings the same result, so that the next nudge
    asks for an answer in words; where the call has failed, or does something last, there is nothing to tell."""
    lap: list = []
    for name in "ab"[:period]:
        called = ("exec_command", {"cmd": tool.format(name)}) if " " in tool else (tool, {"path": name})
        lap += acted(*called, f"{result} in {name}")
    found = [loop_at([USER, *lap * laps], lap[0]) for laps in (2, 3)]
    assert [loop.stage for loop in found if loop is not None] == [Stage.WARN, Stage.WARN]
    assert [loop.kind is Kind.REVISITS for loop in found if loop is not None] == [False, has_seen]


DEEDS = (
    "set_status", "search_and_replace", "find_and_update", "send_alert", "block_card", "click", "go", "get_next_page",
    "update_list", "create_view", "remove_post", "deny", "answer", "wait_for",
)  # fmt: skip


def test_a_name_says_whether_a_tool_only_looks():
    """Law: a tool whose name says that it reads looks; one that changes anything, leads on or waits does not only look,
    whatever else its name says."""
    names = [*TOOLS, "describe-pod", "WebFetch", "search", "list_pull_requests", "Grep", "Glob"]
    assert [name for name in names if not (names_look(name) and looks(SeenCall(name, "{}")))] == []
    assert [name for name in DEEDS if names_look(name)] == []


SENT = [json.dumps({"url": "http://h/a", "method": method}) for method in ("POST", "put", "DELETE")]
SQL = """UPDATE lights SET on = NOT on|  insert into t values (1)|BEGIN; DELETE FROM t; COMMIT|DROP TABLE t
create or replace view v as select 1|WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x|mutation { toggle }
fragment f on L { id } mutation Go($a: Int) { toggle(a: $a) }"""
ONLY_READS = """SELECT * FROM updates WHERE set = 1|WITH x AS (SELECT 1) SELECT * FROM x|query { mutation }
{ lights { on } }|how to update a lock file|create react app|who deleted the file"""


@pytest.mark.parametrize("name", ["query", "fetch", "graphql_query", "search"])
def test_what_a_tool_that_looks_is_told_counts(name):
    """Law: a tool whose name says that it looks doesn't look where it is told to send or to write."""
    told = [json.dumps({key: text}) for text in re.split(r"[|\n]", SQL) for key in ("sql", "query")]
    told += [*SENT, '{"url": "http://h/relay/0?turn=on"}', '{"url": "http://h/a?b=1&light=toggle"}']
    assert [text for text in told if looks(SeenCall(name, text))] == []
    read = [json.dumps({key: text}) for text in re.split(r"[|\n]", ONLY_READS) for key in ("sql", "query")]
    read += ['{"url": "http://h/turn?on=1", "method": "GET"}', '{"url": "http://h/on"}', '{"method": "bfs"}']
    assert [text for text in read if not looks(SeenCall(name, text))] == []


@pytest.mark.parametrize("key", ["command", "action", "operation"])
def test_an_action_goes_before_a_name(key):
    """Law: of one tool for many deeds the action says whether it looks."""
    told = [("str_replace_editor", "view"), ("manage_notes", "list_all"), ("str_replace_editor", "create")]
    told += [("get_note", "delete"), ("host", "cat a && rm a")]
    assert [looks(SeenCall(name, json.dumps({key: action}))) for name, action in told] == [True, True, *[False] * 3]


def test_commands_that_look():
    """Law: of a shell the command counts."""
    only = {"cat a.txt": True, "grep -n x a.py | head": True, "rm a.txt": False, "make test": False, "": False}
    assert {command: looks(SeenCall("bash", json.dumps({"command": command}))) for command in only} == only
