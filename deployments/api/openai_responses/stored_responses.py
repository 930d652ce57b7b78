"""Responses that are kept: handed to the state actor behind the answer, found again, and the routes to them.

Handing over delays no answer: an actor that is away is asked again for `PATIENCE_S`. Above a bound in bytes, the API
key that has the most waiting loses its oldest. A response that may still be on its way from another Router is looked
for again.
Invariants: no response with `store: false` is kept; no API key finds another's; a Router replica holds at most
`RECALLED_BYTES_MAX` of recalled conversations, an API key `KEY_BYTES_MAX` and `_RECALLS_MAX` recalls at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Caller
from deployments.api.admin import Admit, await_state
from deployments.api.openai_chat import ChatCall
from deployments.api.openai_responses.item_ids import has_just_begun, is_response_id, name_response, tag_of
from deployments.api.openai_responses.response_body import Wanted
from deployments.api.openai_responses.stored_record import (
    RECORD_BYTES_MAX,
    NeedsRecall,
    Recalled,
    count_used_tokens,
    open_record,
    write_record,
)
from deployments.api.responses import find_inner_path, json_response
from deployments.errors import ApiError, refuse
from deployments.request.run_record import Run
from deployments.state.client import State
from deployments.state.link import StateUnavailable
from deployments.state.records import KeptResponse
from deployments.telemetry import log_error
from deployments.work.large_work import QUIET_BYTES, large
from reliability.key_shares import KeyShares

# What the requests of a Router replica may hold of stored data, and those of one API key: one of 110 bytes may name a
# conversation of 16 MiB, or be answered with 4 MiB that its client doesn't take.
RECALLED_BYTES_MAX = 64 * 1024 * 1024
KEY_BYTES_MAX = RECALLED_BYTES_MAX // 2
_RECALLS_MAX = 4
WAIT_S = 10.0
CHAIN_MAX = 1_000
_CHAIN_BYTES_MAX = 16 * 1024 * 1024
WAITING_BYTES_MAX = 32 * 1024 * 1024
PATIENCE_S = 60.0
RETRY_S = 0.5
CLOSE_S = 2.0
# How often one that must be there is looked for.
_LOOKS, LOOK_S = 5, 0.1
# Tokenizers differ: a conversation is surely too long for a tier where another one counted twice its context.
_CONTEXTS_MAX = 2
AT = "/v1/responses/{response_id}"
_LIMIT, _LIMIT_MAX = 20, 100


class _RecallBudget:
    """The bytes that the requests of one Router replica have recalled, by API key, reserved until the last byte of the
    answer. No request waits for longer than 2 * `WAIT_S`."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._recalls: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_RECALLS_MAX))

    @property
    def held_bytes(self) -> int:
        return self._held.total()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Take the API key's turn to recall, until the bytes are reserved. Raises `ApiError`: `overloaded`, after
        `WAIT_S`."""
        turns = self._recalls[key]
        try:
            async with asyncio.timeout(WAIT_S):
                await turns.acquire()
        except TimeoutError:
            raise self._refuse() from None
        try:
            yield
        finally:
            turns.release()

    async def reserve(self, key: str, size: int, ending: ExitStack) -> None:
        """Reserve `size` bytes until `ending` closes. Raises `ApiError`: `overloaded`, after `WAIT_S`."""
        try:
            async with asyncio.timeout(WAIT_S):
                while self._held[key] + size > KEY_BYTES_MAX or self.held_bytes + size > RECALLED_BYTES_MAX:
                    await self._freed.wait()
        except TimeoutError:
            raise self._refuse() from None
        self._held[key] += size
        ending.callback(self._release, key, size)

    def _refuse(self) -> ApiError:
        words = (
            f"Stored data of {self.held_bytes >> 20} MiB is in use; the limit is "
            f"{RECALLED_BYTES_MAX >> 20} MiB, and {KEY_BYTES_MAX >> 20} MiB for one API key. Retry, or send the "
            "messages themselves."
        )
        return ApiError("overloaded", words)

    def _release(self, key: str, size: int) -> None:
        self._held[key] -= size
        self._held += Counter()  # drop the keys that hold nothing
        self._freed.set()
        self._freed = asyncio.Event()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A response that the state doesn't have yet. `kept`: what it will have, without the record."""

    kept: KeptResponse
    items: bytes
    response: bytes

    async def pack(self) -> KeptResponse:
        size, record = await large(self.kept.size + QUIET_BYTES, write_record, self.items, self.response)
        return replace(self.kept, size=size, record=record)


