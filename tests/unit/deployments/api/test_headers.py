"""The terms that a client sets by header."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.headers import deadline_of
from deployments.errors import ApiError

MOST_S = 600.0
WRONG = [
    "inf",
    "-inf",
    "Infinity",
    "nan",
    "1e400",
    "9" * 10_000,
    "-1",
    "0",
    "0.0",
    "1e99",
    "abc",
    "",
    "1_0",
    "0x10",
    "٣",
    "1e",
    ".",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_deadline_that_is_no_number_of_seconds_is_refused(text):
    """What no clock can hold, what isn't a number and what has passed already: a 400 that names the header."""
    with pytest.raises(ApiError) as caught:
        deadline_of({"x-mlx-stack-deadline": text}, MOST_S)

    assert (caught.value.status, caught.value.param) == (400, "X-MLX-Stack-Deadline")


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), (" 0.5 ", 0.5), (".5", 0.5), ("1e2", 100.0), ("+7.", 7.0), ("86400", MOST_S)]
)
def test_a_deadline_is_what_the_client_says_within_the_servers(text, seconds):
    """At most the server's own."""
    assert deadline_of({"x-mlx-stack-deadline": text}, MOST_S) == seconds


@given(st.text(max_size=40) | st.from_regex(r"[-+0-9.eE_ infa]{0,40}", fullmatch=True))
def test_whatever_stands_in_the_header_is_a_deadline_or_refused(text):
    """Nothing else comes of it."""
    with contextlib.suppress(ApiError):
        assert 0 < deadline_of({"x-mlx-stack-deadline": text}, MOST_S) <= MOST_S
