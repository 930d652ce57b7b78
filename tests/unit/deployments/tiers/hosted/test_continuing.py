"""Another server is asked for the rest of an answer, over real HTTP."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.continuing import ask_to_go_on, choose_continues
from deployments.tiers.hosted.hosted_tier import OPENROUTER_URL, HostedTier
from reliability.answer.estimate import tokens_max, tokens_min
from reliability.answer.seam import find_anchor
from reliability.types import CallDelta, Event, Fault, Finish, Reasoning
from tests.support.plays import Player, Seen, good, tools
from tests.support.tier_asking import ask, exchange, failed, text_of

BEGUN = "First you open the valve on the left, and then you wait until the needle stands"
REST = " at two. At last you close it."


def go_on(player: Player, how: Any = "anchor", begun: str = BEGUN) -> tuple[list[Event], Seen]:
    """What the tier makes of this answer to a request for the rest, and what was asked."""
    (events,), log = exchange(player, ask(begun=begun), continues=how)
    return events, log[-1]


ANCHOR = find_anchor(BEGUN)
SAID = {"anchor": [ANCHOR + REST, f'"{ANCHOR}{REST}', BEGUN + REST], "prefill": [REST, BEGUN + REST]}


@pytest.mark.parametrize(("how", "said"), [(how, said) for how, each in SAID.items() for said in each])
def test_the_rest_is_joined_to_the_letter(how, said):
    """Law: the last words, all of them, or nothing before the rest: what leaves is the rest, without its reasoning."""
    events, _ = go_on(good(said, reasoning="They want the rest."), how)

    assert text_of(events) == REST
    assert isinstance(events[-1], Finish)
    assert not any(isinstance(event, Reasoning) for event in events)


@pytest.mark.parametrize("thought", ["<think>{}</think>", "<think>\n{}\n</think>\n\n", "[THINK]{}[/THINK]"])
@pytest.mark.parametrize(("how", "joins"), [("anchor", True), ("prefill", False)])
def test_a_thought_in_the_text_stands_before_the_rest(thought, how, joins):
    """Law: behind an anchor the thought of a new turn goes, in whatever pieces it comes, and the rest is joined; a
    prefill that is answered by a turn of its own isn't gone on with."""
    said = thought.format("They want the rest.") + ANCHOR + REST
    events, _ = go_on(good(said), how)

    assert (text_of(events), isinstance(events[-1], Finish)) == ((REST, True) if joins else ("", False))


@pytest.mark.parametrize("said", ["Sure! Here it is: at two.", "First you open the tap, and then", "I can't go on."])
def test_an_answer_about_the_answer_never_leaves(said):
    """Law: it ends in a fault that says so, and not a word of it leaves; its connection is closed."""
    events, _ = go_on(good(said))

    assert text_of(events) == ""
    assert failed(events).fault is Fault.SEAM
    assert "premium" in failed(events).message


def test_a_call_behind_the_text_needs_no_more_words():
    """Law: a model that has only its call left to make makes it: with an upstream that goes on at once, or behind a
    whole sentence; not with other words before it."""
    call = tools(("f", {"a": 1}))
    for how, begun in (("prefill", BEGUN), ("anchor", f"{BEGUN} at two."), ("anchor", f"{BEGUN} at two:\n\n")):
        events, _ = go_on(call, how, begun)

        assert any(isinstance(event, CallDelta) for event in events), (how, begun)
        assert isinstance(events[-1], Finish)
    for begun, said in ((BEGUN, ""), (f"{BEGUN} at two.", "Sure, one moment.")):
        events, _ = go_on(tools(("f", {"a": 1}), text=said), "anchor", begun)

        assert failed(events).fault is Fault.SEAM


def test_it_is_asked_in_the_way_that_is_configured():
    """Law: the text stands as the model's own message, with no white space at its end, which some refuse; only without
    a prefill it is told what to do, by the very words."""
    _, prefilled = go_on(good(REST), "prefill", BEGUN + " \n")
    _, told = go_on(good(ANCHOR + REST), "anchor")

    assert prefilled.body["messages"][-1] == {"role": "assistant", "content": BEGUN}
    assert prefilled.body["continue_final_message"] is True
    assert [m["role"] for m in told.body["messages"][-2:]] == ["assistant", "user"]
    assert ANCHOR in told.body["messages"][-1]["content"]
    assert "continue_final_message" not in told.body


