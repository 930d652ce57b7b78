"""Lines for a terminal: columns that stand, and no word of a client's that a terminal would obey."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.text_output import list_sessions, plain, show_request, show_timeline, table
from deployments.ui.timeline import tell
from tests.support.room_rig import attempt, report

EVIL = "\x1b[2Jgone\r\n\x07"


@given(st.text())
def test_nothing_is_left_that_moves_a_cursor(text):
    """Whatever was a control character is a mark, and what can be read stays."""
    assert plain(text).isprintable()
    assert all(old == new or not old.isprintable() for old, new in zip(text, plain(text), strict=True))


@given(st.lists(st.lists(st.text("abc ü", max_size=8), min_size=3, max_size=3), max_size=5))
def test_columns_stand_below_one_another(rows):
    """Each cell begins where its head does."""
    lines = table(("one", "two", "three"), rows)
    at = lines[0].index("three")

    assert len(lines) == len(rows) + 1
    assert all(line[at:].rstrip() == row[2].rstrip() for line, row in zip(lines[1:], rows, strict=True))


def test_a_client_s_words_stay_words():
    """In every kind of line."""
    evil = report(EVIL, session=EVIL, at=1.8e9, notes=[EVIL], attempts=[attempt(EVIL, flaw="loop", detail=EVIL)])
    session = {"session": EVIL, "key": "", "requests": 1, "prompt_tokens": 1, "completion_tokens": 1}
    session |= {"cost_usd": 0.0, "used_s": 1.8e9}
    lines = [show_request(evil), *show_timeline(evil, tell(evil, [], keep_text=True)), *list_sessions([session])]

    assert all(line.isprintable() for line in lines)


def test_a_night_is_told_from_the_night_before():
    """A request's line has its day, as an incident's has: 500 lines may reach back for weeks."""
    assert show_request(report(at=1.8e9)) != show_request(report(at=1.8e9 + 86_400))
