"""Anthropic's server-side compaction through the whole server, with their own client."""

import json
import threading
from typing import Any
from unittest import mock

import anthropic
import httpx
import pytest

from deployments.app import router
from deployments.work.large_work import QUIET_BYTES
from reliability.summaries import NEWEST_END, NEWEST_HEAD
from tests.support import scripts
from tests.support.dialects import ask_in_all
from tests.support.near_server import run_near
from tests.support.serving import Server

ORDER = "Summarize this conversation"
ASKED = {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1000}}]}
PAUSED = {"edits": [ASKED["edits"][0] | {"pause_after_compaction": True}]}
SUMMARY = "They talk of Oslo." + NEWEST_HEAD + "And now?" + NEWEST_END
ANSWER = [{"type": "compaction", "content": SUMMARY}, {"type": "text", "text": "It is cold."}]
TALK: list[Any] = [
    {"role": "user", "content": "Tell me of Oslo. " * 400},
    {"role": "assistant", "content": "It is a city."},
    {"role": "user", "content": "And now?"},
]


@pytest.fixture(scope="module")
def server(deploy):
    tier = scripts.scripted(
        {"when": {"last_user": ORDER}, "answer": "They talk of Oslo."},
        {"when": {"last_user": "Who keeps it?"}, "answer": "Mira."},
        {"when": {"transcript": "Tell me of Oslo."}, "answer": "I read it all."},
        {"when": {"transcript": "They talk of Oslo."}, "answer": "It is cold."},
        context_tokens=4000,
    )
    return deploy(scripts.graph({"fast": tier}), "compaction")


def ask(server: Server, messages: list[Any], *, stream: bool = False, **fields: Any) -> Any:
    client = anthropic.Anthropic(base_url=server.url, api_key="sk-test", max_retries=0, timeout=60.0)
    with client:
        wanted: dict[str, Any] = {"model": "auto", "max_tokens": 200, "messages": messages, **fields}
        if not stream:
            return client.beta.messages.create(**wanted, betas=["compact-2026-01-12"])
        with client.beta.messages.stream(**wanted, betas=["compact-2026-01-12"]) as sent:
            return sent.get_final_message()


def blocks_of(message: Any) -> list[dict[str, Any]]:
    return [
        {"type": "compaction", "content": block.content} if block.type == "compaction" else block.to_dict()
        for block in message.content
    ]


def test_the_answer_begins_with_the_summary(server, stream):
    """Law: over the trigger the answer has a block with the summary, then the words that rest on it; what the summary
    took is told apart, and the usage is that of the words. Sent back, the block stands for all before it."""
    message = ask(server, TALK, stream=stream, context_management=ASKED)

    assert blocks_of(message) == ANSWER
    assert message.stop_reason == "end_turn"
    kinds = [(one.type, one.input_tokens > 500) for one in message.usage.iterations]
    assert kinds == [("compaction", True), ("message", False)]
    assert message.usage.iterations[1].output_tokens == message.usage.output_tokens

    behind = [*TALK, {"role": "assistant", "content": message.content}, {"role": "user", "content": "And then?"}]
    after = ask(server, behind, stream=stream, context_management=ASKED)
    assert blocks_of(after) == ANSWER[1:]
    assert after.usage.input_tokens < 200


@pytest.mark.parametrize(
    "fields", [{"context_management": PAUSED}, {"extra_body": {"compaction": {"type": "summarize"}}}]
)
def test_a_client_that_wants_the_summary_alone_goes_on_itself(server, fields, stream):
    """Law: the answer ends behind the block, whose stop reason says so; the next request, with the block at its end or
    words behind it, goes on from there."""
    message = ask(server, TALK, stream=stream, **fields)

    assert blocks_of(message) == ANSWER[:1]
    assert message.stop_reason == "compaction"
    assert message.usage.output_tokens == 0
    assert [one.type for one in message.usage.iterations] == ["compaction"]
    behind = [*TALK, {"role": "assistant", "content": message.content}]
    for messages in (behind, [*behind, {"role": "user", "content": "Go on."}]):
        assert blocks_of(ask(server, messages, stream=stream)) == ANSWER[1:]


def test_counting_reads_a_summary_and_makes_none(server):
    """Law: what a block stands for isn't counted; no block is made."""
    with anthropic.Anthropic(base_url=server.url, api_key="sk-test", max_retries=0) as client:
        whole = client.beta.messages.count_tokens(model="auto", messages=TALK, context_management=ASKED)
        short = client.beta.messages.count_tokens(
            model="auto",
            messages=[*TALK, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And then?"}],
        )

    assert whole.input_tokens > 1000 > 200 > short.input_tokens


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("size", [100, 2 * QUIET_BYTES])
def test_edits_of_a_large_history_are_made_beside_the_event_loop(tmp_path, path, size):
    """Law: while the history of a large request is edited, others are served; a small one is edited at once."""
    threads: list[str] = []

    def note(*args: Any) -> Any:
        threads.append(threading.current_thread().name)
        return edit(*args)

    edit = router.apply_edits
    body = {"model": "auto", "max_tokens": 9, "messages": [{"role": "user", "content": "w" * size}]}
    body["context_management"] = {"edits": [{"type": "clear_tool_uses_20250919"}]}
    args = scripts.graph({"fast": scripts.scripted({"answer": "ok"})}) | {"state": {"path": str(tmp_path)}}
    with mock.patch.object(router, "apply_edits", note), run_near(args, "edits") as near:
        answer = httpx.post(near.url + path, content=json.dumps(body), timeout=60.0)
    assert answer.status_code == 200, answer.text
    assert [name.startswith("large-work") for name in threads] == [size > QUIET_BYTES]


def test_a_summary_that_a_client_orders_ends_with_the_user_s_words(server, stream):
    """Law: Claude Code's own order is answered by a summary that was held whole and ends with what the user asked for,
    and behind it the request is answered again."""
    look = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}
    call = [{"type": "tool_use", "id": "call_1", "name": "look", "input": {}}]
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "It snows."}
    order = {
        "type": "text",
        "text": f"Create a detailed summary of the conversation so far, without losing context.\n{ORDER}.",
    }
    asked = [{"role": "user", "content": "And Oslo?"}, {"role": "assistant", "content": call}]
    message = ask(server, [*asked, {"role": "user", "content": [result, order]}], stream=stream, tools=[look])

    assert message.content[0].text == "They talk of Oslo." + NEWEST_HEAD + "And Oslo?" + NEWEST_END
    assert message.stop_reason == "end_turn"
    folded = f"This session is continued from a previous conversation.\n{message.content[0].text}\nGo on."
    kept = [{"role": "user", "content": folded}, asked[1], {"role": "user", "content": [result]}]
    assert ask(server, kept, stream=stream, tools=[look]).content[0].text == "It is cold."


def test_the_tier_reads_the_request_behind_what_a_client_restores(server, stream):
    """Law: in each dialect, where a client's history is a summary, files that it restores, and the call that it kept,
    the newest words of a user are those that the summary ends with."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history = [
        {
            "role": "user",
            "content": f"<state_snapshot>\nThey look.{NEWEST_HEAD}Who keeps it?{NEWEST_END}\n</state_snapshot>",
        },
        {"role": "assistant", "content": "Got it."},
        {"role": "user", "content": "Recently accessed file (full current content embedded):\n\n## a.txt"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It snows."},
    ]
    told = ask_in_all(server, history, stream=stream)
    assert {one.text for one in told.values()} == {"Mira."}
