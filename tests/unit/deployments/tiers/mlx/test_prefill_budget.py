"""How much of a prompt is prefilled in one step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.mlx.prefill_budget import PrefillBudget


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
