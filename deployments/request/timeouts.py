"""How long one attempt waits for its tier's next event, and what it means that the time is over.

A tier that breaks off after a silence of `_STALLED_SHARE` of its timeout has stalled: it counts as the timeout that it
nearly was. A client's short deadline says nothing of a tier, unless it was silent so long. `connect_s` counts only time
in which this process has its turns: on a busy machine it couldn't hear a tier that has taken the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from deployments.config.tier_config import Timeouts
from deployments.request.interfaces import Ports
from reliability.faults import TRAITS, Again
from reliability.types import Event, Failed, Fault, Prefilled

NS_PER_S = 1_000_000_000
_STALLED_SHARE = 0.5  # of a timeout
_LOOK_S, _LAST_S = 0.1, 0.001
_STALLED = {"idle_s": Fault.IDLE_TIMEOUT, "first_token_s": Fault.FIRST_TOKEN_TIMEOUT}


async def next_batch(
    stream: AsyncGenerator[list[Event], None],
    tier: str,
    phase: str,
    ports: Ports,
    started_ns: int,
    deadline_ns: int,
    note_prefill: Callable[[Prefilled], bool] = lambda _: False,
) -> list[Event]:
    """Return the next batch of a tier's stream, or the failure that it means when there is none in time. `phase`: the
    timeout that runs. `note_prefill` takes a report of prefill, and says whether the timeout begins anew."""
    timeouts, clock = ports.timeouts[tier], ports.clock
    began_ns = clock.now_ns()
    timeout_s, limit = _find_limit(timeouts, phase, began_ns - started_ns, deadline_ns - began_ns)
    patience = asyncio.timeout(timeout_s)
    looks = _Looks(patience) if limit == "connect_s" else None
    try:
        async with patience:
            batch = await anext(stream)
            while len(batch) == 1 and type(batch[0]) is Prefilled:
                if note_prefill(batch[0]):
                    began_ns = clock.now_ns()
                    timeout_s, limit = _find_limit(timeouts, phase, began_ns - started_ns, deadline_ns - began_ns)
                    patience.reschedule(asyncio.get_running_loop().time() + timeout_s)
                batch = await anext(stream)
    except TimeoutError:
        batch = [_fail_by_timeout(limit, tier, timeouts)]
    except StopAsyncIteration:
        batch = [Failed(fault=Fault.CRASHED, message=f"tier {tier} broke off its answer")]
    finally:
        if looks is not None:
            looks.next.cancel()
    if isinstance(batch[-1], Failed):
        # A stream that is cancelled may report that it broke before it learns why.
        end = _fail_by_timeout(limit, tier, timeouts) if patience.expired() else batch[-1]
        batch = [*batch[:-1], _convert_stall(end, phase, clock.now_ns() - began_ns, timeouts)]
    return batch


class _Looks:
    """Moves the end of a wait on by the time for which the event loop is stalled. `next`: when it looks next."""

    def __init__(self, patience: asyncio.Timeout) -> None:
        self._patience, self._loop = patience, asyncio.get_running_loop()
        self.next = self._loop.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        now_s, until_s = self._loop.time(), self._patience.when()
        late_s = now_s - self.next.when()
        if until_s is None or self._patience.expired():
            return
        if late_s > _LOOK_S:
            until_s += late_s
            self._patience.reschedule(until_s)
        # Before the end, so that it is called first where a stall hides both.
        if (next_s := min(now_s + _LOOK_S, until_s - _LAST_S)) > now_s:
            self.next = self._loop.call_at(next_s, self._look)


def _find_limit(timeouts: Timeouts, phase: str, spent_ns: int, left_ns: int) -> tuple[float, str]:
    """Return how many seconds may pass now, and what limits them. `spent_ns`: by the attempt; `left_ns`: to the
    deadline."""
    total_s, left_s = timeouts.total_s - spent_ns / NS_PER_S, left_ns / NS_PER_S
    timeout_s, limit = getattr(timeouts, phase), phase
    if total_s < timeout_s:
        timeout_s, limit = total_s, "total_s"
    if left_s < timeout_s:
        timeout_s, limit = left_s, "deadline"
    return timeout_s, limit


def _fail_by_timeout(limit: str, tier: str, timeouts: Timeouts) -> Failed:
    if limit == "deadline":
        return Failed(fault=Fault.DEADLINE, message="the request's deadline passed")
    fault, words = {
        "idle_s": (Fault.IDLE_TIMEOUT, "was silent for"),
        "first_token_s": (Fault.FIRST_TOKEN_TIMEOUT, "gave no token within"),
        "connect_s": (Fault.CONNECT_TIMEOUT, "has no replica that took the request within"),
        "total_s": (Fault.TOTAL_TIMEOUT, "was not done within"),
    }[limit]
    return Failed(fault=fault, message=f"tier {tier} {words} {getattr(timeouts, limit):g} s ({limit})")


def _convert_stall(end: Failed, phase: str, silent_ns: int, timeouts: Timeouts) -> Failed:
    """Convert a stall into the timeout that it nearly was, where the tier would be asked again or the request's time is
    over; return any other end as it is. A replica that has died is no tier that stalls."""
    fault, silent_s = _STALLED.get(phase), silent_ns / NS_PER_S
    ends = end.fault is Fault.DEADLINE or TRAITS[end.fault].again is Again.RETRY
    if fault is None or end.lost or not ends:
        return end
    if silent_s < getattr(timeouts, phase) * _STALLED_SHARE:
        return end
    return replace(end, fault=fault, message=f"{end.message}, after {silent_s:.1f} s of silence")
