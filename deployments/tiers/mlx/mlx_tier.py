"""Serve the tier kind `mlx`: a model in this process, by mlx-lm.

Constructing it is cheap and never fails: an engine thread loads the model and publishes how far it is; until then a
request gets `Failed(LOADING)`. A request takes a place (running and waiting ones are bounded), is rendered on a helper
thread, and goes to the engine. Leaving the stream in any way gives the place back and aborts the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from deployments.memory.room import Room, find_room_alone
from deployments.models.cache_folder import Say, default_cache_dir
from deployments.models.catalog import choose_here
from deployments.models.presence import await_model
from deployments.models.sources import ModelUnavailable, parse_source
from deployments.tiers.mlx.engine import RESTART_S, Engine
from deployments.tiers.mlx.job_builder import JobBuilder
from deployments.tiers.mlx.loading import Loaded, load
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.mlx.warm_up import prepare_batch
from deployments.tiers.prompt import RequestRefused, render
from deployments.tiers.stream_matchers import merge_events
from reliability.escalation.refusals import figure
from reliability.prefix import LostPrefix
from reliability.types import ChatRequest, Event, Failed, Fault, Finish, Started, TierState, TierStatus

_LOADING_RETRY_S = 5.0
_AGAIN_S = 30.0  # a model that could not be had is looked for again after so long, and longer each time
_RETRY_MAX_S = 60.0
_CHECK_S = 5.0
_TAKEN_S = 1.0  # after which a request whose job isn't made yet is said to be taken
# Fields of OpenAI's API that change the answer and that this tier can't honor: the values that ask for nothing.
_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "audio": (None,),
    "modalities": (None, ["text"], []),
}


class MlxTier:
    """A `deployments.request.interfaces.Tier` that generates here."""

    def __init__(
        self,
        *,
        name: str,
        model: str = "auto",
        context_tokens: int | None = None,
        max_running: int = 8,
        max_waiting: int = 16,
        temperature: float | None = None,
        memory_bytes: int | None = None,
        prompt_cache_bytes: int | None = None,
        prompt_cache_disk_bytes: int | None = 0,
        prompt_cache_shared: bool = False,
        max_reasoning_tokens: int | None = None,
        blas_threads: int | None = None,
        adapter: str | None = None,
        cache_dir: Path | None = None,
        room: Room | None = None,
    ) -> None:
        self._name = name
        self._model, self._adapter, self._room = model, adapter, room
        self._source: str | None = None
        self._context_tokens = context_tokens
        self._cache_dir, self._blas_threads = cache_dir, blas_threads
        self._max_running, self._places = max_running, max_running + max_waiting
        self._open = 0
        self._request_s = 1.0  # a running mean, for the advice when to come back
        self._begin_jobs = partial(JobBuilder, temperature=temperature, reasoning_tokens_max=max_reasoning_tokens)
        self._jobs: JobBuilder | None = None  # of the model, once it is loaded
        self._renderer = ThreadPoolExecutor(1, thread_name_prefix=f"render-{name}")
        self._engine = Engine(
            name,
            self._load,
            running_max=max_running,
            prepare=partial(
                prepare_batch,
                memory_bytes=memory_bytes,
                prompt_cache_bytes=prompt_cache_bytes,
                prompt_disk=(cache_dir or default_cache_dir()) / "prompts",
                prompt_disk_bytes=prompt_cache_disk_bytes,
                shared=prompt_cache_shared,
            ),
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Answer `request`; see `deployments.request.interfaces.Tier.stream`."""
        loaded = self._engine.phase.loaded
        refused = _find_unsupported(request) or (self._refuse_if_full() if loaded else self._build_not_ready())
        if refused is not None:
            yield [refused]
            return
        assert loaded is not None
        self._open += 1
        began_s = time.monotonic()
        try:
            async with contextlib.aclosing(self._answer(loaded, request)) as chunks:
                async for events in chunks:
                    yield events
        except RequestRefused as refusal:
            yield [refusal.failed]
        finally:
            self._open -= 1
            self._request_s += 0.2 * (time.monotonic() - began_s - self._request_s)

    async def count_tokens(self, request: ChatRequest) -> int | None:
        """Count the tokens of the request's prompt, on the helper thread; None where it can't be read here, or now."""
        loaded = self._engine.phase.loaded
        if loaded is None or self._refuse_if_full() is not None:
            return None

        def count() -> int:
            text = render(loaded.tokenizer, request, form=loaded.form)
            return len(loaded.tokenizer.encode(text, add_special_tokens=False))

        self._open += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._renderer, count)
        except (RequestRefused, RuntimeError):  # the helper thread takes no more
            return None
        finally:
            self._open -= 1

    async def status(self) -> TierStatus:
        phase = self._engine.phase
        loaded = phase.loaded
        reason = f"{phase.reason}: {phase.detail}" if phase.detail else phase.reason
        status = TierStatus(
            name=self._name,
            kind="mlx",
            state=phase.state,
            reason=reason,
            model=self._model,
            source=self._source,
            context_tokens=self._context_tokens,
        )
        if loaded is None:
            return status
        return dataclasses.replace(
            status,
            source=loaded.artifact.source,
            revision=loaded.artifact.revision,
            quantization=loaded.artifact.quantization,
            sha256=loaded.artifact.sha256,
            adapter=loaded.adapter.name if loaded.adapter else None,
            versions=loaded.versions,
            context_tokens=loaded.context_tokens,
            batched_as_alone=loaded.batched_as_alone,
            warning=loaded.warning,
            # MLX counts it itself, for the whole process.
            mlx_peak_bytes=sys.modules["mlx.core"].get_peak_memory() if "mlx.core" in sys.modules else None,
        )

    async def wait_for_load(self, timeout_s: float) -> TierStatus:
        """Return the status once the first attempt to load has ended, or after `timeout_s`."""
        await asyncio.to_thread(self._engine.load_attempted.wait, timeout_s)
        return await self.status()

    async def close(self) -> None:
        """Stop the engine and free the model."""
        await asyncio.to_thread(self._engine.close)
        self._renderer.shutdown(wait=False, cancel_futures=True)

    def trim(self) -> None:
        """Release memory that is only kept for reuse: the machine is short of it."""
        self._engine.trim()

    def healthy(self) -> bool:
        """Return False once this replica must be replaced: its engine hangs, or fails each step."""
        return self._engine.healthy()

    async def _answer(self, loaded: Loaded, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        loop, arrivals = asyncio.get_running_loop(), asyncio.Queue[list[Event]]()

        def put(events: list[Event]) -> None:
            """Take events, from any thread."""
            with contextlib.suppress(RuntimeError):  # the loop is closed: the reader has left
                loop.call_soon_threadsafe(arrivals.put_nowait, events)

        with self._engine.expect_request():
            rendering = self._begin_job(loaded, request, put)
            try:
                # Not awaited itself: `close` cancels it, and that must not look as if the reader had been cancelled.
                waits = not (await asyncio.wait({rendering}, timeout=_TAKEN_S))[0]
                if waits:  # a long prompt, or a busy machine: no reason to ask another tier
                    yield [Started()]
                    await asyncio.wait({rendering})
            finally:
                rendering.cancel()  # of a reader that has left; does nothing to one that is done
            if rendering.cancelled():
                raise self._refuse_closed()
            job, lost = rendering.result()
        ticket = self._engine.submit(job)
        try:
            if not waits:
                yield [Started(lost)]
            last: Event | None = None
            while not isinstance(last, Finish | Failed):
                events = await self._next(arrivals)
                last = events[-1]
                yield events
        finally:
            self._engine.abort(ticket)

    def _begin_job(
        self, loaded: Loaded, request: ChatRequest, sink: Callable[[list[Event]], None]
    ) -> asyncio.Future[tuple[EngineJob, LostPrefix | None]]:
        """Begin to make the job on the helper thread. Raises `RequestRefused`, also where the tier is closed."""
        self._jobs = self._jobs or self._begin_jobs(loaded)
        try:
            return asyncio.get_running_loop().run_in_executor(self._renderer, self._jobs.build, request, sink)
        except RuntimeError:  # the helper thread takes no more
            raise self._refuse_closed() from None

    def _refuse_closed(self) -> RequestRefused:
        message = f"tier {self._name} is unavailable: it is closed"
        return RequestRefused(Failed(fault=Fault.UNAVAILABLE, message=message, retry_after_s=RESTART_S))

    async def _next(self, arrivals: asyncio.Queue[list[Event]]) -> list[Event]:
        """Return all events that have arrived, as one chunk. An engine that has died ends the wait."""
        while True:
            try:
                async with asyncio.timeout(_CHECK_S):
                    events = list(await arrivals.get())
                break
            except TimeoutError:
                if not self._engine.healthy():
                    return [Failed(fault=Fault.CRASHED, message="the engine has stopped working")]
        while not arrivals.empty():
            events += arrivals.get_nowait()
        return merge_events(events)

    def _load(self, say: Say) -> Loaded:
        choice = choose_here(self._name, self._model)
        self._source = choice.source
        if self._model == "auto":
            say(f"auto: {choice.source} ({choice.why})")
            await_model(self._name, choice, say, cache_dir=self._cache_dir)
        try:
            source = parse_source(choice.source)
        except ValueError as error:
            raise ModelUnavailable(str(error)) from error
        return load(
            source,
            cache_dir=self._cache_dir,
            context_tokens=self._context_tokens,
            blas_threads=self._blas_threads,
            adapter_dir=self._adapter,
            say=say,
            room=self._room or find_room_alone(),
        )

    def _build_not_ready(self) -> Failed:
        phase = self._engine.phase
        if phase.state is TierState.LOADING:
            message = f"tier {self._name} is loading its model: {phase.reason}"
            return Failed(fault=Fault.LOADING, message=message, retry_after_s=_LOADING_RETRY_S)
        message = f"tier {self._name} is unavailable: {phase.reason}"
        return Failed(fault=Fault.UNAVAILABLE, message=message, retry_after_s=_AGAIN_S if phase.again else None)

    def _refuse_if_full(self) -> Failed | None:
        if self._open < self._places:
            return None
        ahead = (self._open - self._max_running + 1) / self._max_running
        retry_after_s = min(_RETRY_MAX_S, max(1.0, ahead * self._request_s))
        message = f"tier {self._name} is full: {figure(self._open)} requests run or wait (max_running, max_waiting)"
        return Failed(fault=Fault.OVERLOADED, message=message, retry_after_s=round(retry_after_s, 1))


def _find_unsupported(request: ChatRequest) -> Failed | None:
    for field, neutral in _NEUTRAL.items():
        if request.extra.get(field) not in neutral:
            return Failed(fault=Fault.UNSUPPORTED, message=f"this tier can't honour {field}", param=field)
    return None
