"""Repeated requests: which requests may be repeated, what a repeat finds, and what it is given.

A request is named by `Idempotency-Key`, or by `x-stainless-retry-count` (the SDKs': 0 runs anew and keeps the answer
under the digest of its body, more continue it if the client has left or its Router has died). Pieces go to the state
every `_KEEP_EVERY_S`, the end in the same step as the report.
Invariants: no request gets another body's answer, or another key's; no answer is marked as finished that lacks a piece;
a repeat isn't charged for what it is given again; where the state can't be asked, a request runs as it would without.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from itertools import accumulate, groupby
from typing import Any

from deployments.errors import ApiError
from deployments.request.interfaces import MonotonicClock
from deployments.request.run_record import Run
from deployments.state.client import State
from deployments.state.idempotent_answers import (
    KeptEnd,
    KeptItem,
    KeptName,
    KeptQuestion,
    KeptReply,
    Piece,
    RepeatKind,
    Standing,
    size_of,
)
from deployments.state.link import StateUnavailable
from deployments.work.large_work import large
from reliability.attempt import Attempt
from reliability.types import CallDelta, Event, Fault, Reasoning, Refusal, Text

_HEADER = "Idempotency-Key"
_RETRIES = "x-stainless-retry-count"
_ROUTES = frozenset({"chat", "messages", "responses"})
NAME = re.compile(r"[\x21-\x7e]{1,255}")
_COUNT = re.compile(r"[0-9]{1,4}")
_ASK_S = 2.0
_LOOK_S = _KEEP_EVERY_S = _FOLLOW_EVERY_S = 0.25
_PIECE_CHARS = 16 * 1024
_ITEM_BYTES = 64 * 1024  # of one item: a step has hundreds, and a frame of a step has an end
_BAD_NAME = f"{_HEADER}: 1 to 255 visible ASCII characters are needed"
_OTHER_BODY = f"{_HEADER}: this name was used for a request with another body; give each request a name of its own"
_NOT_KEPT = f"{_HEADER}: an answer with logprobs or a compaction is not kept, and a repeat runs anew"
_LOST = "whoever told the beginning is gone: its Router died, or its client left"
_NOTE = "told again: the answer of request {}, which was repeated; no tier was asked"
_NOTHING_FOUND = KeptReply(found=RepeatKind.LOST)


def _read_name(headers: Mapping[str, str]) -> tuple[str, int | None] | None:
    """Read the name of a request, or which try of its SDK's it is. Raises `ApiError`: it is no name."""
    name = headers.get(_HEADER.lower())
    if name is not None:
        if not NAME.fullmatch(name):
            raise ApiError("invalid_request", _BAD_NAME, param=_HEADER)
        return name, None
    count = headers.get(_RETRIES, "")
    return ("", int(count)) if _COUNT.fullmatch(count) else None


async def find_kept(store: State, route: str, headers: Mapping[str, str], raw: bytes, run: Run) -> KeptRequest | None:
    """Find what an earlier request has left for this one, and keep this one; None where it isn't to be kept. Raises
    `ApiError`: the name is none, or another body's."""
    named = _read_name(headers) if route in _ROUTES else None
    if named is None:
        return None
    name, count = named
    if run.request.top_logprobs is not None or run.compaction is not None:
        run.notes += (_NOT_KEPT,) if name else ()
        return None
    digest = (await large(len(raw), partial(hashlib.blake2b, raw, digest_size=16))).hexdigest()
    question = KeptQuestion(
        name=KeptName(run.key, route, f"name {name}" if name else f"body {digest}"),
        digest=digest,
        ticket=uuid.uuid4().hex,
        client=store.client,
        continues=run.limits.continuations_max > 0,
    )
    if count == 0:
        return KeptRequest(store, question, None, once=True)
    try:
        found = await (_ask(store, question) if name else _wait(store, question))
    except (StateUnavailable, TimeoutError):
        return None
    if found.found is RepeatKind.OTHER_BODY:
        raise ApiError("idempotency_key_reused", _OTHER_BODY, param=_HEADER)
    return KeptRequest(store, question, found, once=not name)


