"""Memory that macOS may not take away from a tier: its weights, and its keys and values.

macOS takes unwired memory of a GPU back after about a second without work, and a large model then crawls (0.7 instead
of 31 tokens a second at 102 GB; github.com/ggml-org/llama.cpp/pull/17766). mlx-lm wires 75 % of the machine for each
generator, in each process, which is three times too much here (`generators.py` keeps it from that). So each tier wires
its own part, which is what it was given of the working set (`memory/room.py`): the parts together never are more.

Engine thread only.
"""

from __future__ import annotations

import logging

__all__ = ["unwire", "wire"]

_LOG = logging.getLogger(__name__)


def wire(part_bytes: int) -> int:
    """Wire this process's memory up to so many bytes; return how many it is. 0 where there is no Metal, and where
    macOS refuses (before macOS 15 it can't)."""
    import mlx.core as mx

    if not mx.metal.is_available():
        return 0
    most_bytes = int(mx.device_info().get("max_recommended_working_set_size", 0))
    wired_bytes = max(0, min(part_bytes, most_bytes))
    try:
        mx.set_wired_limit(wired_bytes)
    except (ValueError, RuntimeError) as error:
        _LOG.warning("memory isn't wired: %s", error)
        return 0
    return wired_bytes


def unwire() -> None:
    """Let macOS have it again: wired memory can outlive a process that is killed."""
    wire(0)
