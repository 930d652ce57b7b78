"""What must and must not be called a loop: one test for each case that detectors are known to get wrong.

Every test goes the way of a real request: messages in, the answer about to leave as the candidate.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from reliability.loops import (
    Kind,
    Loop,
    LoopConfig,
    Scan,
    Stage,
    answer_turn,
    find_loop,
    finish,
    nudge,
    nudged,
    read_turns,
    repeated_calls,
    step,
    truncate,
    truncate_calls,
)

Message = dict[str, Any]
CONFIG = LoopConfig()
USER: Message = {"role": "user", "content": "Please do the task."}


def ask(name: str, arguments: Any = None, call_id: str = "c1", text: str | None = None) -> Message:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


def told(content: Any, call_id: str = "c1") -> Message:
    text = content if isinstance(content, str) else json.dumps(content)
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def acted(name: str, arguments: Any = None, result: Any = "done") -> list[Message]:
    return [ask(name, arguments), told(result)]


def said(text: str) -> Message:
    return {"role": "assistant", "content": text}


def loop_at(messages: list[Message], answer: Message, config: LoopConfig = CONFIG) -> Loop | None:
    return find_loop(read_turns(messages), config, answer_turn(answer))


def stages(messages: list[Message], config: LoopConfig = CONFIG) -> list[Stage | None]:
    """The stage at every answer of the conversation, each judged before its result is known."""
    found = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            loop = loop_at(messages[:index], message, config)
            found.append(loop.stage if loop else None)
    return found


def quiet(messages: list[Message], config: LoopConfig = CONFIG) -> bool:
    return all(stage is None for stage in stages(messages, config))


def in_answer(text: str) -> Loop | None:
    return finish(step(Scan(), text)[0])[1]


# Must not fire


def test_01_a_history_shorter_than_the_threshold_is_no_loop() -> None:
    """Two equal calls with equal results are no loop."""
    assert quiet([USER, *acted("read", {"p": 1}), *acted("read", {"p": 1})])


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


@pytest.mark.parametrize("result", [{"exit_code": 1, "output": ""}, "", {"exit_code": 1, "error": "exit status 1"}])
def test_07_failing_searches_are_a_search(result: Any) -> None:
    """Twelve different greps that find nothing are no loop."""
    greps = [m for i in range(12) for m in acted("terminal", {"command": f"grep -r word{i} ."}, result)]
    assert quiet([USER, *greps])


def test_08_an_error_that_moves_to_another_line_is_progress() -> None:
    """The same command whose error names another line each time is no loop at the low thresholds."""
    runs = [m for i in range(4) for m in acted("python", {"code": "run()"}, f"SyntaxError: line {10 + i}")]
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


def test_10_a_new_user_message_clears_the_verdict() -> None:
    """After a loop of six laps the first answer to a new user message is judged afresh."""
    looped = [USER, *[m for _ in range(6) for m in acted("read", {"p": 1})]]
    assert loop_at(looped, ask("read", {"p": 1})) is not None
    assert loop_at([*looped, {"role": "user", "content": "Try the other file."}], ask("read", {"p": 1})) is None


def test_11_an_alternation_that_is_interrupted_is_no_loop() -> None:
    """A, B, A, B, then C, then A, B, A, B holds no third lap."""
    a, b, c = (acted(name, {"n": 1}) for name in ("one", "two", "three"))
    assert quiet([USER, *a, *b, *a, *b, *c, *a, *b, *a, *b])


def test_12_another_conversation_is_another_state() -> None:
    """The verdict is made of the request alone: what another session looped is unknown here."""
    looped = [USER, *[m for _ in range(4) for m in acted("read", {"p": 1})]]
    assert loop_at(looped, ask("read", {"p": 1})) is not None
    assert loop_at([USER], ask("read", {"p": 1})) is None


def test_13_one_parallel_batch_counts_once() -> None:
    """Six equal calls in one answer are one lap of the history."""
    batch = ask("read", {"p": 1})
    batch["tool_calls"] = [{**batch["tool_calls"][0], "id": f"c{i}"} for i in range(6)]
    results = [told("same", f"c{i}") for i in range(6)]
    assert loop_at([USER], batch) is None
    assert loop_at([USER, batch, *results], batch) is None


def test_14_a_request_that_is_sent_again_counts_once() -> None:
    """The same request, judged any number of times, gets the same verdict."""
    messages = [USER, *acted("read", {"p": 1})]
    assert [loop_at(messages, ask("read", {"p": 1})) for _ in range(5)] == [None] * 5


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
    filler = "".join(dice.choice("abcdefghijklmnopqrstuvwxyz     ") for _ in range(520))
    assert in_answer(f"This very sentence of fifty characters comes again. {filler} " * 10) is None


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


def test_18_a_long_report_that_changed_once_is_news() -> None:
    """Equal results and then one word of another kind: the identical call is no noise, and is free."""
    report = " ".join(f"item {chr(97 + i % 26)}{chr(97 + i // 26)} on its way" for i in range(60))
    for results in (["waiting"] * 3 + ["shipped"], ["waiting", "shipped", "shipped", "shipped", "lost"]):
        calls = [m for state in results for m in acted("order", {"id": 1}, f"{report}; {state}")]
        assert loop_at([USER, *calls], ask("order", {"id": 1})) is None


# Must fire


def test_19_a_mutating_call_that_spoils_what_it_edits_is_broken() -> None:
    """The same edit five times, with results that are nearly but never quite the same, breaks."""
    window = [f"{chr(97 + i % 26)}{chr(97 + i // 26)} = compute()" for i in range(60)]
    edits = [
        m for i in range(6) for m in acted("insert", {"n": 3}, "\n".join([*["import x"] * i, *window][:60]) + f" {i}")
    ]
    assert stages([USER, *edits]) == [None, None, None, None, Stage.BREAK, Stage.BREAK]


def test_19_the_threshold_is_exact_and_the_verdict_stands() -> None:
    """Equal calls with equal results: nothing at two laps, a nudge at three and four, then a break."""
    calls = [m for _ in range(7) for m in acted("read", {"p": 1}, "same")]
    expected = [None, None, Stage.WARN, Stage.WARN, Stage.BREAK, Stage.BREAK, Stage.BREAK]
    assert stages([USER, *calls]) == expected


@pytest.mark.parametrize(
    "spelling",
    [
        '{"b": {"y": 2, "x": 1}, "a": "caf\\u00e9"}',
        '{"a":"cafe\\u0301","b":{"x":1.0,"y":2}}',
        ' {"a": "café",\n "b": {"y": 2, "x": 1}, "task_progress": "almost"} ',
    ],
)
def test_20_spelling_does_not_hide_a_loop(spelling: str) -> None:
    """Key order, white space, unicode forms and metadata arguments make no other call."""
    plain = {"a": "café", "b": {"x": 1, "y": 2}}
    history = [USER, *acted("find", plain, "none"), *acted("find", spelling, "none")]
    assert loop_at(history, ask("find", plain)) is not None


def test_21_the_nudge_comes_once_per_streak() -> None:
    """A frozen streak, with an empty reply between, is recognised as nudged already."""
    history = [USER, *acted("save", {}, "Error: disk full"), *acted("save", {}, "Error: disk full")]
    loop = loop_at(history, ask("save"))
    assert loop is not None
    assert loop.first
    assert not nudged(history, loop)
    history += [{"role": "user", "content": nudge(loop)}, said(""), *acted("save", {}, "Error: disk full")]
    again = loop_at(history, ask("save"))
    assert again is not None
    assert not again.first
    assert nudged(history, again)


def test_22_who_corrects_itself_is_not_stopped() -> None:
    """After a nudge another call, and after it a text, are free."""
    history = [USER, *[m for _ in range(3) for m in acted("read", {"p": 1})]]
    assert loop_at(history, ask("read", {"p": 2})) is None
    assert loop_at(history, said("Here is what I found.")) is None


@pytest.mark.parametrize("period", [2, 3, 4, 5])
def test_23_cycles_with_stable_results_are_found(period: int) -> None:
    """A cycle of two to five steps is nudged when its third lap starts and broken when its fifth does."""
    lap = [m for i in range(period) for m in acted(f"step{i}", {"n": 1}, f"result {i}")]
    found = stages([USER, *(lap * 5)])
    assert found.index(Stage.WARN) == 2 * period
    assert found.index(Stage.BREAK) == 4 * period


def test_23_ping_pong_needs_stable_results_on_both_sides() -> None:
    """Where one side of an alternation moves on, it is progress."""
    laps = [m for i in range(6) for m in [*acted("ping", {}, "same"), *acted("pong", {}, f"count {i}")]]
    assert quiet([USER, *laps])


def test_24_an_edit_resets_only_once() -> None:
    """Four failures, one edit, then five failures without an edit are broken at the fifth."""
    fail = acted("build", {}, "error: missing semicolon")
    found = stages([USER, *(fail * 4), *acted("edit", {"x": 1}), *(fail * 5)])
    assert Stage.BREAK not in found[:9]
    assert found[9] is Stage.BREAK


@pytest.mark.parametrize(
    "result",
    [
        lambda i: json.dumps({"output": "boom", "execution_count": i, "duration_seconds": [0.4, 0.2, 0.9][i % 3]}),
        lambda i: json.dumps({"ok": True, "messageId": f"m-{i * 977}", "ts": 1_760_000_000 + 17 * i}),
        lambda i: f"bash: line {62_215 + i}: javac: command not found",
        lambda i: f"[12:0{i}:44] no such user\n(took 0.{i}35s)",
        lambda i: f"2026-03-03T10:0{i}:01.250Z ERROR no route (pid {4000 + i})",
    ],
)
def test_25_volatile_metadata_does_not_hide_a_replay(result: Any) -> None:
    """Durations, counters of cells, ids, moments and shell line numbers change, and the loop is found."""
    calls = [m for i in range(5) for m in acted("try_it", {"x": 1}, result(i))]
    assert stages([USER, *calls]) == [None, None, Stage.WARN, Stage.WARN, Stage.BREAK]


def test_26_the_same_error_under_any_arguments() -> None:
    """Three times the same error of one tool is nudged, five times breaks; another one between is neither."""
    errors = [m for i in range(6) for m in acted("lookup_tool", {"q": i}, "Error: invalid API key supplied")]
    assert stages([USER, *errors]) == [None, None, None, Stage.WARN, Stage.WARN, Stage.BREAK]
    broken = [*errors[:4], *acted("lookup_tool", {"q": 9}, "Error: rate limit reached"), *errors[:4]]
    assert quiet([USER, *broken])


def test_26_looking_for_what_is_not_there_breaks_later() -> None:
    """ "Not found" is an answer too: it is nudged at three, and broken at twice the limit."""
    misses = [m for i in range(11) for m in acted("find_user", {"name": f"n{i}"}, "Error: user not found")]
    found = stages([USER, *misses])
    assert found.index(Stage.WARN) == 3
    assert found.index(Stage.BREAK) == 10


def test_27_what_stands_between_calls_does_not_reset() -> None:
    """Texts, system messages, reminders and unknown items between the calls change nothing."""
    between: list[Message] = [
        said("Let me see."),
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "<system-reminder>Two tasks are open.</system-reminder>"},
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


def test_29_the_second_strike_is_known_as_one() -> None:
    """Who leaves a loop is free, and who comes back to it is told apart; a user message clears the record."""
    loop = [m for _ in range(3) for m in acted("read", {"p": 1}, "same")]
    recovery = acted("write", {"p": 2})
    assert loop_at([USER, *loop], ask("write", {"p": 2})) is None
    first = loop_at([USER, *loop[:4]], ask("read", {"p": 1}))
    second = loop_at([USER, *loop, *recovery, *loop[:4]], ask("read", {"p": 1}))
    cleared = loop_at([USER, *loop, USER, *loop[:4]], ask("read", {"p": 1}))
    assert [found.strike for found in (first, second, cleared) if found] == [1, 2, 1]


@pytest.mark.parametrize(
    "text",
    [
        "All of this sentence has exactly fifty characters. " * 10,
        (
            "We should look at the configuration first, since the error may come from there, and then "
            "decide whether the service has to be restarted or not at all. "
        )
        * 10,
        "Thinking... Done. " * 30,
        "I shall not write any more.\n  I stop here.\n  I am finished.\n  I wait for your next command.\n" * 10,
        "I have added the logging that was asked for and checked the file. The task is complete now.\n  " * 10,
        "ha" * 400,
    ],
)
def test_30_a_chant_inside_one_answer_is_found(text: str) -> None:
    """A sentence, a paragraph, a short phrase: what repeats in prose is found within the repeats given."""
    found = in_answer("Let me begin. " + text)
    assert found is not None
    assert found.kind is Kind.CYCLE


def test_31_three_equal_texts_in_a_row() -> None:
    """The third equal text with no call between is nudged, the fifth breaks; "continue" changes nothing."""
    go_on = {"role": "user", "content": "Continue."}
    assert stages([USER, *[said("I am still thinking about it.")] * 5])[2:] == [
        Stage.WARN,
        Stage.WARN,
        Stage.BREAK,
    ]
    nagged = [m for _ in range(5) for m in (said("I am still thinking about it."), go_on)]
    assert stages([USER, *nagged])[2:] == [Stage.WARN, Stage.WARN, Stage.BREAK]
    assert quiet([USER, said("Same."), *acted("read"), said("Same."), *acted("look"), said("Same.")])


def test_31_equal_calls_inside_one_answer() -> None:
    """Forty-three equal calls in one answer are found, and two of them kept, native or written."""
    calls = answer_turn(ask("read", {"p": 1})).calls * 43
    assert repeated_calls(calls) is not None
    assert len(truncate_calls(calls)) == 2
    written = '<tool_call>\n{"name": "read", "arguments": {"p": 1}}\n</tool_call>\n' * 43
    assert in_answer(written).kind is Kind.ANSWER_CALLS  # type: ignore[union-attr]
    assert truncate(written).count("<tool_call>") == 2


def _legacy(result: str) -> list[Message]:
    return [
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": '{"p": 1}'}},
        {"role": "function", "name": "read", "content": result},
    ]


def _items(result: str, number: int) -> list[Message]:
    return [
        {"type": "function_call", "call_id": f"f{number}", "name": "read", "arguments": '{"p": 1}'},
        {"type": "function_call_output", "call_id": f"f{number}", "output": result},
    ]


def _blocks(result: str, number: int) -> list[Message]:
    use = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {"p": 1}}
    back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": [{"type": "text", "text": result}]}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [back]}]


def test_32_every_dialect_is_seen() -> None:
    """Legacy function calls, Responses items and Anthropic blocks loop like OpenAI's tool calls do."""
    for two in (
        _legacy("same") + _legacy("same"),
        _items("same", 1) + _items("same", 2),
        _blocks("same", 1) + _blocks("same", 2),
        _legacy("same") + _blocks("same", 2),
    ):
        for newest in (
            ask("read", {"p": 1}),
            _legacy("")[0],
            _blocks("", 3)[0],
            {"output": _items("", 3)[:1]},
        ):
            assert loop_at([USER, *two], newest) is not None
    assert loop_at([USER, *_items("one", 1), *_items("two", 2)], ask("read", {"p": 1})) is None


def test_33_a_loop_never_makes_a_conversation_unusable() -> None:
    """After ten laps, the user's "stop and summarise" is free, and so is every text answer."""
    looped = [USER, *[m for _ in range(10) for m in acted("read", {"p": 1})]]
    assert loop_at(looped, said("Summary: nothing new.")) is None
    stop = [*looped, {"role": "user", "content": "Stop using tools and summarise."}]
    assert loop_at(stop, said("Summary: nothing new.")) is None
    assert find_loop(read_turns(stop), CONFIG) is None


def test_34_arguments_that_cannot_be_parsed_compare_as_text() -> None:
    """Broken argument strings are equal when they are, but for their edges, the same text."""
    history = [USER, *acted("read", '{"p": 1', "bad"), *acted("read", ' {"p": 1\n', "bad")]
    assert loop_at(history, ask("read", '{"p": 1')) is not None
    assert loop_at(history, ask("read", '{"p": 2')) is None
