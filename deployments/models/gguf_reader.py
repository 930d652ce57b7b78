"""A GGUF file, opened so that no number in it is believed before it is looked at.

The library that comes with the format reads nothing where a file ends early, and counts on: a damaged length in the
metadata keeps it busy for hours, and takes all memory. So each read is held against the file's end, and each list
against a bound.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["ENTRIES_MAX", "open_gguf"]

ENTRIES_MAX = 4_000_000  # of a list in the metadata; a large vocabulary has 300,000


def open_gguf(path: Path) -> Any:
    """Open the file. Raises ValueError where it ends before its header says so, and what the library raises."""
    import gguf

    class Bounded(gguf.GGUFReader):  # type: ignore[misc]  # it has no types
        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            found = super()._get(offset, dtype, count, override_order)
            if len(found) != count:
                raise ValueError("it ends early")
            return found

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type == gguf.GGUFValueType.ARRAY and self._get(orig_offs + 4, "uint64")[0] > ENTRIES_MAX:
                raise ValueError(f"a list has more than {ENTRIES_MAX} entries")
            return super()._get_field_parts(orig_offs, raw_type)

    return Bounded(str(path))
