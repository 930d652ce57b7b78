"""mlx-lm's caches as arrays of the host and back: what comes back is what went, of every kind of cache."""

import json
import threading
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, QuantizedKVCache, RotatingKVCache
from mlx_lm.models.deepseek_v41 import LayerCache

from deployments.tiers.mlx.prompt_cache.host_cache import HostCache, Restoring, to_host
from deployments.tiers.mlx.prompt_cache.prompt_cache import flatten
from deployments.tiers.mlx.prompt_cache.segment_file import Damaged, Segment, SegmentHead
from deployments.tiers.mlx.prompt_cache.segment_folder import SegmentPart
from deployments.tiers.packed_tokens import pack

TOKENS = 9
ALL = 1 << 40


def draw(tokens: int = TOKENS, dtype: Any = mx.float32) -> Any:
    return mx.random.normal((1, 2, tokens, 64)).astype(dtype)


def fill(cache: Any, dtype: Any = mx.float32) -> Any:
    cache.update_and_fetch(draw(dtype=dtype), draw(dtype=dtype))
    return cache


def fill_keys(cache: Any) -> Any:
    """As of a layer that chooses tokens by keys of its own: its values are no wider than nothing."""
    cache.update_and_fetch(draw(), draw()[..., :0])
    return cache


def make_state() -> ArraysCache:
    cache = ArraysCache(2)
    cache[0] = draw()
    return cache


KINDS: dict[str, Callable[[], list[Any]]] = {
    "plain": lambda: [fill(KVCache()), fill(KVCache())],
    "half": lambda: [fill(KVCache(), mx.float16)],
    "bfloat16": lambda: [fill(KVCache(), mx.bfloat16)],
    "window": lambda: [fill(RotatingKVCache(4, keep=1)), fill(KVCache())],
    "state": lambda: [make_state(), fill(KVCache(), mx.bfloat16)],
    "several in a layer": lambda: [CacheList(fill(KVCache()), make_state())],
    "lists": lambda: [CacheList(fill(KVCache()), fill_keys(KVCache())), CacheList(fill(KVCache())), fill(KVCache())],
    "quantized": lambda: [fill(QuantizedKVCache(bits=4))],
}


def write(host: HostCache, begin: int = 0, end: int = TOKENS, form: str | None = None) -> Segment:
    tensors = host.stretch(begin, end)
    head = SegmentHead("", begin, "", pack(range(begin, end)), form or host.form)
    arrays = {one.name: np.ascontiguousarray(one.array) for one in tensors}
    return Segment(head, arrays, {one.name: one.dtype for one in tensors})


def leaves(state: Any) -> list[Any]:
    if isinstance(state, list | tuple):
        return [leaf for one in state for leaf in leaves(one)]
    return [(str(state.dtype), state.astype(mx.float32).tolist())] if isinstance(state, mx.array) else [state]


def read(cache: list[Any]) -> list[Any]:
    def state(one: Any) -> Any:
        return (*one.keys_and_values(), one.offset) if type(one) is KVCache else one.state

    return [(type(one).__name__, leaves(state(one))) for one in flatten(cache)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_back_is_what_went(kind: str) -> None:
    """Law: types, numbers and places are the same, whether the cache can be cut or not."""
    cache = KINDS[kind]()
    host = to_host(cache, TOKENS)
    restoring = Restoring([write(host)], [SegmentPart("", 0, TOKENS)])
    assert restoring.advance(ALL)
    assert read(restoring.cache) == read(cache)
    assert restoring.nbytes == sum(one.nbytes for one in restoring.cache)
    assert [type(one) for one in restoring.cache] == [type(one) for one in cache]
    assert host.sliced is all(type(one) is KVCache for one in flatten(cache))


def test_it_is_seen_without_a_copy() -> None:
    """Law: the arrays are the cache's own memory, cut to its tokens."""
    cache = KINDS["plain"]()
    (keys, *_), whole = to_host(cache, TOKENS).tensors, np.asarray(memoryview(cache[0].keys))
    assert keys.array.shape == (1, 2, TOKENS, 64)
    assert np.shares_memory(keys.array, whole)
    assert to_host(cache, TOKENS).nbytes == 2 * 2 * 2 * TOKENS * 64 * 4


@pytest.mark.parametrize("kind", ["plain", "bfloat16", "lists"])
def test_stretches_join(kind: str) -> None:
    """Law: parts of several files make the cache that was cut into them."""
    cache = KINDS[kind]()
    host = to_host(cache, TOKENS)
    segments = [write(host, 0, 5), write(host, 3, TOKENS)]
    restoring = Restoring(segments, [SegmentPart("", 0, 4), SegmentPart("", 4, 8)])
    assert restoring.advance(ALL)
    for one in cache:
        one.trim(1)
    assert read(restoring.cache) == read(cache)


def test_it_is_made_a_layer_at_a_time() -> None:
    """Law: a step makes about as many bytes as it may, and says when it is the last."""
    host = to_host([fill(KVCache()) for _ in range(3)], TOKENS)
    restoring = Restoring([write(host)], [SegmentPart("", 0, TOKENS)])
    assert [(restoring.advance(1), len(restoring.cache)) for _ in range(3)] == [(False, 1), (False, 2), (True, 3)]


LAYERS = [["KVCache", "KVCache"], [["Layer", []]], [["mx", []]], [1], [0], [-1], [1_000_000_000]]


@pytest.mark.parametrize("form", ["{", "[]", *(json.dumps({"layers": layers}) for layers in LAYERS)])
def test_a_form_that_fits_nothing_is_damage(form: str) -> None:
    """Law: whatever a file says it is, a cache comes of it or `Damaged`."""
    host = to_host([fill(KVCache())], TOKENS)
    with pytest.raises(Damaged):
        Restoring([write(host, form=form)], [SegmentPart("", 0, TOKENS)]).advance(ALL)


def test_tensors_of_other_tokens_are_damage() -> None:
    """Law: a tensor that isn't as long as the tokens of its file is not used."""
    segment = write(to_host([fill(KVCache())], TOKENS))
    wrong = Segment(SegmentHead("", 0, "", pack(range(4)), segment.head.form), segment.arrays, segment.dtypes)
    with pytest.raises(Damaged):
        Restoring([wrong], [SegmentPart("", 0, 4)]).advance(ALL)


def test_an_unknown_state_is_refused() -> None:
    """Law: a cache that can't be written down, or not be made again, says so before anything is written."""
    cache = make_state()
    cache.lengths = threading.Event()
    with pytest.raises(ValueError, match="a cache's state has a Event"):
        to_host([cache], TOKENS)
    with pytest.raises(ValueError, match="a LayerCache can't be restored"):
        to_host([LayerCache(4)], TOKENS)


def test_the_form_is_readable() -> None:
    """Law: the form names the layers."""
    assert json.loads(to_host(KINDS["plain"](), TOKENS).form) == {"layers": ["KVCache", "KVCache"]}
