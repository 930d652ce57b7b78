"""What a script may ask for at most: a stand-in for a broken tier, but none that breaks the server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.scripted.player import Facts, Player, _ScriptEvent, _split_tokens
from deployments.tiers.scripted.script import load_script
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.types import CallDelta, ChatRequest, Failed, Fault, Text, TierState
from tests.support.tier_asking import answer, answers, ask, text_of

INF, NAN = float("inf"), float("nan")


def reason_of(script: Any) -> str:
    tier = ScriptedTier(name="fast", script=script)
    status = asyncio.run(tier.status())
    assert status.state is TierState.UNAVAILABLE
    (event,) = answers(tier, ask())[0]
    assert event.fault is Fault.UNAVAILABLE
    return status.reason


@pytest.mark.parametrize(
    ("key", "state", "fault"),
    [("unavailable", TierState.UNAVAILABLE, Fault.UNAVAILABLE), ("loading", TierState.LOADING, Fault.LOADING)],
)
async def test_a_script_can_set_the_state_of_the_tier(tmp_path: Path, key: str, state: TierState, fault: Fault) -> None:
    """Law: a tier that its script calls unavailable or loading says so, and refuses every request alike."""
    path = tmp_path / "s.yaml"
    path.write_text(f"{key}: on its way\nrules: [{{answer: x}}]")
    tier = ScriptedTier(name="fast", script=path)
    status = await tier.status()
    assert (status.state, status.reason) == (state, "on its way")
    (event,) = await answer(tier, ask())
    assert event.fault is fault


def test_what_stands_in_a_file_may_stand_in_its_place(tmp_path: Path) -> None:
    """Law: a script given as an object answers as the file that holds the same; with `draw_by: order` equal requests
    get different answers, the same ones in every run."""
    script = {"draw_by": "order", "rules": [{"weight": 1, "answer": "one"}, {"weight": 1, "answer": "two"}]}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    first, second = (answers(ScriptedTier(name="fast", script=one, seed=1), *[ask()] * 20) for one in (script, path))
    assert first == second
    assert {text_of(events) for events in first} == {"one", "two"}


async def test_jsonl_holds_a_rule_per_line(tmp_path: Path) -> None:
    """Law: a JSONL file is a list of rules; blank lines don't count, and line ends inside texts don't cut."""
    path = tmp_path / "s.jsonl"
    path.write_text('{"times": 1, "answer": "a\u2028b"}\n\n{"answer": {"status": 500}}\n', encoding="utf-8")
    tier = ScriptedTier(name="fast", script=path)
    assert text_of(await answer(tier, ask())) == "a\u2028b"
    assert isinstance((await answer(tier, ask()))[0], Failed)
    assert (await tier.status()).source == "s.jsonl"


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([{"answer": "x"}, {"anwser": "x"}], ["rule 2", "anwser", "unknown key", "answer"]),
        ([{"answer": [{"text": "a"}, {"txt": "b"}]}], ["rule 1", "answer.2.txt", "unknown key", "text"]),
        ([{"answer": [{"tool_call": {"nmae": "f"}}]}], ["rule 1", "tool_call.nmae", "allowed: arguments, id, name"]),
        ([{"answer": "x", "when": {"lastuser": "x"}}], ["rule 1", "when.lastuser", "last_user"]),
        ([{"answer": "x", "when": {"last_user": {"regex": "("}}}], ["rule 1", "when.last_user.regex"]),
        ([{"answer": "x", "times": 0}], ["rule 1", "times"]),
        ([{"answer": "x", "weight": -1}], ["rule 1", "weight"]),
        ([{"answer": "{{nobody}}"}], ["rule 1", "{{nobody}}", "last_user"]),
        ([{"answer": [{"text": "a", "cut": True}]}], ["rule 1", "exactly one of", "text and cut"]),
        ([{"answer": [{"delay_s": 1}]}], ["rule 1", "exactly one of"]),
        ([{"answer": [{"cut": True, "retry_after_s": 1}]}], ["rule 1", "retry_after_s"]),
        ([{"answer": [{"tool_call": {"name": "f", "arguments": 3}}]}], ["rule 1", "arguments"]),
        ([{"answer": "x", "finish": "done"}], ["rule 1", "finish"]),
        ([3], ["rule 1"]),
        *(([{"weight": value, "answer": "x"}], ["rule 1: weight: "]) for value in (INF, NAN, 0, 1e300)),
        *(
            ([{"answer": {act: of, "retry_after_s": value}}], ["rule 1: answer.1.retry_after_s: "])
            for act, of in (("status", 429), ("fault", "overloaded"))
            for value in (INF, NAN, -1, 86401)
        ),
    ],
)
def test_a_wrong_script_says_where(rules: Any, words: list[str]) -> None:
    """Law: a wrong script makes the tier unavailable; the reason names the rule and the key."""
    reason = reason_of(rules)
    assert all(word in reason for word in words), reason


def test_a_day_may_be_waited() -> None:
    """Law: `retry_after_s` has the bound of a real tier's header."""
    assert load_script([{"answer": {"status": 429, "retry_after_s": 86400}}]).rules[0].answer[0].retry_after_s == 86400


