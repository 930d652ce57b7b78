"""The verdict on calls: all violations with their places, and what each check does."""

import json

import pytest

from reliability import tools
from reliability.steps import OutOfSteps, Steps
from reliability.tools import CheckConfig, Flaws, RawCall, Repair, RepairKind, check_calls, id_source, parse_choice
from reliability.tools.check.calls import VIOLATIONS_MAX, ids_in
from reliability.tools.schema.toolbox import FREE_TEXT
from tests.support.call_values import IDS, made
from tests.support.checking import BOX, verdict, with_city
from tests.support.renderings import tool
from tests.unit.reliability.tools.check.test_complaints import BOX as TOOLS


def test_all_violations_are_listed_with_their_places():
    """Every mistake of every call is named at once, each by its own path."""
    wrong = json.dumps({"days": "x", "colour": 1, "where": {"tags": [1]}})
    given = (("get_weather", wrong), ("get_wether", "{}"), ("get_weather", "[1]"), ("get_weather", "{broken"))
    malformed = [tools.Malformed(raw="<tool_call>", reason="cut", format="x")]
    calls = [RawCall(name=name, arguments=text) for name, text in given]
    found = check_calls(calls, BOX, new_id=IDS, malformed=malformed)

    assert found.calls == ()
    assert {(v.kind, v.path) for v in found.violations} == {
        (Flaws.SCHEMA, "/0/arguments/city"), (Flaws.SCHEMA, "/0/arguments/days"),
        (Flaws.SCHEMA, "/0/arguments/colour"), (Flaws.SCHEMA, "/0/arguments/where/tags/0"),
        (Flaws.UNKNOWN_TOOL, "/1/name"), (Flaws.NOT_OBJECT, "/2/arguments"), (Flaws.NOT_JSON, "/3/arguments"),
        (Flaws.MALFORMED, "/4"),
    }  # fmt: skip


def test_a_repair_stands_next_to_a_violation_and_the_call_is_still_refused():
    """Repairs of one place don't excuse another."""
    found = with_city(unit="celsius", days="many")
    assert found.calls == ()
    assert found.repairs == (Repair(RepairKind.ENUM_CASE, "/0/arguments/unit"),)
    assert [violation.path for violation in found.violations] == ["/0/arguments/days"]


@pytest.mark.parametrize("arguments", ["", " ", None, "null", "{}", '""', '"{}"'])
def test_empty_arguments_are_fine_where_nothing_is_required(arguments):
    """Nothing, null and {} are the same for a tool that needs nothing, and a missing field for others."""
    assert verdict(arguments, "get_time").calls[0].arguments == "{}"
    assert verdict(arguments).violations[0].path == "/0/arguments/city"


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ('```json\n{"city": "Lima"}\n```', {RepairKind.FENCE}),
        ('{"city": "Lima"} Done.', {RepairKind.EXTRA_TEXT}),
        ("{'city': 'Lima'}", {RepairKind.LITERAL}),
        ('"{\\"city\\": \\"Lima\\"}"', {RepairKind.DOUBLE_ENCODING}),
        (json.dumps(json.dumps("{'city': 'Lima'}")), {RepairKind.DOUBLE_ENCODING, RepairKind.LITERAL}),
        # As gateways stream a call that begins with an empty input, and one that they end by all of it.
        ('{}{"city": "Lima"}', {RepairKind.ENVELOPE}),
        ('{"city": "Lima"}{"city": "Lima"}', {RepairKind.ENVELOPE}),
        ('{"city": "Lima"}{}', {RepairKind.ENVELOPE}),
    ],
)
def test_the_text_of_the_arguments_is_mended(arguments, kinds):
    """Fences, remarks, literals and encodings around the arguments go, on record."""
    found = verdict(arguments)
    assert json.loads(found.calls[0].arguments) == {"city": "Lima"}
    assert {repair.kind for repair in found.repairs} == kinds


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, {"a": float("inf")}, [[]]])
def test_arguments_that_are_no_json_object_are_refused(value):
    """A value that came as an object is written as JSON, if it is one."""
    good = check_calls([RawCall(name="get_weather", arguments={"city": "Lima"})], BOX, new_id=IDS)
    bad = check_calls([RawCall(name="get_weather", arguments=value)], BOX, new_id=IDS)
    assert good.calls[0].arguments == '{"city": "Lima"}'
    assert good.repairs == (Repair(RepairKind.OBJECT, "/0/arguments"),)
    assert bad.violations[0].path == "/0/arguments"


