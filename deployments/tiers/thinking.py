"""Find which marks of reasoning are a local model's own, and whether a prompt ends within reasoning.

mlx-lm's tokenizer names the marks of a few families; else the chat template does, where an opener and a closer of a row
stand there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reliability.tools.format_reasoning import MESSAGES, REASONING, REASONING_CLOSE, Thought
from reliability.tools.formats import compile_any

_OPENER_CHARS_MAX = 160
_ROWS = [(row, compile_any((*row.opens, *row.prompts))) for row in (*REASONING, *MESSAGES)]


@dataclass(frozen=True, slots=True)
class ReasoningMarks:
    """The marks of a model's reasoning, and what it opens its answer with. `row` has them as expressions."""

    row: Thought
    start: str
    end: str
    says: str = ""

    @property
    def closing(self) -> str:
        """What the model writes between its reasoning and its answer."""
        return f"{self.end}\n\n" if self.end.startswith("</") else self.end + self.says

    def encode_closing(self, tokenizer: Any) -> list[int]:
        """Encode the end of the reasoning, as a model writes it itself."""
        line = "\n" if self.end.startswith("</") else ""
        return list(tokenizer.encode(line + self.closing, add_special_tokens=False))


def find_thinking(tokenizer: Any) -> ReasoningMarks | None:
    """Find the marks of a model's reasoning; None where it has none."""
    template = getattr(tokenizer, "chat_template", None)
    template = template if isinstance(template, str) else ""
    if getattr(tokenizer, "has_thinking", False):
        start, end = str(tokenizer.think_start), str(tokenizer.think_end)
        row = find_opened(start) or Thought("the model's own", (re.escape(start),), (re.escape(end),))
        return ReasoningMarks(row, start, end, _find_mark(row.says, template))
    for row, _ in _ROWS:
        start, end = (_find_mark(marks, template) for marks in ((*row.opens, *row.prompts), (*row.closes, *row.until)))
        if start and end:
            return ReasoningMarks(row, start, end, _find_mark(row.says, template))
    return None


def find_opened(prompt: str, thinking: ReasoningMarks | None = None) -> Thought | None:
    """Find the row of the reasoning that a prompt ends within; None where it ends in none."""
    end = prompt[-_OPENER_CHARS_MAX:].rstrip()
    if thinking is not None and end.endswith(thinking.start):
        return thinking.row
    if any(closer.end() == len(end) for closer in REASONING_CLOSE.finditer(end)):
        return None
    return next((row for row, opens in _ROWS if any(one.end() == len(end) for one in opens.finditer(end))), None)


def _find_mark(marks: Sequence[str], template: str) -> str:
    closes = {closer.start() for closer in REASONING_CLOSE.finditer(template)}
    for mark in marks:
        found = re.search(mark, template, re.IGNORECASE)
        if found is not None and (found.start() not in closes or REASONING_CLOSE.fullmatch(found[0])):
            return found[0]
    return ""