class StoredResponses:
    """The responses that one Router replica has written, on their way, and the way to all others. `context_tokens`
    returns the largest context of any tier; None where one is unknown."""

    def __init__(self, state: State, context_tokens: Callable[[], int | None] = lambda: None) -> None:
        self._state, self._context_tokens = state, context_tokens
        self.budget = _RecallBudget()
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._shares: KeyShares[tuple[str, str]] = KeyShares()  # by their bytes
        self._task: asyncio.Task[None] | None = None

    def keep(self, call: ChatCall, run: Run, written: Any) -> None:
        """Keep a complete answer where its client wants that. It does no work that grows with it."""
        wanted, response = call.wanted, getattr(written, "written", b"")
        if not isinstance(wanted, Wanted) or wanted.items is None or not response:
            return
        size, name = len(wanted.items) + len(response), name_response(wanted.tag)
        if size > RECORD_BYTES_MAX:
            log_error("response_not_kept", ValueError(f"{size} bytes"), response=name)
            return
        kept = KeptResponse(run.key, name, run.request.session_id, wanted.previous, time.time(), size, b"")
        self._waiting[run.key, name] = _Waiting(kept=kept, items=wanted.items, response=response)
        self._shares.put(run.key, (run.key, name), size)
        while self._shares.held.total() > WAITING_BYTES_MAX:
            excess = self._waiting[self._shares.find_oldest(self._shares.held)]
            self._let_go(excess, StateUnavailable("too many responses wait to be kept"))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._hand_over())

    async def close(self) -> None:
        """Hand over what waits, for a moment."""
        if self._task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._task

    async def find(self, key: str, response_id: str) -> KeptResponse | None:
        """Find one response of this key. Raises `ApiError`: the state doesn't answer."""
        found = await self._walk(key, response_id)
        return found[0] if found else None

    async def open(self, key: str, response_id: str) -> dict[str, Any] | None:
        """Open one response of this key. Raises as `find`."""
        found = await self.find(key, response_id)
        return None if found is None else await large(found.size, open_record, found.record)

    async def forget(self, key: str, response_id: str) -> bool:
        """Forget one response of this key; False where there is none. Raises as `find`."""
        waiting = self._waiting.get((key, response_id))
        if waiting is not None:
            self._drop(waiting)
        if not is_response_id(response_id):
            return False
        return await await_state(self._state.forget_response(key, response_id)) or waiting is not None

    async def recall(self, key: str, need: NeedsRecall, ending: ExitStack) -> Recalled:
        """Find what a request continues, and what is kept of all that it refers to. Its bytes stay reserved until
        `ending` closes. Raises `ApiError`: what it continues isn't kept; it is too much; the state doesn't answer."""
        async with self.budget.turn(key):
            recalled = await self._recall(key, need)
            await self.budget.reserve(key, recalled.size, ending)
        return recalled

    async def _recall(self, key: str, need: NeedsRecall) -> Recalled:
        chain = [] if need.previous is None else await self._recall_chain(key, need.previous)
        others: dict[str, KeptResponse] = {}
        for path, item_id in need.items.items():
            response_id = name_response(tag_of(item_id) or "")
            if response_id not in others and (found := await self.find(key, response_id)) is not None:
                others[response_id] = found
                _check_size([*chain, *others.values()], path)
        return Recalled(
            chain=tuple(each.record for each in reversed(chain)),
            session=chain[0].session if chain else None,
            others={name: each.record for name, each in others.items()},
            size=sum(each.size for each in (*chain, *others.values())),
        )

    async def _recall_chain(self, key: str, response_id: str) -> list[KeptResponse]:
        chain: list[KeptResponse] = []
        name: str | None = response_id
        while name is not None:
            found = await self._walk(key, name)
            if not found:
                words = f"Previous response with id '{name[:128]}' not found."
                raise ApiError("previous_response_not_found", words, param="previous_response_id")
            if not chain:
                await self._check_context(found[0])
            chain += found
            name = chain[-1].previous
            _check_size(chain, "previous_response_id")
        return chain

    async def _check_context(self, newest: KeptResponse) -> None:
        """Refuse a conversation that no tier can hold, before the rest of it is recalled. Raises `ApiError`:
        `context_length_exceeded`."""
        limit = self._context_tokens()
        if limit is None:
            return
        used = await large(newest.size, count_used_tokens, newest.record)
        if used > _CONTEXTS_MAX * limit:
            words = f"The stored conversation has {used:,} tokens; the largest context of a tier is {limit:,} tokens."
            raise ApiError("context_length_exceeded", words, param="previous_response_id")

    async def _walk(self, key: str, response_id: str) -> list[KeptResponse]:
        if not is_response_id(response_id):
            return []
        looks = _LOOKS if has_just_begun(response_id) else 1
        for look in range(looks):
            if look:
                await asyncio.sleep(LOOK_S)
            waiting = self._waiting.get((key, response_id))
            if waiting is not None:
                return [await waiting.pack()]
            if found := await await_state(self._state.recall_responses(key, response_id)):
                return found
        return []

    async def _hand_over(self) -> None:
        while self._waiting:
            waiting = next(iter(self._waiting.values()))
            try:
                await self._hand_over_one(waiting)
            except Exception as error:
                self._let_go(waiting, error)

    async def _hand_over_one(self, waiting: _Waiting) -> None:
        packed, name = await waiting.pack(), (waiting.kept.key, waiting.kept.id)
        async with asyncio.timeout(PATIENCE_S):
            while self._waiting.get(name) is waiting:
                try:
                    await self._state.keep_response(packed)
                except StateUnavailable:
                    await asyncio.sleep(RETRY_S)
                else:
                    self._drop(waiting)

    def _let_go(self, waiting: _Waiting, error: Exception) -> None:
        self._drop(waiting)
        log_error("response_not_kept", error, response=waiting.kept.id)

    def _drop(self, waiting: _Waiting) -> None:
        name = (waiting.kept.key, waiting.kept.id)
        if self._waiting.get(name) is waiting:
            del self._waiting[name]
            self._shares.drop(waiting.kept.key, name)


