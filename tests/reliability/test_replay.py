"""The journal refuses what it did not write. That nothing it writes is lost: test_admission.py."""

from __future__ import annotations

from typing import Any

import pytest

from reliability import replay


@pytest.mark.parametrize("plain", [{}, {"version": 0}, {"version": 1}, {"version": 1, "state": {"granted": "x"}}])
def test_a_foreign_snapshot_is_refused(plain: dict[str, Any]) -> None:
    """What `to_plain` did not write raises ValueError rather than giving a wrong state."""
    with pytest.raises(ValueError, match=r"snapshot|Admission"):
        replay.from_plain(plain)


def test_a_foreign_event_is_refused() -> None:
    """An event of an unknown kind raises ValueError."""
    with pytest.raises(ValueError, match="kind"):
        replay.event_from_plain({"kind": "other"})
