"""How large an answer may become, and where its last event is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.request.accounting import (
    ANSWER_BYTES_MAX,
    EVENT_CHARS,
    compute_bytes_max,
    count_chars,
    cut_event,
)
from reliability.types import CallDelta, Event, Reasoning, Started, Text

SIZES = st.integers(0, 3 * EVENT_CHARS) | st.sampled_from([EVENT_CHARS - 1, EVENT_CHARS, EVENT_CHARS + 1])


def written(event: Event) -> str:
    """What a model has written with it."""
    return (
        event.arguments if isinstance(event, CallDelta) else event.text if isinstance(event, Text | Reasoning) else ""
    )


@pytest.mark.parametrize("make", [Text, Reasoning, lambda text: CallDelta(index=2, id="c", name="f", arguments=text)])
@given(size=SIZES, left_bytes=st.integers(0, 3 * EVENT_CHARS))
def test_what_is_cut_still_ends_the_answer(make, size, left_bytes):
    """Law: a cut event is a beginning of what came, of the same kind, and longer than what was left: so the answer ends
    at the same place as if it were whole. What is small is not touched."""
    event = make("é" * size)
    shown = cut_event(event, left_bytes)

    assert type(shown) is type(event)
    assert written(event).startswith(written(shown))
    assert count_chars(shown) == min(size, max(EVENT_CHARS, left_bytes + 1))
    assert shown == event or count_chars(shown) > left_bytes


def test_what_has_no_text_has_no_size():
    """Law: marks of the way of an answer cost nothing and pass."""
    assert count_chars(Started()) == 0
    assert cut_event(Started(), 0) == Started()


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_a_larger_cap_is_never_less_room(one, other):
    """Law: room grows with the cap, is more than a byte a token below the bound of all answers, and ends at it."""
    small, large = sorted((one, other))

    assert compute_bytes_max(small) <= compute_bytes_max(large) <= ANSWER_BYTES_MAX
    assert compute_bytes_max(small) == ANSWER_BYTES_MAX or compute_bytes_max(small) > small
