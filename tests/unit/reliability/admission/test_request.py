"""Which calls a node short of memory doesn't take."""

from typing import Any

import pytest

from reliability.admission.request import AdmissionRequest, MemoryRules, memory_rule
from reliability.memory.pressure import Level
from reliability.rolling import SECOND_NS

S = SECOND_NS


def ask(**more: Any) -> AdmissionRequest:
    """A small call, unless told otherwise."""
    return AdmissionRequest(**{"tier": "fast", "key": "k", "session": "s", "prompt_tokens": 50, **more})


RULES = MemoryRules()


@pytest.mark.parametrize(
    ("more", "rule_name"),
    [
        ({"level": Level.CRITICAL, "prompt_tokens": 4000}, "critical: prompt_tokens >= 4000"),
        ({"level": Level.CRITICAL, "prompt_tokens": 3999}, ""),
        ({"level": Level.WARN, "prompt_tokens": 7999}, ""),
        ({"level": Level.WARN, "prompt_tokens": 9000, "sustained_ns": 60 * S - 1}, ""),
        ({"level": Level.WARN, "prompt_tokens": 8000, "sustained_ns": 60 * S}, "sustained: prompt_tokens >= 8000"),
        ({"level": Level.WARN, "output_tokens": 4000, "sustained_ns": 60 * S}, "sustained: output_tokens >= 4000"),
        ({"level": Level.CRITICAL, "tools": 16, "sustained_ns": 60 * S}, "sustained: tools >= 16"),
        ({"level": Level.WARN, "tools": 15, "sustained_ns": 90 * S}, ""),
        ({"level": Level.UNKNOWN, "prompt_tokens": 10**6, "sustained_ns": 90 * S}, ""),
        ({"level": Level.NORMAL, "prompt_tokens": 10**6, "sustained_ns": 90 * S}, ""),
        ({"level": Level.CRITICAL, "prompt_tokens": 10**6, "local": False}, ""),
    ],
)
def test_memory_rules(more: dict[str, Any], rule_name: str) -> None:
    """Only local tiers under known pressure refuse: big prompts at critical, complex requests later."""
    assert memory_rule(RULES, ask(**more)) == rule_name


def test_memory_rules_can_be_off() -> None:
    """A rule of None refuses nothing."""
    off = MemoryRules(
        complex_prompt_tokens=None, complex_output_tokens=None, complex_tools=None, critical_prompt_tokens=None
    )
    big = ask(prompt_tokens=10**9, tools=10**9, level=Level.CRITICAL, sustained_ns=10**18)
    assert memory_rule(off, big) == ""
