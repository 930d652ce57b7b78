"""ONE table of what stands around a model's reasoning where an upstream leaves it in the text, and whether such a mark
is used or talked about.

    opens    what opens reasoning
    closes   what closes it, and says so by itself: without an opener it ends what the chat template has opened
    until    what closes it behind an opener of the row only, since it closes other things too
    says     what opens the answer behind it
    ends     what closes that answer
    prompts  what else opens it at the end of a prompt

An opener counts where an answer or a line begins, and in a line where a sentence begins and no blank stands behind it;
without a closer it reaches to the end. In quotes, in code and in a string of data marks are talked about. `MESSAGES`
has families whose answers are rows of messages (`harmony.py`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from reliability.tools.formats import INDENT_MAX, begins_sentence, compile_any, is_quoted
from reliability.tools.turns import stands_in_code

_SPACES = ("", r"\w{1,16}[:_|]")
_ENDS = ("", r":\w{1,10}")
_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning")
_CHANNEL = (r"<\|start\|>assistant<\|channel\|>", r"<\|channel\|>")
_TO = (r"<\|start\|>assistant to=", "to=")
_TO_ALL = r"<\|recipient\|>\s?all\s?<\|content\|>"
_STRING_CHARS = 4_096  # of what stands before a mark, looked through for the quote that begins a string
_ESCAPED_MAX = 64  # quotes in it that are escaped, as they are in data alone
_BEHIND_A_MENTION = (" ", "\t", ",", ".", ";", ":", ")")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_SAID = re.compile(
    r"[ \t]{1,4}(?:is|are|was|were|means?|marks?|opens?|begins?|starts?|stands?|closes?|ends?|tags?|tokens?|and|or)\b"
)
_UNSETTLED = re.compile(r"\n?\Z|[ \t]{1,4}[a-z]{0,6}\Z")
_STRING_BEGINS = re.compile(r"[:,{\[(=]\s{0,8}\Z")
_STRING_ENDS = re.compile(r"\s{0,8}[,:}\])]")


class Thought(NamedTuple):
    """The marks of one family."""

    family: str
    opens: tuple[str, ...]
    closes: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()


REASONING: tuple[Thought, ...] = (
    Thought(
        "Solar Open",
        (r"<\|think\|>",),
        (),
        (r"<\|end\|>", r"<\|/think\|>", "</think>"),
        (r"<\|begin\|>assistant", r"<\|content\|>"),
    ),
    Thought("functionary v2", (), says=(rf"<\|from\|>assistant\s?{_TO_ALL}", _TO_ALL, r"all\s?<\|content\|>")),
    Thought("K2", (r"<think_\w{1,10}>",), (r"</think_\w{1,10}>",)),
    Thought("Magistral, Ministral", (r"\[THINK\]",), (r"\[/THINK\]",)),
    Thought("Kimi-VL", (r"◁think▷",), (r"◁/think▷",)),
    Thought("XTML", (r"<\|think:start\|>",), (r"<\|think:end\|>",)),
    Thought(
        "Kimi K3",
        (r"<\|open\|>think<\|sep\|>",),
        (r"<\|close\|>think<\|sep\|>",),
        says=(r"<\|open\|>response<\|sep\|>",),
        ends=(r"<\|close\|>response<\|sep\|>", r"<\|close\|>message<\|sep\|>", r"<\|end_of_msg\|>"),
    ),
    Thought(
        "Command A",
        (r"<\|START_THINKING\|>",),
        (r"<\|END_THINKING\|>",),
        says=(r"<\|START_RESPONSE\|>", r"<\|START_TEXT\|>"),
        ends=(r"<\|END_RESPONSE\|>", r"<\|END_TEXT\|>"),
    ),
    Thought("Apertus", (r"<\|inner_prefix\|>",), (r"<\|inner_suffix\|>",)),
    Thought(
        "Apriel",
        (),
        (r"\[BEGIN FINAL RESPONSE\]",),
        ends=(r"\[END FINAL RESPONSE\]",),
        prompts=("Here are my reasoning steps:",),
    ),
    Thought("DeepSeek", (r"<[|｜]begin[▁_]of[▁_]thinking[|｜]>",), (r"<[|｜]end[▁_]of[▁_]thinking[|｜]>",)),
    Thought(
        "Sky",
        (r"<\|begin_of_thought\|>",),
        (r"<\|end_of_thought\|>",),
        says=(r"<\|begin_of_solution\|>",),
        ends=(r"<\|end_of_solution\|>",),
    ),
    Thought("Marin", (r"<\|start_think\|>",), (r"<\|end_think\|>",)),
    Thought("PLaMo 3", (r"<\|plamo:begin_think:plamo\|>",), (r"<\|plamo:end_think:plamo\|>",)),
    Thought("Gemma 4", (r"<\|channel>thought",), (r"<channel\|>",)),
    Thought("MedGemma", (r"<unused94>thought",), (r"<unused95>",)),
    # Last, and behind all closers: with a namespace before it `<|END_THINKING|>` would be an opener.
    Thought(
        "most models",
        tuple(rf"<\|?{space}{name}{end}\|?>" for name in _NAMES for space in _SPACES for end in _ENDS),
        tuple(rf"<\|?/{space}{name}{end}\|?>" for name in _NAMES for space in _SPACES for end in _ENDS),
    ),
)
MESSAGES: tuple[Thought, ...] = (
    Thought(
        "Harmony: gpt-oss",
        tuple(rf"{head}analysis<\|message\|>" for head in _CHANNEL),
        until=(r"<\|end\|>",),
        says=tuple(
            rf"{head}final{kind}<\|message\|>" for head in _CHANNEL for kind in ("", r" ?<\|constrain\|>\w{1,16}")
        ),
    ),
    Thought(
        "Muse",
        tuple(rf"{head}self<\|message\|>" for head in _TO),
        until=(r"<\|eom\|>",),
        says=tuple(rf"{head}{whom}<\|message\|>" for head in _TO for whom in ("user", "commentary")),
    ),
)
REASONING_OPENS = tuple(opener for row in REASONING for opener in row.opens)
REASONING_CLOSES = tuple(closer for row in REASONING for closer in row.closes)
ANSWER_MARKS = tuple(mark for row in REASONING for mark in (*row.says, *row.ends))
REASONING_OPEN = compile_any(REASONING_OPENS)
REASONING_CLOSE = compile_any(REASONING_CLOSES)


_OPENERS = tuple((row, compile_any(row.opens)) for row in REASONING)


def find_row(text: str, at: int) -> Thought | None:
    """Find the row whose opener stands here."""
    return next((row for row, opener in _OPENERS if opener.match(text, at)), None)


@cache
def compile_ends(row: Thought) -> re.Pattern[str]:
    """Compile what ends the reasoning that an opener of this row has begun."""
    return compile_any((*row.closes, *row.until))


def opens_reasoning(text: str, start: int, end: int) -> bool:
    """Return whether reasoning begins at an opener that stands here, and leaves the answer."""
    if not begins_sentence(text, start) or is_quoted(text, start, end) or _stands_in_data(text, start):
        return False
    in_line = text[max(0, start - INDENT_MAX) : start].rstrip(" \t\r")[-1:] not in ("", "\n")
    return not is_said_of(text, end) and not (in_line and text[end : end + 1] in ("", *_BEHIND_A_MENTION))


def ends_reasoning(text: str, start: int, end: int) -> bool:
    """Return whether a closer that stands here, behind an opener, ends reasoning."""
    if is_quoted(text, start, end) and not _closes_block(text, start):
        return False
    apart = text[max(0, start - 1) : start] in (" ", "\t") and text[end : end + 1] in _BEHIND_A_MENTION
    return not apart or begins_sentence(text, start)


def _closes_block(text: str, at: int) -> bool:
    """Return whether the line before a place is the fence that closes a code block: its ticks quote nothing."""
    least = max(0, at - INDENT_MAX)
    line = text[max(text.rfind("\n", least, at) + 1, least) : at].strip()
    return len(line) > 2 and not line.strip("`")


def is_used(text: str, start: int, end: int) -> bool:
    """Return whether a mark that no opener stands before is used here: a closer, or a mark of the answer."""
    if not ends_reasoning(text, start, end) or is_said_of(text, end) or _stands_in_data(text, start):
        return False
    before, behind = text[max(0, start - 1) : start], text[end : end + 2]
    if before in (" ", "\t") and not begins_sentence(text, start):
        return behind == "\n\n" or behind[:1] not in ("", "\n")
    return not (before in _BRACKETS and behind[:1] in _BRACKETS.get(before, ()))


def is_said_of(text: str, end: int) -> bool:
    """Return whether a sentence says something of the mark that ends here."""
    return _SAID.match(text, end) is not None


def is_unsettled(text: str, end: int) -> bool:
    """Return whether a text ends too early behind a mark to tell whether that is talked about."""
    return _UNSETTLED.match(text, end) is not None


def _stands_in_data(text: str, at: int) -> bool:
    return stands_in_code(text, at) or _stands_in_string(text, at)


def _stands_in_string(text: str, at: int) -> bool:
    """Return whether the last quote before a place begins a string, as far as what stands beside it tells."""
    quote, escaped = text.rfind('"', max(0, at - _STRING_CHARS), at), 0
    while quote > 0 and text[quote - 1] == "\\" and escaped < _ESCAPED_MAX:
        quote, escaped = text.rfind('"', max(0, at - _STRING_CHARS), quote), escaped + 1
    if quote < 0 or escaped == _ESCAPED_MAX:
        return escaped == _ESCAPED_MAX
    behind, before = _STRING_ENDS.match(text, quote + 1, at), _STRING_BEGINS.search(text, max(0, quote - 9), quote)
    return behind is None and before is not None
