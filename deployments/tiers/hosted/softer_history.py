"""Send a conversation as it was written, and once more in a softer form where the upstream's chat template refuses it.

The only place where a hosted tier sends a request twice. A refusal has generated nothing, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import aiohttp

from deployments.tiers.history_repair import HistoryForm, soften
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, wants_softer
from deployments.work.large_work import large
from reliability.types import ChatRequest, Failed

Refusal = tuple[int, UpstreamComplaint, Failed]  # the status, what the upstream complains of, and the fault that it is
Send = Callable[[HistoryForm], Awaitable[aiohttp.ClientResponse | Failed]]


async def send_in_form(
    request: ChatRequest,
    form: HistoryForm,
    send: Send,
    read_refusal: Callable[[aiohttp.ClientResponse], Awaitable[Refusal]],
) -> tuple[aiohttp.ClientResponse | Failed, HistoryForm]:
    """Return a response that is an answer, or why there is none; and the form that is known to be taken from now on."""
    response = await send(form)
    if isinstance(response, Failed) or _is_answer(response):
        return response, form
    status, complaint, failed = await read_refusal(response)
    softer = None if request.route else wants_softer(status, complaint)
    if softer is None or softer <= form or not await large(request.body_bytes, _differs, request, form, softer):
        return failed, form
    response = await send(softer)
    if isinstance(response, Failed) or _is_answer(response):
        return response, form if isinstance(response, Failed) else softer
    return (await read_refusal(response))[2], form


def _is_answer(response: aiohttp.ClientResponse) -> bool:
    return 200 <= response.status < 300


def _differs(request: ChatRequest, form: HistoryForm, softer: HistoryForm) -> bool:
    return list(soften(request.messages, softer)) != list(soften(request.messages, form))
