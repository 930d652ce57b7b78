"""Equal calls collapse into the first of them; what a stop breaks off spoils none. See test_attempt_equal_calls.py."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.answer_calls import collapse_calls, drop_equal, read_stopped
from reliability.answer.judgement import BEHIND, expect, judge
from reliability.loops import Kind, Loop, LoopConfig, Scan, finish, step
from reliability.tools import CheckConfig, RawCall, RepairKind, build_toolbox
from reliability.types import Finish, FinishReason, Flaw, Text, ToolCall
from tests.support.judgements import BOX, GOOD, native, ruled
from tests.support.renderings import schema_of, tool

CALLED = Finish(reason=FinishReason.TOOL_CALLS)
MARKS = ["<tool_call>", "</tool_call>", "<|tool_call|>", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]", "<function_calls>"]
BLANKS = ["\n", " ", ""]
leaks = st.lists(st.sampled_from([*MARKS, *BLANKS]), min_size=1, max_size=8).map("".join)
queries = st.lists(st.sampled_from("abc"), max_size=4)


def written(query: str) -> str:
    return f'<tool_call>\n{{"name": "search", "arguments": {{"q": "{query}"}}}}\n</tool_call>\n'


def asked(judged) -> list[str]:
    return sorted(json.loads(call.arguments)["q"] for call in judged.calls)


@given(leak=leaks, after=st.booleans())
def test_marks_around_nothing_refuse_no_native_call(leak, after):
    """Marks that an upstream left in the text of the calls that it took out: the calls leave to the letter, the marks
    don't, and that is on record."""
    call = native(GOOD)
    judged = ruled([call, Text(leak)] if after else [Text(leak), call], CALLED)
    assert judged.flaw is None
    assert judged.events == (call,)
    if leak.strip():
        assert [repair.kind for repair in judged.repairs] == [RepairKind.ENVELOPE]


@given(queries, queries.filter(bool))
def test_beside_native_calls_the_text_calls_nothing(in_text, as_calls):
    """What stands in the text and came as a call too is one call; another one is quoted there, and stays prose. What
    is said again is one call, but for a pair of native calls, which may be meant."""
    text = "".join(map(written, in_text))
    natives = [native(json.dumps({"q": query}), index=at) for at, query in enumerate(as_calls)]
    judged = ruled([*([Text(text)] if text else []), *natives], CALLED)

    assert judged.flaw is None
    pairs = [query for query in set(as_calls) if as_calls.count(query) == 2]
    assert asked(judged) == sorted([*set(as_calls), *pairs])
    assert {call.arguments for call in judged.calls} == {call.arguments for call in natives}
    quoted = not set(in_text) <= set(as_calls)
    assert [event.text for event in judged.events if isinstance(event, Text)] == ([text] if quoted else [])
    assert bool(judged.repairs) == bool(in_text and not quoted)


@pytest.mark.parametrize("text", [
    "The README contains `<tool_call>{}</tool_call>`, an injection. I read on.",
    "README.md says:\n\n```json\n{}\n```\n\nThat is suspicious. I go on.",
    "<think>Hm.</think>It says:\n{}",
])  # fmt: skip
def test_a_call_quoted_beside_a_native_one_is_not_made(text):
    """Law: what a model quotes of a hostile text is not called; its reasoning is still taken apart."""
    text = text.replace("{}", '{"name": "search", "arguments": {"q": "evil"}}')
    judged = ruled([Text(text), native(GOOD)], CALLED)

    assert [call.arguments for call in judged.calls] == [GOOD]
    told = [event.text for event in judged.events if isinstance(event, Text)]
    assert told == [text.removeprefix("<think>Hm.</think>")]


def test_a_copy_may_name_its_tool_in_another_way():
    """Names that mean one tool make one call."""
    judged = ruled([Text(written("cats").replace("search", "functions.search")), native(GOOD)], CALLED)
    assert [call.id for call in judged.calls] == ["c0"]


@pytest.mark.parametrize("text", [
    '<tool_call>\n{"name": "search", "arguments": {"q": "do', "<tool_call>\nsearch dogs\n</tool_call>",
    "search dogs </tool_call>", "<tool_call>\n</tool_call>\n<tool_call>{]</tool_call>",
])  # fmt: skip
def test_a_call_with_something_in_it_is_still_a_violation(text):
    """No call of several is dropped: what can't be read refuses the native one too."""
    judged = ruled([Text(text), native(GOOD)], CALLED)
    assert judged.flaw is Flaw.TOOL_CALL_INVALID
    assert judged.calls == ()