def test_each_check_can_be_switched_off():
    """The three keys switch off their check and nothing else."""
    off = CheckConfig(validate_tool_names=False)
    assert verdict({"x": 1}, "unknown", config=off).calls[0].arguments == '{"x": 1}'
    assert verdict("{broken", "unknown", config=off).violations[0].kind is Flaws.NOT_JSON
    off = CheckConfig(validate_json=False)
    assert verdict("{broken", config=off).calls[0].arguments == "{broken"
    assert verdict({"days": 1}, config=off).violations[0].kind is Flaws.SCHEMA
    off = CheckConfig(validate_schema=False)
    assert verdict({"unit": "celsius"}, config=off).calls[0].arguments == '{"unit": "celsius"}'
    assert verdict("{broken", config=off).violations[0].kind is Flaws.NOT_JSON
    with pytest.raises(ValueError, match="validate_everything"):
        CheckConfig.model_validate({"validate_everything": True})


def test_violations_are_bounded():
    """However much is wrong, the list ends, and says how much more there was."""
    found = verdict({"city": "Lima", **{f"x{i}": 1 for i in range(300)}})
    calls = [RawCall(name=f"no_{i}", arguments="{}") for i in range(300)]
    assert len(found.violations) == VIOLATIONS_MAX
    assert found.violations[-1].message == "and 201 more"
    assert len(check_calls(calls, BOX, new_id=IDS).violations) == VIOLATIONS_MAX


def test_arguments_that_the_schema_cant_judge_are_refused():
    """A schema that fails while it judges is no consent."""
    box = made([tool("f", {"properties": {"a": {"type": "array", "uniqueItems": True}}})])
    raw = [RawCall(name="f", arguments={"a": list(range(5_000))})]
    assert check_calls(raw, box, new_id=IDS, steps=Steps(10_000)).calls
    (said,) = check_calls(raw, box, new_id=IDS, steps=Steps(1_000, final=True)).violations
    assert said.message == "the arguments take longer to check than this server allows"
    with pytest.raises(OutOfSteps):
        check_calls(raw, box, new_id=IDS, steps=Steps(1_000))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ('{"a": "x\\ud83dy", "\\udc00": ["\\ud83d\\ude00 \\ude00"]}', {"a": "x\ufffdy", "\ufffd": ["😀 \ufffd"]}),
        ('{"a": "\ud83d"}', {"a": "\ufffd"}),
        ({"a": "\ud83d", "n": 10**30}, {"a": "\ufffd", "n": 10**30}),
    ],
)
def test_half_a_character_is_replaced_and_noted(given, read):
    """No half character is delivered, in a value or a key; that it was replaced is a repair, and a pair is none."""
    box = made([tool("f", {})])
    found = check_calls([RawCall(name="f", arguments=given, format="text")], box, new_id=IDS)
    assert json.loads(found.calls[0].arguments) == read
    assert found.calls[0].arguments.encode()
    assert found.repairs == (Repair(RepairKind.SURROGATE, "/0/arguments"),)
    pair = '{"a": "\\ud83d\\ude00"}'
    assert check_calls([RawCall(name="f", arguments=pair)], box, new_id=IDS).repairs == ()


def test_keys_that_half_characters_alone_tell_apart_are_refused():
    """Two keys that would be one are no reason to lose a value: the call is refused."""
    found = verdict('{"\\ud83d": 1, "\\udc00": 2}', "f", made([tool("f", {})]))
    assert found.calls == ()
    assert [violation.kind for violation in found.violations] == [Flaws.NOT_JSON]


INPUT = {"type": "string", "description": FREE_TEXT}
FREE = {"type": "object", "properties": {"input": INPUT}, "required": ["input"], "additionalProperties": False}


@pytest.mark.parametrize(("given", "read"), [
    ('{"input": "*** Begin"}', "*** Begin"), ('{"patch": "*** Begin"}', "*** Begin"),
    ('*** Begin\n+{"a": "b"}', '*** Begin\n+{"a": "b"}'), ('"*** Begin\\n"', "*** Begin\n"), ('{"input": "a', None),
    ('{"input": "a", "more": "b"}', None), ('{"a": "b", "c": "d"}', None), ('{"a": 1}', None),
])  # fmt: skip
def test_a_tool_of_free_text_takes_the_text(given, read):
    """One text under any key, or the bare text, is its input; what may be cut, or is more than one, is refused."""
    box = made([tool("apply_patch", FREE)])
    checked = check_calls([RawCall(name="apply_patch", arguments=given)], box, new_id=IDS)
    assert [json.loads(call.arguments) for call in checked.calls] == ([] if read is None else [{"input": read}])


