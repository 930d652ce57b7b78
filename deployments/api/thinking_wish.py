"""How much a client wants the model to think, in the words of each API, as one number.

`xhigh` and `max` ask for as much as the tier allows. Of several limits the least holds. The fields stay in the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from reliability.thinking import least

EFFORT_TOKENS: Mapping[str, int] = MappingProxyType({"minimal": 512, "low": 2048, "medium": 8192, "high": 24576})
_EFFORT_NONE = "none"
TOKENS_MAX = 100_000_000


@dataclass(frozen=True, slots=True)
class ThinkingWish:
    """`asked`: whether the model is to think; None: as it does by itself. `tokens_max`: how much at most."""

    asked: bool | None = None
    tokens_max: int | None = None


def read_thinking_wish(fields: Mapping[str, Any]) -> ThinkingWish:
    """Read it from the fields of a chat completion. Most aren't OpenAI's: what can't be read there is nothing."""
    reasoning, thinking = _read_object(fields, "reasoning"), _read_object(fields, "thinking")
    numbers = (
        fields.get("max_thinking_tokens"),
        fields.get("thinking_budget"),
        reasoning.get("max_tokens"),
        thinking.get("budget_tokens"),
    )
    switched_off = reasoning.get("enabled") is False or thinking.get("type") == "disabled"
    return build_thinking_wish((fields.get("reasoning_effort"), reasoning.get("effort")), numbers, off=switched_off)


def build_thinking_wish(efforts: Sequence[Any], numbers: Sequence[Any], *, off: bool = False) -> ThinkingWish:
    """Build it from levels of effort and numbers of tokens; None among them says nothing."""
    given = [number for number in numbers if type(number) is int and 0 <= number <= TOKENS_MAX]
    if off or _EFFORT_NONE in efforts or 0 in given:
        return ThinkingWish(asked=False)
    levels = [EFFORT_TOKENS[effort] for effort in efforts if isinstance(effort, str) and effort in EFFORT_TOKENS]
    return ThinkingWish(tokens_max=least(*given, *levels))


def _read_object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}
