"""How a rule of a script is played: its chunks, its delays and its pieces, without waiting for them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.scripted.player import Facts, ScriptEvent, play_rule, tokens_of
from deployments.tiers.scripted.script import Rule, Script, ScriptStep, load_script
from reliability.types import CallDelta, ChatRequest, Text
from tests.support.tier_asking import ask


def plan(rule: dict[str, Any], request: ChatRequest | None = None) -> list[ScriptEvent]:
    """The script events of one rule, without waiting for them."""
    script = load_script([rule])
    return list(play_rule(script, script.rules[0], Facts(request or ask(), "fast")))


@given(st.text(), st.integers(1, 9))
def test_chunks_are_the_text(text: str, size: int) -> None:
    """Law: however a text is cut into tokens or chunks, joined it is the same text; chunks have the size asked for."""
    assert "".join(tokens_of(text)) == text
    for unit in ("chunk_tokens", "chunk_chars"):
        found = plan({"answer": [{"raw": text}], unit: size}, ask(max_tokens=10**6))
        pieces = [event.text for script_event in found for event in script_event.events if isinstance(event, Text)]
        assert "".join(pieces) == text
        sizes = [len(piece) if unit == "chunk_chars" else len(tokens_of(piece)) for piece in pieces[:-1]]
        assert unit == "chunk_tokens" or all(found == size for found in sizes)
        assert unit == "chunk_chars" or len(pieces) == -(-len(tokens_of(text)) // size)


def test_delays_stand_where_they_belong() -> None:
    """Law: the start delay before Started, a step's delay before its first chunk, a token's delay per token."""
    rule = {
        "start_delay_s": 7,
        "token_delay_s": 0.5,
        "chunk_tokens": 2,
        "answer": [{"text": "a b c d", "delay_s": 3}, {"text": "e f", "token_delay_s": 0, "chunk_tokens": 1}],
    }
    assert [script_event.delay_s for script_event in plan(rule)] == [7, 4, 1, 0, 0, 0]
    assert [
        script_event.delay_s for script_event in plan({"start_delay_s": 2, "answer": {"status": 500, "delay_s": 1}})
    ] == [3]
    assert sum(script_event.delay_s for script_event in plan({"answer": [{"text": "", "delay_s": 2}]})) == 2


def test_the_nearest_pace_wins() -> None:
    """Law: a step's pace goes before its rule's, that before the script's; characters and tokens don't mix."""
    script = Script(
        chunk_chars=1,
        token_delay_s=1,
        rules=[Rule(chunk_tokens=2, answer=[ScriptStep(raw="a b c"), ScriptStep(raw="de", chunk_chars=1)])],
    )
    found = list(play_rule(script, script.rules[0], Facts(ask(), "fast")))
    assert [event for script_event in found[1:-1] for event in script_event.events] == [
        Text("a b"),
        Text(" c"),
        Text("d"),
        Text("e"),
    ]
    assert [script_event.delay_s for script_event in found[1:-1]] == [2, 1, 0.5, 0.5]


def test_calls_stream_as_pieces() -> None:
    """Law: a call leaves as openai streams it: id and name once, then its arguments."""
    found = [
        event
        for script_event in plan({"answer": [{"tool_call": {"name": "f", "arguments": "{}"}}]})
        for event in script_event.events
    ]
    deltas = [event for event in found if isinstance(event, CallDelta)]
    assert [(delta.name, delta.arguments) for delta in deltas] == [("f", ""), (None, "{"), (None, "}")]