WRAPPER = '{"input": "hello"}'
CODE = ("print(%s)", "# set %s\nrun()", "echo %s", "Here: %s", "/* %s */", "x = %s", "%s // run", "%s.run()", "%s done",
        "%s;", "%s\n%s", "[%s]", "```\n%s\n```\nDone", "```\nprint(%s)\n```")  # fmt: skip


@pytest.mark.parametrize("quoted", [False, True])
@pytest.mark.parametrize("code", CODE)
def test_a_text_that_holds_an_object_is_not_cut_down_to_it(code, quoted):
    """Only an object that is all there is may be the wrapper of a tool of free text: where more stands around it, the
    whole text is the input, or it is asked for again."""
    text = code.replace("%s", WRAPPER)
    box = made([tool("apply_patch", FREE)])
    for name in ("input", "patch"):
        given = text.replace("input", name)
        raw = RawCall(name="apply_patch", arguments=json.dumps(given) if quoted else given)
        checked = check_calls([raw], box, new_id=IDS)
        assert [json.loads(call.arguments) for call in checked.calls] in ([{"input": given}], [])
        assert checked.calls or (given[0] in "{`" and not quoted)


def test_ids_come_from_the_source_and_are_the_same_again():
    """A missing id is given from the seed, deterministically; one that was used is replaced, on record."""
    calls = [SEARCH, RawCall(name="clock", arguments="{}", id="call_1")]
    found = check_calls(calls, TOOLS, new_id=id_source("r1"), used_ids={"call_1"})
    assert found == check_calls(calls, TOOLS, new_id=id_source("r1"), used_ids={"call_1"})
    assert found.calls[0].id == id_source("r1")(0) != id_source("r2")(0)
    assert [repair.path for repair in found.repairs] == ["/1/id"]


def test_ids_of_a_conversation_are_found():
    """Calls and results both say which ids are taken; odd messages are passed over."""
    messages = [
        {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": 3}, "x"]},
        {"role": "tool", "tool_call_id": "b"},
        {"role": "user", "tool_calls": None},
    ]
    assert ids_in(messages) == {"a", "b"}


SEARCH = RawCall(name="search", arguments='{"query": "x"}')
CLOCK = RawCall(name="clock", arguments="{}")
NAMED = {"type": "function", "function": {"name": "search"}}
ALLOWED = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "clock"}]},
}


def kinds(calls, choice=None, parallel=None, **more):
    return [violation.kind for violation in check_calls(calls, TOOLS, choice, parallel, new_id=IDS, **more).violations]


@pytest.mark.parametrize(("choice", "calls", "good"), [
    (None, [], True), ("auto", [], True), ("auto", [SEARCH, CLOCK], True), ("none", [], True), ("none", [CLOCK], False),
    ("required", [CLOCK], True), ("required", [], False), ("any", [], False), (NAMED, [SEARCH], True),
    (NAMED, [], False), (NAMED, [CLOCK], False), (NAMED, [SEARCH, CLOCK], False),
    ({"type": "function", "name": "search"}, [SEARCH], True), (ALLOWED, [CLOCK], True), (ALLOWED, [SEARCH], False),
    (ALLOWED, [], False), ("nonsense", [CLOCK], True),
])  # fmt: skip
def test_tool_choice_is_obeyed(choice, calls, good):
    """Every form of the client's choice is kept to; a call against it is refused, not dropped."""
    assert (kinds(calls, choice) == []) is good
    assert good or set(kinds(calls, choice)) == {Flaws.TOOL_CHOICE}


def test_parallel_calls_are_refused_where_one_was_wanted():
    """Two calls where one was allowed are a violation: none of them is dropped to make it fit. A malformed call is one,
    and answers `required`."""
    assert kinds([SEARCH, CLOCK], parallel=False) == [Flaws.PARALLEL]
    assert kinds([SEARCH], parallel=False) == []
    assert kinds([SEARCH, CLOCK], parallel=True) == []
    bad = [tools.Malformed(raw="x", reason="y", format="z")]
    assert kinds([], "required", malformed=bad) == [Flaws.MALFORMED]
    assert kinds([SEARCH], None, False, malformed=bad) == [Flaws.MALFORMED, Flaws.PARALLEL]


@pytest.mark.parametrize("choice", [
    "sometimes", 3, {"type": "function", "function": {"name": "nope"}}, {}, {"type": "allowed_tools"},
    {"type": "allowed_tools", "tools": [1]}, {"type": "allowed_tools", "allowed_tools": 3},
    {"type": "function", "function": {"name": ["x"]}},
])  # fmt: skip
def test_a_choice_that_cant_be_meant_is_the_clients_mistake(choice):
    """Unknown words, forms and tools are a 400 with a place."""
    bad = parse_choice(choice, TOOLS)
    assert isinstance(bad, tools.BadTools)
    assert bad.path.startswith("/tool_choice")


