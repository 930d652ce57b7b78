"""A safetensors file written piece by piece: the memory of one piece is enough for a model of any size.

The format: eight bytes with the length of a JSON header, the header, the data. The header gives each tensor's place,
which follows from shapes alone, so it is written first. The format's own library writes from whole dictionaries and
copies each value once more: a model in float32 would be in memory twice.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_tensors"]

_DTYPES = {"float32": ("F32", 4), "float16": ("F16", 2)}
_ALIGNMENT_BYTES = 8


def write_tensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], tensors: Iterable[Iterable[Any]], *, dtype: str
) -> None:
    """Write `tensors` as `dtype`: each comes as pieces of whole rows, in the order of `shapes`. Raises ValueError where
    one has another shape or their numbers differ."""
    import numpy as np

    with path.open("wb") as file:
        file.write(_build_header(shapes, dtype))
        for (name, shape), pieces in zip(shapes.items(), tensors, strict=True):
            rows = 0
            for piece in pieces:
                rows += len(piece)
                if piece.shape[1:] != shape[1:]:
                    raise ValueError(f"the tensor {name!r} has rows of shape {piece.shape[1:]}, not {shape[1:]}")
                np.ascontiguousarray(piece, dtype=np.dtype(dtype)).tofile(file)
            if rows != shape[0]:
                raise ValueError(f"the tensor {name!r} has {rows} rows, not {shape[0]}")


def _build_header(shapes: Mapping[str, tuple[int, ...]], dtype: str) -> bytes:
    code, width = _DTYPES[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    start = 0
    for name, shape in shapes.items():
        end = start + math.prod(shape) * width
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    return struct.pack("<Q", len(text)) + text
