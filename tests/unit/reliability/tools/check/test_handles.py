"""Numbers of what runs that nobody has told."""

import pytest

from reliability.tool_calls import Uncertainty
from tests.support.call_values import made
from tests.support.checking import verdict
from tests.support.renderings import tool

NUMBER, TEXT = {"type": "number"}, {"type": "string"}
# As Codex declares them.
BOX = made(
    [
        tool("write_stdin", {"properties": {"session_id": NUMBER, "chars": TEXT}, "required": ["session_id"]}),
        tool("exec_command", {"properties": {"cmd": TEXT}, "required": ["cmd"]}),
        tool("start_session", {"properties": {"session_id": NUMBER}, "required": ["session_id"]}),
        tool("kill", {"properties": {"pid": {"type": "integer", "description": "0: all"}}, "required": ["pid"]}),
        tool("get_ticket", {"properties": {"ticket_id": NUMBER, "shell_id": NUMBER}, "required": ["ticket_id"]}),
        tool("attach", {"properties": {"terminal_id": TEXT}, "required": ["terminal_id"]}),
    ]
)
ASKED = "1. Read part_00.txt, 2 of 17 files, and say who owns it."
GONE = "write_stdin failed: Unknown process id 1"


def checked(name, arguments, *said):
    return verdict(arguments, name, BOX, conversation=[*said, ASKED])


@pytest.mark.parametrize("number", [1, 1.0, 0, 17, 4512])
def test_a_number_that_nobody_told_is_asked_for_again(number):
    """Law: it may be meant, so it is only suspected, unless a result says that there is no such thing."""
    found = checked("write_stdin", {"session_id": number, "chars": "ls\n"}).violations[0]
    assert (found.path, found.doubt) == ("/0/arguments/session_id", Uncertainty.SUSPECTED)
    assert "call 'exec_command'" in found.message
    gone = checked("write_stdin", {"session_id": 1}, GONE, GONE).violations[0]
    assert gone.doubt is Uncertainty.PLAIN


@pytest.mark.parametrize(("name", "arguments", "told"), [
    ("write_stdin", {"session_id": 1}, "Process running with session ID 1"),
    ("write_stdin", {"session_id": 1}, '{"session_id": 1, "output": ""}'),
    ("write_stdin", {"session_id": 40123}, "4 ?  40123 node server.js"),
    ("write_stdin", {"session_id": 1}, f"{GONE}\nstarted process 1"),
    ("kill", {"pid": 77}, "Kill process 77, please."),
    ("kill", {"pid": 77}, "Use PID 77."),
    ("attach", {"terminal_id": "3"}, "Terminal #3 is open."),
])  # fmt: skip
def test_a_number_that_was_told_is_delivered(name, arguments, told):
    """Law: by a user or by a result, whatever else was said of it; what is told as unknown wasn't."""
    assert checked(name, arguments, told).ok
    assert not checked(name, arguments, "It is open.").ok


@pytest.mark.parametrize(("name", "arguments"), [
    ("start_session", {"session_id": 1}), ("kill", {"pid": 0}), ("get_ticket", {"ticket_id": 7, "shell_id": 7}),
    ("attach", {"terminal_id": "main"}), ("exec_command", {"cmd": "kill 7"}), ("attach", {"terminal_id": "7" * 5_000}),
    ("write_stdin", {"session_id": 10**400}), ("write_stdin", {"session_id": 1.5}), ("kill", {"pid": -1}),
])  # fmt: skip
def test_what_a_model_may_choose_is_its_own(name, arguments):
    """Law: what starts something may number it, the schema's own numbers are told, what isn't required or isn't the
    number of something that runs is no handle, and a name may be the model's."""
    assert checked(name, arguments).ok


@pytest.mark.parametrize("schema", [{}, {"properties": {}}, {"properties": {"pid": True}}])
def test_a_schema_that_says_nothing_of_the_number_tells_none(schema):
    """Law: whatever a schema leaves out, the call is judged."""
    box = made([tool("stop", {**schema, "required": ["pid"]})])
    assert not verdict({"pid": 1}, "stop", box, conversation=[ASKED]).ok
    assert verdict({"pid": 1}, "stop", box, conversation=["pid 1"]).ok


def test_without_a_conversation_nothing_is_untold():
    """Law: as for placeholders."""
    assert verdict({"session_id": 1}, "write_stdin", BOX, conversation=None).ok
