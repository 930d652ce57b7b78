"""Own a model on one thread: load it, hold its caches and make every MLX call.

Metal's streams belong to the thread that made them, so only plain Python values leave it. Others put commands into an
inbox, which is emptied between two steps, and read the published `phase`. Every request gets exactly one last event:
`Finish` or `Failed` (none after `abort`).

Invariant: no request waits forever. After a step that raises, sequences start again from their own tokens, once. A
thread that makes no step for `hang_s` while there is work, or whose steps fail one after another, is not `healthy`, and
Serve starts a new replica.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deployments.models.cache_folder import Say
from deployments.models.sources import ModelUnavailable
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.metal import end_process, is_gpu_lost, wire
from deployments.tiers.mlx.scheduler import AHEAD_TOKENS, Scheduler
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.mlx.warm_up import prepare_batch
from reliability.escalation.refusals import figure
from reliability.types import Failed, Fault, TierState

_LOG = logging.getLogger(__name__)

_AGAIN_FIRST_S, _AGAIN_MAX_S = 30.0, 600.0
_FAILURES_MAX = 3
RESTART_S = 5.0  # Serve starts another replica in place of one that ends
_CLOSE_S, _CLOSE_LOADING_S = 10.0, 0.5
_SAVE_S = 5.0  # of it, for prompts that aren't on disk yet
# How long an idle engine waits for more after each request that comes, as a share of what those that have come will
# take to prefill, and in all: those that begin together share their steps.
_GATHER_SHARE, _GATHER_MAX_S = 0.1, 0.06


@dataclass(frozen=True, slots=True)
class _EnginePhase:
    """Where the engine stands. `reason` is fit for clients, `detail` for operators; `again`: it will be retried."""

    state: TierState
    reason: str = ""
    detail: str = ""
    again: bool = False
    loaded: Loaded | None = None


@dataclass(frozen=True, slots=True)
class _Command:
    """`job` with `ticket`: submit; `ticket` alone: abort; `trim`: let go of what is kept for reuse; else close."""

    ticket: int | None = None
    job: EngineJob | None = None
    trim: bool = False


class Engine:
    """The thread and its inbox. Constructing it starts the thread and returns at once."""

    def __init__(
        self,
        name: str,
        load: Callable[[Say], Loaded],
        *,
        running_max: int,
        prepare: Callable[[Scheduler, Loaded], Loaded] = prepare_batch,
        hang_s: float = 60.0,
        ahead_tokens: int = AHEAD_TOKENS,
        end_process: Callable[[], None] = end_process,
    ) -> None:
        self._end_process = end_process
        self._load, self._prepare = load, prepare
        self._running_max, self._ahead_tokens = running_max, ahead_tokens
        self._hang_s = hang_s
        self._inbox: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._tickets = itertools.count()
        self._waiting: dict[int, EngineJob] = {}  # in order of arrival
        self._expected = 0  # requests that are being made ready to be submitted
        self._batch: Scheduler | None = None
        self._failures = 0
        self._busy_since_s: float | None = None  # when the step under way began; None while there is nothing to do
        self._closed, self._ended = threading.Event(), threading.Event()
        self.phase = _EnginePhase(TierState.LOADING, "starting")
        self.load_attempted = threading.Event()  # set once the first attempt to load has ended, well or not
        atexit.register(self._at_exit)
        threading.Thread(target=self._run, name=f"mlx-{name}", daemon=True).start()

    @contextlib.contextmanager
    def expect_request(self) -> Iterator[None]:
        """Expect a request, so that an idle engine waits a moment for it. Always from the same thread."""
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1

    def submit(self, job: EngineJob) -> int:
        """Hand over a request; its events come to `job.sink`. The ticket is for `abort`."""
        ticket = next(self._tickets)
        self._inbox.put(_Command(ticket, job))
        if self._ended.is_set():
            self._turn_away()
        return ticket

    def abort(self, ticket: int) -> None:
        """Abort a request that isn't wanted any more. Does nothing if it has ended."""
        self._inbox.put(_Command(ticket))

    def trim(self) -> None:
        """Let go of everything that is only kept for reuse, between two steps."""
        self._inbox.put(_Command(trim=True))

    def healthy(self) -> bool:
        """Return False once this engine needs to be replaced."""
        if self._closed.is_set():
            return True
        began_s = self._busy_since_s
        hung = began_s is not None and time.monotonic() - began_s > self._hang_s
        return not self._ended.is_set() and not hung and self._failures < _FAILURES_MAX

    def close(self) -> None:
        """End all requests, stop the thread, free the model. Waits for the step under way, not for a load."""
        self._closed.set()
        self._inbox.put(_Command())
        ready = self.phase.state is TierState.READY
        if self._ended.wait(_CLOSE_S if ready else _CLOSE_LOADING_S):
            atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """Wait for the thread: if the interpreter ends while it is in MLX, the process aborts."""
        self.close()
        if "mlx.core" in sys.modules:
            self._ended.wait(_CLOSE_S)

    def _turn_away(self) -> None:
        """Answer commands that the thread doesn't take any more. On any thread: each is taken out once."""
        with contextlib.suppress(queue.Empty):
            while True:
                job = self._inbox.get_nowait().job
                if job is not None:
                    job.sink([_build_shut_down()])

    # Everything below runs on the engine thread.

    def _run(self) -> None:
        try:
            again_s = _AGAIN_FIRST_S
            while not self._closed.is_set() and not self._bring_up():
                self.load_attempted.set()
                self._idle(again_s if self.phase.again else None)
                again_s = min(2 * again_s, _AGAIN_MAX_S)
            self.load_attempted.set()
            while not self._closed.is_set():
                self._turn()
        finally:
            self._fail_everything(_build_shut_down())
            if self._batch is not None:
                self._batch.prompts.close(_SAVE_S)
            self._batch = None
            self.phase = _EnginePhase(TierState.UNAVAILABLE, "its engine has stopped")
            gc.collect()
            used_mlx = "mlx.core" in sys.modules
            if used_mlx:  # memory that a Mac has wired can outlive a killed process
                sys.modules["mlx.core"].clear_cache()
                wire(0)
            self.load_attempted.set()
            self._ended.set()
            self._turn_away()  # what came before that, and saw it not set yet
            if used_mlx:
                # MLX keeps things per thread that are freed when the thread ends, and that need the interpreter. If
                # that ends at the same moment, the process aborts: so the thread waits until the process ends.
                threading.Event().wait()

    def _bring_up(self) -> bool:
        try:
            loaded = self._load(self._say)
            self._batch = Scheduler(
                loaded.model,
                loaded.tokenizer,
                running_max=self._running_max,
                label=loaded.artifact.source,
                ahead_tokens=self._ahead_tokens,
                step=loaded.step,
            )
            self._say("warming up")
            loaded = self._prepare(self._batch, loaded)
        except Exception as error:
            self._batch = None
            self.phase = _build_unavailable(error)
            return False
        self.phase = _EnginePhase(TierState.READY, loaded=loaded)
        return True

    def _say(self, words: str) -> None:
        if self._closed.is_set():  # between two parts of loading is the place to give up
            raise ModelUnavailable("closed while loading")
        self.phase = _EnginePhase(TierState.LOADING, words)

    def _turn(self) -> None:
        """Take commands, then make one step if anything runs."""
        batch = self._batch
        assert batch is not None
        if not batch and not self._waiting:
            self._busy_since_s = None
            while not self._idle(batch.prompts.save(idle=True)):
                pass
            self._gather(batch)
        self._busy_since_s = time.monotonic()
        try:
            while self._idle(0):
                pass
            self._end_overdue(batch)
            self._admit(batch)
            if not batch:
                return
            batch.report_waiting(self._waiting.values())
            batch.prompts.save(idle=False)
            if batch.step():  # health is tokens: prefill that goes on doesn't count as a cure
                self._failures = 0
        except Exception as error:  # taking a sequence out computes too
            if is_gpu_lost(error):
                self._abandon(error)
                return
            self._failures += 1
            _LOG.exception("a step of the engine failed, with %d requests", len(batch))
            message = f"the engine failed in a step ({type(error).__name__})"
            batch.recover(Failed(fault=Fault.SERVER_ERROR, message=message))

    def _abandon(self, error: Exception) -> None:
        """End everything, and the process: its GPU does nothing more for it, and a new process has it again."""
        self._failures = _FAILURES_MAX
        _LOG.error("the GPU takes no more work from this process, which ends", exc_info=error)
        message = "the GPU takes no more work from this process; another one is started"
        self._fail_everything(Failed(fault=Fault.CRASHED, message=message, lost=True))
        self._end_process()

    def _admit(self, batch: Scheduler) -> None:
        """Admit waiting requests in order, as long as they fit: no small one overtakes a large one."""
        while self._waiting:
            ticket, job = next(iter(self._waiting.items()))
            admissible = batch.can_admit(job)
            if not admissible and batch:
                return
            del self._waiting[ticket]
            if admissible:
                batch.add(ticket, job)
            else:  # nothing runs, and still it doesn't fit
                job.sink([_build_too_large(job)])

    def _idle(self, timeout_s: float | None) -> bool:
        """Sleep until a command comes; return whether one did."""
        try:
            self._obey(self._inbox.get(block=timeout_s != 0, timeout=timeout_s))
        except queue.Empty:
            return False
        return True

    def _gather(self, batch: Scheduler) -> None:
        """Wait for those that come at the same time as the first."""
        last_s, seen, prefill_s = time.monotonic() + _GATHER_MAX_S, 0, 0.0
        while (now_s := time.monotonic()) < last_s:
            come = list(self._waiting.values())[seen:]
            seen, prefill_s = seen + len(come), prefill_s + sum(map(batch.estimate_prefill_s, come))
            gap_s = last_s - now_s if self._expected else min(last_s - now_s, _GATHER_SHARE * prefill_s)
            self._idle(gap_s)
            if len(self._waiting) <= seen and not self._expected:
                return

    def _obey(self, command: _Command) -> None:
        if command.trim and self._batch is not None:
            self._batch.trim()
        if command.ticket is None:
            return  # close: the flag says so
        if command.job is not None:
            self._waiting[command.ticket] = command.job
        elif self._waiting.pop(command.ticket, None) is None and self._batch is not None:
            self._batch.remove(command.ticket)

    def _end_overdue(self, batch: Scheduler) -> None:
        now_s = time.monotonic()
        late = Failed(fault=Fault.DEADLINE, message="the request's time ran out")
        for ticket in batch.find_overdue(now_s):
            batch.remove(ticket, late)
        for ticket in [ticket for ticket, job in self._waiting.items() if now_s >= job.deadline_s]:
            self._waiting.pop(ticket).sink([late])

    def _fail_everything(self, failed: Failed) -> None:
        while self._idle(0):
            pass
        if self._batch is not None:
            self._batch.fail_all(failed)
        for job in self._waiting.values():
            job.sink([failed])
        self._waiting = {}


def _build_shut_down() -> Failed:
    return Failed(fault=Fault.UNAVAILABLE, message="the tier is shutting down", retry_after_s=RESTART_S)


def _build_too_large(job: EngineJob) -> Failed:
    message = (
        f"a prompt of {figure(len(job.prompt))} tokens and {figure(job.max_tokens)} of answer don't fit this tier's "
        "memory (memory_bytes): shorten it, or ask for fewer max_tokens"
    )
    return Failed(fault=Fault.CONTEXT_LENGTH, message=message, param="messages")


def _build_unavailable(error: Exception) -> _EnginePhase:
    if isinstance(error, ModelUnavailable):
        return _EnginePhase(TierState.UNAVAILABLE, str(error), again=error.again)
    if isinstance(error, ImportError):
        reason = f"the package {error.name or error} can't be imported; install mlx-lm (`pip install mlx-lm`)"
        return _EnginePhase(TierState.UNAVAILABLE, reason, detail=str(error))
    _LOG.error("the model could not be loaded", exc_info=error)
    reason = f"the model could not be loaded ({type(error).__name__})"
    return _EnginePhase(TierState.UNAVAILABLE, reason, detail=str(error))
