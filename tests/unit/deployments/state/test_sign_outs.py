"""Cookies that were ended: none is good again, and the list has a bound."""

from __future__ import annotations

import sqlite3

from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.state import sign_outs
from deployments.state.sign_outs import SIGN_OUT_SCHEMA, SignOuts

WEEK_S = 7 * 86_400
moments = st.lists(st.integers(0, 3 * WEEK_S), max_size=30).map(sorted)


@given(moments, st.integers(1, 5))
@settings(max_examples=60)
def test_what_was_ended_stays_so_until_it_would_have_expired(times, rows_max):
    """Whenever cookies are made and ended, and however few rows there may be; the rows never exceed their bound, and a
    cookie that is made later than all that were ended is good."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(SIGN_OUT_SCHEMA)
    ended, shelf = {}, SignOuts(db)
    before, sign_outs.ROWS_MAX = sign_outs.ROWS_MAX, rows_max
    try:
        for number, now_s in enumerate(times):
            ended[f"n{number}"] = now_s + WEEK_S - number % 3
            shelf.add(f"n{number}", ended[f"n{number}"], now_s)
            living = {nonce: expires_s for nonce, expires_s in ended.items() if expires_s > now_s}
            assert all(shelf.has(nonce, expires_s) for nonce, expires_s in living.items())
            assert db.execute("SELECT count(*) FROM signed_out").fetchone()[0] <= rows_max + 1
            assert not shelf.has("another", now_s + WEEK_S + 1)
    finally:
        sign_outs.ROWS_MAX = before
