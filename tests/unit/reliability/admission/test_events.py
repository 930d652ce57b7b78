"""The journal refuses what it did not write. That nothing it writes is lost in any order: test_admission.py."""

import json
from typing import Any

import pytest

from reliability.admission import events as replay
from reliability.admission.request import AdmissionRequest
from reliability.types import Usage, Verdict

ASK = AdmissionRequest(tier="fast", key="k", session="s", prompt_tokens=50)
EVENTS: list[replay.Event] = [
    replay.Begin("life"), replay.Admit(ASK),
    replay.Settlement("life:0", Verdict.SUCCESS, Usage(prompt_tokens=3)),
    replay.Settlement("life:0", Verdict.FAILURE, None, 5), replay.Progress("life:0", 40), replay.Charge("k", "s", 12),
    replay.Tick("expire"), replay.Tick("sweep"), replay.Order("fast", "isolate"), replay.Order("fast", "restore"),
    replay.Order("fast", "close"), replay.Reset("k", "s"),
]  # fmt: skip


def test_every_event_can_be_written_down() -> None:
    """Each kind of event comes back from JSON as it was, and the list above has all of them."""
    assert [replay.event_from_plain(json.loads(json.dumps(replay.event_to_plain(one)))) for one in EVENTS] == EVENTS
    assert {type(event) for event in EVENTS} == set(replay.Event.__args__)


@pytest.mark.parametrize("plain", [{}, {"version": 0}, {"version": 1}, {"version": 1, "state": {"granted": "x"}}])
def test_a_foreign_snapshot_is_refused(plain: dict[str, Any]) -> None:
    """What `to_plain` did not write raises ValueError rather than giving a wrong state."""
    with pytest.raises(ValueError, match=r"snapshot|Admission"):
        replay.from_plain(plain)


def test_a_foreign_event_is_refused() -> None:
    """An event of an unknown kind raises ValueError."""
    with pytest.raises(ValueError, match="kind"):
        replay.event_from_plain({"kind": "other"})
