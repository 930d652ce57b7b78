"""The terms that a client sets: how long it waits, whether its request may leave the machine, its name, and whether
what is computed for its prompt may be kept on disk, from which the text can be made again.

Kept away from the disk by `prompt_cache_retention: in_memory`, `store: false`, `cache_prompt: false` (llama.cpp's), or
`Cache-Control: no-store`; `prompt_cache_retention: 24h` goes before the others.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping
from typing import Any

from deployments.errors import ApiError
from deployments.listener.request_id import is_request_id

DEADLINE = "X-MLX-Stack-Deadline"
LOCAL_ONLY = "X-MLX-Stack-Local-Only"
TRUE = frozenset({"true", "1", "yes"})
FALSE = frozenset({"false", "0", "no", ""})
# A number as a person or a program writes one: `float` takes `inf`, `1_0` and digits without end, too.
SECONDS = re.compile(r"\+?([0-9]{1,12}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,2})?")
SECONDS_MAX = 31_536_000  # a year: what is longer is a mistake


def deadline_of(headers: Mapping[str, str], most_s: float) -> float:
    """Return how many seconds the request may take: what the client asks for, at most what the server allows. Raises
    `ApiError`: the header holds no positive number, or one that no deadline can be."""
    text = headers.get(DEADLINE.lower())
    if text is None:
        return most_s
    asked_s = float(text) if SECONDS.fullmatch(text.strip()) else math.nan
    if not 0 < asked_s <= SECONDS_MAX:
        words = f"{DEADLINE}: a positive number of seconds is needed, at most {SECONDS_MAX:,}"
        raise ApiError("invalid_request", words, param=DEADLINE)
    return min(asked_s, most_s)


def is_local_only(headers: Mapping[str, str]) -> bool:
    """Tell whether the request must stay on this machine. Raises `ApiError`: the header is neither true nor false. A
    typing error must not send a private prompt away."""
    text = headers.get(LOCAL_ONLY.lower(), "").strip().lower()
    if text in TRUE:
        return True
    if text not in FALSE:
        raise ApiError("invalid_request", f"{LOCAL_ONLY}: true or false is needed", param=LOCAL_ONLY)
    return False


def request_id_of(headers: Mapping[str, str]) -> str:
    """Return the client's `x-request-id`, else the one that Serve has put in its place; Serve also sends it back."""
    given = headers.get("x-request-id", "")
    return given if is_request_id(given) else str(uuid.uuid4())


def may_keep(headers: Mapping[str, str], body: Mapping[str, Any]) -> bool:
    """Return whether the request lets its prompt be kept on disk. Total: the body is whatever a client sent."""
    retention = body.get("prompt_cache_retention")
    if isinstance(retention, str):
        return retention.replace("-", "_") != "in_memory"
    if body.get("store") is False or body.get("cache_prompt") is False:
        return False
    controls = (value for name, value in headers.items() if name.lower() == "cache-control")
    return not any("no-store" in value.lower() for value in controls)
