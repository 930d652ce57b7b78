"""Looks for stop strings in text in pieces.

It holds back the end of what it has seen as long as that could be the beginning of a marker, so what comes out doesn't
depend on where the text was cut.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["StopCut", "find_partial_marker"]


def find_partial_marker(text: str, marker: str) -> int:
    """Return where the longest end of `text` begins that may grow into `marker`.

    Where there is none that is the length of `text`.
    """
    at = text.find(marker[0], max(0, len(text) - len(marker) + 1))
    while at != -1:
        if marker.startswith(text[at:]):
            return at
        at = text.find(marker[0], at + 1)
    return len(text)


class StopCut:
    """Passes text on until a stop string is complete."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.found: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete."""
        return self.found is not None

    def feed(self, text: str) -> str:
        """Return what may leave now."""
        if self.stopped:
            return ""
        text = self._held + text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) != -1]
        if ends:
            _, at, self.found = min(ends)
            self._held = ""
            return text[:at]
        keep = min((find_partial_marker(text, stop) for stop in self._stops), default=len(text))
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """Return the rest: no more text follows directly."""
        rest, self._held = self._held, ""
        return rest