def test_without_tools_there_is_nothing_to_choose():
    """No tools: no call is allowed, and requiring one is a mistake."""
    assert parse_choice(None, made([])) == parse_choice("none", TOOLS)
    assert isinstance(parse_choice("required", made([])), tools.BadTools)


@pytest.mark.parametrize("calls", [(), ("other",)])
@pytest.mark.parametrize("names", [["f" * 100] * 20_000, [f"f{number}".ljust(100, "x") for number in range(500)]])
def test_what_is_said_of_a_choice_is_bounded(names, calls):
    """Law: a list of allowed tools may name one many times, and many; what was done against it is told in few words."""
    allowed = [{"type": "function", "function": {"name": name}} for name in names]
    declared = dict.fromkeys([*names, "other"])
    box = tools.build_toolbox([{"type": "function", "function": {"name": name}} for name in declared])
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": allowed}}
    raw = [RawCall(name=name, arguments={}) for name in calls]
    checked = check_calls(raw, box, choice, new_id=id_source("s"))

    assert checked.violations
    assert all(len(one.message) < 800 for one in checked.violations)
    assert names[0][:80] in checked.violations[0].message


BEHIND = {
    "envelope": '<tool_call>{{"name": "get_weather", "arguments": {}</tool_call>',
    "harmony": "<|channel|>commentary to=functions.get_weather<|message|>{}<|call|>",
    "kimi": "<|tool_call_begin|>get_weather:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    "named": "<tool_call>get_weather\n{}\n</tool_call>",
}
ARGUMENTS_BEHIND = [
    "\ndays: 5", " days 5", "\ndays=5", "\n- days: 5", " and live true", "\nunit: Celsius", " days : 5", "} days: 5",
]  # fmt: skip
WORDS_BEHIND = [" I hope this helps!", "\nThe days are long.", "\ncity: Lima", " for 5 days", "\nNote: done", "} ok"]


@pytest.mark.parametrize("form", ["native", *BEHIND])
@pytest.mark.parametrize("behind", [*ARGUMENTS_BEHIND, *WORDS_BEHIND])
def test_an_argument_behind_the_others_is_never_left_out(form, behind):
    """Law: where a declared argument that the object lacks stands behind it with a value, the call is refused, in each
    form in which words may stand there; words alone are taken off."""
    text = '{"city": "Lima"}' + ("}" if form == "envelope" else "") + behind
    if form == "native":
        found = verdict(text)
    else:
        read = tools.extract_calls(BEHIND[form].format(text), BOX)
        found = check_calls(read.calls, BOX, new_id=IDS, malformed=read.malformed)
    if behind in ARGUMENTS_BEHIND:
        assert found.violations
        assert not found.calls
    else:
        assert [json.loads(call.arguments) for call in found.calls] == [{"city": "Lima"}]


SAVE = made(
    [tool("save_it", {"type": "object", "properties": {"pa_th": {"type": "string"}, "to": {"type": "string"}}})]
)
NOTATIONS = {
    "hermes": '<tool_call>{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}</tool_call>',
    "mistral": '[TOOL_CALLS][{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}]',
    "xml": "<function={name}><parameter={key}>{value}</parameter></function>",
    "bare": '{{"name": "{name}", "arguments": {{"{key}": "{value}"}}}}',
}


@pytest.mark.parametrize("form", NOTATIONS)
@pytest.mark.parametrize(("name", "key", "value", "refused"), [
    (r"save\_it", "to", r"x\_y", True), (r"save\_it", r"pa\_th", "x", True), ("save_it", r"pa\_th", "x", True),
    ("save_it", "to", r"x\_y", False), ("save_it", r"o\_p", "x", False), (r"save\_it", "to", "x", False),
])  # fmt: skip
def test_what_markdown_has_escaped_is_never_delivered_as_a_value(form, name, key, value, refused):
    """Law: where the underscores of a name or of a declared key are escaped, no key and no string with an escaped one
    is delivered. Elsewhere a backslash is the value's own."""
    read = tools.extract_calls(NOTATIONS[form].format(name=name, key=key, value=value), SAVE)
    found = check_calls(read.calls, SAVE, new_id=IDS, malformed=read.malformed)

    if refused:
        assert not found.calls
    else:
        assert [json.loads(call.arguments) for call in found.calls] in ([{key: value}], [])
