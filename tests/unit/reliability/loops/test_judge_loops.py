"""What must be called a loop, and where: the counterpart of `test_judge_no_loops`."""

import json

import pytest

from reliability.loops import Stage, find_loop, nudge, read_turns
from tests.support.conversation import CONFIG, USER, Message, acted, ask, loop_at, quiet, said, stages, user


def test_19_a_mutating_call_that_spoils_what_it_edits_is_broken() -> None:
    """The same edit five times, with results that are nearly but never quite the same, is nudged and then broken."""
    window = [f"{chr(97 + i % 26)}{chr(97 + i // 26)} = compute()" for i in range(60)]
    edits = [
        m for i in range(6) for m in acted("insert", {"n": 3}, "\n".join([*["import x"] * i, *window][:60]) + f" {i}")
    ]
    assert stages([USER, *edits]) == [None, None, None, Stage.WARN, Stage.BREAK, Stage.BREAK]


@pytest.mark.parametrize("spelling", [
    '{"b": {"y": 2, "x": 1}, "a": "caf\\u00e9"}', '{"a":"cafe\\u0301","b":{"x":1.0,"y":2}}',
    ' {"a": "café",\n "b": {"y": 2, "x": 1}, "task_progress": "almost"} ',
])  # fmt: skip
def test_20_spelling_does_not_hide_a_loop(spelling: str) -> None:
    """Key order, white space, unicode forms and metadata arguments make no other call."""
    plain = {"a": "café", "b": {"x": 1, "y": 2}}
    history = [USER, *acted("find", plain, "none"), *acted("find", spelling, "none")]
    assert loop_at(history, ask("find", plain)) is not None


def test_21_a_streak_keeps_its_name() -> None:
    """A frozen streak, with our nudge and an empty reply between, is the same one."""
    history = [USER, *acted("save", {}, "Error: disk full"), *acted("save", {}, "Error: disk full")]
    loop = loop_at(history, ask("save"))
    history += [user(nudge(loop)), said(""), *acted("save", {}, "Error: disk full")]
    again = loop_at(history, ask("save"))
    assert again.key == loop.key


def test_23_ping_pong_needs_stable_results_on_both_sides() -> None:
    """Where one side of an alternation moves on, it is progress."""
    repetitions = [m for i in range(6) for m in [*acted("ping", {}, "same"), *acted("pong", {}, f"count {i}")]]
    assert quiet([USER, *repetitions])


def test_24_an_edit_resets_only_once() -> None:
    """Four failures, one edit, then five failures without an edit are broken at the fifth."""
    fail = acted("build", {}, "error: missing semicolon")
    found = stages([USER, *(fail * 4), *acted("edit", {"x": 1}), *(fail * 5)])
    assert Stage.BREAK not in found[:9]
    assert found[9] is Stage.BREAK


@pytest.mark.parametrize(
    ("tool", "key", "error"),
    [("find_user", "name", "Error: user not found"), ("browser_click", "ref", "Error: Ref {} not found")],
)
def test_26_looking_for_what_is_not_there_breaks_later(tool: str, key: str, error: str) -> None:
    """ "Not found" is an answer too, also of a click: it is nudged at three, and broken at twice the limit."""
    found = stages([USER, *[m for i in range(11) for m in acted(tool, {key: f"e{i}"}, error.format(f"e{i}"))]])
    assert (found.index(Stage.WARN), found.index(Stage.BREAK)) == (3, 10)


def test_27_what_stands_between_calls_does_not_reset() -> None:
    """Texts, system messages, reminders and unknown items between the calls change nothing."""
    between: list[Message] = [
        said("Let me see."),
        {"role": "system", "content": "Be brief."},
        user("<system-reminder>Two tasks are open.</system-reminder>"),
        {"role": "developer", "content": "x"},
    ]
    history = [USER, *acted("read", {"p": 1}), *between, *acted("read", {"p": 1}), *between]
    assert loop_at(history, ask("read", {"p": 1})) is not None


def test_28_only_the_tail_of_a_long_history_matters() -> None:
    """A loop at the end of a thousand messages without any user message is found; a loop far back is not."""
    work = [m for i in range(500) for m in acted("read", {"p": i}, str(i))]
    loop = [m for _ in range(4) for m in acted("read", {"p": "x"}, "same")]
    assert loop_at([*work, *loop], ask("read", {"p": "x"})).stage is Stage.BREAK  # type: ignore[union-attr]
    assert loop_at([*loop, *work], ask("read", {"p": "x"})) is None


