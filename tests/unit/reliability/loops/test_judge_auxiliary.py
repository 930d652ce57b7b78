"""The auxiliary judge: what is counted, what it is shown, what the model is told."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reliability import loops
from reliability.loops import JudgeConfig, Kind, Loop, SeenCall, StuckCase, Turn, find_case, injection, judge_request
from reliability.loops.judge import Trouble

ON = JudgeConfig(enabled=True)
law = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def turn(tool: str, number: int = 0, result: str | None = "ok") -> Turn:
    return Turn((SeenCall(tool, json.dumps({"n": number})),), (None if result is None else result,))


@law
@given(st.lists(st.sampled_from(["read", "write"]), max_size=25))
def test_a_case_counts_the_streak_of_the_newest_tool(tools: list[str]) -> None:
    """There is a case exactly when the newest tool was called 5, 10, 15 … times in a row."""
    case = find_case(tuple(turn(tool, i, f"r{i}") for i, tool in enumerate(tools)), ON)
    streak = 0
    for tool in reversed(tools):
        if tool != tools[-1]:
            break
        streak += 1
    expected = StuckCase(Trouble.CONSECUTIVE, tools[-1], streak) if streak and streak % 5 == 0 else None
    assert case == expected


@law
@given(st.integers(1, 12), st.integers(0, 12))
def test_failures_count_apart(good: int, bad: int) -> None:
    """Failures in a row are counted by themselves and come first; a success starts them anew."""
    turns = tuple(turn("read", i) for i in range(good)) + tuple(turn("read", i, '{"error": "no"}') for i in range(bad))
    case = find_case(turns, JudgeConfig(enabled=True, consecutive_threshold=0))
    assert case == (StuckCase(Trouble.FAILURES, "read", bad) if bad and bad % 5 == 0 else None)


def test_another_tool_resets_both_counters() -> None:
    """Nine calls with another tool in the middle are no case; the batch that mixes tools is another tool."""
    nine = [turn("read", i, "error: no") for i in range(9)]
    assert find_case((*nine[:4], turn("look"), *nine[5:]), ON) is None
    mixed = Turn((SeenCall("read"), SeenCall("look")), ("error", "error"))
    assert find_case((*nine[:4], mixed, *nine[5:]), ON) is None


def test_no_case_without_need() -> None:
    """Disabled, convicted by a rule, switched off by 0, or without any call, there is no case."""
    five = tuple(turn("read", i, "error: no") for i in range(5))
    assert find_case(five, ON) == StuckCase(Trouble.FAILURES, "read", 5)
    assert find_case(five, JudgeConfig()) is None
    assert find_case(five, ON, Loop(kind=Kind.CALLS, stage=loops.Stage.WARN, repetitions=3)) is None
    assert find_case(five, JudgeConfig(enabled=True, consecutive_threshold=0, failure_threshold=-1)) is None
    assert find_case((Turn(text="hello"),), ON) is None
    assert find_case((), ON) is None
    assert find_case((Turn((SeenCall("read"),), ()),) * 5, ON) == StuckCase(Trouble.CONSECUTIVE, "read", 5)


def test_texts_between_calls_do_not_reset() -> None:
    """What the model says between its calls changes no counter."""
    turns = tuple(t for i in range(5) for t in (turn("read", i), Turn(text="Hm.")))
    assert find_case(turns, ON) == StuckCase(Trouble.CONSECUTIVE, "read", 5)


def test_the_judge_is_shown_the_evidence_and_never_judged() -> None:
    """Task, tool, count, arguments and results are shown, all cut."""
    turns = tuple(turn("read", i, "x" * 9_000 if i else None) for i in range(30))
    config = JudgeConfig(enabled=True, judge_tier="premium", timeout_s=7)
    request = judge_request(StuckCase(Trouble.CONSECUTIVE, "read", 30), turns, "Find the bug. " * 900, config)
    shown = request.messages[-1]["content"]
    assert "`read` was called 30 times in a row" in shown
    assert '"n": 29' in shown
    assert '"n": 2}' not in shown
    assert len(shown) < 9_000
    assert (request.tier, request.timeout_s) == ("premium", 7)
    failing = judge_request(StuckCase(Trouble.FAILURES, "read", 1), turns[:1], None, config)
    assert "failed 1 times" in failing.messages[-1]["content"]
    assert "(not known)" in failing.messages[-1]["content"]


@pytest.mark.parametrize(("response", "expected"), [
    ("Try grep.", "Try grep."),
    ({"choices": [{"message": {"content": "Try grep."}}]}, "Try grep."),
    ({"content": [{"type": "text", "text": "Try grep."}]}, "Try grep."),
    ({"content": "", "reasoning_content": "Try grep."}, "Try grep."),
    ({"content": None, "reasoning": "Try grep."}, "Try grep."),
    ({"content": "<think>hm</think> Try grep."}, "Try grep."),
    ({"content": "<think>never ends", "reasoning_content": "Try grep."}, "Try grep."),
    ({"content": "<think>never ends"}, ""), ({"choices": []}, ""), ({"choices": [None]}, ""), ({}, ""), (None, ""),
])  # fmt: skip
def test_the_answer_is_read_from_where_it_stands(response: Any, expected: str) -> None:
    """`content` first, then the reasoning fields; thinking tags and empty answers are nothing."""
    assert loops.read_suggestion(response) == expected


def test_a_suggestion_is_bounded() -> None:
    """A judge that talks without end is cut."""
    assert len(loops.read_suggestion("word " * 5_000)) <= 1_200


def test_what_is_injected() -> None:
    """The suggestion where there is one, a firm note where there is none, nothing where all is well."""
    called, failing = StuckCase(Trouble.CONSECUTIVE, "read", 5), StuckCase(Trouble.FAILURES, "read", 10)
    assert "A reviewer suggests: Try grep." in str(injection(called, "Try grep."))
    assert "`read` has now been called 5 times in a row. Stop and reflect" in str(injection(called))
    assert "`read` has now failed 10 times in a row" in str(injection(failing))
    assert injection(called, " **Continue.** ") is None
    assert loops.read_turns([{"role": "user", "content": injection(failing)}]) == ()
