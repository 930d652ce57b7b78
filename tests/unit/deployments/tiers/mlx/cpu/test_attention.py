"""Attention on the CPU is MLX's own, only sooner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.cpu.attention import Attention, install
from deployments.tiers.mlx.cpu.binary import NotHere, find_features, load_kernels
from deployments.tiers.mlx.cpu.sharing import Threads
from tests.support.kernels import only_here


class Refused(AssertionError):
    """MLX's own was asked."""


def refuse(*_: Any, **__: Any) -> Any:
    raise Refused


def build(kind: int, threads: int, plain: Any = refuse) -> Attention:
    """One of the kinds that the processor has, for however few scores."""
    kinds = load_kernels(find_features())
    return Attention([kinds[kind % len(kinds)]], Threads(threads), plain, scores_min=0)


def answer_exactly(q: Any, k: Any, v: Any, scale: float, mask: Any) -> Any:
    """In double precision, with all scores written out."""
    share = q.shape[1] // k.shape[1]
    keys, values = (np.repeat(one, share, axis=1).astype(float) for one in (k, v))
    scores = scale * q.astype(float) @ keys.swapaxes(-1, -2)
    if isinstance(mask, str):
        rows, columns = scores.shape[-2:]
        mask = np.arange(columns) <= np.arange(columns - rows, columns)[:, None]
    if mask is not None:
        scores = np.where(mask, scores, -1e30)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ values


