"""Whether what is computed for a request may be kept on disk, for the next one that begins the same way.

It may, unless the request says otherwise, in one of the ways that there are:

    prompt_cache_retention  "in_memory": not on disk; "24h": on disk, whatever the others say
    store                   false. That it is missing says nothing, though false is the default of chat completions
    cache_prompt            false: llama.cpp's name for it
    Cache-Control           a header with `no-store`: HTTP's

What is kept are the keys and values of its tokens, and the tokens: of both the text can be made again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["may_keep"]


def may_keep(headers: Mapping[str, str], body: Mapping[str, Any]) -> bool:
    """Return whether the request lets its prompt be kept on disk. Total: the body is whatever a client sent."""
    retention = body.get("prompt_cache_retention")
    if isinstance(retention, str):
        return retention.replace("-", "_") != "in_memory"
    if body.get("store") is False or body.get("cache_prompt") is False:
        return False
    controls = (value for name, value in headers.items() if name.lower() == "cache-control")
    return not any("no-store" in value.lower() for value in controls)
