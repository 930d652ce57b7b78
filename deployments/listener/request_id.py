"""How a client may name its request: printable ASCII on one line of a log, and not much of it."""

from __future__ import annotations

CHARS_MAX = 128


def is_request_id(given: str) -> bool:
    """Tell whether a client may name its request so."""
    return given.isascii() and given.isprintable() and 0 < len(given) <= CHARS_MAX
