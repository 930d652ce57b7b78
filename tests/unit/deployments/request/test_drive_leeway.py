"""Values that are only doubted, and JSON that may be the answer: no such answer is refused for ever."""

from typing import Any

import pytest

from deployments.request.run_record import Run
from reliability.types import Flaw, RefuseCode
from tests.support.driving import calls_of, drive_once, say, scripted, show, text_of

S = {"type": "string"}


def declare(name: str, *keys: str, about: str = "") -> dict[str, Any]:
    parameters = {"type": "object", "properties": dict.fromkeys(keys, S), "required": list(keys)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


def ask(words: str, tools: tuple[dict[str, Any], ...], *scripts: Any, hold_all: bool = False) -> tuple[Run, list[Any]]:
    """Drive one request over as many tiers as there are scripts."""
    messages = ({"role": "system", "content": "You are an agent."}, {"role": "user", "content": words})
    tiers = dict(zip(("fast", "premium"), scripts, strict=False))
    return drive_once(scripted(tiers), show(messages, tools), hold_all=hold_all)


def call(name: str, /, **arguments: Any) -> list[dict[str, Any]]:
    return [{"answer": [{"tool_call": {"name": name, "arguments": arguments}}]}]


def tell(text: str) -> list[dict[str, Any]]:
    return [{"answer": say(text)}]


DOUBTED = [
    ("Write the React file of the orders page.", "write_file", {"path": "YourOrders.tsx", "content": "x"}),
    ("Write the page.", "create_page", {"slug": "your-first-app", "body": "x"}),
    ("Translate the label.", "add_translation", {"key": "your_orders", "value": "Deine Bestellungen"}),
    ("Translate the label.", "add_translation", {"key": "enter_your_email", "value": "Gib sie ein"}),
    ("Branch off.", "create_branch", {"name": "your-account-page"}),
    ("Show it.", "open_route", {"route": "/your-library"}),
    ("Are there any sample keys left?", "search_code", {"query": "YOUR_API_KEY"}),
    ("Say nothing, just dots.", "send_message", {"to": "Bob", "message": "..."}),
    ("Clear my status.", "set_status", {"text": ""}),
    ("Clear the clipboard.", "set_clipboard", {"text": ""}),
    ("Remove the description of the channel.", "set_topic", {"topic": ""}),
    ("Show all contacts.", "search_contacts", {"query": ""}),
    ("List the top level.", "list_objects", {"prefix": ""}),
    ("List the notes at the top.", "list_files_in_dir", {"dirpath": " "}),
]


@pytest.mark.parametrize("tiers", [1, 2])
@pytest.mark.parametrize("case", DOUBTED, ids=lambda case: case[1] + str(next(iter(case[2].values()))))
def test_a_value_that_is_only_suspected_is_asked_about_once(case, tiers):
    """Law: a tier that says again what is only suspected is believed: the call leaves as it is, with a note."""
    words, name, arguments = case
    run, events = ask(words, (declare(name, *arguments),), *[call(name, **arguments)] * tiers)
    assert [attempt.flaw for attempt in run.attempts] == [Flaw.TOOL_CALL_INVALID] * 2
    assert run.refusal is None
    assert [called for called, _ in calls_of(events)] == [name]
    assert "was doubted and asked for again" in run.finish.notes[-1]
    assert not any(value in run.finish.notes[-1] for value in arguments.values() if value.strip())


PLAIN = [
    ("connect", {"api_key": "YOUR_API_KEY"}), ("connect", {"key": "YOUR_API_KEY"}), ("weather", {"city": "your_city"}),
    ("read_file", {"path": "/path/to/file"}), ("replace", {"word": "[Your Name]"}), ("go", {"to": "<your address>"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), PLAIN)
def test_what_plainly_stands_in_for_a_value_goes_to_the_next_tier(name, arguments):
    """Law: a placeholder that is plain is another tier's to fill in, however often its tier says it; where no other
    answer comes, it is delivered."""
    tools, key = (declare(name, *arguments),), next(iter(arguments))
    run, events = ask("Go on.", tools, call(name, **arguments), call(name, **{key: "Lima"}))
    assert [attempt.tier for attempt in run.attempts] == ["fast", "fast", "premium"]
    assert "Lima" in calls_of(events)[0][1]
    for tiers in (1, 2):
        run, events = ask("Go on.", tools, *[call(name, **arguments)] * tiers)
        assert (run.refusal, len(run.attempts), len(calls_of(events))) == (None, tiers + 1, 1)


@pytest.mark.parametrize("text", ["<your_api_key>", "<api_key>", "[insert API key here]", "{api_key}"])
def test_what_asks_for_the_argument_itself_is_never_delivered(text):
    """Law: where no tier has anything but brackets that ask for this very argument, there is one clear error."""
    run, events = ask("Go on.", (declare("connect", "api_key"),), *[call("connect", api_key=text)] * 2)
    assert (run.refusal.code, calls_of(events)) == (RefuseCode.INVALID_ANSWER, [])


def test_a_loop_of_doubted_calls_is_a_loop():
    """Law: a call whose value is doubted is held against the history like any other."""
    one = {"id": "c", "type": "function", "function": {"name": "list_dir", "arguments": '{"path": ""}'}}
    lap = [{"role": "assistant", "tool_calls": [one]}, {"role": "tool", "tool_call_id": "c", "content": "a.txt"}]
    messages, tools = [{"role": "user", "content": "List it."}, *lap * 8], (declare("list_dir", "path"),)
    run, events = drive_once(scripted({"fast": call("list_dir", path="")}), show(messages, tools))
    assert run.refusal.code is RefuseCode.LOOP
    assert calls_of(events) == []


TOOLS = (declare("read_file", "path"), declare("bash", "command"))
JSON = [
    ("List the functions.", '[{"name": "add", "parameters": {"a": "int"}}, {"name": "f", "parameters": {}}]'),
    ("Give me three test inputs.", '[{"name": "valid login", "input": {"user": "a", "password": ""}}]'),
    ("What is the next move?", '{"action": "move", "params": {"direction": "north"}}'),
    ("Write the container's command part.", '{"name": "web", "args": ["--port", "80"]}'),
    ("Name the RPC.", '{"function": "resize", "input": {"width": 10}}'),
    ("Name the RPC and its params as JSON.", '{"name": "resize", "arguments": {"width": 10}}'),
]  # fmt: skip


@pytest.mark.parametrize("hold_all", [True, False])
@pytest.mark.parametrize("frame", ["{}", "```json\n{}\n```"])
@pytest.mark.parametrize(("words", "text"), JSON)
def test_json_that_is_the_answer_is_delivered(words, text, frame, hold_all):
    """Law: an answer in JSON that has not the form of a call, or was asked for as JSON, is good, whole and streamed."""
    text = frame.replace("{}", text)
    run, events = ask(words, TOOLS, tell(text), hold_all=hold_all)
    assert (run.refusal, [attempt.flaw for attempt in run.attempts]) == (None, [None])
    assert text_of(events) == text


@pytest.mark.parametrize("hold_all", [True, False])
@pytest.mark.parametrize("lead", ["", "<think>Let me see.</think>"])
def test_json_in_the_form_of_a_call_is_asked_about_and_then_words(hold_all, lead):
    """Law: an undeclared name in the form of a call goes to the next tier; where each tier says so, it was the
    answer."""
    text = '{"name": "resize", "arguments": {"width": 10}}'
    run, events = ask("Resize it.", TOOLS, tell(lead + text), call("bash", command="convert a"), hold_all=hold_all)
    assert [called for called, _ in calls_of(events)] == ["bash"]
    for tiers in (1, 2):
        run, events = ask("Resize it.", TOOLS, *[tell(lead + text)] * tiers, hold_all=hold_all)
        assert (run.refusal, len(run.attempts), text_of(events), calls_of(events)) == (None, tiers + 1, text, [])


@pytest.mark.parametrize("tiers", [1, 2])
@pytest.mark.parametrize("hold_all", [True, False])
def test_behind_text_that_has_left_it_is_delivered_once(hold_all, tiers):
    """Law: what stands before it leaves once, and the answer is of one attempt: words are those of the attempt whose
    text stands there, and calls follow any."""
    lead = "Sure, I will look it up for you now. Here it is:\n\n"
    text = lead + '{"name": "look_up", "arguments": {"path": "a.txt"}}'
    run, events = ask("Go.", TOOLS, *[tell(text)] * tiers, hold_all=hold_all)
    assert (run.refusal, text_of(events), calls_of(events)) == (None, text, [])
    script = [{"answer": [*say(lead), {"tool_call": {"name": "bash", "arguments": {"command": ""}}}]}]
    run, events = ask("Go.", TOOLS, *[script] * tiers, hold_all=hold_all)
    assert (run.refusal, text_of(events), len(calls_of(events))) == (None, lead, 1)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "resize", "arguments": {"width": 10}}</tool_call>',
        '<tool_call>{"name": "bash", "arguments": {"width": 10}}</tool_call>',
        '<tool_call>{"name": "bash", "argu',
        '{"name": "bash", "arguments": {"width": 10}}',
        '{"name": "bash", "arguments": {"command": "ls"}}\n{"name": "bash", "arguments": {"command": ""',
    ],
)
def test_what_is_no_doubt_is_refused_as_ever(text):
    """Law: a call under a mark, one of a declared tool, and one that breaks off are no words, and are never delivered
    where they are invalid."""
    run, events = ask("Answer as JSON.", TOOLS, *[tell(text)] * 2)
    assert run.refusal.code is RefuseCode.INVALID_ANSWER
    assert (text_of(events), calls_of(events)) == ("", [])