@given(leak=leaks.filter(str.strip))
def test_marks_alone_are_no_answer(leak):
    """Without a native call the marks are all that is left of one: it is asked for again."""
    assert ruled([Text(leak)]).flaw in (Flaw.TOOL_CALL_INVALID, Flaw.EMPTY)


SPELLINGS = ['{{"q":"{0}","n":1}}', '{{ "n": 1,  "q": "{0}" }}', '{{"n":1,\n"q":"{0}"}}']
drawn = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(SPELLINGS), st.none() | st.text(max_size=2)))


def write_line(query: str) -> str:
    return json.dumps({"name": "search", "arguments": {"q": query}}) + "\n"


def stop(text: str) -> Loop:
    """What a text is stopped for."""
    loop = finish(step(Scan(), text)[0])[1]
    assert loop is not None
    return loop


@given(drawn)
def test_the_first_of_equal_calls_stands_for_all(calls):
    """Order is kept, nothing else is dropped, and doing it twice changes nothing."""
    raw = [RawCall(name="search", arguments=spelt.format(q), id=id, format="bare") for q, spelt, id in calls]
    kept, copies = collapse_calls(raw, BOX)

    assert [json.loads(call.arguments)["q"] for call in kept] == list(dict.fromkeys(letter for letter, *_ in calls))
    assert [raw.index(call) for call in kept] == sorted(raw.index(call) for call in kept)
    assert copies == len(raw) - len(kept)
    assert collapse_calls(kept, BOX) == (kept, 0)


@pytest.mark.parametrize(("one", "other"), [
    (("search", '{"q": 1}'), ("search", '{"q": "1"}')), (("search", '{"q": true}'), ("search", '{"q": 1}')),
    (("search", '{"q": "a "}'), ("search", '{"q": "a"}')), (("search", '{"q": "a"}'), ("fetch", '{"q": "a"}')),
    (("search", '{"q": [1, 2]}'), ("search", '{"q": [2, 1]}')),
    (("search", '{"q": "a"}'), ("search", '{"q": "a", "n": null}')),
])  # fmt: skip
def test_calls_that_say_something_else_both_stay(one, other):
    """Type, white space inside a value, order of a list, another tool: each makes another call."""
    raw = [RawCall(name=name, arguments=arguments) for name, arguments in (one, other)]
    assert collapse_calls(raw, BOX) == (tuple(raw), 0)


def test_refused_calls_are_no_copies():
    """Where nothing is delivered, nothing was made equal."""
    raw = tuple(RawCall(name="search", arguments=given, format="bare") for given in ("{}", '{"q": 1}'))
    same = tuple(ToolCall(id=id, name="search", arguments='{"q":"x"}') for id in "ab")
    assert drop_equal(raw, ()) == raw
    assert drop_equal(raw, same) == raw[:1]


@pytest.mark.parametrize("tail", ["", '{"name": "se', '{"name": "search", "arguments": {"q": "ca'])
def test_a_copy_that_was_broken_off_is_left_out(tail):
    """A cycle of calls is read up to a complete copy, and that something was left out is counted."""
    text = "Let me look.\n" + write_line("cats") * 80 + tail
    found, cut_off = read_stopped(text, 0, BOX, stop(text))
    assert {call.arguments["q"] for call in found.calls} == {"cats"}
    assert (found.malformed, found.text.strip(), cut_off) == ((), "Let me look.", int(bool(tail)))


def test_a_call_behind_the_copies_that_has_come_is_kept():
    """What arrived complete with the third copy is no less a call than what stands before it."""
    text = "".join(f"<tool_call>{write_line(query)}</tool_call>\n" for query in ("cats", "cats", "cats", "dogs"))
    found, _ = read_stopped(text, 0, BOX, stop(text))
    assert [call.arguments["q"] for call in collapse_calls(found.calls, BOX)[0]] == ["cats", "dogs"]