def test_29_who_comes_back_to_a_loop_is_in_it_again() -> None:
    """Who leaves a loop is free, and who comes back to it is nudged again; a user message clears the record."""
    loop = [m for _ in range(3) for m in acted("read", {"p": 1}, "same")]
    assert loop_at([USER, *loop], ask("write", {"p": 2})) is None
    assert loop_at([USER, *loop, *acted("write", {"p": 2}), *loop[:4]], ask("read", {"p": 1})) is not None
    assert loop_at([USER, *loop, user("Now look at the other end."), *loop[:2]], ask("read", {"p": 1})) is None


def test_29_what_a_client_adds_to_a_result_is_none_of_it() -> None:
    """Law: reminders, times and a window that fills change no result, of a native call or of one in the text."""
    added = "\n<environment_details>\n# Context Window\n{} / 128 tokens at 10:0{}\n</environment_details>"
    native = [m for i in range(5) for m in acted("npm", {}, "1 failing" + "<system-reminder>x</system-reminder>" * i)]
    call = "<execute_command>\n<command>npm test</command>\n</execute_command>"
    written = [m for i in range(5) for m in (said(call), user("1 failing" + added.format(9 * i, i)))]
    for laps in (native, written):
        assert stages([USER, *laps])[2:] == [Stage.WARN, Stage.WARN, Stage.BREAK]


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("HassTurnOn", {"name": "desk lamp"}, {"success": True}),
        ("light_turn_off", {"entity_id": "light.desk"}, "The light was turned off"),
        ("send_email", {"to": "bob", "body": "Hello"}, "Email sent, 4f8c2a91d07b6e35"),
        ("execute_sql", {"query": "DELETE FROM logs WHERE old LIMIT 1000"}, "DELETE 0"),
    ],
)
def test_30_what_is_done_once_is_no_step(tool: str, arguments: dict[str, str], result: object) -> None:
    """A lamp that is on stays on, and a letter that was sent was sent."""
    assert stages([USER, *acted(tool, arguments, result) * 5])[2:] == [Stage.WARN, Stage.WARN, Stage.BREAK]


def test_33_a_loop_never_makes_a_conversation_unusable() -> None:
    """After ten laps, the user's "stop and summarise" is free, and so is every text answer."""
    looped = [USER, *[m for _ in range(10) for m in acted("read", {"p": 1})]]
    assert loop_at(looped, said("Summary: nothing new.")) is None
    stop = [*looped, user("Stop using tools and summarise.")]
    assert loop_at(stop, said("Summary: nothing new.")) is None
    assert find_loop(read_turns(stop), CONFIG) is None


def test_34_arguments_that_cannot_be_parsed_compare_as_text() -> None:
    """Broken argument strings are equal when they are, but for their edges, the same text."""
    history = [USER, *acted("read", '{"p": 1', "bad"), *acted("read", ' {"p": 1\n', "bad")]
    assert loop_at(history, ask("read", '{"p": 1')) is not None
    assert loop_at(history, ask("read", '{"p": 2')) is None


@pytest.mark.parametrize("step", [
    {"action": "shell", "argument": "grep -c red a.txt"}, {"next": "look", "why": "it is asked"}, {"action": "look"},
])  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_data_by_a_call_that_its_client_writes_down_as_text_is_a_loop(step: dict[str, str], indent: int | None) -> None:
    """A client that wants data by a tool's call (instructor) keeps the data as text: the next call with the same data
    is one more lap, just as the same text is. With other data, or in a history with calls, it is none."""
    text, result = json.dumps(step, indent=indent), user('{"chat_message":"Result: 0"}')
    laps = [said(text), result]
    found = [[loop_at([USER, *laps * n], answer) for n in range(9)] for answer in (ask("Step", step), said(text))]
    assert found[0] == found[1]
    assert (Stage.BREAK in [loop and loop.stage for loop in found[0]]) is ("action" in step)
    assert loop_at([USER, *laps * 8], ask("Step", step | {"more": "b"})) is None
    assert loop_at([USER, *acted("look"), *laps * 2], ask("Step", step)) is None


def test_a_call_in_json_behind_words_is_a_loop() -> None:
    """A call that an agent writes as bare JSON behind its words (langroid), with the same result each time, is nudged
    and broken, and with a result that changes it is none."""
    laps = [said('Let me see.\n{"request": "read_file", "path": "a"}'), user("the text of a")]
    assert stages([USER, *laps * 5]) == [None, None, Stage.WARN, Stage.WARN, Stage.BREAK]
    assert quiet([USER, *(m for i in range(6) for m in (laps[0], user(f"page {'abcdef'[i] * 9}")))])
