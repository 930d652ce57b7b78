"""The evaluation of sessions: its rows are above their floors, and a poorer rule would fall below them."""

from collections import Counter

from reliability.sessions import Conversations
from tests.evals import sessions_eval


def test_every_row_is_above_its_floor():
    """Every request of every made agent finds its own session, and every shrunk history its loop."""
    assert [row for row in sessions_eval.rows(seeds=4) if not row.ok and "median" not in row.on] == []


def test_a_hash_of_the_first_messages_falls_below(monkeypatch):
    """The evaluation can fail: a session by system prompt and first message mixes most of these runs up."""
    monkeypatch.setattr(Conversations, "find", lambda _, key, trail, *more: (trail.system + trail.start).hex())
    right, total, _ = sessions_eval.play_all(4)

    assert Counter.total(right) < 0.7 * Counter.total(total)