def _check_size(found: Sequence[KeptResponse], path: str) -> None:
    if len(found) > CHAIN_MAX or sum(each.size for each in found) > _CHAIN_BYTES_MAX:
        words = f"the stored conversation is longer than {CHAIN_MAX} responses, or {_CHAIN_BYTES_MAX >> 20} MiB"
        raise refuse(path, words)


class StoredRoutes:
    """The routes. `identify` says who asks; `admit` also counts what is read."""

    def __init__(self, stored: StoredResponses, identify: Callable[[Request], Caller], admit: Admit) -> None:
        self._stored, self._identify, self._admit = stored, identify, admit

    def routes(self) -> list[Route]:
        return [
            Route(AT, self.retrieve, methods=["GET"]),
            Route(AT, self.delete, methods=["DELETE"]),
            Route(f"{AT}/input_items", self.list_input, methods=["GET"]),
            Route(f"{AT}/cancel", self.deny_cancel, methods=["POST"]),
        ]

    async def retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream", "").lower() == "true":
            raise refuse("stream", "a stored response isn't streamed again", "unsupported")
        return json_response((await self._open(request))["response"])

    async def delete(self, request: Request) -> Response:
        caller, response_id = self._identify(request), request.path_params["response_id"]
        if not await self._stored.forget(caller.name, response_id):
            raise _deny(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def list_input(self, request: Request) -> Response:
        """List the input of one response, a page at a time."""
        items = (await self._open(request))["input"]
        params = request.query_params
        if params.get("order", "desc") != "asc":
            items = items[::-1]
        if (after := params.get("after")) is not None:
            places = [place for place, item in enumerate(items) if item["id"] == after]
            if not places:
                raise refuse("after", "names no item of this list")
            items = items[places[0] + 1 :]
        page = items[: _read_limit(params.get("limit"))]
        first, last = (page[0]["id"], page[-1]["id"]) if page else ("", "")
        listed = {"object": "list", "data": page, "first_id": first, "last_id": last}
        return json_response(listed | {"has_more": len(page) < len(items)})

    async def deny_cancel(self, request: Request) -> Response:
        """Say that this server doesn't do that. Raises `ApiError`: always."""
        self._identify(request)
        words = "canceling isn't offered here: responses aren't made in the background; hang up to end one"
        raise ApiError("not_found", f"{find_inner_path(request.scope)}: {words}")

    async def _open(self, request: Request) -> dict[str, Any]:
        caller, response_id = await self._admit(request, RECORD_BYTES_MAX), request.path_params["response_id"]
        opened = await self._stored.open(caller.name, response_id)
        if opened is None:
            raise _deny(response_id)
        return opened


def _deny(response_id: str) -> ApiError:
    return ApiError("not_found", f"Response with id '{response_id[:128]}' not found.")


def _read_limit(text: str | None) -> int:
    if text is None:
        return _LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= _LIMIT_MAX):
        raise refuse("limit", f"a number from 1 to {_LIMIT_MAX} is needed")
    return int(text)
