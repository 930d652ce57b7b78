"""The marks that models put around their calls, as regular expressions.

An *opener* says that a call follows, a *closer* that it ended. Models mix them up between families (a
wrong special token, a missing one), so any opener goes with any closer: what counts is what stands
between. All expressions are possessive or bounded, so that scanning stays linear.
"""

from __future__ import annotations

import re

__all__ = ["BLANK", "CLOSER", "FENCE", "NAME", "OPENER", "only_marks", "quoted"]

NAME = r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}+"

_OPENERS = (
    r"<\|?(?:\w{1,32}:)?(?:longcat_)?(?:tool_?calls?|function_?calls?|tool_code|toolcalls)\|?>",
    r"<\|(?:tool_call_start|tool_call_begin|tool_calls_section_begin|python_tag|action_start|plugin)\|>",
    r"<start_function_call>|<tool>",
    r"<｜tool▁calls▁begin｜>|<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?",
    r"\[TOOL_CALLS?\]|\[TOOL_REQUEST\]",
    r"\bfunctools(?=\[)",
)
_CLOSERS = (
    r"<\|?/(?:\w{1,32}:)?(?:longcat_)?(?:tool_?calls?|function_?calls?|tool_code|toolcalls|tool)\|?>",
    r"<(?:longcat_)?tool_call\|>|<\|(?:tool_call_end|tool_calls_section_end|action_end)\|>",
    r"<end_function_call>",
    r"<｜tool▁calls▁end｜>|<｜tool▁call▁end｜>",
    r"\[/TOOL_CALLS?\]|\[END_TOOL_REQUEST\]",
    r"<\|(?:call|eom_id|eot_id|im_end)\|>",
)

OPENER = re.compile("|".join(_OPENERS), re.IGNORECASE)
CLOSER = re.compile("|".join(_CLOSERS), re.IGNORECASE)
BLANK = re.compile(r"\s*+")
FENCE = re.compile(r"`{3,}+[\w-]{0,32}+")
_ONLY_MARKS = re.compile(rf"(?:{OPENER.pattern}|{CLOSER.pattern}|\s)*+", re.IGNORECASE)

"""What a call may begin with, besides a declared tool's name: what a gate holds until it is settled."""


def quoted(text: str, start: int, end: int) -> bool:
    """True where a mark is only talked about: it stands between two equal quotes."""
    return start > 0 and end < len(text) and text[start - 1] in "`\"'" and text[end] == text[start - 1]


def only_marks(text: str) -> bool:
    """True where nothing stands in a text but marks and white space."""
    return _ONLY_MARKS.fullmatch(text) is not None
