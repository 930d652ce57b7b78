"""Anthropic's blocks as messages: the same history is the same messages, and a prompt's head stays as it is."""

import copy
import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.messages_history import _drop_billing_line, translate_history
from deployments.tiers.prompt import tidy_messages
from reliability.loops.comparison.findings import has_failed
from reliability.loops.content import text_of
from tests.support.anthropic_values import MARKER, PIXEL, bodies
from tests.support.refusing import refusal_of

BILLING = "x-anthropic-billing-header: cc_version=2.1.197.410; cc_entrypoint=cli; cch=%s;"


def translate(body: dict[str, Any]) -> list[dict[str, Any]]:
    return translate_history(body.get("system"), body["messages"])


def as_read(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As a local model reads them; images aside."""
    seen = copy.deepcopy(messages)
    for message in seen:
        if isinstance(message["content"], list):
            message["content"] = [part for part in message["content"] if part["type"] == "text"]
    return tidy_messages(seen)


def without_markers(value: Any) -> Any:
    if isinstance(value, list):
        return [without_markers(one) for one in value]
    if isinstance(value, dict):
        return {key: without_markers(one) for key, one in value.items() if key != "cache_control"}
    return value


@given(bodies())
def test_markers_change_no_word(body):
    """A request with its markers elsewhere, or without any, reads the same to a model: what a prompt cache holds of it
    still fits."""
    assert as_read(translate(body)) == as_read(translate(without_markers(body)))


@given(bodies(), st.integers(0, 5))
def test_a_longer_history_begins_as_the_shorter_one_did(body, cut):
    """What a turn adds stands behind what was there. A turn is asked with what the system says of it."""
    roles = [message["role"] for message in body["messages"]]
    ends = [at for at in range(1, len(roles) + 1) if roles[at - 1] != "assistant" and roles[at:][:1] != ["system"]]
    shorter = {**body, "messages": body["messages"][: ends[min(cut, len(ends) - 1)]]}
    head = as_read(translate(shorter))

    assert as_read(translate(body))[: len(head)] == head


def test_the_line_that_changes_with_each_request_is_kept_out():
    """Two requests of Claude Code that differ in it alone are one prompt; nothing else is taken."""
    first, second = (
        translate_history([{"type": "text", "text": BILLING % cch}, {"type": "text", "text": "You are good."}], USER)
        for cch in ("00a1b", "9ffe2")
    )

    assert first == second
    assert first[0] == {"role": "system", "content": "You are good."}
    assert translate_history(f"{BILLING % 1}\nYou are good.", USER)[0]["content"] == "You are good."
    assert translate_history("Say x-anthropic-billing-header: a", USER)[0]["content"].startswith("Say x-")
    assert translate_history([{"type": "text", "text": BILLING % 1}], USER) == USER


USER: list[Any] = [{"role": "user", "content": "hi"}]


@given(st.text())
def test_no_other_text_loses_a_word(text):
    """Only the line goes."""
    if "x-anthropic-billing-header:" not in text.lower():
        assert _drop_billing_line(text) == text
    assert _drop_billing_line(f"{BILLING % 5}\n\n{text}") == text.lstrip("\n")


def test_results_come_first_and_images_stand_beside_them():
    """A tool's message has room for text alone: what is an image in a result is shown by the user's message behind."""
    image = {"type": "image", "source": PIXEL}
    messages = [
        *USER,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": "é"}}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Look:"},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "one"}, image]},
            ],
        },
    ]
    _, call, result, beside = translate_history(None, messages)

    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"b":1,"a":"é"}'}
    assert result == {"role": "tool", "tool_call_id": "t1", "content": "one"}
    assert [part["type"] for part in beside["content"]] == ["text", "image_url"]
    assert beside["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


@pytest.mark.parametrize(("text", "shown"), [("no file", "Error:\n\nno file"), ("Error: no file", "Error: no file")])
def test_a_failed_result_says_so(text, shown):
    """`is_error` is told to the model in words, unless they say it already."""
    block = {"type": "tool_result", "tool_use_id": "t", "content": text, "is_error": True}
    (message,) = tidy_messages(translate_history(None, [{"role": "user", "content": [block]}]))

    assert message["content"] == shown


@pytest.mark.parametrize("place", ["{} (net error).", "No ValueError({}).", "No terror.txt: {}", "{}: no errors"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_failed_result_is_read_as_one(place, blocks):
    """What `is_error` says is never lost: whoever reads the result later finds that it failed, wherever it has the
    word. What the client doesn't call a failure is none."""
    texts = [{"type": "text", "text": text} for text in (place.format("not loaded"), "Try later.")[:blocks]]
    for failed in (True, False):
        block = {"type": "tool_result", "tool_use_id": "t", "content": texts, "is_error": failed}
        (message,) = tidy_messages(translate_history(None, [{"role": "user", "content": [block]}]))
        assert has_failed(text_of(message["content"])) is failed


SAID = st.lists(st.sampled_from(["text", "thinking", "tool_use"]), min_size=1, max_size=4)


@given(st.lists(SAID, min_size=1, max_size=4))
def test_answers_in_a_row_are_one_turn(said):
    """Law: an answer that a client sends as several messages (Anthropic reads those of one role in a row as one turn)
    is read as the same blocks in one message are, from its first call on: the results stand behind all of its calls."""
    call, own = (
        {"name": "read", "input": {}},
        {"text": {"text": "I look."}, "thinking": {"thinking": "Hm.", "signature": ""}},
    )
    split = [[{"type": one, **own.get(one, call | {"id": f"{at}.{place}"})} for place, one in enumerate(message)]
             for at, message in enumerate(said)]  # fmt: skip
    calls = next((at for at, message in enumerate(said) if "tool_use" in message), len(said))
    joined = [*split[:calls], [block for blocks in split[calls:] for block in blocks]]
    ids = [block["id"] for blocks in split for block in blocks if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": id, "content": "done"} for id in ids]
    behind = [{"role": "user", "content": results or "go on"}]
    first, second = (
        translate_history((), [*USER, *({"role": "assistant", "content": blocks} for blocks in answers), *behind])
        for answers in (split, [blocks for blocks in joined if blocks])
    )

    assert first == second


@pytest.mark.parametrize("before", [[], [{"role": "assistant", "content": []}]])
def test_behind_an_answer_that_is_left_out_another_stands_alone(before):
    """Law: an answer that can't be read is left out with a note, also at the head of a conversation without a system
    prompt, where nothing stands that the next one could be joined to."""
    notes = {}
    unread, answer = {"role": "assistant", "content": 5}, {"role": "assistant", "content": "I look."}
    out = translate_history((), [*before, unread, answer, {"role": "user", "content": "go on"}], notes)
    assert [message["content"] for message in out[-2:]] == ["I look.", "go on"]
    assert len(notes) == 1


def test_thoughts_go_back_to_the_model():
    """As `reasoning_content`, which templates that want it read; what is redacted nobody can read."""
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "text", "text": "Yes."},
    ]
    messages = translate_history(None, [*USER, {"role": "assistant", "content": content}, *USER])

    assert messages[1] == {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"}


@pytest.mark.parametrize("kind", ["web_search_tool_result", "bash_code_execution_tool_result", "mcp_tool_result"])
def test_calls_that_another_server_has_run_end_no_conversation(kind):
    """A conversation that began at Anthropic goes on here with the texts that rest on them."""
    call = {
        "type": "mcp_tool_use" if kind.startswith("mcp") else "server_tool_use",
        "id": "s",
        "name": "n",
        "input": {},
    }
    content = [call, {"type": kind, "tool_use_id": "s", "content": []}, {"type": "text", "text": "Found."}]
    messages = translate_history(None, [*USER, {"role": "assistant", "content": content}, *USER])

    assert messages[1] == {"role": "assistant", "content": "Found."}


def test_texts_of_documents_and_search_results_are_read():
    """What is text in them is the user's text."""
    blocks = [
        {"type": "document", "title": "Notes", "source": {"type": "text", "media_type": "text/plain", "data": "red"}},
        {"type": "search_result", "title": "T", "source": "u", "content": [{"type": "text", "text": "found"}]},
    ]
    told = json.dumps(translate_history(None, [{"role": "user", "content": blocks}]))

    assert "Notes\\nred" in told
    assert "T (u)\\nfound" in told


TITLES = st.none() | st.text("abc")


@given(st.lists(st.text("abc") | st.none(), max_size=5), TITLES, TITLES, st.booleans())
def test_a_document_is_read_in_its_order(pieces, title, context, of_a_result):
    """Law: the model reads a document's title and context, and behind them its texts and images in their order; of a
    result's document the images stand behind the result."""
    image = {"type": "image", "source": PIXEL}
    blocks = [image if text is None else {"type": "text", "text": text} for text in pieces]
    document = {
        "type": "document",
        "title": title,
        "context": context,
        "source": {"type": "content", "content": blocks},
    }
    result = {"type": "tool_result", "tool_use_id": "t", "content": [document]}
    messages = translate_history(None, [{"role": "user", "content": [result if of_a_result else document]}])
    contents = [message["content"] for message in messages]
    listed = [part for content in contents for part in ([content] if isinstance(content, str) else content)]
    read = [None if isinstance(part, dict) and part["type"] == "image_url" else part for part in listed]
    words = [part["text"] if isinstance(part, dict) else part for part in read if part is not None]
    said = [*filter(None, (title, context)), *pieces]

    assert [word for text in words for word in text.split()] == [text for text in said if text]
    assert read.count(None) == pieces.count(None)
    if not of_a_result:
        runs = [list(filter(None, group)) for pause, group in groupby(said, lambda text: text is None) if not pause]
        assert ([text.split() for text in words] or [[]]) == (runs or [[]])


def test_a_document_shows_no_block_of_another_kind():
    """Law: what its text can't hold is refused by its place."""
    inner = {"type": "document", "source": {"type": "text", "data": "x"}}
    document = {"type": "document", "source": {"type": "content", "content": [inner]}}
    refused = refusal_of(translate_history, None, [{"role": "user", "content": [document]}])
    assert refused.param == "messages.0.content.0.source.content.0.type"


@pytest.mark.parametrize("title", [None, "a.pdf"])
def test_a_document_that_is_no_text_is_a_file(title):
    """As chat completions have it, beside a result as well: another tier may read it."""
    source = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}
    document = {"type": "document", "title": title, "source": source}
    data = {"filename": title or "document.pdf", "file_data": "data:application/pdf;base64,AA=="}
    for content in ([document], [{"type": "tool_result", "tool_use_id": "t", "content": [document]}]):
        messages = translate_history(None, [{"role": "user", "content": content}])
        assert messages[-1]["content"] == [{"type": "file", "file": data}]


