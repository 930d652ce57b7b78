"""Reading transcripts into turns; and who it was that spoke."""

from typing import Any

import pytest

from reliability import loops
from reliability.loops import (
    LoopConfig,
    SeenCall,
    Stage,
    Turn,
    answer_turn,
    calls_turn,
    carries_history,
    find_loop,
    nudge,
    read_turns,
)
from reliability.loops.content import NOTICE
from reliability.loops.transcript import TURNS_MAX
from tests.support.conversation import USER, Message, user

SCREEN = {"type": "image_url", "image_url": {"url": "data:x"}}


def ask(*ids: str, name: str = "f", arguments: Any = "{}") -> Message:
    entries = [{"id": i, "type": "function", "function": {"name": name, "arguments": arguments}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": entries}


def told(call_id: str | None, content: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def results(*messages: Message) -> list[tuple[str | None, ...]]:
    """The result texts of each turn that is read."""
    return [turn.results for turn in read_turns([USER, *messages])]


@pytest.mark.parametrize(("messages", "read"), [
    ([ask("a", "b"), told("b", "two"), told("a", "one")], [("one", "two")]),
    ([ask("call_0"), told("call_0", "one"), ask("call_0"), told("call_0", "two")], [("one",), ("two",)]),
    ([ask("a"), told("zzz", "stray")], [(None,)]), ([told("a", "stray")], []),
    ([ask("a"), told("a", "one"), told("a", "two")], [("one\ntwo",)]),
    *(([ask("a"), told("a", text)], [(text,)]) for text in ("3 lines removed", "cache cleared", "[removed]")),
    ([ask("a"), told("a", "x" * 300 + "[output omitted]")], [("x" * 300 + "[output omitted]",)]),
], ids=["batch", "reused", "stray", "no call", "pieces", "work", "cache", "removed", "long"])  # fmt: skip
def test_results_go_to_their_calls_by_id(messages: list[Message], read: list[tuple[str | None, ...]]) -> None:
    """In a parallel batch each result finds its call, in whatever order the results come; a reused id is the newest
    call's, and two messages for one call are one result. A result of no call is dropped; what a tool says of its own
    work is a result, also where it sounds as if it had been cleared."""
    assert results(*messages) == read


@pytest.mark.parametrize(
    "arguments", ['{"city": "Z\\u00fcrich", "request": "f"}', '{"request": "f", "city": "Zürich"}']
)
def test_a_name_among_past_arguments_says_nothing_of_the_call(arguments: str) -> None:
    """A client that writes the tool's name into the past calls (langroid) shows the calls that the model has made: the
    third is a loop, and the fifth breaks it, copied by the model or not. Another value counts."""
    made = calls_turn([("f", '{"city": "Zürich"}')])
    for laps, stage in ((2, Stage.WARN), (4, Stage.BREAK)):
        said = [part for n in range(laps) for part in (ask(f"c{n}", arguments=arguments), told(f"c{n}", "rain"))]
        for newest in (made, calls_turn([("f", arguments)])):
            loop = find_loop(read_turns([USER, *said]), LoopConfig(), newest)
            assert (loop and loop.stage) is stage
    assert read_turns([USER, ask("c", arguments='{"city": "f"}')])[0].calls == (SeenCall("f", '{"city": "f"}'),)


def test_folded_answers_are_read_apart() -> None:
    """Answers that a client folds into one message are turns of their own, so that the third equal call is known; two
    equal calls, and calls without results, may be one answer's."""
    names = ["read", "look", "look", "look"]
    ids = [f"c{number}" for number in range(len(names))]
    calls = [{"id": one, "function": {"name": name, "arguments": "{}"}} for one, name in zip(ids, names, strict=True)]
    folded, told_all = {"role": "assistant", "tool_calls": calls}, [told(one, one[1:]) for one in ids]
    turns = read_turns([folded, *told_all])
    assert [(turn.calls[0].name, *turn.results) for turn in turns] == list(zip(names, "0123", strict=True))
    assert [len(turn.calls) for turn in read_turns([folded, *told_all], 2)] == [1, 1]
    for whole in ([folded], [folded | {"tool_calls": calls[:3]}, *told_all]):
        assert len(read_turns(whole)) == 1


@pytest.mark.parametrize(
    "text", ["[Old tool result content cleared]", "Old environment output: (12 lines omitted)", "<tool output removed>"]
)
def test_a_cleared_result_is_unknown(text: str) -> None:
    """A placeholder in the place of a result is no result: two of them prove no loop."""
    history = [USER, ask("a"), told("a", text), ask("a"), told("a", text)]
    assert results(*history[1:]) == [(None,)] * 2
    assert find_loop(read_turns(history), LoopConfig(), answer_turn(ask("a"))) is None


@pytest.mark.parametrize(("content", "speaks"), [
    ("Thanks, and now the other one.", True), ([{"type": "text", "text": "Thanks."}], True),
    ([SCREEN, {"type": "text", "text": "What is this?"}], True), ("<task>look</task>", True),
    ("<system-reminder>x</system-reminder> and me", True), ("continue with the second file", True), (5, True),
    ("<system-reminder>one</system-reminder>\n<environment_details>two</environment_details>", False),
    ([{"type": "text", "text": "<system-reminder>Do not forget.</system-reminder>"}], False),
    (f"{NOTICE} 123] You repeat yourself.", False), ([SCREEN], False),
])  # fmt: skip
def test_the_user_speaks(content: Any, speaks: bool) -> None:
    """A message that a person can have said starts a new reading. Results and what stands beside them, screens behind
    them, reminders of a harness and our own nudges are not the user's words."""
    assert len(results(ask("a"), told("a", "x"), user(content))) == (0 if speaks else 1)


@pytest.mark.parametrize("content", ["continue", "Please continue.", "Go on!", "", None])
def test_go_on_re_arms_the_calls(content: Any) -> None:
    """A bare "continue" is a marker: it re-arms the rules for calls, and what was before is still read."""
    history = [USER, *[m for _ in range(5) for m in (ask("a"), told("a", "x"))]]
    assert find_loop(read_turns(history), LoopConfig(), answer_turn(ask("a"))) is not None
    turns = read_turns([*history, user(content)])
    assert len(turns) == 6
    assert turns[-1].continued
    assert find_loop(turns, LoopConfig(), answer_turn(ask("a"))) is None
    assert find_loop(turns, LoopConfig()) is None


def test_our_nudge_in_the_history_does_not_re_arm() -> None:
    """A nudge that came back with the history leaves the streak as it is."""
    history = [USER, *[m for _ in range(3) for m in (ask("a"), told("a", "x"))]]
    loop = find_loop(read_turns(history), LoopConfig(), answer_turn(ask("a")))
    assert find_loop(read_turns([*history, user(nudge(loop))]), LoopConfig(), answer_turn(ask("a"))) == loop


def test_reading_is_bounded() -> None:
    """Of a history without end only the newest turns and messages are read."""
    work = [m for i in range(2_000) for m in (ask(f"c{i}"), told(f"c{i}", str(i)))]
    turns = read_turns(work)
    assert len(turns) == TURNS_MAX
    assert turns[-1].results == ("1999",)
    assert len(read_turns(work, 5)) == 5
    assert len(read_turns([ask("a"), *[told("a", "x")] * 2_000])) == 0


@pytest.mark.parametrize(("response", "calls", "text"), [
    ("plain", 0, "plain"), ({"choices": [{"message": ask("a", "b")}]}, 2, ""), (ask("a"), 1, ""),
    ({"content": [{"type": "text", "text": "x"}]}, 0, "x"),
    ({"tool_calls": [{"custom": {"name": "f", "input": "x"}}, 3, {}]}, 1, ""),
    ({"choices": []}, 0, ""), (None, 0, ""), (7, 0, ""),
])  # fmt: skip
def test_any_answer_becomes_a_turn(response: Any, calls: int, text: str) -> None:
    """A completion, a message and a text are one kind of turn."""
    turn = answer_turn(response)
    assert (len(turn.calls), turn.text) == (calls, text)
    assert turn.results == (None,) * calls


def test_parsed_calls_become_a_turn() -> None:
    """(name, arguments) pairs, as a parser gives them, are a turn without results."""
    assert loops.calls_turn([("f", "{}")], "So.") == Turn((SeenCall("f", "{}"),), (None,), "So.")


def test_who_sends_a_history_is_known() -> None:
    """An assistant message says that the client sends what was before."""
    assert carries_history([USER, {"role": "assistant", "content": ""}])
    assert not carries_history([{"role": "system", "content": "x"}, USER])
    assert not carries_history("text")


@pytest.mark.parametrize("tag", ["tool_response", "tool_result", "function_result", "observation", "output"])
def test_what_a_text_agent_wraps_is_the_result(tag: str) -> None:
    """Law: a result in an element of a text agent is read as the same result of a native call is."""
    call = '<tool_call>{"name": "get_job", "arguments": {"id": 3}}</tool_call>'
    for result in ('{"status": "running"}', "[]", "1000 out.csv", f"</{tag}>", ""):
        report = {"role": "user", "content": f"<{tag}>\n{result}\n</{tag}>"}
        turns = read_turns([{"role": "user", "content": "Go."}, {"role": "assistant", "content": call}, report])
        assert turns[0].results == (result,)
