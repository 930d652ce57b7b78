"""One chat over HTTP: from the events of a run to a complete answer, or to a stream.

The headers of a stream wait for its first event, or for a keep-alive, so a request that no tier can answer gets a real
HTTP error. Invariants: a stream ends with a finish reason or an error frame; `close` is called on every way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from deployments.api.dialect import Collector, Dialect, StreamWriter
from deployments.api.openai_chat import ChatCall
from deployments.api.responses import error_response
from deployments.errors import ApiError, from_refusal
from deployments.reports.report import report_headers, session_header
from deployments.request.idempotency import KeptRequest
from deployments.request.run_record import Run
from deployments.telemetry import log_error
from reliability.types import Event, Prefilled

T = TypeVar("T")


async def _insert_silences(batches: AsyncGenerator[T, None], silence_s: float) -> AsyncGenerator[T | None, None]:
    """Yield each batch as it comes, and None whenever nothing has come for `silence_s`. Closing it closes `batches`."""
    slot = _Slot[T](silence_s)
    filling = asyncio.ensure_future(slot.fill(batches))
    try:
        while (batch := await slot.take()) is not None or not slot.ended:
            yield batch
        await filling  # what the source raised
    finally:
        slot.close()
        filling.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await filling
        await batches.aclose()


class _Slot(Generic[T]):
    """One batch on its way from a task that reads to the reader: a tenth of the cost of a task and a timeout for each
    batch."""

    def __init__(self, silence_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence_s = silence_s
        self._batch: T | None = None
        self.ended = False
        self._news: asyncio.Future[None] | None = None  # the reader waits
        self._room: asyncio.Future[None] | None = None  # the task waits
        self._quiet_since_s = self._loop.time()
        self._clock = self._loop.call_later(silence_s, self._ring)

    async def fill(self, batches: AsyncGenerator[T, None]) -> None:
        """Put in every batch, each when the reader has come back for it."""
        try:
            async for batch in batches:
                self._batch = batch
                _notify(self._news)
                while self._batch is not None:
                    self._room = self._loop.create_future()
                    await self._room
        finally:
            self.ended = True
            _notify(self._news)

    async def take(self) -> T | None:
        """Take the next batch; None for a silence, and at the end."""
        self._quiet_since_s = self._loop.time()
        _notify(self._room)
        if self._batch is None and not self.ended:
            self._news = self._loop.create_future()
            await self._news
            self._news = None
        batch, self._batch = self._batch, None
        return batch

    def _ring(self) -> None:
        now_s = self._loop.time()
        left_s = self._quiet_since_s + self._silence_s - now_s
        if left_s <= 0:
            _notify(self._news)
            left_s = self._silence_s
        self._clock = self._loop.call_later(left_s, self._ring)

    def close(self) -> None:
        self._clock.cancel()


def _notify(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class EventStream(StreamingResponse):
    """A server-sent event stream that closes its generator however the sending ends; Starlette leaves that to the
    garbage collector when the client goes while bytes are being sent."""

    def __init__(self, frames: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._frames.aclose()


# A stream says after so much silence how far the prompt is read, where its tier reports that.
PROGRESS_S = 2.0
_REPLAYED = {"Idempotent-Replayed": "true"}
_SEAM = b": continued by tier %s at character %d\n\n"  # a comment: clients pass over it


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One chat between a client and this server, in the client's dialect. `events` drives the run; `report` tells of it
    once its outcome is known; `close` ends its account, and does nothing the second time. After `keepalive_s` seconds
    without an event a stream is sent what keeps it open. `keep` is given whoever wrote a complete answer, before its
    end leaves. `kept`: it may be repeated, and is told when its last byte has left."""

    dialect: Dialect
    call: ChatCall
    run: Run
    events: AsyncGenerator[list[Event], None]
    report: Callable[[], dict[str, Any]]
    close: Callable[[], None]
    keepalive_s: float
    keep: Callable[[Collector | StreamWriter], None] = lambda _: None
    kept: KeptRequest | None = None
    silent: bool = field(init=False, default=False)  # the first frame of the stream was a silence
    _silences: int = field(init=False, default=0)  # since the last batch
    _prefill: Prefilled | None = field(init=False, default=None)  # the last that was written

    async def respond(self) -> Response:
        """Answer in one body, or as a stream, as the client asked."""
        return await (self._stream() if self.call.stream else self._answer_at_once())

    async def _answer_at_once(self) -> Response:
        run, answer = self.run, self.dialect.collector(self.call, self.run)
        try:
            async with contextlib.aclosing(self.events) as events:
                async for batch in events:
                    answer.take(batch)
        finally:
            self.close()
        if run.finish is None or run.tier is None:
            return self._refuse()
        body = answer.body(run.tier, run.finish)
        self.keep(answer)
        headers = report_headers(run) | self._own_headers()
        sent = None if self.kept is None else BackgroundTask(self._note_sent)
        return Response(body, media_type="application/json", headers=headers, background=sent)

    async def _stream(self) -> Response:
        frames = self._frames(self.dialect.writer(self.call, self.run))
        # The first frame waits for the first event, or for the first silence; a refusal yields no frame at all.
        try:
            first = await anext(frames, None)
        except asyncio.CancelledError:
            await frames.aclose()
            raise
        if first is None:
            return self._refuse()
        # Headers that leave before any tier has answered can't say which one will: the end of the stream does.
        headers = session_header(self.run) if self.silent else report_headers(self.run)
        return EventStream(
            _prepend(first, frames), headers={**headers, **self._own_headers(), "cache-control": "no-store"}
        )

    async def _frames(self, writer: StreamWriter) -> AsyncGenerator[bytes, None]:
        """Yield the frames of one stream; none where the request is refused before anything was sent."""
        run, begun, seam = self.run, False, -1
        parts = math.ceil(self.keepalive_s / PROGRESS_S)
        try:
            async with contextlib.aclosing(_insert_silences(self.events, self.keepalive_s / parts)) as batches:
                async for batch in batches:
                    if batch is None:
                        if frames := self._fill_silence(writer, parts, begun=begun):
                            self.silent, begun = self.silent or not begun, True
                            yield frames
                        continue
                    begun, self._silences = True, 0
                    plan = None if run.current is None else run.current.plan
                    if plan is not None and plan.seam is not None and plan.number != seam:
                        seam = plan.number
                        yield _SEAM % (plan.tier.encode(), plan.seam)
                    yield writer.chunks(run.tier or "", batch)
            report = self.report()
            if run.finish is not None:
                last = writer.last(run.tier or "", run.finish, report)
                self.keep(writer)
                yield last
                await self._note_sent()  # whoever asks for more has sent the last
            elif run.refusal is not None and begun:
                yield writer.error(from_refusal(run.refusal), report)
        except Exception as error:
            if not begun:
                raise  # no byte has left: it can still be an HTTP error
            log_error("stream_failed", error, request_id=run.request.request_id)
            yield writer.error(ApiError("internal_error", "an error inside the server"), None)
        finally:
            self.close()

    def _fill_silence(self, writer: StreamWriter, parts: int, *, begun: bool) -> bytes:
        """Write how far the prompt is read, where that is news, and what keeps the stream open, where that is due. A
        prompt that will be read by then begins no stream: its headers say who answers."""
        self._silences += 1
        tier, current, out = self.run.tier or "", self.run.current, b""
        prefill = None if current is None else current.prefilling
        if prefill is not None and prefill is not self._prefill:
            silent_s = self._silences * self.keepalive_s / parts
            if begun or silent_s + prefill.left_s > self.keepalive_s:
                self._prefill = prefill
                out = writer.silence(tier, prefill)
        return out if self._silences % parts else out + writer.silence(tier)

    def _refuse(self) -> Response:
        assert self.run.refusal is not None, "a request ends answered or refused"
        error, request_id = from_refusal(self.run.refusal), self.run.request.request_id
        return error_response(error, report_headers(self.run), spoken=self.dialect, request_id=request_id)

    async def _note_sent(self) -> None:
        if self.kept is not None:
            self.kept.note_sent()

    def _own_headers(self) -> dict[str, str]:
        replayed = _REPLAYED if self.kept is not None and self.kept.replays else {}
        return {**self.dialect.id_headers(self.run.request.request_id), **replayed}


async def _prepend(first: bytes, frames: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    try:
        yield first
        async for frame in frames:
            yield frame
    finally:
        await frames.aclose()
