"""Scripts from files, and how wrong ones are told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.types import Failed, Fault, TierState
from tests.support.tier_asking import answer, ask, text_of


def reason_of(script: Any) -> str:
    """Why this script makes its tier unavailable."""

    async def run() -> str:
        tier = ScriptedTier(name="fast", script=script)
        status = await tier.status()
        assert status.state is TierState.UNAVAILABLE
        events = await answer(tier, ask())
        assert [event.fault for event in events if isinstance(event, Failed)] == [Fault.UNAVAILABLE]
        return status.reason

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("key", "state", "fault"),
    [("unavailable", TierState.UNAVAILABLE, Fault.UNAVAILABLE), ("loading", TierState.LOADING, Fault.LOADING)],
)
def test_a_script_can_set_the_state_of_the_tier(tmp_path: Path, key: str, state: TierState, fault: Fault) -> None:
    """Law: a tier that its script calls unavailable or loading says so, and refuses every request alike."""
    path = tmp_path / "s.yaml"
    path.write_text(f"{key}: on its way\nrules: [{{answer: x}}]")

    async def run() -> None:
        tier = ScriptedTier(name="fast", script=path)
        status = await tier.status()
        assert (status.state, status.reason) == (state, "on its way")
        (event,) = await answer(tier, ask())
        assert isinstance(event, Failed)
        assert event.fault is fault

    asyncio.run(run())


def test_what_stands_in_a_file_may_stand_in_its_place(tmp_path: Path) -> None:
    """Law: a script given as an object answers as the file that holds the same."""
    script = {"draw_by": "order", "rules": [{"weight": 1, "answer": "one"}, {"weight": 1, "answer": "two"}]}
    path = tmp_path / "s.json"
    path.write_text(json.dumps(script), encoding="utf-8")

    async def said(source: Any) -> list[str]:
        tier = ScriptedTier(name="fast", script=source, seed=1)
        return [text_of(await answer(tier, ask())) for _ in range(20)]

    assert asyncio.run(said(script)) == asyncio.run(said(path))
    assert set(asyncio.run(said(script))) == {"one", "two"}


def test_jsonl_holds_a_rule_per_line(tmp_path: Path) -> None:
    """Law: a JSONL file is a list of rules; blank lines don't count, and line ends inside texts don't cut."""
    path = tmp_path / "s.jsonl"
    path.write_text('{"times": 1, "answer": "a\u2028b"}\n\n{"answer": {"status": 500}}\n', encoding="utf-8")

    async def run() -> None:
        tier = ScriptedTier(name="fast", script=path)
        assert text_of(await answer(tier, ask())) == "a\u2028b"
        assert isinstance((await answer(tier, ask()))[0], Failed)
        assert (await tier.status()).source == "s.jsonl"

    asyncio.run(run())


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
    ],
)
def test_a_wrong_script_says_where(rules: Any, words: list[str]) -> None:
    """Law: a wrong script makes the tier unavailable; the reason names the rule and the key."""
    reason = reason_of(rules)
    assert all(word in reason for word in words), reason


def test_a_script_file_that_is_none_says_why(tmp_path: Path) -> None:
    """Law: a file that is missing or can't be read is a reason with its name, without its folder."""
    files = {
        "bad.yaml": b"a: [",
        "bad.jsonl": b'{"answer": "x"}\n{',
        "text.yaml": b"hello",
        "bin.yaml": b"\xff\xfe\x00",
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    reasons = {name: reason_of(tmp_path / name) for name in [*files, "missing.yaml"]}
    assert all(str(tmp_path) not in reason for reason in reasons.values())
    assert "bad.yaml is not YAML at line 1" in reasons["bad.yaml"]
    assert "rule 2" in reasons["bad.jsonl"]
    assert "list of rules" in reasons["text.yaml"]
    assert "UTF-8" in reasons["bin.yaml"]
    assert "missing.yaml can't be read" in reasons["missing.yaml"]
    assert reason_of(str(tmp_path))
