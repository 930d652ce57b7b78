"""What a conversation holds that this server can't read: left out, with a note in the report.

A client sends its history again with each turn, so that a refusal of it would end the session. What the newest turn
asks is refused by name instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deployments.errors import ApiError

_NOTES_MAX = 16
_MORE = "more of the conversation was left out"
_STUB = "[Something was here that can't be read by this server.]"


@dataclass(frozen=True, slots=True)
class Past:
    """A part of a conversation. `notes` takes what is left out of it, unless it `asks`: then nothing is."""

    notes: dict[str, None] = field(default_factory=dict)
    asks: bool = False

    def leave_out(self, error: ApiError) -> None:
        """Note what can't be read. Raises the error itself where it is what the newest turn asks."""
        if self.asks:
            raise error
        self.notes[f"left out: {error.message}" if len(self.notes) < _NOTES_MAX else _MORE] = None

    def stand_in(self, error: ApiError, part: Any, *, answer: bool = False) -> list[dict[str, Any]]:
        """Return what stands for a part that can't be read: its text, if it has one, else words of this server's, which
        an `answer` never holds. Raises as `leave_out`."""
        self.leave_out(error)
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str):
            text = "" if answer else _STUB
        return [{"type": "text", "text": text}] if text else []


ASKED = Past(asks=True)


def find_user(messages: Sequence[Any]) -> int:
    """Find the newest message of the user, by which the newest turn asks; -1 where there is none."""
    roles = (message.get("role") if isinstance(message, Mapping) else None for message in messages)
    return max((at for at, role in enumerate(roles) if role == "user"), default=-1)
