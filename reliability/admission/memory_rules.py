"""What a node that is short of memory takes, and what not: the part of admission that looks at memory.

What the caller knows of the tier's node stands in the admission request. Local tiers are closed to
big prompts at critical, and for complex requests once pressure has been sustained. Must never
happen: a rejection where nothing is known of the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from reliability.admission.request import AdmissionRequest
from reliability.memory.pressure import Level
from reliability.rolling import SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """What a node short of memory doesn't take. None turns a rule off."""

    sustained_ns: int = 60 * SECOND_NS
    complex_prompt_tokens: int | None = 8_000
    complex_output_tokens: int | None = 4_000
    complex_tools: int | None = 16
    critical_prompt_tokens: int | None = 4_000
    retry_after_s: int = 10


def memory_rule(rules: MemoryRules, request: AdmissionRequest) -> str:
    """Return the rule by which memory pressure keeps this call off its tier; empty: none does."""
    if not request.local or request.level not in (Level.WARN, Level.CRITICAL):
        return ""
    if request.level is Level.CRITICAL and _reaches(request.prompt_tokens, rules.critical_prompt_tokens):
        return f"critical: prompt_tokens >= {rules.critical_prompt_tokens}"
    if request.sustained_ns < rules.sustained_ns:
        return ""
    for name, value, limit in (
        ("prompt_tokens", request.prompt_tokens, rules.complex_prompt_tokens),
        ("output_tokens", request.output_tokens or 0, rules.complex_output_tokens),
        ("tools", request.tools, rules.complex_tools),
    ):
        if _reaches(value, limit):
            return f"sustained: {name} >= {limit}"
    return ""


def _reaches(value: int, limit: int | None) -> bool:
    return limit is not None and value >= limit
