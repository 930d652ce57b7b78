"""Keep keys and values of a batch in which each row has a length of its own.

mlx-lm's `BatchKVCache` aligns rows at the right, so all must grow by the same count. Here they are aligned at the left
and nothing is moved: a row keeps any number of its drafts, and the next step overwrites what lies behind. Invariant: no
row reads what lies behind its own length; the mask sees to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deployments.tiers.lazy_mlx import mlx_caches, mx

# The buffers grow by a power of two, an eighth at most, within these bounds (mlx-lm's by 256): so what a row leaves
# behind has few places to spare, and needn't be copied while the next one waits.
_GROWTH_TOKENS_MIN, _GROWTH_TOKENS_MAX = 32, 256
_SPARE_SHARE = 0.125  # of its tokens a row that is kept may have places that hold nothing


class Lengths:
    """How many tokens each row holds: one object for the caches of all layers, moved once a step."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = list(values)
        self._offset: Any = None

    @property
    def longest(self) -> int:
        return max(self.values, default=0)

    @property
    def even(self) -> bool:
        """Whether all rows have one length."""
        return len(set(self.values)) < 2

    @property
    def offset(self) -> Any:
        """The lengths as the models want them for their positions, made once a step."""
        if self._offset is None:
            self._offset = mx.array(self.values)
        return self._offset

    def set(self, values: Sequence[int]) -> None:
        """Say how many tokens each row holds from now on."""
        self.values, self._offset = list(values), None

    def make_mask(self, count: int, *, window: int | None, as_array: bool) -> Any:
        if self.even and not as_array and not (window and self.longest + count > window):
            return None if count == 1 else "causal"
        columns = mx.arange(self.longest + count)
        places = self.offset[:, None, None, None] + mx.arange(count)[:, None]
        mask = columns <= places
        return mask & (columns > places - window) if window else mask


class RaggedCache:
    """One layer's keys and values. Has what mlx-lm's models ask of a cache."""

    def __init__(self, lengths: Lengths, keys: Any = None, values: Any = None) -> None:
        self.lengths, self.keys, self.values = lengths, keys, values

    @classmethod
    def of(cls, alone: Any, lengths: Lengths) -> RaggedCache:
        """Build the layer of a batch of one row from what mlx-lm keeps of a sequence; empty where that is."""
        if alone.keys is None or not alone.offset:
            return cls(lengths)
        return cls(lengths, alone.keys[:, :, : alone.offset], alone.values[:, :, : alone.offset])

    @property
    def offset(self) -> Any:
        """Where the next token of each row stands, as an array."""
        return self.lengths.offset

    @property
    def state(self) -> Any:
        """What has to be computed for it to be there."""
        return self.keys, self.values

    def empty(self) -> bool:
        """Return whether nothing was ever written."""
        return self.keys is None

    def make_mask(self, N: int, return_array: bool = False, window_size: int | None = None) -> Any:  # noqa: N803
        """Make the mask for N new tokens in each row; the names are mlx-lm's."""
        return self.lengths.make_mask(N, window=window_size, as_array=return_array)

    def update_and_fetch(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Write these behind each row; return all up to the longest."""
        count = keys.shape[2]
        end = self.lengths.longest + count
        self._reserve(end, (*keys.shape[:2], keys.shape[3]), (*values.shape[:2], values.shape[3]), keys.dtype)
        if self.lengths.even:
            start = self.lengths.longest
            self.keys[:, :, start:end] = keys
            self.values[:, :, start:end] = values
        else:
            for row, start in enumerate(self.lengths.values):
                self.keys[row : row + 1, :, start : start + count] = keys[row : row + 1]
                self.values[row : row + 1, :, start : start + count] = values[row : row + 1]
        return self.keys[:, :, :end], self.values[:, :, :end]

    def reserve(self, count: int, like: tuple[int, int, int]) -> None:
        """Reserve places for `count` tokens behind each row. `like`: the (rows, heads, size) of float32 arrays."""
        self._reserve(self.lengths.longest + count, like, like, mx.float32)

    def extract(self, row: int) -> Any:
        """Return a row as mlx-lm's own cache; a copy unless the arrays hold little else."""
        made: Any = mlx_caches.KVCache()
        end = self.lengths.values[row]
        if self.keys is not None and end:
            rows, _, places, _ = self.keys.shape
            # Objects of their own: one that is assigned to changes, whoever else holds it.
            made.keys, made.values, made.offset = self.keys[row : row + 1], self.values[row : row + 1], end
            if rows > 1 or places - end > end * _SPARE_SHARE:
                made.keys, made.values = (mx.contiguous(one[..., :end, :]) for one in (made.keys, made.values))
        return made

    def select(self, rows: Sequence[int], longest: int) -> None:
        """Keep only these rows, the longest of which holds `longest` tokens. The lengths are somebody else's."""
        if self.keys is None or list(rows) == list(range(self.keys.shape[0])):
            return
        kept, end = mx.array(list(rows)), _round_up(longest)
        self.keys, self.values = self.keys[kept][:, :, :end], self.values[kept][:, :, :end]

    def extend(self, other: RaggedCache) -> None:
        """Put the other's rows behind these. The lengths of both are still those from before."""
        like = self if other.keys is None else other
        if like.keys is None:
            return
        end = max(one.keys.shape[2] for one in (self, other) if one.keys is not None)
        pairs = [one._build_padded(like, end) for one in (self, other)]
        self.keys, self.values = (mx.concatenate(list(arrays)) for arrays in zip(*pairs, strict=True))

    def _build_padded(self, like: RaggedCache, end: int) -> tuple[Any, Any]:
        """Build both arrays with `end` places; zeros for rows of which nothing was written yet."""
        if self.keys is not None:
            return _pad(self.keys, end), _pad(self.values, end)
        rows = len(self.lengths.values)
        keys, values = (
            mx.zeros((rows, one.shape[1], end, one.shape[3]), one.dtype) for one in (like.keys, like.values)
        )
        return keys, values

    def _reserve(self, end: int, keys: tuple[int, int, int], values: tuple[int, int, int], kind: Any) -> None:
        """Let there be `end` places. `keys`, `values`: their (rows, heads, size)."""
        if self.keys is None:
            self.keys, self.values = (
                mx.zeros((rows, heads, _round_up(end), size), kind) for rows, heads, size in (keys, values)
            )
        elif end > self.keys.shape[2]:
            self.keys, self.values = _pad(self.keys, _round_up(end)), _pad(self.values, _round_up(end))


def _round_up(tokens: int) -> int:
    growth = 1 << int(tokens * _SPARE_SHARE).bit_length() >> 1
    growth = min(max(growth, _GROWTH_TOKENS_MIN), _GROWTH_TOKENS_MAX)
    return -(-tokens // growth) * growth


def _pad(array: Any, end: int) -> Any:
    more = end - array.shape[2]
    return array if more <= 0 else mx.pad(array, [(0, 0), (0, 0), (0, more), (0, 0)])
