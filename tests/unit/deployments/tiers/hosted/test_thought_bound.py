"""The thought of a hosted answer is held to its budget, over real HTTP."""

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.tiers.hosted.continuing import ask_without_thought
from deployments.tiers.hosted.thought_bound import OVER_TOKENS, _find_closer
from deployments.tiers.stream_matchers import merge_events
from reliability.answer.thoughts import Thoughts
from reliability.thinking import ThoughtEnd
from reliability.types import Counted, Event, Failed, Fault, Finish, FinishReason, Logprobs, Reasoning, Text
from tests.support import plays, thinkers
from tests.support.plays import Play, Player, Seen
from tests.support.repeating_texts import paragraph
from tests.support.thinkers import ANSWER, CLOSE, OPEN, count_thought, is_off, is_prefilled, think, thinker, thought_of
from tests.support.tier_asking import answers, ask, failed, hosted_tier, text_of, usage_of

GRACE_TOKENS = 64
SLOW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def told(upstream, *players: Player, request=None, budget=None, **options) -> tuple[list[Event], list[Seen]]:
    """What the tier makes of it, with the thoughts in its text apart as they are for a client, and what was asked."""
    upstream.plays("m", *players)
    before = len(upstream.log)
    request = request or ask(max_tokens=100_000, thinking_tokens_max=budget)
    (events,), thoughts, out = answers(hosted_tier(upstream, **options), request), Thoughts(), list[Event]()
    for event in events[:-1]:
        out += thoughts.split(event)
    return [*merge_events([*out, *thoughts.end()]), events[-1]], upstream.log[before:]


def thought_in(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Reasoning))


def end_of(events: list[Event]) -> Finish:
    assert isinstance(events[-1], Finish), events[-1]
    return events[-1]


@SLOW
@given(st.integers(1, 1_000), st.booleans(), st.sampled_from(["prefill", "anchor"]), st.booleans())
def test_a_thought_without_end_is_answered_from(upstream, budget, tags, continues, streamed):
    """Law: an upstream that thinks without end is left within the budget and 64 tokens, and asked once more: behind its
    thought where that stands in the text and it takes a prefill, else with thinking off. The client gets the thought
    so far, once, and the answer."""
    request = ask(max_tokens=100_000, thinking_tokens_max=budget, streamed=streamed)
    thought = thought_of(budget + 500)
    events, seen = told(upstream, thinker(thought, tags=tags), request=request, continues=continues)

    shown = thought_in(events)
    assert budget <= count_thought(shown) <= budget + GRACE_TOKENS
    assert "".join(thought).startswith(shown.rstrip())
    assert text_of(events) == ANSWER
    assert end_of(events).thought is ThoughtEnd.BUDGET
    assert budget <= usage_of(events).reasoning_tokens <= budget + GRACE_TOKENS
    assert [each.left for each in seen] == [True, False]
    prefilled = tags and continues == "prefill"
    assert (is_prefilled(seen[1].body), is_off(seen[1].body)) == (prefilled, not prefilled)
    if prefilled:
        sent = seen[1].body["messages"][-1]["content"]
        assert sent == (OPEN + "".join(thought[: count_thought(shown)]) + CLOSE).rstrip()


@SLOW
@given(st.integers(1, 1_000), st.booleans(), st.data())
def test_a_thought_that_ends_within_its_budget_is_left_alone(upstream, budget, tags, data):
    """Law: it comes as it does without a budget, to the byte, and the upstream is asked once and read to its end."""
    tokens = data.draw(st.integers(1, budget + OVER_TOKENS - 1))
    play = think(thought_of(tokens), tags=tags)
    bound, seen = told(upstream, play, budget=budget)
    free, _ = told(upstream, play)

    def joined(events: list[Event]) -> list[Event]:
        return merge_events([event for event in events if not isinstance(event, Counted)])

    assert joined(bound) == joined(free)
    assert count_thought(thought_in(bound)) == tokens
    assert [each.ended for each in seen] == [True]
    assert end_of(bound).thought is None


