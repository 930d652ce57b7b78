"""Counting a prompt: by the tier's tokenizer, else by an estimate that says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deployments.api.anthropic.count_tokens import count_prompt
from reliability.types import ChatRequest
from tests.support.run_values import request_of


class Tier:
    """A tier that counts so many, or fails."""

    name = "fast"

    def __init__(self, counted: int | Exception | None) -> None:
        self.counted = counted

    async def count_tokens(self, _: ChatRequest) -> int | None:
        if isinstance(self.counted, Exception):
            raise self.counted
        return self.counted


def count(counted: Any) -> dict[str, Any]:
    return asyncio.run(count_prompt(Tier(counted), request_of("word " * 40)))


def test_what_the_tier_counts_is_exact():
    """Its figure, as it is."""
    assert count(123) == {"input_tokens": 123, "mlx_stack": {"tier": "fast", "exact": True}}


@pytest.mark.parametrize("counted", [None, RuntimeError("gone"), TimeoutError()])
def test_else_it_is_an_estimate(counted: Any):
    """A tier that can't count, or that fails, leaves an estimate, and the client is told that it is one."""
    told = count(counted)

    assert told["input_tokens"] > 50
    assert told["mlx_stack"] == {"tier": "fast", "exact": False}