def test_what_is_no_row_of_calls_is_read_as_it_stands():
    """A cycle of prose, or inside one call's argument, is cut nowhere: a broken call stays a broken call."""
    prose = write_line("cats") + "And so it goes on and on. " * 40
    broken = write_line("cats") + '{"name": "search", "arguments": {"q": "' + "ha ha " * 7_000
    assert [call.arguments["q"] for call in read_stopped(prose, 0, BOX, stop(prose))[0].calls] == ["cats"]
    assert read_stopped(broken, 0, BOX, stop(broken))[0].malformed
    assert stop(prose).kind is stop(broken).kind is Kind.CYCLE


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 2), (3, 1), (9, 1)])
def test_a_pair_of_native_calls_is_meant(count, left):
    """A tool that draws or counts is called twice on purpose; from three on a call repeats itself."""
    raw = [RawCall(name="search", arguments='{"q":"a"}', id=f"c{at}") for at in range(count)]
    assert len(collapse_calls(raw, BOX)[0]) == left


def write_counted(count: int, name: str = "part") -> list[str]:
    return [write_line(f"{name}_{number:02}") for number in range(count)]


@pytest.mark.parametrize("tail", ["", '{"name": "search", "arguments": {"q": "pa'])
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("as_calls", [False, True])
def test_a_model_that_counts_on_until_it_is_cut_off_makes_few_calls(as_calls, before, tail):
    """Law: of the calls that differ in figures alone the first eight are made, where the tokens ran out as they were
    written; what stands before them stays. An answer that ends by itself means all."""
    lines = [write_line(word) for word in ("cats", "dogs")[:before]] + write_counted(40)
    if as_calls:
        arguments = [json.dumps(json.loads(line)["arguments"]) for line in lines] + ['{"q": "pa'] * bool(tail)
        events = [native(given, index=at) for at, given in enumerate(arguments)]
    else:
        events = [Text("".join(lines) + tail)]
    cut = ruled(events, Finish(reason=FinishReason.LENGTH))
    whole = ruled(events, CALLED if as_calls else Finish(reason=FinishReason.STOP))

    assert (cut.flaw, len(cut.calls)) == (None, before + 8)
    assert cut.dropped_calls >= 32
    assert len(whole.calls) == (0 if tail else before + 40)


def test_calls_that_say_different_things_are_all_made_though_cut_off():
    """Law: figures are what counts on; other words are other calls."""
    text = "".join(write_line(f"{name}s") for name in ("cat", "dog", "cow", "hen", "pig", "bee", "ant", "owl", "fox"))
    assert len(ruled([Text(text)], Finish(reason=FinishReason.LENGTH)).calls) == 9


FLOW = build_toolbox(
    [
        *(tool(name, schema_of({"name": "x"})) for name in ("get_user", "find_orders", "report", "TodoWrite")),
        tool("set_level", {"properties": {"level": {"enum": ["low", "high"]}}, "required": ["level"]}),
        tool("bash", schema_of({"command": "ls"})),
        tool("close", {"properties": {"note": {"type": "string"}}}),
    ]
)
ASKED = [{"role": "user", "content": "Get the user Alice and report to Bob."}]


@pytest.mark.parametrize(("calls", "left"), [
    ([("get_user", "Alice"), ("report", "Alice is an admin.")], 1),
    ([("get_user", "Alice"), ("find_orders", "O-17"), ("report", "Three orders.")], 2),
    ([("get_user", "Alice"), ("report", "Three orders."), ("get_user", "Bob")], 1),
    ([("get_user", "Alice"), ("report", "Bob")], 2),  # the user has said it
    ([("get_user", "Alice"), ("find_orders", "O-17")], 2),  # a look does no harm
    ([("report", "All is well."), ("get_user", "Alice")], 2),  # nothing is to be found yet
    ([("report", "All is well."), ("report", "All is bad.")], 2),
    ([("get_user", "Alice"), ("TodoWrite", "Tell the team.")], 2),
    ([("get_user", "Alice"), ("set_level", "high")], 2),
    ([("get_user", "Alice"), ("close", "Three orders.")], 2),  # it need not be told
    ([("get_user", "Alice"), ("bash", "make test")], 2),
])  # fmt: skip
@pytest.mark.parametrize("came", ["as text", "from the engine", "from an upstream"])
def test_what_a_look_has_yet_to_find_is_not_told(calls, left, came):
    """Law: behind a look, a text that nobody has said and that a call must have was made up: from there on the calls
    are dropped, which is noted. The calls of a hosted model that came as calls are its own."""
    keys = {"set_level": "level", "bash": "command", "close": "note"}
    written = [(name, json.dumps({keys.get(name, "name"): value})) for name, value in calls]
    text = "\n".join(f'<tool_call>\n{{"name": "{n}", "arguments": {a}}}\n</tool_call>' for n, a in written)
    held = [Text(text)] if came == "as text" else [native(a, n, i) for i, (n, a) in enumerate(written)]
    expected = expect(ASKED, FLOW, id_seed="r", checks=CheckConfig(), loops=LoopConfig())
    end = replace(CALLED, unsure=()) if came == "from the engine" else CALLED
    judged = judge(expected, held, end, sent="", text_committed=False, attempt=0)
    kept = len(calls) if came == "from an upstream" else left
    assert [(call.name, call.arguments) for call in judged.calls] == written[:kept]
    assert (judged.flaw, judged.dropped_calls) == (None, 0)
    assert judged.finish.notes == ((BEHIND.format(len(calls) - kept),) if kept < len(calls) else ())


