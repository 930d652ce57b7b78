"""How long one attempt waits for its tier's next event, and what it means that the time is over.
Pure.

A deadline is the client's, and short ones would open the breakers of tiers that are well, for all clients. So it says
something of a tier only where that was silent for `STALLED_SHARE` of its own timeout."""

from __future__ import annotations

from dataclasses import replace

from deployments.config_tiers import Timeouts
from reliability.faults import TRAITS, Again
from reliability.types import Failed, Fault

__all__ = ["convert_stall", "fail_by_timeout", "find_limit"]

NS_PER_S = 1_000_000_000
STALLED_SHARE = 0.5  # of a timeout
STALLED = {"idle_s": Fault.IDLE_TIMEOUT, "first_token_s": Fault.FIRST_TOKEN_TIMEOUT}


def find_limit(phase: str, timeouts: Timeouts, elapsed_ns: int, left_ns: int) -> tuple[float, str]:
    """Find the timeout that is over first, in seconds from now, and its name. `elapsed_ns`: of the
    attempt; `left_ns`: until the request's deadline."""
    total_s = timeouts.total_s - elapsed_ns / NS_PER_S
    left_s = left_ns / NS_PER_S
    return min(
        (getattr(timeouts, phase), phase), (total_s, "total_s"), (left_s, "deadline"), key=lambda limit: limit[0]
    )


def fail_by_timeout(limit: str, tier: str, timeouts: Timeouts) -> Failed:
    """Return the failure that it means when the timeout `limit` is over."""
    if limit == "deadline":
        return Failed(fault=Fault.DEADLINE, message="the request's deadline passed")
    fault, words = {
        "idle_s": (Fault.IDLE_TIMEOUT, "was silent for"),
        "first_token_s": (Fault.FIRST_TOKEN_TIMEOUT, "gave no token within"),
        "connect_s": (Fault.CONNECT_TIMEOUT, "has no replica that took the request within"),
        "total_s": (Fault.TOTAL_TIMEOUT, "was not done within"),
    }[limit]
    return Failed(fault=fault, message=f"tier {tier} {words} {getattr(timeouts, limit):g} s ({limit})")


def convert_stall(end: Failed, phase: str, silent_ns: int, timeouts: Timeouts) -> Failed:
    """Convert a stall into the timeout that it nearly was, where the tier would be asked again or the request's own
    time is over; any other end is returned as it is. A replica that has died is no tier that stalls."""
    fault, silent_s = STALLED.get(phase), silent_ns / NS_PER_S
    ends = end.fault is Fault.DEADLINE or TRAITS[end.fault].again is Again.RETRY
    if fault is None or end.lost or not ends:
        return end
    if silent_s < getattr(timeouts, phase) * STALLED_SHARE:
        return end
    return replace(end, fault=fault, message=f"{end.message}, after {silent_s:.1f} s of silence")
