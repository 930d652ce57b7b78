"""What a request says of its prompt being kept on disk."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.headers import may_keep
from deployments.api.openai_chat import parse_chat
from deployments.api.openai_responses.response_body import parse_response

FIELDS = ["prompt_cache_retention", "store", "cache_prompt"]
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=9), st.lists, max_leaves=3)
HI = [{"role": "user", "content": "hi"}]


@given(st.dictionaries(st.text(max_size=15), st.text(max_size=9)), st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_any_request_says_one_or_the_other(headers: dict[str, str], body: dict[str, Any]) -> None:
    """Law: whatever is sent, there is an answer."""
    assert may_keep(headers, body) in (True, False)


@pytest.mark.parametrize(
    ("headers", "body", "kept"),
    [
        ({}, {}, True),
        ({}, {"store": None}, True),
        ({}, {"store": True}, True),
        ({}, {"store": False}, False),
        ({}, {"cache_prompt": False}, False),
        ({}, {"prompt_cache_retention": "in_memory"}, False),
        ({}, {"prompt_cache_retention": "in-memory", "store": True}, False),
        ({}, {"prompt_cache_retention": "24h", "store": False}, True),
        ({"Cache-Control": "no-cache, No-Store"}, {}, False),
        ({"cache-control": "no-cache"}, {}, True),
    ],
)
def test_what_is_said_counts(headers: dict[str, str], body: dict[str, Any], kept: bool) -> None:
    """Law: a request that says nothing may be kept; each way to refuse counts; the retention has the last word."""
    assert may_keep(headers, body) is kept


@pytest.mark.parametrize("fields", [{}, {"store": False}, {"prompt_cache_retention": "in_memory"}])
def test_every_dialect_is_heard(fields: dict[str, Any]) -> None:
    """Law: what a body or a header says reaches the tier's request in each dialect that has the field."""
    known: dict[str, Any] = {"request_id": "r", "tokens_max": 10, "timeout_s": 1.0}
    chat = parse_chat(orjson.dumps({"messages": HI, **fields}), {}, **known)
    response = parse_response(orjson.dumps({"input": "hi", **fields}), {}, **known)
    assert {chat.request.keep, response.request.keep} == {not fields}
    raw = orjson.dumps({"model": "m", "max_tokens": 5, "messages": HI})
    headers = {"cache-control": "no-store"} if fields else {}
    assert parse_messages(raw, headers, **known).request.keep is not bool(fields)
