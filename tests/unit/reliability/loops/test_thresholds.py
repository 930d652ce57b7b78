"""What may be set about loops."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliability.loops import LoopConfig
from reliability.loops.thresholds import LoopLimits
from tests.support.loop_histories import law


@pytest.mark.parametrize("bad", [{"similarity_threshold": 0}, {"window_size": 0}, {"nope": 1}, {"break_threshold": 99}])
def test_the_configuration_is_checked(bad: dict[str, Any]) -> None:
    """Unknown keys and values out of bounds are refused by name."""
    with pytest.raises(ValueError, match=next(iter(bad))):
        LoopConfig(**bad)


@law
@example(63, 64, 12, 0, 0)
@given(st.integers(-2, 64), st.integers(-2, 64), st.integers(1, 16), st.integers(0, 300), st.integers(-1, 300))
def test_limits_fit_what_is_read(warn: int, limit: int, period: int, later_warn: int, later: int) -> None:
    """Law: whatever the limits and the period, what is read holds the laps to the break, a nudge that came before it
    still does, what is off stays off, and the usual limits stay as they are."""
    config = LoopConfig(duplicate_threshold=warn, break_threshold=limit)
    nudged, broken = config.fit_laps(period, LoopLimits(later_warn, later))
    assert (broken - 1) * period <= config.turns_needed
    assert nudged <= later_warn
    assert nudged < broken or later <= 0 or later_warn >= later
    assert (broken > 0) is (later > 0)
    if 0 < warn < limit and period <= config.max_period:
        assert config.fit_laps(period, config.limits) == (warn, limit)
