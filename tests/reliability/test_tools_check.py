"""The verdict on calls: lossless repairs, violations that name their place, the client's choice."""

from __future__ import annotations

import json

import pytest

from reliability.steps import OutOfSteps, Steps
from reliability.tools import CheckConfig, Checked, Flaws, Malformed, RawCall, Repair, RepairKind, check_calls
from reliability.tools.check.calls import VIOLATIONS_MAX
from tests.reliability.renderings import tool
from tests.reliability.values import IDS, made

DEEP = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["Celsius", "Fahrenheit"]},
        "days": {"type": "integer", "minimum": 1},
        "live": {"type": "boolean"},
        "where": {
            "type": "object",
            "properties": {"tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["tags"],
        },
        "either": {"oneOf": [{"type": "object", "required": ["a"]}, {"type": "boolean"}]},
        "loose": {"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "object"}]},
        "none": {"type": ["string", "null"]},
        "code": {"const": "Alpha"},
        "pick": {"anyOf": [{"enum": ["Red", "Blue"]}, {"type": "integer"}]},
        "twice": {"enum": ["one", "ONE"]},
        "flag": {"enum": [True, False]},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
BOX = made([tool("get_weather", DEEP), tool("get_time", {})])


def verdict(arguments, name="get_weather", box=BOX, config=None, **more) -> Checked:
    text = arguments if isinstance(arguments, str) or arguments is None else json.dumps(arguments)
    more.setdefault("new_id", IDS)
    call = RawCall(name=name, arguments=text, id="own")
    return check_calls(
        [call],
        box,
        more.pop("tool_choice", None),
        more.pop("parallel", None),
        config or CheckConfig(),
        **more,
    )


def with_city(**more):
    return verdict({"city": "Lima", **more})


@pytest.mark.parametrize(
    ("field", "damaged", "mended", "kind"),
    [
        ("unit", "celsius", "Celsius", RepairKind.ENUM_CASE),
        ("code", "ALPHA", "Alpha", RepairKind.ENUM_CASE),
        ("pick", "red", "Red", RepairKind.ENUM_CASE),
        ("live", "true", True, RepairKind.BOOLEAN),
        ("live", "False", False, RepairKind.BOOLEAN),
        ("flag", "true", True, RepairKind.BOOLEAN),
        ("where", '{"tags": ["a"]}', {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
        ("where", {"tags": '["a"]'}, {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
        ("where", json.dumps({"tags": json.dumps(["a"])}), {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
        ("where", "{'tags': ['a']}", {"tags": ["a"]}, RepairKind.DOUBLE_ENCODING),
        ("either", '{"a": 1}', {"a": 1}, RepairKind.DOUBLE_ENCODING),
        ("either", "true", True, RepairKind.BOOLEAN),
    ],
)
def test_lossless_repairs(field, damaged, mended, kind):
    """What has one meaning by the schema is mended, at every depth, and on record with its place."""
    found = with_city(**{field: damaged})

    assert found.violations == ()
    assert json.loads(found.calls[0].arguments) == {"city": "Lima", field: mended}
    assert kind in {repair.kind for repair in found.repairs}
    assert all(repair.path.startswith(f"/0/arguments/{field}") for repair in found.repairs)


@pytest.mark.parametrize("field", ["days", "live", "where", "unit"])
def test_null_on_an_optional_field_is_left_out(field):
    """null on an optional field that takes none is dropped, on record."""
    found = with_city(**{field: None})

    assert json.loads(found.calls[0].arguments) == {"city": "Lima"}
    assert found.repairs == (Repair(RepairKind.NULL_DROPPED, f"/0/arguments/{field}"),)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("days", "5"),
        ("days", 5.5),
        ("days", [5]),
        ("days", "five"),
        ("days", True),
        ("days", 0),
        ("live", "yes"),
        ("live", 1),
        ("where", "Lima"),
        ("where", '{"tags": ["a"]} more'),
        ("where", ["a"]),
        ("where", {"tags": "a"}),
        ("where", {"tags": [None]}),
        ("unit", "Kelvin"),
        ("unit", "celsius "),
        ("twice", "One"),
        ("loose", '{"a": 1}'),
        ("either", "yes"),
        ("either", '{"b": 1}'),
        ("day", "2031-02-30"),
        ("code", 3),
        ("pick", "green"),
        ("city", 7),
        ("city", None),
        ("city", ["Lima"]),
        ("flag", "maybe"),
    ],
)
def test_what_would_be_a_guess_is_refused_with_its_place(field, value):
    """No number is changed, no scalar becomes an array, no string that the schema allows is decoded."""
    found = with_city(**{field: value})

    assert found.calls == ()
    assert found.violations
    assert all(violation.path.startswith(f"/0/arguments/{field}") for violation in found.violations)
    assert all(len(violation.message) <= 200 for violation in found.violations)


def test_null_on_a_required_field_stays_to_be_refused():
    """A required field is not dropped: nothing is repaired, and null is named as what is wrong."""
    found = verdict({"city": None})

    assert found.repairs == ()
    assert found.violations[0].message == "must be string, not null"


def test_allowed_values_are_not_touched():
    """A string stays a string where one is allowed, null stays where null is, and a word in its own case
    stays."""
    for fields in (
        {"none": None},
        {"none": '{"a": 1}'},
        {"loose": "x{}"},
        {"unit": "Celsius"},
        {"none": "true"},
        {"twice": "ONE"},
    ):
        found = with_city(**fields)
        assert found.repairs == ()
        assert json.loads(found.calls[0].arguments) == {"city": "Lima", **fields}


def test_all_violations_are_listed_with_their_places():
    """Every mistake of every call is named at once, each by its own path."""
    calls = [
        RawCall(name="get_weather", arguments=json.dumps({"days": "x", "colour": 1, "where": {"tags": [1]}})),
        RawCall(name="get_wether", arguments="{}"),
        RawCall(name="get_weather", arguments="[1]"),
        RawCall(name="get_weather", arguments="{broken"),
    ]

    found = check_calls(calls, BOX, new_id=IDS, malformed=[Malformed(raw="<tool_call>", reason="cut", format="x")])

    assert found.calls == ()
    assert {(v.kind, v.path) for v in found.violations} == {
        (Flaws.SCHEMA, "/0/arguments/city"),
        (Flaws.SCHEMA, "/0/arguments/days"),
        (Flaws.SCHEMA, "/0/arguments/colour"),
        (Flaws.SCHEMA, "/0/arguments/where/tags/0"),
        (Flaws.UNKNOWN_TOOL, "/1/name"),
        (Flaws.NOT_OBJECT, "/2/arguments"),
        (Flaws.NOT_JSON, "/3/arguments"),
        (Flaws.MALFORMED, "/4"),
    }


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


def test_names_that_differ_in_spelling_only_are_mended():
    """Case, - and _, and the prefix go, on record; a near name is only suggested."""
    found = verdict({"city": "Lima"}, "functions.Get-Weather")
    near = verdict({"city": "Lima"}, "get_whether")

    assert found.calls[0].name == "get_weather"
    assert found.repairs == (Repair(RepairKind.NAME, "/0/name"),)
    assert "did you mean 'get_weather'" in near.violations[0].message
    assert "did you mean" not in verdict({}, "zzz").violations[0].message


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


SEARCH = made(
    [
        tool(
            "search",
            {
                "properties": {
                    "query": {"type": "string"},
                    "kind": {"type": "string", "enum": ["string", "TODO"]},
                    "options": {"type": "object"},
                    "host": {"type": "string", "description": "such as example.com"},
                },
                "required": ["query"],
            },
        ),
        tool(
            "edit",
            {
                "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
                "required": ["old", "new"],
            },
        ),
        tool(
            "note",
            {"properties": {"text": {"type": "string", "description": "may be empty"}}, "required": ["text"]},
        ),
    ]
)


def searched(arguments, conversation=None, name="search", **config):
    return verdict(arguments, name, SEARCH, CheckConfig(**config), conversation=conversation)


@pytest.mark.parametrize(
    "text", ["<your_query>", "<YOUR QUERY>", "<insert query here>", "<query>", "{{query}}", "[your query]"]
)
def test_placeholders_in_brackets_are_refused(text):
    """A bracketed stand-in is refused, wherever it stands, unless somebody said it."""
    assert searched({"query": text}).violations[0].path == "/0/arguments/query"
    assert searched({"query": text}, [f"please use {text} literally"]).ok
    nested = searched({"query": "x", "options": {"list": ["<your_list>"]}})
    assert nested.violations[0].path == "/0/arguments/options/list/0"
    assert nested.violations[0].kind is Flaws.PLACEHOLDER


@pytest.mark.parametrize("text", ["string", "TODO", "example.com", "https://www.example.com/"])
def test_plain_words_are_placeholders_only_if_nobody_said_them(text):
    """A word that may be meant counts only against a known conversation that lacks it."""
    assert not searched({"query": text}, ["find me the tide tables"]).ok
    assert searched({"query": text}, ["look for every string, todo and example.com"]).ok
    assert searched({"query": text}).ok


@pytest.mark.parametrize(
    "text",
    ["<div>", "a TODO list", "api.example.com/v1", "strings", "<b>your</b>", "x" * 500, "jane@example.com"],
)
def test_real_values_are_no_placeholders(text):
    """Only the whole value counts; what only holds such a word passes."""
    assert searched({"query": text}, ["nothing of it"]).ok


def test_what_the_schema_mentions_is_no_placeholder():
    """An enum or a description that names the word makes it a value; the list is the user's."""
    assert searched({"query": "x", "kind": "TODO", "host": "example.com"}, ["nothing"]).ok
    assert searched({"query": "<your_query>"}, placeholders=()).ok
    assert not searched({"query": "??"}, ["nothing"], placeholders=("??",)).ok


def test_only_a_call_that_says_nothing_is_empty():
    """All required strings blank and nothing else given: refused. One blank among others is an edit that
    deletes."""
    assert searched({"query": " "}).violations[0].kind is Flaws.EMPTY
    assert [v.path for v in searched({"old": "", "new": ""}, name="edit").violations] == [
        "/0/arguments/old",
        "/0/arguments/new",
    ]
    assert searched({"old": "x", "new": ""}, name="edit").ok
    assert searched({"query": "", "options": {"a": 1}}).ok
    assert searched({"text": ""}, name="note").ok


def test_violations_are_bounded():
    """However much is wrong, the list ends, and says how much more there was."""
    found = verdict({"city": "Lima", **{f"x{i}": 1 for i in range(300)}})
    calls = [RawCall(name=f"no_{i}", arguments="{}") for i in range(300)]

    assert len(found.violations) == VIOLATIONS_MAX
    assert found.violations[-1].message == "and 201 more"
    assert len(check_calls(calls, BOX, new_id=IDS).violations) == VIOLATIONS_MAX


def test_repeats_are_kept():
    """A call said twice in one answer stays twice."""
    calls = [RawCall(name="get_time", arguments="{}"), RawCall(name="get_time", arguments="{}")]

    found = check_calls(calls, BOX, new_id=IDS)

    assert len(found.calls) == 2


def test_arguments_that_the_schema_cant_judge_are_refused():
    """A schema that fails while it judges is no consent."""
    box = made([tool("f", {"properties": {"a": {"type": "array", "uniqueItems": True}}})])
    raw = [RawCall(name="f", arguments={"a": list(range(5_000))})]

    assert check_calls(raw, box, new_id=IDS, steps=Steps(10_000)).calls
    (said,) = check_calls(raw, box, new_id=IDS, steps=Steps(1_000, final=True)).violations
    assert said.message == "the arguments take longer to check than this server allows"
    with pytest.raises(OutOfSteps):
        check_calls(raw, box, new_id=IDS, steps=Steps(1_000))


def test_messages_say_what_is_wanted():
    """Each kind of complaint names what was wanted and what came."""
    said = {
        v.path.rsplit("/", 1)[1]: v.message
        for v in with_city(
            unit="K", code=1, day="x", either=3, loose="y", days=0, x=1, live="no", twice=None
        ).violations
    }

    assert said["unit"] == 'must be one of "Celsius", "Fahrenheit", not "K"'
    assert said["code"] == 'must be "Alpha", not 1'
    assert said["day"] == '"x" is no valid date'
    assert said["either"].startswith("3 fits none of the allowed forms (")
    assert said["live"] == 'must be boolean, not "no"'
    assert said["x"] == "is no parameter of this tool"
    assert "0" in said["days"]
    overlap = made([tool("f", {"properties": {"a": {"oneOf": [{}, {}]}}})])
    assert "more than one" in verdict({"a": 1}, "f", overlap).violations[0].message


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("get_weather", '{"city": "B", "days": "\\ud83d"}'), ("get_weather", '{"city\\ud83d": 1}'), ("g\ud83d", "{}")],
)
def test_what_is_wrong_can_always_be_said(name, arguments):
    """Half a character in a model's JSON is quoted as U+FFFD: an error, a re-ask and a report can hold it."""
    found = verdict(arguments, name=name).violations

    assert found
    assert all(text is None or text.encode() for v in found for text in (v.path, v.message, v.tool))
