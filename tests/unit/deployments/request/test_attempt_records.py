"""Whether the tier of an attempt has run."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from deployments.request.attempt import record_attempt
from reliability.faults import TRAITS, Ran
from reliability.types import CallDelta, Failed, Fault, Finish, FinishReason, Reasoning, Started, Text, Usage
from tests.support.readings import reading

ends = st.builds(
    Failed,
    fault=st.sampled_from(Fault),
    message=st.just("x"),
    status=st.sampled_from([None, 429, 500]),
    usage=st.sampled_from([None, Usage(), Usage(prompt_tokens=5, completion_tokens=3)]),
)
events = st.lists(st.just(Started()) | st.just(Text("so far")) | st.just(Reasoning("hm")), max_size=3)


@given(events, ends, st.booleans())
@example([Text("so far")], Failed(fault=Fault.CONNECT_TIMEOUT, message="x"), False)
@example([Started()], Failed(fault=Fault.CONNECT_TIMEOUT, message="x"), True)
@example([], Failed(fault=Fault.UNAVAILABLE, message="x", usage=Usage(prompt_tokens=5)), True)
def test_what_did_not_run_is_not_charged(events, end, trusted):
    """Whatever a tier says and in whatever order: an attempt that costs or writes something has run, and where it does
    neither, the table says whether it has."""
    made = reading(100, events=(), trusted=trusted)
    made.take([*events, end], 1)
    made.finish()
    record = record_attempt(made, 2)
    spoke = any(isinstance(event, Text | Reasoning) for event in events)

    assert record.ran or not (record.usage.total_tokens or spoke)
    if TRAITS[end.fault].ran is not Ran.RAN and not spoke and end.usage in (None, Usage()):
        assert record.usage.total_tokens == 0
        assert record.ran == (TRAITS[end.fault].ran is Ran.IF_STARTED and Started() in events)


def test_a_record_says_how_many_calls_came_as_calls():
    """What a report shows of a model that writes its calls in its own form, or in the text."""
    call = CallDelta(index=0, id="c", name="look", arguments="{}")
    for held, count in (([call], 1), ([Text('{"name": "look", "arguments": {}}')], 0)):
        made = reading(100)
        made.take([*held, Finish(reason=FinishReason.STOP)], 1)
        made.finish()

        assert record_attempt(made, 2).native_calls == count