@SLOW
@given(st.integers(4, 1_500), st.sampled_from([1, 3]), st.booleans(), st.sampled_from([None, 9_000]))
def test_a_thought_that_takes_all_tokens_is_answered_from(upstream, tokens_max, words, tags, budget):
    """Law: the answer is asked for without a thought, with the tokens that are left by the count here, a quarter of all
    at least; so it is for an upstream that takes more tokens for its words."""
    pieces = thought_of(tokens_max)
    thought = ["".join(pieces[at : at + words]) for at in range(0, len(pieces), words)]
    spent = (*think(thought, tags=tags, ends=False)[:-1], *plays.tail("length"))
    request = ask(max_tokens=tokens_max, thinking_tokens_max=budget)
    events, seen = told(upstream, spent, plays.good(ANSWER), request=request)

    assert (text_of(events), end_of(events).thought) == (ANSWER, ThoughtEnd.BUDGET)
    assert count_thought(thought_in(events)) == tokens_max
    assert [is_off(each.body) for each in seen] == [False, True]
    assert tokens_max // 4 <= seen[1].body["max_tokens"] < tokens_max


@pytest.mark.parametrize("tags", [False, True])
def test_an_answer_that_its_tokens_end_is_not_asked_for_again(upstream, tags):
    """Law: one that has begun, one of a single token, and one whose thought can't be closed, end as it does."""
    begun = (*think(thought_of(40), tags=tags)[:-3], *plays.tail("length"))
    single = (*think(thought_of(1), tags=tags, ends=False)[:-1], *plays.tail("length"))
    unknown = (plays.Head(headers=plays.SSE), *plays.words("<｜begin▁of▁thinking｜> So it is"), *plays.tail("length"))
    late = (*think(thought_of(95), tags=tags)[:-3], *plays.tail("length"))
    for play, tokens_max in ((begun, 100), (late, 100), (single, 1), (unknown, 100)):
        events, seen = told(upstream, play, request=ask(max_tokens=tokens_max))
        assert (end_of(events).reason, end_of(events).thought, len(seen)) == (FinishReason.LENGTH, None, 1)


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("budget", [None, 50_000])
def test_a_thought_that_circles_is_left(upstream, tags, budget):
    """Law: with a budget or without one, before it says the same for the 500th time; one that gets on isn't."""
    circle = [*thought_of(100), *(f"{word} " for word in ("Wait, let me think again. " * 1_000).split())]
    events, seen = told(upstream, thinker(circle, tags=tags), budget=budget)
    assert (text_of(events), end_of(events).thought) == (ANSWER, ThoughtEnd.CIRCLING)
    assert count_thought(thought_in(events)) < 2_000
    assert seen[0].left

    honest = [f"{word} " for word in paragraph(20_000, 2).split()]
    events, seen = told(upstream, think(honest, tags=tags), budget=budget)
    assert (text_of(events), end_of(events).thought, len(seen)) == (ANSWER, None, 1)


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("continues", ["prefill", "anchor"])
def test_an_upstream_that_thinks_too_long_again_has_no_answer(upstream, tags, continues):
    """Law: it is asked once more and no oftener; its answer ends without a word, and the client reads one thought."""
    play = thinker(thought_of(500), tags=tags, obeys=False)
    events, seen = told(upstream, play, budget=100, continues=continues)

    assert text_of(events).strip() == ""
    assert count_thought(thought_in(events)) <= 100 + GRACE_TOKENS
    assert (end_of(events).thought, len(seen)) == (ThoughtEnd.BUDGET, 2)
    assert usage_of(events).reasoning_tokens == 2 * (100 + OVER_TOKENS)


@pytest.mark.parametrize("tags", [False, True])
def test_a_second_thought_is_not_told(upstream, tags):
    """Law: an upstream that can't be kept from thinking, and ends its thought, has answered; the client has read the
    first thought and reads no other."""
    first, second = think(thought_of(500), tags=tags, ends=False), think(thought_of(9, 1_000), tags=tags)
    events, _ = told(upstream, first, second, budget=100)

    assert text_of(events) == ANSWER
    assert "w1000" not in thought_in(events)
    assert usage_of(events).reasoning_tokens == 100 + OVER_TOKENS + 9


def refuse_field(name: str, play: Play) -> Player:
    """A server that knows no such field."""
    return lambda seen: plays.status(400, f"Unrecognized field: {name}") if name in seen.body else play