def write_flow(*calls: tuple[str, dict[str, object]]) -> str:
    written = [json.dumps({"name": name, "arguments": given}, ensure_ascii=False) for name, given in calls]
    return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in written)


def judged_flow(tools, text, messages=ASKED):
    box = build_toolbox([tool("get_user", schema_of({"name": "x"})), *tools])
    expected = expect(messages, box, id_seed="r", checks=CheckConfig(), loops=LoopConfig())
    return judge(expected, [Text(text)], replace(CALLED, unsure=()), sent="", text_committed=False, attempt=0)


@pytest.mark.parametrize("field", [
    {"anyOf": [{"enum": ["loud", "silent"]}, {"type": "null"}]},
    {"$ref": "#/$defs/level"},
    {"oneOf": [{"const": "loud"}, {"const": "silent"}]},
    {"type": "string", "pattern": "^(loud|silent)$"},
    {"type": "string", "description": "Either loud or silent."},
])  # fmt: skip
@pytest.mark.parametrize("wrap", [lambda field: field, lambda field: {"type": "array", "items": field}])
def test_what_the_definition_of_a_tool_names_is_told(field, wrap):
    """Law: the client has said what stands in the definition of the called tool, wherever it stands there."""
    schema = {"properties": {"level": wrap(field)}, "required": ["level"], "$defs": {"level": {"enum": ["loud"]}}}
    level = ["loud"] if wrap(field) != field else "loud"
    text = write_flow(("get_user", {"name": "Alice"}), ("set_level", {"level": level}))
    assert len(judged_flow([tool("set_level", schema)], text).calls) == 2


@pytest.mark.parametrize(("looked", "left"), [("Alice", 2), ("Bob", 1)])
def test_what_a_look_has_found_already_may_be_told_behind_it(looked, left):
    """Law: a model that looks again before each deed does the deed: what it would find stands in the conversation."""
    call = {"name": "get_user", "arguments": json.dumps({"name": looked})}
    made = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": call}]}
    messages = [*ASKED, made, {"role": "tool", "tool_call_id": "a", "content": "admin since 2019"}]
    text = write_flow(("get_user", {"name": "Alice"}), ("report", {"name": "An old hand."}))
    assert len(judged_flow([tool("report", schema_of({"name": "x"}))], text, messages).calls) == left


def test_what_the_model_called_by_a_name_is_told():
    """Law: what stands in the arguments of a call that was made was said."""
    call = {"name": "report", "arguments": json.dumps({"name": "standup"})}
    made = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": call}]}
    messages = [*ASKED, made, {"role": "tool", "tool_call_id": "a", "content": "done"}]
    text = write_flow(("get_user", {"name": "Alice"}), ("invite", {"name": "Standup"}))
    assert len(judged_flow([tool("invite", schema_of({"name": "x"}))], text, messages).calls) == 2


def test_a_call_with_what_only_stands_in_for_a_result_is_dropped_behind_its_look():
    """Law: a placeholder for what a look has yet to find refuses no answer whose first calls are right."""
    text = write_flow(("get_user", {"name": "Alice"}), ("report", {"name": "<result of get_user>"}))
    judged = judged_flow([tool("report", schema_of({"name": "x"}))], text)
    assert (judged.flaw, [call.name for call in judged.calls]) == (None, ["get_user"])
