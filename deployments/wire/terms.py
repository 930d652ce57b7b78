"""The terms that a client sets by header: how long it waits, and whether its request may leave the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping

from deployments.wire.errors import ApiError

__all__ = ["deadline_of", "is_local_only"]

DEADLINE = "X-MLX-Stack-Deadline"
LOCAL_ONLY = "X-MLX-Stack-Local-Only"
TRUE = frozenset({"true", "1", "yes"})
FALSE = frozenset({"false", "0", "no", ""})


def deadline_of(headers: Mapping[str, str], most_s: float) -> float:
    """How many seconds the request may take: what the client says, at most what the server allows.

    Raises:
        ApiError: the header holds no positive number.
    """
    text = headers.get(DEADLINE.lower())
    if text is None:
        return most_s
    try:
        asked_s = float(text)
    except ValueError:
        asked_s = math.nan
    if not asked_s > 0:
        raise ApiError("invalid_request", f"{DEADLINE}: a positive number of seconds is needed", param=DEADLINE)
    return min(asked_s, most_s)


def is_local_only(headers: Mapping[str, str]) -> bool:
    """Whether the request must stay on this machine.

    Raises:
        ApiError: the header is neither true nor false. A typing error must not send a private prompt away.
    """
    text = headers.get(LOCAL_ONLY.lower(), "").strip().lower()
    if text in TRUE:
        return True
    if text not in FALSE:
        raise ApiError("invalid_request", f"{LOCAL_ONLY}: true or false is needed", param=LOCAL_ONLY)
    return False
