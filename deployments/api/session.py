"""Which session a request belongs to.

In this order: the header `X-MLX-Stack-Session`, else `X-Session-Id`, else what the body names
(`metadata.session_id`, `prompt_cache_key`, `user`), else a hash of the API key, the system prompt
and the first user message, so that an agent that knows nothing of sessions still has one for each
conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

__all__ = ["SESSION_CHARS_MAX", "session_of"]

SESSION_CHARS_MAX = 256
SESSION_HEADERS = ("x-mlx-stack-session", "x-session-id")


def session_of(headers: Mapping[str, str], body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> str:
    """Name the session of one request. Names over `SESSION_CHARS_MAX` are replaced by their hash."""
    metadata = body.get("metadata")
    carried = (
        *(headers.get(name) for name in SESSION_HEADERS),
        metadata.get("session_id") if isinstance(metadata, Mapping) else None,
        body.get("prompt_cache_key"),
        body.get("user"),
    )
    for name in carried:
        if isinstance(name, str) and name.strip():
            return _bound_name(name.strip())
    return _name_conversation(headers.get("authorization", ""), messages)


def _bound_name(name: str) -> str:
    # A session's name goes back out in a header, so it must be printable ASCII.
    fits = len(name) <= SESSION_CHARS_MAX and name.isascii() and name.isprintable()
    return name if fits else "h-" + _digest(name.encode())


def _name_conversation(key: str, messages: Sequence[Mapping[str, Any]]) -> str:
    system = next((m.get("content") for m in messages if m.get("role") in ("system", "developer")), None)
    first = next((m.get("content") for m in messages if m.get("role") == "user"), None)
    return "c-" + _digest(orjson.dumps([key, system, first], option=orjson.OPT_SORT_KEYS))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]
