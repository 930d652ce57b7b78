"""`POST /v1/messages/count_tokens`, `POST /v1/responses/input_tokens`: count the tokens of a prompt without a model.

The tier at which the request would start counts, by its own tokenizer and chat template: then it is exactly what that
tier's usage will say. One that can't (it is hosted, loading, asleep, full, or can't read this prompt) leaves an
estimate, and `mlx_stack` says so. Nothing is generated, nothing is booked, and no tier is woken for it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from deployments.telemetry import log_error
from reliability.answer.estimate import prompt_bytes, tokens_about
from reliability.types import ChatRequest

COUNT_S = 10.0


class Counting(Protocol):
    """A tier that may be able to count."""

    name: str

    async def count_tokens(self, request: ChatRequest) -> int | None:
        """Count the tokens of the request's prompt; None where it can't."""


async def count_prompt(tier: Counting, request: ChatRequest) -> dict[str, Any]:
    """Count the prompt, or estimate it. `exact` says which."""
    counted: int | None = None
    try:
        async with asyncio.timeout(COUNT_S):
            counted = await tier.count_tokens(request)
    except Exception as error:
        log_error("count_failed", error, tier=tier.name, request_id=request.request_id)
    tokens = counted or tokens_about(prompt_bytes(request.messages, request.tools))
    return {"input_tokens": tokens, "mlx_stack": {"tier": tier.name, "exact": counted is not None}}