@st.composite
def questions(draw: st.DrawFn) -> tuple[Any, Any, Any, float, Any]:
    """Few or many queries and keys, heads that share keys, gaps between them as in a cache and in a model."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    batch, groups, share = draw(st.sampled_from([(1, 1, 1), (1, 2, 7), (2, 3, 3), (3, 2, 1)]))
    size = draw(st.sampled_from([64, 128, 256]))
    rows = draw(st.sampled_from([1, 2, 3, 5, 6, 7, 13, 40, 97]))
    keys = rows + draw(st.sampled_from([0, 1, 31, 64, 200, 255, 256, 257, 700]))
    loud = draw(st.sampled_from([0.1, 1.0, 30.0]))
    q = loud * random.standard_normal((batch, rows, groups * share, size), dtype=np.float32)
    k, v = (random.standard_normal((batch, groups, keys + 9, size), dtype=np.float32) for _ in range(2))
    mask: Any = draw(st.sampled_from([None, "causal", "own", "row"]))
    if mask == "own":  # each line of the batch has a length of its own
        behind = random.integers(1, keys - rows + 2, (batch, 1, 1, 1))
        mask = np.arange(keys) < behind + np.arange(rows)[:, None]
    elif mask == "row":
        mask = np.broadcast_to(random.random((rows, 1)) < 2, (rows, keys))
    return q.transpose(0, 2, 1, 3), k[:, :, :keys], v[:, :, :keys], draw(st.sampled_from([size**-0.5, 1.0])), mask


@pytest.mark.model
@only_here
class TestAttention:
    @given(question=questions(), kind=st.integers(0, 1), threads=st.integers(1, 3))
    @settings(max_examples=150, deadline=None)
    def test_it_is_what_was_asked_for(self, question: Any, kind: int, threads: int) -> None:
        """Law: whatever the sizes, the heads, the mask and the threads, the answer is right but for rounding."""
        import mlx.core as mx

        q, k, v, scale, mask = question
        given_mask = mx.array(mask) if isinstance(mask, np.ndarray) else mask
        made = build(kind, threads)(*map(mx.array, (q, k, v)), scale=scale, mask=given_mask)

        exact = answer_exactly(q, k, v, scale, mask)
        # A score is rounded by its size, and a weight is wrong by as much as its score is.
        largest = scale * np.linalg.norm(q, axis=-1).max() * np.linalg.norm(k, axis=-1).max()
        np.testing.assert_allclose(np.asarray(made), exact, rtol=0, atol=1e-6 * (10 + largest) * np.abs(v).max())

    @pytest.mark.parametrize("kind", [0, 1])
    def test_views_are_read_as_what_they_show(self, kind: int) -> None:
        """Law: a cache that is longer than what is asked for, and queries that stand among others, need no copy."""
        import mlx.core as mx

        cache = mx.random.normal((1, 2, 900, 64), key=mx.random.key(1))
        q = mx.random.normal((1, 9, 4, 64), key=mx.random.key(2)).transpose(0, 2, 1, 3)
        k, v = cache[:, :, :777], cache[:, :, 100:877]

        made = build(kind, 2)(q, k, v, scale=0.125, mask="causal")

        exact = answer_exactly(*map(np.asarray, (q, k, v)), 0.125, "causal")
        np.testing.assert_allclose(np.asarray(made), exact, rtol=2e-5, atol=1e-4)

    @pytest.mark.parametrize("kind", [0, 1])
    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_what_isnt_a_number_is_not_hidden(self, kind: int, bad: float) -> None:
        """Law: a query that isn't a number is answered by none; its neighbours are answered as before."""
        import mlx.core as mx

        q, k, v = (np.random.default_rng(n).standard_normal((1, 1, 40, 64), dtype=np.float32) for n in range(3))
        exact = answer_exactly(q, k, v, 1.0, None)
        q[0, 0, 3, 5] = bad

        made = np.asarray(build(kind, 1)(*map(mx.array, (q, k, v)), scale=1.0))

        assert np.isnan(made[0, 0, 3]).any()
        others = [place for place in range(40) if place != 3]
        np.testing.assert_allclose(made[0, 0, others], exact[0, 0, others], rtol=2e-5, atol=1e-4)

    @pytest.mark.parametrize("what", ["half", "size", "sinks", "added mask", "head mask", "values", "few keys", "few"])
    def test_what_it_is_not_for_is_mlxs(self, what: str) -> None:
        """Law: another precision, another form and what isn't worth it go to MLX, with all that was given."""
        import mlx.core as mx

        size = 80 if what == "size" else 64
        q, k = mx.zeros((1, 2, 8, size)), mx.zeros((1, 2, 4 if what == "few keys" else 40, size))
        v = mx.zeros((1, 2, 40, 32)) if what == "values" else k
        more: dict[str, Any] = {"mask": "causal"}
        if what == "half":
            q, k, v = (one.astype(mx.float16) for one in (q, k, v))
        elif what == "sinks":
            more["sinks"] = mx.zeros((2,))
        elif what == "added mask":
            more["mask"] = mx.zeros((8, 40))
        elif what == "head mask":
            more["mask"] = mx.ones((1, 2, 8, 40), dtype=mx.bool_)
        asked = []
        tried = build(0, 1, lambda *args, **given: asked.append((args, given)))
        tried._scores_min = 10_000 if what == "few" else 0

        tried(q, k, v, scale=0.5, **more)

        ((args, seen),) = asked
        assert args == (q, k, v)
        assert seen == {"scale": 0.5, "sinks": None} | more

    def test_it_is_installed_once_and_mlx_computes_with_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: it stands in MLX's place, however often a model is loaded, and its answers are MLX's."""
        import mlx.core as mx

        own = mx.fast.scaled_dot_product_attention
        monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", getattr(own, "_plain", own))
        install(2)
        first = mx.fast.scaled_dot_product_attention
        install(2)

        assert isinstance(first, Attention)
        assert mx.fast.scaled_dot_product_attention is first
        q, k = (mx.random.normal((1, 8, 100, 64), key=mx.random.key(n)) for n in (1, 2))
        made, theirs = (one(q, k, k, scale=0.125, mask="causal") for one in (first, first._plain))
        np.testing.assert_allclose(np.asarray(made), np.asarray(theirs), rtol=1e-5, atol=1e-5)

    def test_the_stock_path_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: `MLX_STACK_BLAS=stock` leaves all of MLX as it comes."""
        import mlx.core as mx

        own = mx.fast.scaled_dot_product_attention
        monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", getattr(own, "_plain", own))
        monkeypatch.setenv("MLX_STACK_BLAS", "stock")

        with pytest.raises(NotHere, match="stock"):
            install(1)
