"""Memory is counted before it is used: the bill is never over the budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.mlx.memory_budget import Layer, Layout, MemoryBudget, PrefillBudget
from deployments.tiers.mlx.warm_up import _default_budget_bytes

windows = st.none() | st.integers(1, 4096)
layers = st.builds(Layer, st.integers(1, 1000), windows, fixed_bytes=st.integers(0, 1000))
layouts = st.lists(layers, min_size=1, max_size=4).map(tuple).map(Layout)
rooms = st.builds(
    MemoryBudget,
    budget_bytes=st.integers(0, 10**8),
    weight_bytes=st.integers(0, 10**6),
    scratch_bytes=st.integers(0, 10**6),
    layout=layouts,
    scratch_token_bytes=st.integers(0, 100),
)
lengths = st.lists(st.integers(1, 10_000), max_size=8)


@given(rooms, lengths, st.integers(1, 10_000))
def test_one_more_row_or_token_never_costs_less(room: MemoryBudget, rows: list[int], more: int) -> None:
    """Law: what doesn't fit doesn't fit with one row more, nor with a longer one."""
    assert room.spare_bytes([*rows, more]) <= room.spare_bytes(rows)
    assert room.spare_bytes([*rows, more + 1]) <= room.spare_bytes([*rows, more])


@given(rooms, st.integers(1, 100_000))
def test_the_longest_row_fits_and_a_longer_one_doesnt(room: MemoryBudget, tokens: int) -> None:
    """Law: `fit_tokens` is what fits alone, to within one growth step, and never over what was asked."""
    longest = room.fit_tokens(tokens)
    assert 0 <= longest <= tokens
    assert longest == 0 or room.fits([longest])
    assert longest == tokens or longest // 256 == tokens // 256 or not room.fits([longest + 256])


@given(rooms, lengths)
def test_what_is_kept_never_crowds_the_rows(room: MemoryBudget, rows: list[int]) -> None:
    """Law: rows that fit, with what is kept cut to what they leave over, stay within the budget."""
    if room.fits(rows):
        kept = min(room.kept_bytes_max, room.spare_bytes(rows))
        longest = max(rows, default=0)
        scratch = room.scratch_bytes + longest * room.scratch_token_bytes
        bill = room.weight_bytes + scratch + len(rows) * room.layout.sequence_bytes(longest) + kept
        assert bill <= room.budget_bytes


def test_a_window_bounds_a_layer() -> None:
    """Law: a layer with a window keeps no more than it; a recurrent one the same for any length."""
    assert Layout((Layer(10, 512),)).sequence_bytes(8192) == 5120
    assert Layout((Layer(0, None, 77),)).sequence_bytes(1) == Layout((Layer(0, None, 77),)).sequence_bytes(8192) == 77
    assert Layout((Layer(10),)).sequence_bytes(257) == 5120


@given(st.integers(0, 10**12), st.integers(-10, 10**12))
def test_three_tiers_at_once_fit_the_machine(weight_bytes: int, available_bytes: int) -> None:
    """Law: three tiers that saw the same free memory take no more of it than there is."""
    beside = _default_budget_bytes(weight_bytes, available_bytes) - weight_bytes
    assert 0 <= 3 * beside <= max(0, available_bytes)


class TestPace:
    @given(st.lists(st.tuples(st.integers(1, 512), st.floats(1e-6, 10)), max_size=20))
    def test_it_stays_within_its_bounds(self, seen: list[tuple[int, float]]) -> None:
        """Law: whatever is measured, the step is within bounds, grows at most fourfold and shrinks at most to half."""
        pace = PrefillBudget()
        for tokens, seconds in seen:
            before = pace.tokens
            pace.learn(tokens, seconds)
            assert pace.tokens_min <= pace.tokens <= min(pace.tokens_max, 4 * before)
            assert pace.tokens >= before // 2

    @given(st.floats(20, 900))
    def test_it_finds_the_step_of_half_a_second(self, tokens_per_s: float) -> None:
        """Law: at a steady speed the step settles at what half a second prefills."""
        pace = PrefillBudget()
        for _ in range(10):
            pace.learn(pace.tokens, pace.tokens / tokens_per_s)
        assert pace.tokens == pytest.approx(tokens_per_s / 2, abs=1) or pace.tokens in (32, 512)

    @given(st.integers(1, 5000), st.floats(70, 900))
    def test_what_it_estimates_is_what_it_learned(self, tokens: int, tokens_per_s: float) -> None:
        """Law: at a steady speed a prompt takes as long as it says, but for what a step's rounding makes."""
        pace = PrefillBudget()
        for _ in range(10):
            pace.learn(pace.tokens, pace.tokens / tokens_per_s)
        assert pace.estimate_s(tokens) == pytest.approx(tokens / tokens_per_s, rel=0.04)
