"""What a model wrote last, out of the error of a server that can't read it as a call. Pure.

Ollama names the whole call, llama.cpp what stands behind the words that it has read: an answer that has begun goes on
with either. Invariant: an error that quotes such words of a client is none.
"""

from __future__ import annotations

import re

from reliability.types import Event, Finish, FinishReason, Text, Usage

# A gateway's own words.
_BEFORE = r"^(?:provider returned error: )?(?:\d{3}:? )?(?:[\w.]{0,60}(?:error|exception):? (?:- )?){0,4}"
_CALL = re.compile(_BEFORE + r"error parsing tool call: raw='(.*)', err=", re.IGNORECASE | re.DOTALL)
_REST = re.compile(_BEFORE + r"failed to parse input at pos \d{1,9}:(.*)", re.IGNORECASE | re.DOTALL)
_BRACKET = re.compile(r"[<\[{(]")


def find_rest(words: str) -> str | None:
    """Return the end of an answer that stands in the words of an error, what Ollama took for a call marked as one."""
    if (call := _CALL.match(words)) is not None:
        return f"<tool_call>{call[1]}</tool_call>"
    rest = _REST.match(words)
    return None if rest is None else rest[1].strip()


def read_rest(rest: str, usage: Usage | None, *, tools: bool) -> list[Event]:
    """Return the events of such an end. Without declared `tools`, or a bracket, it is no words for the client."""
    text = [Text(rest)] if tools and _BRACKET.search(rest) else []
    return [*text, Finish(reason=FinishReason.TOOL_CALLS, usage=usage)]
