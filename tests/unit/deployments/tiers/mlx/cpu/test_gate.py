"""The gate of a layer is mlx-lm's own, only sooner."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.cpu.binary import NotHere, find_features, load_kernels
from deployments.tiers.mlx.cpu.gate import Gate, install
from deployments.tiers.mlx.cpu.sharing import Threads
from tests.support.kernels import only_here

SPECIAL = (0.0, -0.0, 87.0, -87.0, 88.8, -104.0, 1e30, -1e30, 1e-40, np.inf)


class Refused(AssertionError):
    """mlx-lm's own was asked."""


def refuse(*_: Any) -> Any:
    raise Refused


def build(kind: int, threads: int, plain: Any = refuse) -> Gate:
    """One of the kinds that the processor has, for however few numbers."""
    kinds = load_kernels(find_features())
    return Gate(kinds[kind % len(kinds)], Threads(threads), plain, numbers_min=0)


def gate_exactly(x: Any, other: Any) -> Any:
    """In double precision."""
    x = x.astype(float)
    with np.errstate(over="ignore", invalid="ignore"):
        return x / (1 + np.exp(-x)) * other.astype(float)


@pytest.mark.model
@only_here
class TestGate:
    @given(
        seed=st.integers(0, 1 << 32),
        shape=st.one_of(st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(1, 70)), st.just((1, 70, 4864))),
        loud=st.sampled_from([0.1, 3.0, 60.0]),
        kind=st.integers(0, 1),
        threads=st.integers(1, 3),
    )
    @settings(max_examples=150, deadline=None)
    def test_it_is_what_was_asked_for(
        self, seed: int, shape: tuple[int, ...], loud: float, kind: int, threads: int
    ) -> None:
        """Law: whatever the shape, the size of the numbers and the threads, the result is right but for rounding."""
        import mlx.core as mx

        random = np.random.default_rng(seed)
        x, other = (loud * random.standard_normal(shape, dtype=np.float32) for _ in range(2))

        made = np.asarray(build(kind, threads)(mx.array(x), mx.array(other)))

        assert made.shape == shape
        np.testing.assert_allclose(made, gate_exactly(x, other), rtol=2e-6, atol=1e-30)

    @pytest.mark.parametrize("kind", [0, 1])
    @pytest.mark.parametrize("x", SPECIAL)
    def test_the_ends_of_the_scale_are_no_traps(self, kind: int, x: float) -> None:
        """Law: what is very large, very small or 0 comes out as it should, wherever it stands."""
        import mlx.core as mx

        numbers = np.full((37,), x, np.float32)
        made = np.asarray(build(kind, 1)(mx.array(numbers), mx.array(np.full((37,), 2.0, np.float32))))

        np.testing.assert_allclose(made, gate_exactly(numbers, np.full((37,), 2.0)), rtol=2e-6, atol=1e-35)

    @pytest.mark.parametrize("kind", [0, 1])
    def test_what_isnt_a_number_is_not_hidden(self, kind: int) -> None:
        """Law: NaN in either of the two gives NaN at its place, and nowhere else; so does less than every number."""
        import mlx.core as mx

        x, other = np.ones((50,), np.float32), np.ones((50,), np.float32)
        x[3], x[48], other[20], x[40] = np.nan, np.nan, np.nan, -np.inf

        made = np.asarray(build(kind, 1)(mx.array(x), mx.array(other)))

        assert list(np.flatnonzero(np.isnan(made))) == [3, 20, 40, 48]

    def test_views_are_read_as_what_they_show(self) -> None:
        """Law: halves of one product, or one that is turned, are gated as they are seen."""
        import mlx.core as mx

        both = mx.random.normal((1, 9, 80), key=mx.random.key(1))
        x, other = both[..., :40], both[..., 40:].transpose(0, 1, 2)

        made = build(0, 2)(x, other)

        np.testing.assert_allclose(np.asarray(made), gate_exactly(np.asarray(x), np.asarray(other)), rtol=2e-6)

    @pytest.mark.parametrize("what", ["half", "mixed", "shapes", "few"])
    def test_what_it_is_not_for_is_mlx_lms(self, what: str) -> None:
        """Law: another precision, another shape and what isn't worth it go to mlx-lm."""
        import mlx.core as mx

        x, other = mx.zeros((2, 40)), mx.zeros((1, 40) if what == "shapes" else (2, 40))
        if what in ("half", "mixed"):
            x, other = x.astype(mx.float16), other if what == "mixed" else other.astype(mx.float16)
        asked = []
        tried = build(0, 1, lambda *args: asked.append(args))
        tried._numbers_min = 100 if what == "few" else 0

        tried(x, other)

        assert asked == [(x, other)]

    def test_it_is_installed_once_where_models_look(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: it stands in mlx-lm's place, in models that were loaded before too, and its results are mlx-lm's."""
        import mlx.core as mx
        from mlx_lm.models import activations

        plain = getattr(activations.swiglu, "_plain", activations.swiglu)
        monkeypatch.setattr(activations, "swiglu", plain)
        before = types.ModuleType("mlx_lm.models.loaded_before")
        before.swiglu = plain  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, before.__name__, before)
        install(2)
        first = activations.swiglu
        install(2)

        assert isinstance(first, Gate)
        assert activations.swiglu is before.swiglu is first  # type: ignore[attr-defined]
        x, other = (mx.random.normal((1, 100, 500), key=mx.random.key(n)) for n in (1, 2))
        np.testing.assert_allclose(np.asarray(first(x, other)), np.asarray(plain(x, other)), rtol=1e-5, atol=1e-6)

    def test_the_stock_path_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Law: `MLX_STACK_BLAS=stock` leaves all of MLX as it comes."""
        from mlx_lm.models import activations

        monkeypatch.setattr(activations, "swiglu", getattr(activations.swiglu, "_plain", activations.swiglu))
        monkeypatch.setenv("MLX_STACK_BLAS", "stock")

        with pytest.raises(NotHere, match="stock"):
            install(1)
