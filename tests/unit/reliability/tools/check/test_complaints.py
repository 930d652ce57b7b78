"""The words for what is wrong with a call."""

import pytest

from reliability.steps import Steps
from reliability.tools import RawCall, check_calls, corrective_message
from tests.support.call_values import IDS, made
from tests.support.checking import verdict, with_city
from tests.support.renderings import tool


def test_messages_say_what_is_wanted():
    """Each kind of complaint names what was wanted and what came."""
    found = with_city(unit="K", code=1, day="x", either=3, loose="y", days=0, x=1, live="no", twice=None)
    said = {v.path.rsplit("/", 1)[1]: v.message for v in found.violations}

    assert said["unit"] == 'must be one of "Celsius", "Fahrenheit", not "K"'
    assert said["code"] == 'must be "Alpha", not 1'
    assert said["day"] == '"x" is no valid date'
    assert said["either"].startswith("3 fits none of the allowed forms (")
    assert said["live"] == 'must be boolean, not "no"'
    assert said["x"] == "is no parameter of this tool"
    assert "0" in said["days"]
    overlap = made([tool("f", {"properties": {"a": {"oneOf": [{}, {}]}}})])
    assert "more than one" in verdict({"a": 1}, "f", overlap).violations[0].message


SHELL = tool("exec_command", {"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]})
OTHERS = [tool(name, {}) for name in ("write_stdin", "get_goal", "create_goal", "request_user_input", "view_image")]
EDITOR = tool("editor", {"properties": {"command": {"type": "string", "enum": ["view", "create"]}}})


@pytest.mark.parametrize(
    "name", ["read_file", "write_file", "create_file", "list_dir", "grep", "cat", "ls", "bash", "read"]
)
def test_a_model_that_misses_a_tool_hears_of_the_shell(name):
    """Law: a tool that isn't there, and whose work a shell does, is answered with the tool that runs commands, and not
    with one that is spelled alike; where a declared tool is named by the words themselves, with that one. Told of
    `write_stdin`, or of nothing, a 1.5B called the missing tool again, and `get_goal` under the grammar."""
    there = verdict({"path": "a"}, name, made([*OTHERS, SHELL])).violations[0].message
    named = verdict({}, f"{name}_now", made([SHELL, tool(name, {})])).violations[0].message
    without = verdict({}, name, made([EDITOR])).violations[0].message

    assert there == f"there is no tool named {name!r}; to do that, call 'exec_command' with a shell command"
    assert f"did you mean {name!r}?" in named
    assert "shell" not in without


@pytest.mark.parametrize("name", ["grep", "cat", "read", "get_weather", "web_fetch"])
def test_no_tool_is_meant_that_has_hardly_a_letter_in_common(name):
    """Law: what is suggested is spelled alike."""
    assert "did you mean" not in verdict({}, name, made(OTHERS)).violations[0].message


def test_a_hidden_tool_is_called_through_the_one_that_calls_others():
    """Law: where a declared tool calls others by name, an unknown name is answered with that tool: a model that has
    seen a definition in a result (qwen-code's `tool_search`) calls it by its own name, and heard only that there is
    none."""
    caller = tool("tool_call", {"properties": {"name": {"type": "string"}, "arguments": {"type": "object"}}})
    found = verdict({"x": 1}, "mcp__s__refs", made([tool("tool_search", {}), caller])).violations

    assert "call 'tool_call' with its name and arguments" in found[0].message
    assert "tool_call" not in verdict({"x": 1}, "mcp__s__refs").violations[0].message


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("get_weather", '{"city": "B", "days": "\\ud83d"}'), ("get_weather", '{"city\\ud83d": 1}'), ("g\ud83d", "{}")],
)
def test_what_is_wrong_can_always_be_said(name, arguments):
    """Half a character in a model's JSON is quoted as U+FFFD: an error, a re-ask and a report can hold it."""
    found = verdict(arguments, name=name).violations
    assert found
    assert all(text is None or text.encode() for v in found for text in (v.path, v.message, v.tool))


def test_what_a_complaint_quotes_is_short_whatever_it_is_about():
    """A value is written as far as it is shown: eight megabytes in two hundred complaints cost nothing."""
    schema = {"additionalProperties": {"anyOf": [{"type": "null"}, {"minItems": 10**6}]}}
    value = {f"k{i}": [["x" * 1_000_000]] for i in range(150)}
    box = made([tool("f", schema)])
    found = check_calls([RawCall(name="f", arguments=value, format="json")], box, new_id=IDS, steps=Steps(20_000))
    assert len(found.violations) == 100
    assert max(len(violation.message) for violation in found.violations) <= 200


LIMIT, MODE = {"type": ["integer", "null"]}, {"enum": ["a", "b"]}
QUERY = {"query": {"type": "string"}, "limit": LIMIT, "mode": MODE, "free": True}
BOX = made([tool("search", {"properties": QUERY, "required": ["query"]}), tool("clock", {})])


def test_the_corrective_message_says_everything():
    """The user's wording, every violation with its place, the guess at the name, and the tools with their
    signatures."""
    bad = [RawCall(name="serch", arguments="{}"), RawCall(name="search", arguments='{"limit": "x"}')]

    message = corrective_message(check_calls(bad, BOX, new_id=IDS).violations, BOX)

    opening = "Your previous response contained an invalid tool call. The error was:"
    assert message.startswith(f"{opening} /0/name there is no")
    assert "did you mean 'search'?" in message
    assert "/1/arguments/query (in search) is required" in message
    assert "/1/arguments/limit (in search) must be integer or null" in message
    assert "You must respond with valid JSON matching the tool schema exactly. Available tools: search(" in message
    assert message.endswith("search(query: string, limit?: integer|null, mode?: 'a'|'b', free?: any), clock().")
    assert "Available tools: none." in corrective_message([], made([]))
