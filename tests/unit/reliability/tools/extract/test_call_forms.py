"""Objects that name no declared tool: a call of one that isn't there, or data."""

import itertools
import json

import pytest

from reliability.tool_calls import Uncertainty
from reliability.tools import Extraction, ToolBox, build_toolbox, extract_calls
from tests.support.streaming import play, whole

S = {"type": "string"}


def declare(name: str, *keys: str) -> dict:
    parameters = {"type": "object", "properties": dict.fromkeys(keys, S), "required": list(keys)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


BOX = build_toolbox([declare("read_file", "path"), declare("bash", "command")])
assert isinstance(BOX, ToolBox)
FRAMES = ["{}", "[{}]", "```json\n{}\n```", " {}\n"]
VALUES = [{"query": "tides"}, {"x": 1, "y": 2}, {"text": "a string of words"}, {"flags": ["a"]}, {"on": True}]
TYPES = [
    {"a": "int", "b": "int"}, {"who": "str"}, {"name": "string", "age": "integer"}, {"rows": "list[dict[str, int]]"},
    {"path": "str"}, {"x": "float | None"}, {"on": "boolean"}, {"xs": "number[]"}, {"d": "Dict<string, any>"},
    {"limit": "int = 10"}, {"key": "Optional[str]"},
]  # fmt: skip
SURE = [
    ("name", "arguments"), ("name", "parameters"), ("function", "arguments"), ("tool", "args"), ("tool_name", "params"),
    ("action", "action_input"), ("tool", "input"), ("function_name", "kwargs"), ("name", "tool_input"),
]  # fmt: skip
LOOSE = [("name", "input"), ("name", "args"), ("name", "params"), ("action", "params"), ("function", "input")]


def write(name: str, given: object, keys: tuple[str, str]) -> str:
    return json.dumps({keys[0]: name, keys[1]: given})


def check(text: str, *, meant: bool) -> None:
    """Check that a text is a call that is asked about, or leaves as it came, whole and streamed."""
    found = extract_calls(text, BOX)
    assert (found == Extraction(text=text)) is not meant, text
    assert (len(found.malformed), found.calls) == (int(meant), ())
    assert [one.doubt for one in found.malformed] == [Uncertainty.PLAIN] * meant
    assert play([*text], BOX) == whole(text, BOX)


@pytest.mark.parametrize("frame", FRAMES)
def test_an_undeclared_name_is_a_call_in_the_form_of_one(frame):
    """Law: as the complete answer an object that names no declared tool is an attempt at a call where it has a key that
    calls have, the name of one, and values; and under any key where the name is nearly declared or the arguments are a
    tool's."""
    for keys, given in itertools.product(SURE, VALUES):
        check(frame.replace("{}", write("web_search", given, keys)), meant=True)
    for keys in LOOSE:
        check(frame.replace("{}", write("web_search", VALUES[0], keys)), meant=False)
        check(frame.replace("{}", write("read_files", VALUES[0], keys)), meant=True)
        check(frame.replace("{}", write("open", {"path": "a.txt"}, keys)), meant=True)


@pytest.mark.parametrize("name", ["assistant<|channel|>analysis", "web_search<|channel|>commentary", "run<|im_end|>"])
def test_a_mark_behind_a_name_is_no_part_of_it(name):
    """Law: a model's mark that has leaked into the name makes a call no data."""
    for given in ({"command": "ls"}, json.dumps({"command": "ls"}), {"query": "tides"}):
        check(write(name, given, SURE[0]), meant=True)


@pytest.mark.parametrize("frame", FRAMES)
def test_a_signature_is_data(frame):
    """Law: where all values are types, the object describes a function, whatever its keys and its name."""
    for keys, given in itertools.product((*SURE, *LOOSE), TYPES):
        check(frame.replace("{}", write("greet", given, keys)), meant=False)
    check(frame.replace("{}", write("greet", {"a": "int", "b": 3}, SURE[0])), meant=True)


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("name", ["valid login", "Final Answer", "Ada Lovelace", "größe", "é", "a, b"])
def test_what_no_tool_is_called_is_data(frame, name):
    """Law: a name that no tool can have makes no call, nor does a list for the arguments."""
    for keys in (*SURE, *LOOSE):
        check(frame.replace("{}", write(name, VALUES[0], keys)), meant=False)
        check(frame.replace("{}", write("web", ["--port", "80"], keys)), meant=False)


def test_a_list_is_data_with_one_that_is_data():
    """Law: of a list all are calls or none."""
    both = [json.loads(write(name, given, SURE[1])) for name, given in (("add", {"a": "int"}), ("now", {}))]
    check(json.dumps(both), meant=False)
    check(json.dumps([json.loads(write(name, VALUES[0], SURE[0])) for name in ("web", "mail")]), meant=True)


@pytest.mark.parametrize("mark", ["<tool_call>{}</tool_call>", "[TOOL_CALLS]{}", "<function_calls>{}</function_calls>"])
def test_behind_a_mark_every_name_is_a_call(mark):
    """Law: a mark says that it is a call, whatever stands in it; one in a sentence, in quotes, stays words."""
    for keys, given in itertools.product((*SURE, *LOOSE), (*VALUES, *TYPES)):
        found = extract_calls(mark.replace("{}", write("web_search", given, keys)), BOX)
        assert [call.name for call in found.calls] == ["web_search"]
        assert (found.text, found.malformed) == ("", ())
    told = f"Write `{mark.replace('{}', write('web_search', VALUES[0], SURE[0]))}` to call it."
    assert extract_calls(told, BOX) == Extraction(text=told)
