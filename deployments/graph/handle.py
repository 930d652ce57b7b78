"""A tier as the Router sees it: a Ray Serve handle behind the `Tier` protocol, or what stands in for one.

Every way in which a call over a handle can break becomes a `Failed` event. A tier that is scaled to zero is asked only
while it has a replica, until it reports that it is ready: a question would start one, or keep it awake. The facts of
Ray Serve behind this: docs/decisions/082.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Any

from ray.exceptions import RayActorError, RayTaskError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from deployments.telemetry import log_error
from reliability.types import ChatRequest, Event, Failed, Fault, Finish, TierState, TierStatus

# How many replicas take requests, by app and deployment: what Serve's controller last told `session_routing.py`.
_SEEN: Counter[tuple[str, str]] = Counter()
# For how long a call that starts a replica waits; the next request tries again.
_COLD_START_MAX_S = 900.0
NO_REPLICA = "no replica runs; a request wakes it"
# A quarter of gRPC's bound: pickling makes a body larger, a list of short fractions by a factor of 2.5.
_GRPC_BODY_BYTES_MAX = 1024 * 1024
_RESTART_S = 5.0  # Serve tries again to start what has failed
_END_S = 1.0  # how long a replica may tidy up after its last event


def note_replicas(app: str, deployment: str, count: int) -> None:
    """Note how many run now. Serve pickles the router's class by value: what it takes along must be found by name."""
    _SEEN[app, deployment] = count


class HandleTier:
    """A `deployments.request.interfaces.Tier` of one deployment. `cold_status` looks up the status of a tier that may
    scale to zero while it has no replica; None: it never does. `known`: the last status of such a tier."""

    def __init__(
        self, name: str, handle: DeploymentHandle, cold_status: Callable[[], TierStatus] | None = None
    ) -> None:
        self.name = name
        self._at = (handle.app_name, handle.deployment_name)
        self._cold_status = cold_status
        self.known = cold_status() if cold_status else None
        self._cold_start: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._stream = handle.options(stream=True, _by_reference=False).stream
        self._stream_large = handle.options(stream=True, _by_reference=True).stream
        self._status = handle.options(_by_reference=False).status
        self._count = handle.options(_by_reference=False).count_tokens
        self._count_large = handle.options(_by_reference=True).count_tokens

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Answer as the protocol says. Closing it cancels the call, also one that still waits for a replica."""
        response: Any = None
        complete = False
        try:
            call = self._stream if request.body_bytes <= _GRPC_BODY_BYTES_MAX else self._stream_large
            response = call.options(session_id=request.session_id).remote(request)
            async for events in response:
                complete = bool(events) and isinstance(events[-1], Finish | Failed)
                yield events
            response = None  # only who reads on to the very end comes here; the Router stops at the last event
        except Exception as error:
            yield [self._explain_failure(error, request)]
        finally:
            if response is not None and complete:
                # A call that has sent everything comes to its end by itself.
                ending = asyncio.get_running_loop().create_task(_read_to_end(response))
                self._ending.add(ending)  # the loop holds its tasks weakly
                ending.add_done_callback(self._ending.discard)
            elif response is not None:
                _stop(response)

    async def status(self) -> TierStatus:
        """Ask for the status. It waits for a replica, and starts none. Raises what the handle raises."""
        if self.known is None or self._cold_status is None:
            return await self._status.remote()  # type: ignore[no-any-return]
        if not self.warm:
            cold = await asyncio.to_thread(self._cold_status)
            # What the last replica reported of its model stays.
            self.known = replace(self.known, state=cold.state, reason=cold.reason)
        elif self.known.state is not TierState.READY:
            self.known = await self._status.remote()
        return self.known

    async def count_tokens(self, request: ChatRequest) -> int | None:
        """Count the tokens of the request's prompt; None where the tier can't now. Raises and waits as `status`."""
        if not self.warm:
            return None
        call = self._count if request.body_bytes <= _GRPC_BODY_BYTES_MAX else self._count_large
        counted: int | None = await call.remote(request)
        return counted

    @property
    def warm(self) -> bool:
        """False while a tier that may scale to zero has no replica that takes requests."""
        return self.known is None or _SEEN[self._at] > 0

    @property
    def absent(self) -> TierStatus | None:
        """Its last status where it is cold and its model isn't on this machine, else None."""
        known = self.known
        return known if known and not self.warm and known.state in (TierState.LOADING, TierState.UNAVAILABLE) else None

    def start_replica(self) -> None:
        """Make Serve start a replica. Returns at once."""
        if self._cold_start is None or self._cold_start.done():
            self._cold_start = asyncio.get_running_loop().create_task(self._await_replica())

    async def _await_replica(self) -> None:
        """Ask for the status: a question that waits for a replica is all the demand that it takes."""
        response = self._status.remote()
        try:
            async with asyncio.timeout(_COLD_START_MAX_S):
                await response
        except Exception as error:
            log_error("tier_does_not_wake", error, tier=self.name)
        finally:
            _stop(response)

    async def close(self) -> None:
        """Do nothing: Serve owns the replicas."""

    def _explain_failure(self, error: Exception, request: ChatRequest) -> Failed:
        if isinstance(error, BackPressureError):
            return Failed(fault=Fault.OVERLOADED, message=f"tier {self.name}: its queue is full", retry_after_s=1.0)
        if isinstance(error, DeploymentUnavailableError):
            message = f"tier {self.name}: its deployment failed"
            return Failed(fault=Fault.UNAVAILABLE, message=message, retry_after_s=_RESTART_S)
        if isinstance(error, RayActorError):
            return Failed(fault=Fault.CRASHED, message=f"tier {self.name}: its replica died", lost=True)
        log_error("tier_call_failed", error, tier=self.name, request_id=request.request_id)
        inside = isinstance(error, RayTaskError)
        words = "an error inside the tier" if inside else "the call to the tier failed"
        return Failed(fault=Fault.SERVER_ERROR, message=f"tier {self.name}: {words}", lost=not inside)


async def _read_to_end(response: Any) -> None:
    try:
        async with asyncio.timeout(_END_S):
            async for _ in response:
                pass
    except Exception:  # the answer was complete: how the call ended is nobody's business any more
        _stop(response)


def _stop(response: Any) -> None:
    """Cancel a call, wherever it is. Looks at what Ray keeps to itself, and does without where that is not there."""
    with contextlib.suppress(Exception):
        response.cancel()
    with contextlib.suppress(Exception):
        assigned = response._replica_result_future
        if response._replica_result is None and assigned.done() and not assigned.cancelled():
            assigned.result().cancel()


_RETRY_S = 5.0


@dataclass(frozen=True, slots=True)
class UnavailableTier:
    """A `Tier` with a fixed status: unavailable, loading, or asleep. `wake` starts a replica for one that is asleep."""

    known: TierStatus
    wake: Callable[[], None] | None = None

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Refuse immediately, so that the chain continues."""
        message = f"tier {self.known.name} is {self.known.state.value}: {self.known.reason}"
        if self.wake is not None:
            self.wake()
            message = f"tier {self.known.name} was asleep and is waking up"
        coming = self.known.state is not TierState.UNAVAILABLE
        fault = Fault.LOADING if coming else Fault.UNAVAILABLE
        yield [Failed(fault=fault, message=message, retry_after_s=_RETRY_S if coming else None)]

    async def status(self) -> TierStatus:
        return self.known

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""
