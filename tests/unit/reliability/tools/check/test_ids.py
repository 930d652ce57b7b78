"""The ids of calls: unique, and the same again."""

from __future__ import annotations

from reliability.tools import RawCall, check_calls, id_source, ids_in
from reliability.tools.check.ids import IDS_TRIED_MAX, assign
from tests.unit.reliability.tools.check.test_choice import SEARCH
from tests.unit.reliability.tools.check.test_corrective_message import BOX


def test_ids_come_from_the_source_and_are_the_same_again():
    """A missing id is given from the seed, deterministically; one that was used is replaced, on record."""
    calls = [SEARCH, RawCall(name="clock", arguments="{}", id="call_1")]
    found = check_calls(calls, BOX, new_id=id_source("r1"), used_ids={"call_1"})

    assert found == check_calls(calls, BOX, new_id=id_source("r1"), used_ids={"call_1"})
    assert found.calls[0].id == id_source("r1")(0) != id_source("r2")(0)
    assert [repair.path for repair in found.repairs] == ["/1/id"]


def test_a_source_that_repeats_itself_still_gives_unique_ids():
    """Even a constant source can't make two ids alike."""
    ids = assign([None, None, "same"], {"same_0"}, lambda n: "same")

    assert len(set(ids)) == 3
    assert IDS_TRIED_MAX > 1


def test_ids_of_a_conversation_are_found():
    """Calls and results both say which ids are taken; odd messages are passed over."""
    messages = [
        {"role": "assistant", "tool_calls": [{"id": "a"}, {"id": 3}, "x"]},
        {"role": "tool", "tool_call_id": "b"},
        {"role": "user", "tool_calls": None},
    ]

    assert ids_in(messages) == {"a", "b"}
