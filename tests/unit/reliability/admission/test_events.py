"""The journal refuses what it did not write. That nothing it writes is lost in any order: test_admission.py."""

import json
from typing import Any

import pytest

from reliability.admission import admit as admission
from reliability.admission import events as replay
from reliability.admission.admit import AdmissionConfig, AdmissionState
from reliability.admission.request import AdmissionRequest, Grant
from reliability.types import Usage, Verdict

ASK = AdmissionRequest(tier="fast", key="k", session="s", prompt_tokens=50)
EVENTS: list[replay.Event] = [
    replay.Begin("life"),
    replay.Admit(ASK),
    replay.Settlement("life:0", Verdict.SUCCESS, Usage(prompt_tokens=3)),
    replay.Settlement("life:0", Verdict.FAILURE, None, 5),
    replay.Progress("life:0", 40),
    replay.Charge("k", "s", 12),
    replay.Tick("expire"),
    replay.Tick("sweep"),
    replay.Order("fast", "isolate"),
    replay.Order("fast", "restore"),
    replay.Order("fast", "close"),
    replay.Reset("k", "s"),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: str(event.kind))
def test_every_event_can_be_written_down(event: replay.Event) -> None:
    """Each kind of event comes back from JSON as it was."""
    assert replay.event_from_plain(json.loads(json.dumps(replay.event_to_plain(event)))) == event


def test_no_kind_of_event_is_missing_here() -> None:
    """The list above has all of them."""
    assert {type(event) for event in EVENTS} == set(replay.Event.__args__)


def test_a_charge_is_the_reducers_charge() -> None:
    """The event does what `admission.charge` does, and answers nothing."""
    config = AdmissionConfig()
    state, answer = replay.reduce(AdmissionState(), config, replay.Charge("k", "s", 12), 7)
    assert answer is None
    assert state == admission.charge(AdmissionState(), config, "k", "s", 12, 7)
    assert state != AdmissionState()


def test_a_replay_of_many_lives_gives_the_same_names() -> None:
    """A settle of a grant that a later life gave finds it, after any number of lives."""
    config, state, events = AdmissionConfig(), AdmissionState(), []
    for now_ns, epoch in enumerate("abc"):
        state, _ = replay.reduce(state, config, replay.Begin(epoch), now_ns)
        state, grant = replay.reduce(state, config, replay.Admit(ASK), now_ns)
        assert isinstance(grant, Grant)
        assert grant.id.startswith(f"{epoch}:")
        events += [(now_ns, replay.Begin(epoch)), (now_ns, replay.Admit(ASK))]
    assert replay.replay(AdmissionState(), config, events) == state


@pytest.mark.parametrize("plain", [{}, {"version": 0}, {"version": 1}, {"version": 1, "state": {"granted": "x"}}])
def test_a_foreign_snapshot_is_refused(plain: dict[str, Any]) -> None:
    """What `to_plain` did not write raises ValueError rather than giving a wrong state."""
    with pytest.raises(ValueError, match=r"snapshot|Admission"):
        replay.from_plain(plain)


def test_a_foreign_event_is_refused() -> None:
    """An event of an unknown kind raises ValueError."""
    with pytest.raises(ValueError, match="kind"):
        replay.event_from_plain({"kind": "other"})