def test_the_markers_stay_on_the_parts():
    """Where a provider honours them they still stand where the client has put them, on results too."""
    content = [
        {"type": "text", "text": "a"},
        {"type": "tool_result", "tool_use_id": "t", "content": "r", "cache_control": MARKER},
        {"type": "text", "text": "b", "cache_control": MARKER},
    ]
    result, beside = translate_history(None, [{"role": "user", "content": content}])

    assert result["content"] == [{"type": "text", "text": "r", "cache_control": MARKER}]
    assert beside["content"] == [
        {"type": "text", "text": "a\n\n"},
        {"type": "text", "text": "b", "cache_control": MARKER},
    ]


@pytest.mark.parametrize("clear_at", [None, "never", "next_user_message"])
@pytest.mark.parametrize("later", [[], ["assistant", "user"], ["system"], ["user"]])
def test_a_system_message_leaves_with_the_next_of_the_user(clear_at, later):
    """Law: a system message with `clear_at: next_user_message` is read until a later message is the user's. Any other
    stays, before the user's words that it stands behind; one that holds settings alone says nothing."""
    told = {"role": "system", "content": "now", "clear_at": clear_at}
    settings = {"role": "system", "output_config": {"effort": "low"}}
    behind = [{"role": role, "content": "x"} for role in later]
    out = translate_history(None, [{"role": "user", "content": "hi"}, told, settings, *behind])

    leaves = clear_at == "next_user_message"
    told = [] if leaves and "user" in later else ["now"]
    head = ["hi", *told] if leaves else ["now", "hi"]
    # A system message behind "hi" as well stands before it, too.
    behind = ["x"] * len(later)
    head, behind = (["now", "x", "hi"], []) if later == ["system"] and not leaves else (head, behind)
    assert [one["content"] for one in out] == head + behind


RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "r"}]}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]}
PICTURED = {**RESULT, "content": [*RESULT["content"], {"type": "text", "text": "beside"}]}


@pytest.mark.parametrize(
    ("messages", "read"),
    [
        ([], ["hi"]),
        (["S"], ["S", "hi"]),
        (["S", "T"], ["S", "T", "hi"]),
        (["S", CALL, RESULT], ["S", "hi", None, "r"]),
        ([CALL, RESULT, "S"], ["hi", None, "r", "S"]),
        ([CALL, PICTURED, "S"], ["hi", None, "r", "S", "beside"]),
        ([CALL, RESULT, "more", "S"], ["hi", None, "r", "S", "more"]),
    ],
)
def test_the_request_stands_last(messages, read):
    """Law: what the system says behind the user's words is read before them, and never between a call and its
    result."""
    system = {"S": {"role": "system", "content": "S"}, "T": {"role": "system", "content": "T"}}
    given = [system.get(one, {"role": "user", "content": one}) if isinstance(one, str) else one for one in messages]
    out = translate_history("head", [{"role": "user", "content": "hi"}, *given])
    assert [one["content"] for one in as_read(out)][1:] == [text or "" for text in read]
