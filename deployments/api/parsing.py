"""From the bytes of a body to a `ChatCall`, without holding anybody else up.

Small bodies are parsed on the event loop, others on its thread for large work. Where the schemas in one take more than
`STEPS_INLINE` to compile, all of it is done again by a worker, and the schemas are kept, so that the same tools cost
nothing when they come again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from deployments.api.openai_chat import ChatCall
from deployments.errors import ApiError
from deployments.work.judging import STEPS_INLINE, STEPS_LARGE
from deployments.work.large_work import large
from deployments.work.worker_pool import TooLong, Undone, Workers
from reliability.steps import OutOfSteps, Steps
from reliability.tools import keep

__all__ = ["parse_body"]


async def parse_body(
    workers: Workers,
    parse: Callable[..., ChatCall],
    raw: bytes,
    headers: Mapping[str, str],
    *,
    beside: int = 0,
    **named: Any,
) -> ChatCall:
    """Run a dialect's `parse`, here or in a worker. `beside`: so many bytes it reads beside `raw`.

    Raises:
        ApiError: as `parse`; `overloaded` where too many large requests wait already.
    """
    try:
        return await large(len(raw) + beside, partial(parse, raw, headers, **named, steps=Steps(STEPS_INLINE)))
    except OutOfSteps:
        pass
    try:
        call = await workers.run(parse, raw, headers, **named, steps=Steps(STEPS_LARGE, final=True))
    except TooLong as error:
        message = f"the schemas of this request are too large: {error} to read them"
        raise ApiError("invalid_tools", message, param="tools") from None
    except Undone as error:
        raise ApiError("overloaded", str(error)) from None
    for tool in call.toolbox.tools:
        keep(tool.compiled, arguments=True)
    return call