CHINESE = "打开左边的阀门，等到指针指向二，然后再次打开盖子，让蒸汽慢慢地出来"


@pytest.mark.parametrize("left", [1, 40])
@pytest.mark.parametrize("begun", [BEGUN, "Otwórz zawór, a potem poczekaj", CHINESE])
def test_the_words_that_are_said_again_cost_the_client_nothing(begun, left):
    """Law: an anchor's tokens are asked for beside those that are left, about as many as it has; a prefill has none."""
    request, anchor_bytes = ask(begun=begun, max_tokens=left), len(find_anchor(begun).encode())

    assert ask_to_go_on(request, "prefill").max_tokens == left
    assert tokens_min(anchor_bytes) <= ask_to_go_on(request, "anchor").max_tokens - left <= tokens_max(anchor_bytes)


@given(st.sets(st.sampled_from(["reasoning", "reasoning_effort", "thinking", "include_reasoning"])))
def test_a_prefill_asks_for_no_thoughts(wanted):
    """Law: no field that asks for thoughts goes beside a prefill, which Claude refuses with them; all others stay."""
    request = ask(begun=BEGUN, extra={**dict.fromkeys(wanted, "high"), "top_k": 3})

    assert set(ask_to_go_on(request, "prefill").extra) == {"top_k", "add_generation_prompt", "continue_final_message"}
    assert ask_to_go_on(request, "anchor").extra == request.extra


HOST = "openrouter.ai"
HONOURED = """
    anthropic/claude-3-haiku    anthropic/claude-3.5-sonnet-20240620      anthropic/claude-3.7-sonnet
    anthropic/claude-opus-4     anthropic/claude-sonnet-4-20250514        anthropic/claude-opus-4.1
    anthropic/claude-haiku-4.5  anthropic/claude-sonnet-4-5               anthropic/claude-sonnet-4.5:nitro
    google/gemini-2.0-flash-001 google/gemini-2.5-flash                   google/gemini-2.5-flash-lite
"""
UNKNOWN = """
    anthropic/claude-3.7-sonnet:thinking  anthropic/claude-sonnet-4.5:thinking  anthropic/claude-fable
    google/gemini-2.5-pro                 google/gemini-2.5-flash-image         google/gemini-3.6-flash
    openai/gpt-4o                         mistralai/mistral-large               deepseek/deepseek-chat-v3.1
    qwen/qwen3-coder                      meta-llama/llama-4-maverick           openrouter/auto
"""


@pytest.mark.parametrize("model", [*HONOURED.split(), *UNKNOWN.split()])
def test_a_family_that_is_known_to_honour_it_is_prefilled(model):
    """Law: at OpenRouter, and nowhere else: another server may do with a last message what it likes. No evidence, no
    prefill; a model that thinks is none of its family."""
    assert choose_continues(HOST, model) == ("prefill" if model in HONOURED.split() else "anchor")
    assert {choose_continues(host, model) for host in ("localhost", f"{HOST}.example", None)} == {"anchor"}


@given(
    st.sampled_from(["opus", "sonnet", "haiku"]),
    st.tuples(st.integers(4, 12), st.integers(0, 40)).filter(lambda version: version >= (4, 6)),
    st.sampled_from(".-"),
    st.sampled_from(["", "-20260205", ":free", ":thinking"]),
)
def test_claude_from_4_6_on_is_never_prefilled(name, version, between, end):
    """Law: it answers 400 to a prefill, in whatever way its version is written."""
    model = f"anthropic/claude-{name}-{between.join(map(str, version))}{end}"

    assert choose_continues(HOST, model) == "anchor"


@given(st.text(max_size=40))
def test_no_name_is_taken_for_one_of_the_table_by_its_middle(text):
    """Law: a name is compared whole, so what stands before or behind a known one makes it another."""
    assert choose_continues(HOST, f"{text}/anthropic/claude-3.5-sonnet") == "anchor"
    assert choose_continues(HOST, f"anthropic/claude-sonnet-4.5 {text}") == "anchor"


def test_what_is_configured_wins():
    """Law: a person knows more than the table, in both directions; the table speaks where nothing is set."""
    known = {"name": "premium", "base_url": OPENROUTER_URL, "model": "anthropic/claude-haiku-4.5"}

    assert HostedTier(**known).continues == "prefill"
    assert HostedTier(**known, continues="anchor").continues == "anchor"
    assert HostedTier(**{**known, "model": "qwen/qwen3-32b"}, continues="prefill").continues == "prefill"
