"""Which models at OpenRouter are asked for a rest by a prefill where nothing is configured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.hosted_tier import HostedTier, preset
from deployments.tiers.hosted.prefill_habits import choose_continues

HOST = "openrouter.ai"
HONOURED = (
    "anthropic/claude-3-haiku",
    "anthropic/claude-3.5-sonnet-20240620",
    "anthropic/claude-3.7-sonnet",
    "anthropic/claude-opus-4",
    "anthropic/claude-sonnet-4-20250514",
    "anthropic/claude-opus-4.1",
    "anthropic/claude-haiku-4.5",
    "anthropic/claude-sonnet-4-5",
    "anthropic/claude-sonnet-4.5:nitro",
    "google/gemini-2.0-flash-001",
    "google/gemini-2.5-flash",
    "google/gemini-2.5-flash-lite",
)


@pytest.mark.parametrize("model", HONOURED)
def test_a_family_that_is_known_to_honour_it_is_prefilled(model):
    """Law: at OpenRouter, and nowhere else: another server may do with a last message what it likes."""
    assert choose_continues(HOST, model) == "prefill"
    assert choose_continues("localhost", model) == "anchor"
    assert choose_continues(f"{HOST}.example", model) == "anchor"
    assert choose_continues(None, model) == "anchor"


@pytest.mark.parametrize(
    "model",
    [
        "anthropic/claude-3.7-sonnet:thinking",
        "anthropic/claude-sonnet-4.5:thinking",
        "anthropic/claude-fable",
        "google/gemini-2.5-pro",
        "google/gemini-2.5-flash-image",
        "google/gemini-3.6-flash",
        "openai/gpt-4o",
        "mistralai/mistral-large",
        "deepseek/deepseek-chat-v3.1",
        "qwen/qwen3-coder",
        "meta-llama/llama-4-maverick",
        "openrouter/auto",
    ],
)
def test_a_family_that_is_not_known_gets_an_anchor(model):
    """Law: no evidence, no prefill; a model that thinks is none of its family."""
    assert choose_continues(HOST, model) == "anchor"


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
    known = {"name": "premium", "base_url": preset("openrouter").base_url, "model": "anthropic/claude-haiku-4.5"}

    assert HostedTier(**known).continues == "prefill"
    assert HostedTier(**known, continues="anchor").continues == "anchor"
    assert HostedTier(**{**known, "model": "qwen/qwen3-32b"}, continues="prefill").continues == "prefill"