def test_what_an_upstream_refuses_is_not_asked_of_it(upstream):
    """Law: a refused prefill and a refused field have generated nothing: it is asked in the next way, without them; a
    refusal of the last way, and any other fault, ends the attempt."""
    first, answers = think(thought_of(500), tags=True, ends=False), plays.good(ANSWER)
    plain = refuse_field("chat_template_kwargs", answers)
    events, seen = told(upstream, first, plays.status(400, "no"), plain, budget=100, continues="prefill")
    assert (text_of(events), [is_prefilled(each.body) for each in seen]) == (ANSWER, [False, True, False, False])
    assert ["chat_template_kwargs" in each.body for each in seen] == [False, False, True, False]

    events, seen = told(upstream, first, plays.status(400, "no"), budget=100)
    assert (failed(events).fault, len(seen)) == (Fault.REFUSED, 3)
    events, seen = told(upstream, first, plays.status(500, "no"), budget=100)
    assert (failed(events).fault, len(seen)) == (Fault.SERVER_ERROR, 2)


REASONED = [plays.Send(plays.chunk({"reasoning_content": token})) for token in thought_of(20, 500)]
NOTHING_MORE: dict[str, tuple[Player, int]] = {
    "the upstream is overloaded": (plays.status(429, "Rate limit reached"), 2),
    "it fails": (plays.status(500, "no"), 2),
    "it refuses": (plays.status(400, "Reasoning is mandatory for this endpoint and cannot be disabled."), 3),
    "it refuses an effort": (plays.status(400, "reasoning_effort: unknown variant `none`, expected `high`"), 4),
    "it says nothing": (plays.good(""), 2),
    "it says blanks": (plays.good(" \n "), 2),
    "it breaks off": ((plays.Head(headers=plays.SSE), plays.Abort()), 2),
    "it breaks off in a thought": ((plays.Head(headers=plays.SSE), *REASONED, plays.Abort()), 2),
    "it thinks to the end again": ((plays.Head(headers=plays.SSE), *REASONED, *plays.tail("length")), 2),
}


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("case", NOTHING_MORE)
def test_a_thought_that_took_all_tokens_ends_as_it_did_where_no_more_comes(upstream, tags, case):
    """Law: an answer that its tokens have ended is whole. If the second request brings nothing, the client gets the
    first with its own end, and what both have cost."""
    second, requests = NOTHING_MORE[case]
    first = (
        *think(thought_of(100), tags=tags, ends=False)[:-1],
        *plays.tail("length", usage=thinkers.usage_of(100, 100)),
    )
    request = ask(max_tokens=100, extra={"reasoning_effort": "high"})
    events, seen = told(upstream, first, *[second] * (requests - 1), request=request)

    assert (end_of(events).reason, end_of(events).thought) == (FinishReason.LENGTH, None)
    assert (text_of(events).strip(), count_thought(thought_in(events)), len(seen)) == ("", 100, requests)
    assert usage_of(events).completion_tokens >= 100


def test_an_answer_that_breaks_off_behind_its_first_words_has_failed(upstream):
    """Law: what the client has read of an answer isn't the end of the thought before it."""
    first = (*think(thought_of(100), tags=False, ends=False)[:-1], *plays.tail("length"))
    broken = (plays.Head(headers=plays.SSE), *plays.words("It is "), plays.Abort())
    events, _ = told(upstream, first, broken, request=ask(max_tokens=100))
    assert (text_of(events).strip(), failed(events).fault) == ("It is", Fault.CRASHED)


def test_both_requests_are_paid_for(upstream):
    """Law: what is reported is the cost of both: the upstream's own count where it gave one, else the tokens that came
    and the prompt of the answer."""
    events, seen = told(upstream, thinker(thought_of(500), tags=False), budget=100)
    usage, thought = usage_of(events), 100 + OVER_TOKENS

    assert (usage.prompt_tokens, usage.completion_tokens) == (2 * thinkers.PROMPT_TOKENS, thought + 4)
    assert (usage.reasoning_tokens, usage.exact) == (thought, False)
    assert seen[1].body["max_tokens"] == 100_000 - thought