async def _ask(store: State, question: KeptQuestion) -> KeptReply:
    async with asyncio.timeout(_ASK_S):
        return await store.ask_kept(question)


async def _wait(store: State, question: KeptQuestion) -> KeptReply:
    """Ask until it is known whether the Router of a running answer lives: then its client isn't this one."""
    first = found = await _ask(store, question)
    while found.found is RepeatKind.FOLLOW:
        if found.heard_ns > first.heard_ns:
            return await _ask(store, replace(question, anew=True))
        await asyncio.sleep(_LOOK_S)
        found = await _ask(store, question)
    return found


class KeptRequest:
    """One request under its `question`, and what the state is told of its answer, until the state is away or the record
    is another's. `found`: what an earlier request has left, None where nobody was asked. `once`: without a name of its
    own, the answer is let go when it has left."""

    def __init__(self, store: State, question: KeptQuestion, found: KeptReply | None, *, once: bool) -> None:
        self._store, self._question, self._found, self._once = store, question, found, once
        self._delivered: list[Piece] = []  # those that were told again
        self._pending: list[Piece] = []
        self._at = self._before = 0  # how many pieces the state has, and how many tokens of them are others'
        self._timer: asyncio.TimerHandle | None = None
        self._off = False
        if found is None:
            self._hand_over(flush=False, digest=question.digest)

    @property
    def replays(self) -> bool:
        """Whether the answer of another request is given again."""
        return self._found is not None and self._found.found in (RepeatKind.REPLAY, RepeatKind.FOLLOW)

    def note_sent(self) -> None:
        if self._once and not self.replays:
            dropped = KeptItem(name=self._question.name, ticket=self._question.ticket, standing=Standing.DROPPED)
            self._store.tell_kept(dropped, flush=False)

    async def tell(
        self, run: Run, clock: MonotonicClock, adopt: Callable[[str], None], answer: AsyncGenerator[list[Event], None]
    ) -> AsyncGenerator[list[Event], None]:
        """Tell what was kept, then what `answer` brings. `adopt` takes the session of an answer that is told again."""
        async with aclosing(answer):
            if self._found is not None and self._found.found is not RepeatKind.ANEW:
                async for batch in self._tell_again(run, clock, adopt, self._found):
                    yield batch
            if run.finish is not None:
                return
            standing = Standing.INTERRUPTED  # the client left, or the server is being stopped
            try:
                async for batch in answer:
                    self._note(run, batch)
                    yield batch
                standing = Standing.FINISHED if run.finish is not None else Standing.DROPPED
            except Exception:
                standing = Standing.DROPPED
                raise
            finally:
                self._end(run, standing)

    async def _tell_again(
        self, run: Run, clock: MonotonicClock, adopt: Callable[[str], None], found: KeptReply
    ) -> AsyncGenerator[list[Event], None]:
        known = found
        run.request = replace(run.request, session_id=found.session or run.request.session_id)
        while True:
            known = found if found.tier else known
            self._delivered += found.pieces
            if found.found is RepeatKind.REPLAY and found.end is not None:
                adopt(found.session)
                # It ends as the other one has.
                run.tier, run.chain = found.tier, (found.tier,)
                run.counted = found.end.finish.usage or run.counted
                run.notes = (*run.notes, _NOTE.format(found.end.request_id))
                run.finish = found.end.finish
            elif found.tier in run.chain:
                run.tier = found.tier
                run.chain = run.chain[run.chain.index(found.tier) :]
            if found.pieces:
                yield list(found.pieces)
            if found.found is not RepeatKind.FOLLOW or clock.now_ns() >= run.deadline_ns:
                break
            await asyncio.sleep(_FOLLOW_EVERY_S)
            found = await self._ask(known.story)
        if run.finish is None:
            self._take_over(run, found, known)

    async def _ask(self, story: str) -> KeptReply:
        try:
            return await _ask(self._store, replace(self._question, story=story, at=len(self._delivered)))
        except (StateUnavailable, TimeoutError):
            return _NOTHING_FOUND

    def _take_over(self, run: Run, found: KeptReply, known: KeptReply) -> None:
        delivered = [piece for piece in self._delivered if not isinstance(piece, CallDelta)]
        texts = [piece.text for piece in delivered if isinstance(piece, Text)]
        if found.found is RepeatKind.CONTINUE:
            self._at, self._before = len(self._delivered), found.written
        elif found.found is not RepeatKind.ANEW:
            self._stop()  # the record is another's
        elif texts:
            self._before = known.written
            self._note(run, delivered)
        if not texts:
            return
        run.note_out(delivered)
        run.request = replace(run.request, max_tokens=max(1, run.request.max_tokens - known.written))
        tier = known.tier if known.tier in run.chain else run.chain[0]
        # It ran in another request, and was charged there.
        run.attempts.append(Attempt(tier=tier, ran=False, fault=Fault.CRASHED, detail=_LOST, text_out=True))
        run.judgements.append(None)

    def _note(self, run: Run, events: Sequence[Event]) -> None:
        """Note what leaves; it is handed over soon, or at once where it is the end."""
        if self._off:
            return
        self._pending += [event for event in events if isinstance(event, Piece)]
        if run.finish is not None:
            self._end(run, Standing.FINISHED)
        elif self._pending and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_KEEP_EVERY_S, self._hand_over_pending, run)

    def _end(self, run: Run, standing: Standing) -> None:
        if not self._off:
            self._hand_over_pending(run, standing)
            self._stop()

    def _hand_over_pending(self, run: Run, standing: Standing = Standing.RUNNING) -> None:
        self._stop_timer()
        end = None
        if standing is Standing.FINISHED and run.finish is not None:
            end = KeptEnd(finish=run.finish, request_id=run.request.request_id)
        parcels = list(_pack(self._pending)) or [()]
        self._pending = []
        for number, pieces in enumerate(parcels, 1):
            last = number == len(parcels)
            self._hand_over(
                flush=True,
                at=self._at,
                pieces=pieces,
                tier=run.tier or "",
                session=run.request.session_id,
                written=self._before + _count_written(run),
                standing=standing if last else Standing.RUNNING,
                end=end if last else None,
            )
            self._at += len(pieces)

    def _hand_over(self, *, flush: bool, **fields: Any) -> None:
        item = KeptItem(name=self._question.name, ticket=self._question.ticket, **fields)
        if not self._off and not self._store.tell_kept(item, flush=flush):
            self._stop()

    def _stop(self) -> None:
        self._off = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _count_written(run: Run) -> int:
    """Count the tokens of the text that has left; an estimate where the tier counts at the end."""
    written = sum(a.usage.completion_tokens for a in run.attempts if a.text_out and a.usage)
    if run.current is None or run.current.plan.number < len(run.attempts):
        return written
    return written + run.current.spending.written_tokens


def _pack(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, ...]]:
    """Pack pieces into parcels of about `_ITEM_BYTES` at most; neighbours of one kind become one."""
    parcel: list[Piece] = []
    for piece in _join(pieces):
        if parcel and sum(map(size_of, parcel)) + size_of(piece) > _ITEM_BYTES:
            yield tuple(parcel)
            parcel = []
        parcel.append(piece)
    if parcel:
        yield tuple(parcel)


def _join(pieces: Sequence[Piece]) -> Iterator[Piece]:
    thoughts = accumulate(isinstance(piece, Reasoning) and piece.anew for piece in pieces)
    for (kind, _), pairs in groupby(zip(pieces, thoughts, strict=True), lambda pair: (type(pair[0]), pair[1])):
        group = [piece for piece, _ in pairs]
        if kind is CallDelta:
            yield from group
            continue
        text = "".join(piece.text for piece in group if isinstance(piece, Text | Reasoning | Refusal))
        anew = {"anew": True} if isinstance(group[0], Reasoning) and group[0].anew else {}
        for start in range(0, len(text), _PIECE_CHARS):
            yield kind(text[start : start + _PIECE_CHARS], **({} if start else anew))
