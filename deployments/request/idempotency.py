"""Which requests may be repeated, and what a repeat finds.

    Idempotency-Key: NAME           the same answer under this name, wherever it stands: finished, running, broken off
    x-stainless-retry-count: N      what the SDKs of OpenAI and Anthropic send with everything (both SDKs as installed
                                    here send no Idempotency-Key of their own). 0: run anew, and keep it under the
                                    digest of its body. 1 and more: go on from what the same client was told of the
                                    same body, if it has left or its Router has died

A request with neither header costs nothing. Where the state can't be asked, a request runs as it would without.

What must never happen: one body's answer to another body, one key's to another key.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from deployments.errors import ApiError
from deployments.request.kept_request import Keep, KeptRequest
from deployments.request.run_record import Run
from deployments.state.idempotent_answers import Found, KeptName, KeptQuestion, KeptReply
from deployments.state.link import StateUnavailable
from deployments.work.large_work import large

__all__ = ["Shop", "find_kept", "read_name"]

HEADER = "Idempotency-Key"
RETRIES = "x-stainless-retry-count"
ROUTES = frozenset({"chat", "messages", "responses"})
NAME = re.compile(r"[\x21-\x7e]{1,255}")
COUNT = re.compile(r"[0-9]{1,4}")
ASK_S = 2.0
LOOK_S = 0.25
BAD_NAME = f"{HEADER}: 1 to 255 visible ASCII characters are needed"
OTHER_BODY = f"{HEADER}: this name was used for a request with another body; give each request a name of its own"
NOT_KEPT = f"{HEADER}: an answer with logprobs is not kept, and a repeat runs anew"


class Shop(Keep, Protocol):
    """The state, as the Router has it."""

    @property
    def client(self) -> str:
        """The name by which the state knows this Router."""
        ...


def read_name(headers: Mapping[str, str]) -> tuple[str, int | None] | None:
    """Read the name that a client gives its request, or else which try of its SDK's it is; None: neither.

    Raises:
        ApiError: the header is no name.
    """
    name = headers.get(HEADER.lower())
    if name is not None:
        if not NAME.fullmatch(name):
            raise ApiError("invalid_request", BAD_NAME, param=HEADER)
        return name, None
    count = headers.get(RETRIES, "")
    return ("", int(count)) if COUNT.fullmatch(count) else None


async def find_kept(shop: Shop, route: str, headers: Mapping[str, str], raw: bytes, run: Run) -> KeptRequest | None:
    """Find what an earlier request has left for this one, and keep this one; None where it isn't to be kept.

    Raises:
        ApiError: the name is none, or another body's.
    """
    named = read_name(headers) if route in ROUTES else None
    if named is None:
        return None
    name, count = named
    if run.request.top_logprobs is not None:
        run.notes += (NOT_KEPT,) if name else ()
        return None
    digest = await large(len(raw), _digest, raw)
    question = KeptQuestion(
        name=KeptName(run.key, route, f"name {name}" if name else f"body {digest}"),
        digest=digest,
        ticket=uuid.uuid4().hex,
        client=shop.client,
        continues=run.limits.continuations_max > 0,
    )
    if count == 0:
        return KeptRequest(keep=shop, question=question, once=True, found=None)
    try:
        found = await (_ask(shop, question) if name else _wait(shop, question))
    except (StateUnavailable, TimeoutError):
        return None
    if found.found is Found.OTHER_BODY:
        raise ApiError("idempotency_key_reused", OTHER_BODY, param=HEADER)
    return KeptRequest(keep=shop, question=question, once=not name, found=found)


async def _ask(shop: Shop, question: KeptQuestion) -> KeptReply:
    async with asyncio.timeout(ASK_S):
        return await shop.ask_kept(question)


async def _wait(shop: Shop, question: KeptQuestion) -> KeptReply:
    """Ask until it is known whether the Router of a running answer lives: then its client is still there, and is not
    this one."""
    first = found = await _ask(shop, question)
    while found.found is Found.FOLLOW:
        if found.heard_ns > first.heard_ns:
            return await _ask(shop, replace(question, anew=True))
        await asyncio.sleep(LOOK_S)
        found = await _ask(shop, question)
    return found


def _digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
