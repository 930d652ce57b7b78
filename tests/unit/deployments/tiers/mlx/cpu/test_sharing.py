"""Pieces of work are all done, once, whoever does them."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.mlx.cpu.sharing import Threads


@given(count=st.integers(1, 4), pieces=st.integers(0, 30))
def test_each_piece_is_done_once(count: int, pieces: int) -> None:
    """Law: whatever the number of threads and pieces, each piece is done once, and all are done when `run` returns."""
    done: list[int] = []

    Threads(count).run([partial(done.append, piece) for piece in range(pieces)])

    assert sorted(done) == list(range(pieces))


def test_pieces_run_side_by_side() -> None:
    """Law: with two threads two pieces run at once, one of them on the caller's own."""
    together = threading.Barrier(2, timeout=30)
    seen: list[int] = []

    def piece() -> None:
        together.wait()
        seen.append(threading.get_ident())

    Threads(2).run([piece, piece])

    assert len(set(seen)) == 2
    assert threading.get_ident() in seen


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_piece_raises_reaches_the_caller(count: int) -> None:
    """Law: a piece that fails is no piece that was done."""

    def fail() -> None:
        raise ValueError("a piece")

    with pytest.raises(ValueError, match="a piece"):
        Threads(count).run([fail, fail])
