"""Rows of different lengths in one batch: each is read as if it were alone, and nothing is ever moved."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.decoding.ragged import GROWTH_TOKENS_MIN, Lengths, RaggedCache
from deployments.tiers.mlx.memory_budget import Layer, Layout
from tests.support.engine_rig import load_folder


@pytest.fixture(scope="module")
def model(folder: Any) -> Any:
    return load_folder(folder).model


def read_alone(model: Any, tokens: list[int]) -> Any:
    import mlx.core as mx

    return model(mx.array([tokens]))[0]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 5), steps=st.integers(1, 6))
def test_each_row_reads_what_it_reads_alone(model, seed, rows, steps):
    """Rows that grow by another number of tokens in each step, with guesses behind them that don't stand."""
    import mlx.core as mx

    dice = random.Random(seed)
    texts = [[dice.randrange(200) for _ in range(60)] for _ in range(rows)]
    lengths = Lengths([0] * rows)
    caches = [RaggedCache(lengths) for _ in model.layers]
    for _ in range(steps):
        width = dice.randint(1, 8)
        kept = [dice.randint(0, width) for _ in range(rows)]
        lines = [
            [*text[held : held + keep], *(dice.randrange(200) for _ in range(width - keep))]
            for text, held, keep in zip(texts, lengths.values, kept, strict=True)
        ]
        logits = model(mx.array(lines), cache=caches)
        for row, (text, held, keep) in enumerate(zip(texts, lengths.values, kept, strict=True)):
            if keep:
                alone = read_alone(model, text[: held + keep])[held:]
                assert mx.allclose(logits[row, :keep], alone, atol=1e-4).item()
        lengths.set([held + keep for held, keep in zip(lengths.values, kept, strict=True)])


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(0, 600), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_rows_that_come_and_go_keep_what_they_hold(lengths, seed):
    """Extended by others, selected, extracted: the same keys and values, for empty rows too."""
    import mlx.core as mx

    dice = random.Random(seed)
    holders = []
    for number, length in enumerate(lengths):
        own = Lengths([0])
        cache = RaggedCache(own)
        if length:
            cache.update_and_fetch(*_fill(number, length))
            own.set([length])
        holders.append(cache)
    first = holders[0]
    for other in holders[1:]:
        first.extend(other)
        first.lengths.set([*first.lengths.values, *other.lengths.values])
    kept = sorted(dice.sample(range(len(lengths)), dice.randint(1, len(lengths))))
    first.select(kept, max(lengths[row] for row in kept))
    first.lengths.set([lengths[row] for row in kept])

    for place, row in enumerate(kept):
        one = first.extract(place)
        assert one.offset == lengths[row]
        if lengths[row]:
            keys, values = _fill(row, lengths[row])
            assert mx.array_equal(one.keys[..., : one.offset, :], keys).item()
            assert mx.array_equal(one.values[..., : one.offset, :], values).item()
            assert one.keys.shape[2] <= 1.125 * lengths[row]


def test_a_lone_row_is_given_without_a_copy_and_stays_as_it_was():
    """Law: what a lone row leaves behind takes no copying, and what is written later isn't in it."""
    import mlx.core as mx

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
    import mlx.core as mx

    keys = (mx.arange(length) + 1000 * number)[None, None, :, None] * mx.ones((1, 2, 1, 4))
    return keys, -keys[..., :3]


def test_a_batch_of_one_begins_with_what_is_kept_and_leaves_it_alone(model):
    """What the prompt cache holds is read and not written to."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    kept, text = make_prompt_cache(model), list(range(40, 80))
    model(mx.array([text[:30]]), cache=kept)
    before = [mx.array(one.keys[..., : one.offset, :]) for one in kept]
    lengths = Lengths([30])
    caches = [RaggedCache.of(one, lengths) for one in kept]
    logits = model(mx.array([text[30:]]), cache=caches)

    assert mx.allclose(logits[0], read_alone(model, text)[30:], atol=1e-4).item()
    assert all(mx.array_equal(one.keys[..., :30, :], old).item() for one, old in zip(kept, before, strict=True))


@given(tokens=st.integers(1, 20_000))
def test_places_to_spare_are_few(tokens):
    """An eighth at most, but for very short rows; and never more than rows that grow by 256, by which memory is set
    aside."""
    cache = RaggedCache(Lengths([tokens - 1]))
    cache.reserve(1, (1, 1, 1))
    places = cache.keys.shape[2]

    assert tokens <= places <= Layout((Layer(1),)).sequence_bytes(tokens)
    assert places - tokens <= max(tokens / 8, GROWTH_TOKENS_MIN)


def test_a_window_is_masked_too():
    """A layer that looks back so far only, in rows of one and of different lengths."""
    import mlx.core as mx

    for values in ([5, 5], [5, 2]):
        mask = Lengths(values).make_mask(2, window=3, as_array=False)
        seen = mx.broadcast_to(mask, (2, 1, 2, 7)).tolist()
        for row, held in enumerate(values):
            for query in range(2):
                place = held + query
                assert seen[row][0][query] == [place - 3 < column <= place for column in range(7)]
