"""The tier kind `scripted`: what each key of a script does, and determinism."""

import asyncio
import json
import random
import time
from collections import Counter
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, translate_complaint
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.types import Event, Fault, Finish, FinishReason, Reasoning, Started, Text, TierState, Usage
from tests.support.repository import ROOT
from tests.support.tier_asking import WEATHER_TOOL, answer, answers, ask, calls_of, eventually, text_of, usage_of

Rules = list[dict[str, Any]]


def tier_of(rules: Rules, **options: Any) -> ScriptedTier:
    return ScriptedTier(name="fast", script=rules, **options)


def said(rules: Rules, *requests: Any, **options: Any) -> list[list[Event]]:
    return answers(tier_of(rules, **options), *(requests or (ask(),)))


def talk(*messages: tuple[str, str], **fields: Any) -> Any:
    return ask(messages=tuple({"role": role, "content": content} for role, content in messages), **fields)


async def test_the_example_of_the_manual_works(tmp_path: Path) -> None:
    """Law: the script in docs/scripted.md is one, and does what its comments say."""
    path = tmp_path / "example.yaml"
    path.write_text((ROOT / "docs/scripted.md").read_text(encoding="utf-8").split("```")[1].removeprefix("text"))
    tier = ScriptedTier(name="fast", script=path)
    assert (await tier.status()).state is TierState.READY
    weather = await answer(tier, ask("the weather?", tools=(WEATHER_TOOL,)))
    assert [call[1:] for call in calls_of(weather)] == [("get_weather", '{"city": "Paris"}')]
    result = talk(("user", "the weather?"), ("assistant", ""), ("tool", "21 C"))
    assert text_of(await answer(tier, result)) == "It is 21 C."
    for _ in range(2):
        (limited,) = await answer(tier, ask())
        assert (limited.fault, limited.retry_after_s) == (Fault.OVERLOADED, 3.0)
    assert isinstance((await answer(tier, ask()))[0], Started)


def test_without_a_fitting_rule_the_tier_echoes() -> None:
    """Law: nothing to say is said clearly, in place of an empty answer."""
    (events,) = said([{"when": {"last_user": "never"}, "answer": "x"}], ask("Hi!"))
    assert text_of(events) == "[fast] You said: Hi!"


FITS: list[dict[str, Any]] = [
    {}, {"last_user": "second"}, {"last_user": {"regex": "^s.*d$"}}, {"transcript": "first"}, {"transcript": "be kind"},
    {"tool_result": "42"}, {"tool_result": {"contains": ""}}, {"turn": 3}, {"has_tools": True}, {"tier": "fast"},
]  # fmt: skip
FITS_NOT: list[dict[str, Any]] = [
    {"last_user": "first"}, {"last_user": {"contains": "second", "regex": "x"}}, {"tool_result": "43"}, {"turn": 2},
    {"has_tools": False}, {"tier": "slow"}, {"turn": 3, "last_user": "second", "has_tools": False},
]  # fmt: skip


@pytest.mark.parametrize(("when", "said_then"), [*((one, "yes") for one in FITS), *((one, "no") for one in FITS_NOT)])
def test_each_condition_decides(when: dict[str, Any], said_then: str) -> None:
    """Law: a rule answers exactly where all its conditions hold."""
    before = ("system", "be kind"), ("user", "first"), ("assistant", "a"), ("user", "second"), ("assistant", "")
    request = talk(*before, ("tool", "42"), tools=(WEATHER_TOOL,))
    (events,) = said([{"when": when, "answer": "yes"}, {"answer": "no"}], request)
    assert text_of(events) == said_then


def test_a_tool_result_counts_only_as_the_last_message() -> None:
    """Law: once somebody else has spoken, a tool's result is no longer what is answered."""
    rules: Rules = [{"when": {"tool_result": {"contains": ""}}, "answer": "yes"}, {"answer": "no"}]
    (events,) = said(rules, talk(("tool", "42"), ("user", "and now?")))
    assert text_of(events) == "no"


