"""Another server is asked for the rest of an answer, over real HTTP."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.continuing import ask_to_go_on
from deployments.tiers.hosted.hosted_tier import HostedTier
from reliability.answer.seam import find_anchor
from reliability.types import CallDelta, Event, Failed, Fault, Finish, Reasoning, Text
from tests.support.plays import Player, Seen, good, tools
from tests.support.tier_asking import answer, ask
from tests.support.upstream import Upstream

BEGUN = "First you open the valve on the left, and then you wait until the needle stands"
REST = " at two. At last you close it."


def go_on(player: Player, how: Any = "anchor", begun: str = BEGUN) -> tuple[list[Event], Seen]:
    """What the tier makes of this answer to a request for the rest, and what was asked."""
    with Upstream() as upstream:
        upstream.plays("m", player)
        tier = HostedTier(name="premium", base_url=upstream.base_url, model="m", continues=how)

        async def scene() -> list[Event]:
            try:
                return await answer(tier, replace(ask(), begun=begun))
            finally:
                await tier.close()

        return asyncio.run(scene()), upstream.log[-1]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("anchor", find_anchor(BEGUN) + REST),
        ("anchor", f'"{find_anchor(BEGUN)}{REST}'),
        ("anchor", BEGUN + REST),
        ("prefill", REST),
        ("prefill", BEGUN + REST),
    ],
)
def test_the_rest_is_joined_to_the_letter(how, said):
    """Law: the last words, all of them, or nothing before the rest: what leaves is the rest, without its reasoning."""
    events, _ = go_on(good(said, reasoning="They want the rest."), how)

    assert text_of(events) == REST
    assert isinstance(events[-1], Finish)
    assert not any(isinstance(event, Reasoning) for event in events)


@pytest.mark.parametrize("said", ["Sure! Here it is: at two.", "First you open the tap, and then", "I can't go on."])
def test_an_answer_about_the_answer_never_leaves(said):
    """Law: it ends in a fault that says so, and not a word of it leaves; its connection is closed."""
    events, _ = go_on(good(said))

    assert text_of(events) == ""
    assert isinstance(events[-1], Failed)
    assert events[-1].fault is Fault.SEAM
    assert "premium" in events[-1].message


def test_a_call_behind_the_text_needs_no_more_words():
    """Law: a model that has only its call left to make makes it; with an upstream that goes on at once."""
    events, _ = go_on(tools(("f", {"a": 1})), "prefill")

    assert any(isinstance(event, CallDelta) for event in events)
    assert isinstance(events[-1], Finish)


def test_it_is_asked_in_the_way_that_is_configured():
    """Law: the text stands as the model's own message, with no white space at its end, which some refuse; only without
    a prefill it is told what to do, by the very words."""
    _, prefilled = go_on(good(REST), "prefill", BEGUN + " \n")
    _, told = go_on(good(find_anchor(BEGUN) + REST), "anchor")

    last = prefilled.body["messages"][-1]
    assert last == {"role": "assistant", "content": BEGUN}
    assert prefilled.body["continue_final_message"] is True
    assert [m["role"] for m in told.body["messages"][-2:]] == ["assistant", "user"]
    assert find_anchor(BEGUN) in told.body["messages"][-1]["content"]
    assert "continue_final_message" not in told.body


@given(st.sets(st.sampled_from(["reasoning", "reasoning_effort", "thinking", "include_reasoning"])))
def test_a_prefill_asks_for_no_thoughts(wanted):
    """Law: no field that asks for thoughts goes beside a prefill, which Claude refuses with them; all others stay."""
    request = replace(ask(), begun=BEGUN, extra={**dict.fromkeys(wanted, "high"), "top_k": 3})

    assert set(ask_to_go_on(request, "prefill").extra) == {"top_k", "add_generation_prompt", "continue_final_message"}
    assert ask_to_go_on(request, "anchor").extra == request.extra
