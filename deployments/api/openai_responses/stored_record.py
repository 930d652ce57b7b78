"""A stored response as bytes, and what a request needs of others.

    {"input": [its own items], "response": the response object}  ─▶ compressed

`parse_response` can't ask anybody: where a body names responses that it wasn't given it raises `NeedsRecall`, and is
called again with what was found (`Recalled`).

What must never happen: a record that takes more room than its bound when it is opened again.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deployments.work.json_text import read_json

__all__ = ["RECORD_BYTES_MAX", "NeedsRecall", "Recalled", "count_used_tokens", "open_record", "write_record"]

# Of one response: its own input, its output and what it echoes.
RECORD_BYTES_MAX = 4 * 1024 * 1024


class NeedsRecall(Exception):
    """The body goes on from a response, or refers to items of others: `items` are their names by their paths."""

    def __init__(self, previous: str | None, items: Mapping[str, str]) -> None:
        super().__init__(previous, dict(items))
        self.previous, self.items = previous, dict(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What was found. `chain`: the records that the request goes on from, the oldest first, in the session `session`;
    `others`: records of the responses whose items it refers to, by their ids. `size`: of all, opened."""

    chain: tuple[bytes, ...] = ()
    session: str | None = None
    others: Mapping[str, bytes] = field(default_factory=dict)
    size: int = 0


def write_record(items: bytes, response: bytes) -> tuple[int, bytes]:
    """Write a record; return its size, opened, and itself."""
    data = b'{"input":' + items + b',"response":' + response + b"}"
    return len(data), zlib.compress(data, 1)


def count_used_tokens(record: bytes) -> int:
    """Return the tokens of a response's prompt and answer, as its tier counted them; 0 where it says nothing."""
    usage = open_record(record)["response"].get("usage") or {}
    return int(usage.get("total_tokens") or 0)


def open_record(record: bytes) -> dict[str, Any]:
    """Open a record that `write_record` has written."""
    opener = zlib.decompressobj()
    data = opener.decompress(record, 2 * RECORD_BYTES_MAX)
    if not opener.eof:
        raise ValueError("a stored response is larger than it may be")
    return dict(read_json(data))