def test_variables_are_filled_and_raw_is_not() -> None:
    """Law: text, reasoning and objects of arguments are filled in; raw text and raw arguments leave verbatim."""
    raw = '{"city": {{last_user}}'
    steps = [
        {"reasoning": "{{tier}}:{{turn}}"},
        {"text": "<{{last_user}}>"},
        {"raw": "{{last_user}}"},
        {"tool_call": {"name": "f", "arguments": {"q": ["{{last_user}}"]}}},
        {"tool_call": {"name": "g", "arguments": raw, "id": "mine"}},
    ]
    (events,) = said([{"answer": steps}], ask('"Grüße"'))
    assert "".join(event.text for event in events if isinstance(event, Reasoning)) == "fast:1"
    assert text_of(events) == '<"Grüße">{{last_user}}'
    first, second = calls_of(events)
    assert json.loads(first[2]) == {"q": ['"Grüße"']}
    assert second == ("mine", "g", raw)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 429, 500, 502, 503, 504, 529])
def test_a_status_is_the_same_fault_as_from_a_hosted_tier(status: int) -> None:
    """Law: one table says what a status means, whoever says it."""
    ((refused,),) = said([{"answer": {"status": status, "retry_after_s": 2, "message": "no", "param": "x"}}])
    hosted = translate_complaint("fast", UpstreamComplaint(message="no"), status=status, retry_after_s=2)
    assert (refused.fault, refused.message) == (hosted.fault, hosted.message)
    assert (refused.status, refused.retry_after_s, refused.param) == (status, 2, "x")


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ({"cut": True}, Fault.CRASHED),
        ({"unavailable": "no model"}, Fault.UNAVAILABLE),
        ({"loading": True}, Fault.LOADING),
        ({"loading": "half of it"}, Fault.LOADING),
        ({"fault": "protocol"}, Fault.PROTOCOL),
        ({"fault": "connect_timeout"}, Fault.CONNECT_TIMEOUT),
        ({"status": 400, "code": "context_length_exceeded"}, Fault.CONTEXT_LENGTH),
    ],
)
def test_a_fault_comes_alone_or_behind_what_was_said(step: dict[str, Any], fault: Fault) -> None:
    """Law: as the first step a fault stands alone; as a later one, what was said before it stays, with its usage."""
    alone, behind = said([{"times": 1, "answer": step}, {"answer": [{"text": "so far"}, step]}], ask(), ask())
    assert [event.fault for event in alone] == [fault]
    assert (behind[0], text_of(behind)) == (Started(), "so far")
    assert (behind[-1].fault, behind[-1].usage.completion_tokens) == (fault, 2)


@pytest.mark.parametrize("after", [0, 1, 3, 100])
def test_a_cut_comes_after_so_many_tokens(after: int) -> None:
    """Law: `cut_after_tokens` counts over all steps, and such an answer never finishes well."""
    steps = [{"text": "a b"}, {"tool_call": {"name": "f", "arguments": {}}}]
    (events,) = said([{"cut_after_tokens": after, "answer": steps}])
    assert (events[-1].fault, events[-1].usage.completion_tokens) == (Fault.CRASHED, min(after, 5))


def test_max_tokens_and_stop_end_an_answer() -> None:
    """Law: the cap ends in `length`, also inside a call; a stop sequence ends in `stop`, is named and is not shown."""
    steps = [{"text": "a b c"}, {"tool_call": {"name": "f", "arguments": {"x": 1}}}]
    for cap in range(1, 9):
        (events,) = said([{"answer": steps}], ask(max_tokens=cap))
        assert events[-1].reason is FinishReason.LENGTH
        assert usage_of(events).completion_tokens == cap
    (events,) = said([{"answer": "one. two. three."}], ask(stop=("!", "three", "two")))
    assert text_of(events) == "one. "
    assert (events[-1].reason, events[-1].stop) == (FinishReason.STOP, "two")


