"""Copies and cuts of mlx-lm's caches: they go on as what they hold, and nothing else notices."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import CacheList, ChunkedKVCache, KVCache, RotatingKVCache, make_prompt_cache

from deployments.tiers.mlx.prompt_cache.prompt_cache import MlxCaches, detach
from tests.support.engine_rig import load_folder

TOKENS = st.lists(st.integers(4, 190), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return load_folder(folder).model


def read(model: Any, cache: Any, tokens: list[int]) -> list[float]:
    return list(model(mx.array([tokens]), cache=cache)[0, -1].tolist())


@settings(deadline=None, max_examples=25)
@given(TOKENS, TOKENS, TOKENS)
def test_a_shortened_copy_goes_on_as_if_the_rest_had_never_been_read(model, kept, cut, more):
    """Law: the copy answers as a cache of the kept tokens alone, and the original as if there were no copy."""
    cache, short, whole = (make_prompt_cache(model) for _ in range(3))
    for one, tokens in ((cache, kept + cut), (short, kept), (whole, kept + cut)):
        read(model, one, tokens)
        detach(one)
    caches = MlxCaches()
    assert caches.is_trimmable(cache)
    copy = caches.copy_shortened(cache, len(cut))

    assert read(model, copy, more) == pytest.approx(read(model, short, more), abs=1e-4)
    assert read(model, cache, more) == pytest.approx(read(model, whole, more), abs=1e-4)


@settings(deadline=None, max_examples=25)
@given(TOKENS, TOKENS, TOKENS)
def test_a_cut_is_its_own_and_no_larger_than_its_tokens(model, kept, rest, more):
    """Law: the first tokens of a cache go on as a cache of them alone, and take the memory of so many tokens; a kind of
    cache that holds more than tokens isn't cut."""
    cache, short = (make_prompt_cache(model) for _ in range(2))
    for one, tokens in ((cache, kept + rest), (short, kept)):
        read(model, one, tokens)
        detach(one)
    caches = MlxCaches()
    cut = caches.cut(cache, len(kept))

    assert caches.nbytes(cut) * cache[0].keys.shape[2] == caches.nbytes(cache) * len(kept)
    assert read(model, cut, more) == pytest.approx(read(model, short, more), abs=1e-4)
    assert caches.cut([RotatingKVCache(8)], 1) is None


def test_a_layer_of_several_is_cut_in_each() -> None:
    """Law: lists of plain caches are cut as plain ones are, each part to its own width; with another they aren't."""
    parts = [KVCache(), KVCache()]
    for one, width in zip(parts, (8, 0), strict=True):
        one.update_and_fetch(mx.random.normal((1, 2, 9, 8)), mx.random.normal((1, 2, 9, width)))
    (cut,) = MlxCaches().cut([CacheList(*parts)], 4)

    for one, whole in zip(cut.caches, parts, strict=True):
        assert (one.offset, one.keys.shape[2]) == (4, 4)
        assert mx.array_equal(one.keys, whole.keys[..., :4, :])
        assert one.values.shape == (1, 2, 4, whole.values.shape[3])
    assert MlxCaches().cut([CacheList(parts[0], RotatingKVCache(8))], 1) is None


def test_a_chunk_that_has_moved_on_cant_go_back() -> None:
    """Law: once tokens before the chunk are gone, a shortened copy would lack them."""
    chunk = ChunkedKVCache(4)
    for expected in (True, True, False):
        chunk.maybe_trim_front()
        assert MlxCaches().is_trimmable([chunk]) is expected
        chunk.update_and_fetch(*(mx.random.normal((1, 2, 3, 8)) for _ in range(2)))
