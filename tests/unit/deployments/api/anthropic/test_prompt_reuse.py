"""The second turn of an agent's session over Anthropic's Messages, on the real model: it finds what the first read."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.anthropic.messages_render import _MessageCollector
from deployments.models.sources import DEFAULT_SOURCE
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import Finish
from tests.support.anthropic_values import MARKER, TOOL
from tests.support.mlx_rig import ready
from tests.support.run_values import run_of

pytestmark = pytest.mark.model

TIMEOUT_S = 300.0
ANSWER_HEAD_TOKENS = 8  # what a template writes in front of an answer


@pytest.fixture(scope="module")
def tier() -> Iterator[MlxTier]:
    """A tier of this file's own, so that no other test's prompts are in its cache."""
    made = ready(model=DEFAULT_SOURCE)
    yield made
    asyncio.run(made.close())


def body(turn: int, messages: list[dict[str, Any]]) -> bytes:
    """A request as Claude Code sends it: a line that changes at its head, and the marker on its newest block."""
    bill = {
        "type": "text",
        "text": f"x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli; cch=0{turn}a1b;",
    }
    prompt = {"type": "text", "text": "You are an agent. " * 20, "cache_control": MARKER}
    *older, newest = messages
    *blocks, last = newest["content"]
    marked = {**newest, "content": [*blocks, {**last, "cache_control": MARKER}]}
    fields = {"max_tokens": 16, "system": [bill, prompt], "tools": [TOOL], "messages": [*older, marked]}
    return json.dumps(fields | {"temperature": 0.0}).encode()


def ask(tier: MlxTier, raw: bytes) -> dict[str, Any]:
    """The message that a client gets."""

    async def go() -> dict[str, Any]:
        call = parse_messages(raw, {}, request_id="r", tokens_max=64, timeout_s=TIMEOUT_S)
        answer, finish = _MessageCollector(answer_id="msg_1", thinking=False, run=run_of(call.request)), None
        async for events in tier.stream(call.request):
            answer.take(events)
            finish = events[-1]
        assert isinstance(finish, Finish)
        counted = await tier.count_tokens(call.request)
        return json.loads(answer.body("fast", finish)) | {"counted": counted}

    return asyncio.run(go())


def test_a_turn_is_found_up_to_its_last_message(tier):
    """`cache_read_input_tokens` of the second turn is the first turn's prompt, though the line at its head and the
    marker's place have changed; and `count_tokens` had said what the prompt would be, to the token."""
    first = [{"role": "user", "content": [{"type": "text", "text": "Read notes.txt and say what stands in it."}]}]
    use = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "notes.txt"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "the wall is red"}]}
    second = [*first, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    cold, warm = ask(tier, body(1, first)), ask(tier, body(2, second))
    prompt = cold["usage"]["input_tokens"] + cold["usage"]["cache_read_input_tokens"]

    assert cold["counted"] == prompt
    assert warm["counted"] == warm["usage"]["input_tokens"] + warm["usage"]["cache_read_input_tokens"]
    assert warm["usage"]["cache_read_input_tokens"] >= prompt - ANSWER_HEAD_TOKENS