def test_finish_and_usage_can_be_told() -> None:
    """Law: finish reason and counts are the real ones, unless the script says otherwise."""
    counts: dict[str, Any] = {"prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 3, "reasoning_tokens": 4}
    lying, silent, honest = said(
        [
            {"times": 1, "answer": "x", "finish": "tool_calls", "usage": counts},
            {"times": 1, "answer": [], "no_usage": True, "finish": "content_filter"},
            {"answer": [{"reasoning": "a b"}, {"tool_call": {"name": "f"}}]},
        ],
        *[ask("12345678")] * 3,
    )
    assert lying[-1] == Finish(reason=FinishReason.TOOL_CALLS, usage=Usage(**counts), model="scripted/fast")
    assert silent == [Started(), Finish(reason=FinishReason.CONTENT_FILTER, model="scripted/fast")]
    assert usage_of(honest) == Usage(prompt_tokens=2, completion_tokens=5, reasoning_tokens=2)
    assert honest[-1].reason is FinishReason.TOOL_CALLS


WEIGHED: Rules = [{"weight": 3, "answer": "a"}, {"weight": 1, "answer": "b"}, {"answer": "never"}]


def test_a_draw_depends_on_seed_and_content_only() -> None:
    """Law: the same content gets the same answer, whatever the request's id and order; weights are kept."""
    requests = [ask(f"question {number}", request_id=f"r-{number}") for number in range(400)]
    order = list(range(400))
    random.Random(1).shuffle(order)
    straight = [text_of(events) for events in said(WEIGHED, *requests)]
    shuffled = [text_of(events) for events in said(WEIGHED, *[requests[i] for i in order])]
    renamed = [ask(f"question {number}", request_id="other", session_id="x") for number in range(400)]
    assert shuffled == [straight[i] for i in order]
    assert [text_of(events) for events in said(WEIGHED, *renamed)] == straight
    assert [text_of(events) for events in said(WEIGHED, *requests, seed=1)] != straight
    counts = Counter(straight)
    assert set(counts) == {"a", "b"}
    assert 250 < counts["a"] < 350


def test_ids_of_calls_are_the_same_for_the_same_content() -> None:
    """Law: ids of calls are made from the content, and differ within an answer and between contents."""
    rules: Rules = [{"answer": [{"tool_call": {"name": "f"}}, {"tool_call": {"name": "g"}}]}]
    answered = said(rules, ask("a", request_id="1"), ask("a", request_id="2"), ask("b"))
    ids = [[call[0] for call in calls_of(events)] for events in answered]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 4


async def test_silence_lasts_until_the_reader_leaves() -> None:
    """Law: a silent stream sends nothing more and counts as active until it is closed or cancelled."""
    tier = tier_of([{"answer": [{"text": "so"}, {"silence": True}]}])
    stream: Any = tier.stream(ask())
    async with aclosing(stream):
        assert await anext(stream) == [Started()]
        assert await anext(stream) == [Text("so")]
        assert tier.active == 1
        task = asyncio.create_task(anext(stream))
        other = asyncio.create_task(answer(tier, ask()))
        await eventually(lambda: tier.active == 2)
        assert not task.done()
        assert not other.done()
        task.cancel()
        other.cancel()
        await asyncio.wait({task, other})
    assert tier.active == 0


def test_a_prompt_over_the_context_is_refused() -> None:
    """Law: a tier with a known context says CONTEXT_LENGTH before it starts."""
    fits, too_long = said([{"answer": "x"}], ask("1234" * 15), ask("1234" * 16), context_tokens=16)
    assert isinstance(fits[-1], Finish)
    assert [event.fault for event in too_long] == [Fault.CONTEXT_LENGTH]


async def test_a_long_answer_does_not_hold_the_loop() -> None:
    """Law: without any delays, other tasks still run while a long answer is played, and it can be cancelled."""
    tier = tier_of([{"answer": "word " * 20000}])
    task = asyncio.create_task(answer(tier, ask(max_tokens=10**6)))
    await eventually(lambda: tier.active == 1)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert tier.active == 0


def test_real_delays_are_waited_for() -> None:
    """Law: what the plan says is waited, the tier waits."""
    began = time.monotonic()
    (events,) = said([{"token_delay_s": 0.02, "answer": "a b c d"}])
    assert time.monotonic() - began >= 0.08
    assert text_of(events) == "a b c d"
