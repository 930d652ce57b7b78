"""What is written to a terminal: text, and nothing that a terminal would obey, whoever wrote it.

Names and errors come from other servers, from configurations and from models. So the commands' output is cleaned where
it is written, not where a field is shown. A line of this server's own may be written over: a write may begin with
`LINE_START` or a return, and end with a return.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

LINE_START = "\r\x1b[K"
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
# Control characters but for line breaks and tabs, and marks that turn the direction of a line.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SHOWN = "�"


def clean_text(text: str) -> str:
    """Take out colors, and put a mark in the place of what else a terminal would obey."""
    return _OBEYED.sub(_SHOWN, _COLORS.sub("", text))


class TerminalText:
    """Writes to `out`, cleaned. All else is as of `out`."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        start = next((mark for mark in (LINE_START, "\r") if text.startswith(mark)), "")
        end = "\r" if text.endswith("\r") and len(text) > len(start) else ""
        self._out.write(start + clean_text(text[len(start) : len(text) - len(end)]) + end)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> _TerminalBytes:
        """What takes the same as bytes."""
        return _TerminalBytes(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)


class _TerminalBytes:
    """Writes bytes of UTF-8 as text: click writes completions so."""

    def __init__(self, out: TerminalText) -> None:
        self._out = out
        self.flush = out.flush

    def write(self, data: bytes) -> int:
        self._out.write(data.decode("utf-8", "replace"))
        return len(data)
