"""Neighbouring events of one kind as one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.merging import merge_events
from reliability.types import CallDelta, Event, Finish, FinishReason, Logprobs, Reasoning, Text, TokenLogprob

PIECES = st.text("ab ", min_size=1, max_size=4)
EVENTS = st.lists(
    st.builds(Text, PIECES)
    | st.builds(Reasoning, PIECES)
    | st.builds(Logprobs, st.tuples(st.builds(TokenLogprob, st.binary(max_size=2), st.just(-1.0))))
    | st.builds(CallDelta, index=st.integers(0, 1), id=st.none(), name=st.none(), arguments=PIECES)
    | st.builds(CallDelta, index=st.integers(0, 1), id=st.just("c"), name=st.just("f"), arguments=PIECES)
    | st.just(Finish(reason=FinishReason.STOP)),
    max_size=20,
)


def spelled(events: list[Event]) -> list[object]:
    """All that they say, letter by letter: text and its numbers beside one another, the rest in its order."""
    said: list[object] = []
    texts: list[object] = []
    numbers: list[object] = []
    for event in events:
        match event:
            case Text(text):
                texts += text
            case Logprobs(tokens):
                numbers += tokens
            case Reasoning(text):
                said += [("reasoning", letter) for letter in text]
            case CallDelta():
                said += [("call", event.index, event.id, event.name)] if event.id else []
                said += [("arguments", event.index, letter) for letter in event.arguments]
            case _:
                said.append(event)
    return [texts, numbers, said]


@given(EVENTS)
def test_what_is_said_stays(events: list[Event]) -> None:
    """Law: nothing is lost, invented, or put into another order."""
    assert spelled(merge_events(events)) == spelled(events)


@given(EVENTS)
def test_no_two_neighbours_could_be_one(events: list[Event]) -> None:
    """Law: of text, reasoning, and pieces of one call there is one event in a row; merging again changes nothing."""
    merged = merge_events(events)

    for one, other in pairwise(merged):
        assert not (type(one) is type(other) and isinstance(one, Text | Reasoning | Logprobs))
        if isinstance(one, CallDelta) and isinstance(other, CallDelta):
            assert other.id is not None or other.index != one.index
    assert merge_events(merged) == merged
