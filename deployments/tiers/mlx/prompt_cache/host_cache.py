"""Convert between mlx-lm's caches and arrays of the host. Engine thread only.

A cache whose layers all are plain `KVCache`, or lists of them, is cut by tokens (`sliced`): in its form a layer is
"KVCache", or the number of its parts. Any other is written with its complete state. numpy has no bfloat16; such an
array is seen as 16-bit integers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deployments.tiers.lazy_mlx import mlx_caches, mx
from deployments.tiers.mlx.prompt_cache.segment_file import DTYPES, Damaged, Segment, Tensor
from deployments.tiers.mlx.prompt_cache.segment_folder import SegmentPart

_SLICED = "KVCache"
_ARRAY = "array"
_KINDS = {str(held): kind for kind, held in DTYPES.items() if kind != "BF16"} | {"bfloat16": "BF16"}


@dataclass(frozen=True, slots=True)
class HostCache:
    """Views of a cache of so many tokens. `form` says what they make together."""

    form: str
    sliced: bool
    tensors: tuple[Tensor, ...]
    tokens: int

    @property
    def nbytes(self) -> int:
        """The bytes that a file of it has."""
        return sum(int(one.array.nbytes) for one in self.tensors)

    def stretch(self, begin: int, end: int) -> list[Tensor]:
        """Return the tensors for the tokens from `begin` to `end`; of what can't be cut, all."""
        if not self.sliced:
            return list(self.tensors)
        return [Tensor(one.name, one.dtype, one.array[..., begin:end, :]) for one in self.tensors]


def to_host(cache: Any, tokens: int) -> HostCache:
    """See a computed cache as arrays of the host. Raises ValueError for a state that can't be written."""
    tensors: list[Tensor] = []
    parts = {name: one for number, layer in enumerate(cache) for name, one in _name_parts(str(number), layer)}
    if all(type(one).__name__ == _SLICED and one.offset == tokens for one in parts.values()):
        for part, one in parts.items():
            for name, array in (("keys", one.keys), ("values", one.values)):
                kind, seen = _see(array)
                tensors.append(Tensor(f"{part}.{name}", kind, seen[..., :tokens, :]))
        sliced = [len(layer.caches) if hasattr(layer, "caches") else _SLICED for layer in cache]
        return HostCache(json.dumps({"layers": sliced}), True, tuple(tensors), tokens)
    layers = [[_name_kind(one), _describe(one.state, tensors)] for one in cache]
    return HostCache(json.dumps({"layers": layers}), False, tuple(tensors), tokens)


class Restoring:
    """A cache in the making. `nbytes`: what has been made of it."""

    def __init__(self, segments: Sequence[Segment], parts: Sequence[SegmentPart]) -> None:
        self._segments, self._parts = segments, parts
        try:
            self._layers: list[Any] = json.loads(segments[0].head.form)["layers"]
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged("its form can't be read") from error
        self.cache: list[Any] = []
        self.nbytes = 0

    def advance(self, bytes_max: int) -> bool:
        """Make layers until they are about so many bytes; return whether all are made. Raises `Damaged`."""
        begun = self.nbytes
        try:
            while len(self.cache) < len(self._layers) and self.nbytes - begun < bytes_max:
                layer = self._restore(len(self.cache), self._layers[len(self.cache)])
                self.cache.append(layer)
                self.nbytes += int(layer.nbytes)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise Damaged("its tensors make no cache") from error
        return len(self.cache) == len(self._layers)

    def _restore(self, number: int, layer: Any) -> Any:
        if layer == _SLICED:
            made = self._restore_part(str(number))
        elif isinstance(layer, int) and layer > 0:
            made = mlx_caches.CacheList(*(self._restore_part(f"{number}.{part}") for part in range(layer)))
        else:
            made = _find_class(layer[0]).from_state(self._rebuild(layer[1]))
        mx.eval(made.state)
        return made

    def _restore_part(self, name: str) -> Any:
        pair = (self._join(f"{name}.keys"), self._join(f"{name}.values"))
        return _find_class(_SLICED).from_state((*pair, self._parts[-1].end))

    def _join(self, name: str) -> Any:
        pieces = []
        for segment, part in zip(self._segments, self._parts, strict=True):
            array, start = segment.arrays[name], segment.head.start
            if array.ndim != 4 or array.shape[2] * 4 != len(segment.head.tokens):
                raise Damaged("a tensor has another length than its tokens")
            pieces.append(_load(array[:, :, part.begin - start : part.end - start], segment.dtypes[name]))
        return pieces[0] if len(pieces) == 1 else mx.concatenate(pieces, axis=2)

    def _rebuild(self, state: Any) -> Any:
        if isinstance(state, Mapping):
            segment, name = self._segments[0], state[_ARRAY]
            return _load(segment.arrays[name], segment.dtypes[name])
        return [self._rebuild(one) for one in state] if isinstance(state, list) else state


def _name_parts(name: str, layer: Any) -> list[tuple[str, Any]]:
    """Return the caches of a layer by their names in a file."""
    if not hasattr(layer, "caches"):
        return [(name, layer)]
    return [(f"{name}.{part}", one) for part, one in enumerate(layer.caches)]


def _name_kind(one: Any) -> str:
    kind = type(one)
    if kind.__module__ != "mlx_lm.models.cache":
        raise ValueError(f"a {kind.__name__} can't be restored")
    return kind.__name__


def _see(array: Any) -> tuple[str, Any]:
    kind = _KINDS[str(array.dtype).rpartition(".")[2].rstrip("_")]
    seen = array.view(mx.uint16) if kind == "BF16" else array
    mx.eval(seen)
    return kind, np.asarray(memoryview(seen))


def _load(array: Any, kind: str) -> Any:
    made = mx.array(array)
    return made.view(mx.bfloat16) if kind == "BF16" else made


def _describe(state: Any, tensors: list[Tensor]) -> Any:
    if isinstance(state, mx.array):
        kind, seen = _see(state)
        tensors.append(Tensor(str(len(tensors)), kind, seen))
        return {_ARRAY: tensors[-1].name}
    if isinstance(state, list | tuple):
        return [_describe(one, tensors) for one in state]
    if state is None or isinstance(state, str | int | float):
        return state
    raise ValueError(f"a cache's state has a {type(state).__name__}")


def _find_class(kind: str) -> Any:
    found = getattr(mlx_caches, kind)
    if not (isinstance(found, type) and issubclass(found, mlx_caches._BaseCache)):
        raise Damaged("it has a cache of another kind")
    return found