def test_the_time_of_both_is_the_request_s(upstream):
    """Law: the answer has the time that the thought has left."""
    request = ask(max_tokens=9_000, thinking_tokens_max=10, timeout_s=1.0)
    head, *thought = think(thought_of(99), tags=False, ends=False)
    began_s = time.monotonic()
    events, seen = told(upstream, (head, plays.Wait(0.7), *thought), plays.hang(), request=request)

    assert time.monotonic() - began_s < 1.6
    assert (failed(events).fault, len(seen)) == (Fault.DEADLINE, 2)
    assert isinstance(events[-1], Failed)
    assert events[-1].usage.completion_tokens == 10 + OVER_TOKENS


def test_tokens_spell_the_text_with_its_closer(upstream):
    """Law: where the tokens of the text are asked for, the closer has one too."""
    request = ask(max_tokens=9_000, thinking_tokens_max=10, top_logprobs=0)
    events, _ = told(upstream, thinker(thought_of(99), tags=True), request=request)
    tokens = [token.raw.decode() for event in events if isinstance(event, Logprobs) for token in event.tokens]
    assert tokens == [CLOSE]


def test_thinking_is_switched_off_in_the_words_that_were_used(upstream):
    """Law: each field that asks for thoughts says that there are none, others stay; OpenRouter gets its own alone."""
    named = {"reasoning_effort": "high", "reasoning": {"effort": "high"}, "thinking": {"type": "enabled"}}
    request = ask(extra={**named, "top_k": 3, "chat_template_kwargs": {"tools_first": True}})

    off = ask_without_thought(request, switches=True)
    assert off.thinking is False
    assert off.extra == {
        "reasoning_effort": "none",
        "reasoning": {"effort": "none"},
        "thinking": {"type": "disabled"},
        "top_k": 3,
        "chat_template_kwargs": {"tools_first": True, "enable_thinking": False, "thinking": False},
    }
    assert set(ask_without_thought(request, named=False).extra) == {"top_k", "chat_template_kwargs"}
    request = ask(max_tokens=9_000, thinking_tokens_max=10, extra={"reasoning_effort": "low"})
    _, seen = told(upstream, thinker(thought_of(99), tags=False), request=request, openrouter=True)
    assert (seen[1].body["reasoning"], "reasoning_effort" in seen[1].body) == ({"enabled": False}, False)


CLOSERS = {
    "<think>": "</think>", "\n<thinking>\n": "</thinking>", "<seed:think>": "</seed:think>", "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷", "<|START_THINKING|>": "<|END_THINKING|>", "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|>", "<｜begin▁of▁thinking｜>": "", "So <think>": "",
}  # fmt: skip


@pytest.mark.parametrize(("opener", "closer"), CLOSERS.items())
def test_a_thought_is_closed_as_its_family_closes_it(upstream, opener, closer):
    """Law: by a mark that is read as its end; a thought whose end isn't known is never left."""
    assert _find_closer(f"{opener}I need it. ") == closer
    if closer:
        acts = [plays.Send(plays.chunk({"content": piece})) for piece in (opener, *thought_of(500))]
        first = (plays.Head(headers=plays.SSE), *acts, plays.Hang())
        events, _ = told(upstream, first, plays.good(ANSWER), budget=100, continues="prefill")
        assert text_of(events) == ANSWER
        assert 100 <= count_thought(thought_in(events)) <= 100 + GRACE_TOKENS


def test_an_answer_that_has_begun_is_never_left(upstream):
    """Law: what an upstream reasons behind its first words, or in a body that came whole, is over the budget and stays:
    the words stand before the client."""
    late = [plays.Send(plays.chunk({"reasoning_content": token})) for token in thought_of(500)]
    behind = (plays.Head(headers=plays.SSE), *plays.words("It is "), *late, *plays.words("21."), *plays.tail())
    for play in (behind, plays.plain_json("It is 21.", reasoning_content=" ".join(thought_of(500)))):
        events, seen = told(upstream, play, budget=100)
        assert (text_of(events).replace("  ", " "), end_of(events).thought, len(seen)) == ("It is 21.", None, 1)
        assert any(isinstance(event, Text) for event in events)
