"""Rows of different lengths in one batch: each is read as if it were alone, and nothing is ever moved."""

from typing import Any

import mlx.core as mx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.mlx.decoding.ragged import _GROWTH_TOKENS_MIN, Lengths, RaggedCache
from deployments.tiers.mlx.memory_budget import Layer, Layout


def test_a_lone_row_is_given_without_a_copy_and_stays_as_it_was():
    """Law: what a lone row leaves behind takes no copying, and what is written later isn't in it."""
    cache = RaggedCache(Lengths([0]))
    cache.update_and_fetch(*_fill(1, 500))
    cache.lengths.set([500])

    kept = cache.extract(0)

    mx.eval(kept.state, cache.state)
    assert find_memory(kept.keys) == find_memory(cache.keys)
    assert find_memory(kept.values) == find_memory(cache.values)
    cache.update_and_fetch(*_fill(7, 5))
    cache.lengths.set([490])
    cache.update_and_fetch(*_fill(8, 12))
    mx.eval(cache.keys, cache.values)
    for held, expected in zip(kept.state, _fill(1, 500), strict=False):
        assert mx.array_equal(held[..., :500, :], expected).item()


def find_memory(array: Any) -> int:
    address: int = np.asarray(memoryview(array)).ctypes.data
    return address


def _fill(number: int, length: int) -> tuple[Any, Any]:
    keys = (mx.arange(length) + 1000 * number)[None, None, :, None] * mx.ones((1, 2, 1, 4))
    return keys, -keys[..., :3]


@given(tokens=st.integers(1, 20_000))
def test_places_to_spare_are_few(tokens):
    """An eighth at most, but for very short rows; and never more than the memory that is set aside for them."""
    cache = RaggedCache(Lengths([tokens - 1]))
    cache.reserve(1, (1, 1, 1))
    places = cache.keys.shape[2]

    assert tokens <= places <= Layout((Layer(1),)).sequence_bytes(tokens)
    assert places - tokens <= max(tokens / 8, _GROWTH_TOKENS_MIN)


def test_a_window_is_masked_too():
    """A layer that looks back so far only, in rows of one and of different lengths."""
    for values in ([5, 5], [5, 2]):
        mask = Lengths(values).make_mask(2, window=3, as_array=False)
        seen = mx.broadcast_to(mask, (2, 1, 2, 7)).tolist()
        for row, held in enumerate(values):
            for query in range(2):
                place = held + query
                assert seen[row][0][query] == [place - 3 < column <= place for column in range(7)]