def test_a_script_file_that_is_none_says_why(tmp_path: Path) -> None:
    """Law: a file that is missing, can't be read or holds a key twice is a reason with its name, without its folder."""
    for name, data, words in (
        ("bad.yaml", b"a: [", "bad.yaml is not YAML: line 1, column 5: "),
        (
            "twice.yaml",
            b"rules: []\ndraw_by: order\ndraw_by: content",
            "twice.yaml is not YAML: line 3, column 1: this key",
        ),
        ("date.yaml", b"rules: [{answer: 2026-02-30}]", "date.yaml is not YAML: day is out of range"),
        ("deep.yaml", b"[" * 4_000, "deep.yaml is not YAML"),
        ("deep.jsonl", b"[" * 100_000, "rule 1: not JSON"),
        ("bad.jsonl", b'{"answer": "x"}\n{', "rule 2"),
        ("text.yaml", b"hello", "list of rules"),
        ("bin.yaml", b"\xff\xfe\x00", "UTF-8"),
        ("missing.yaml", None, "missing.yaml can't be read"),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        reason = reason_of(tmp_path / name)
        assert words in reason
        assert str(tmp_path) not in reason
    assert reason_of(str(tmp_path))


def plan(rule: dict[str, Any], request: ChatRequest | None = None, **options: Any) -> list[_ScriptEvent]:
    script = load_script({"rules": [rule], **options})
    return list(Player(script, script.rules[0], Facts(request or ask(), "fast")).play())


@given(st.text(), st.integers(1, 9))
def test_chunks_are_the_text(text: str, size: int) -> None:
    """Law: however a text is cut into tokens or chunks, joined it is the same text; chunks have the size asked for."""
    assert "".join(_split_tokens(text)) == text
    for unit in ("chunk_tokens", "chunk_chars"):
        found = plan({"answer": [{"raw": text}], unit: size}, ask(max_tokens=10**6))
        pieces = [event.text for script_event in found for event in script_event.events if isinstance(event, Text)]
        assert "".join(pieces) == text
        sizes = [len(piece) if unit == "chunk_chars" else len(_split_tokens(piece)) for piece in pieces[:-1]]
        assert unit == "chunk_tokens" or all(found == size for found in sizes)
        assert unit == "chunk_chars" or len(pieces) == -(-len(_split_tokens(text)) // size)


def test_delays_stand_where_they_belong() -> None:
    """Law: the start delay before Started, a step's delay before its first chunk, a token's delay per token."""
    rule = {
        "start_delay_s": 7,
        "token_delay_s": 0.5,
        "chunk_tokens": 2,
        "answer": [{"text": "a b c d", "delay_s": 3}, {"text": "e f", "token_delay_s": 0, "chunk_tokens": 1}],
    }
    broken = {"start_delay_s": 2, "answer": {"status": 500, "delay_s": 1}}
    silent = {"answer": [{"text": "", "delay_s": 2}]}
    assert [one.delay_s for one in plan(rule)] == [7, 4, 1, 0, 0, 0]
    assert [one.delay_s for one in plan(broken)] == [3]
    assert sum(one.delay_s for one in plan(silent)) == 2


def test_the_nearest_pace_wins() -> None:
    """Law: a step's pace goes before its rule's, that before the script's; characters and tokens don't mix."""
    rule = {"chunk_tokens": 2, "answer": [{"raw": "a b c"}, {"raw": "de", "chunk_chars": 1}]}
    found = plan(rule, chunk_chars=1, token_delay_s=1)[1:-1]
    assert [event for one in found for event in one.events] == [Text("a b"), Text(" c"), Text("d"), Text("e")]
    assert [one.delay_s for one in found] == [2, 1, 0.5, 0.5]


def test_calls_stream_as_pieces() -> None:
    """Law: a call leaves as openai streams it: id and name once, then its arguments."""
    found = plan({"answer": [{"tool_call": {"name": "f", "arguments": "{}"}}]})
    deltas = [event for one in found for event in one.events if isinstance(event, CallDelta)]
    assert [(delta.name, delta.arguments) for delta in deltas] == [("f", ""), (None, "{"), (None, "}")]
