"""Two machines that look for markers in text in pieces: stop strings, and the tags of reasoning.

Each holds back the end of what it has seen as long as that could be the beginning of a marker, so what comes
out doesn't depend on where the text was cut.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["StopCut", "ThinkSplit", "find_partial_marker"]


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


class ThinkSplit:
    """Separates one block of reasoning at the head of an answer from the answer.

    Tags count only there: an answer that talks about the tags is left alone. White space next to the tags is
    markup.
    """

    def __init__(self, tags: tuple[str, str] | None, *, inside: bool = False) -> None:
        self._open, self._close = tags or ("", "")
        self._state = "after"
        if tags:
            self._state = "inside" if inside else "before"
        self._trim = self._state == "inside"
        self._held = ""

    @property
    def thinking(self) -> bool:
        """Whether what comes next is reasoning."""
        return self._state == "inside"

    def feed(self, text: str, *, last: bool = False) -> list[tuple[bool, str]]:
        """Return (is reasoning, piece) for each piece that may leave now.

        `last`: no more text follows.
        """
        text, self._held = self._held + text, ""
        out: list[tuple[bool, str]] = []
        if self._state == "before":
            text = self._read_before(text, last)
        if self._state == "inside":
            reasoning, text = self._read_inside(text, last)
            out.append((True, reasoning))
        if self._state == "after":
            out.append((False, self._trim_head(text)))
        return [piece for piece in out if piece[1]]

    def _read_before(self, text: str, last: bool) -> str:
        head = text.lstrip()
        if head.startswith(self._open):
            self._state, self._trim = "inside", True
            return head[len(self._open) :]
        if self._open.startswith(head) and not last:  # only white space counts as well: the tag may follow
            self._held = text
            return ""
        self._state = "after"
        return text

    def _read_inside(self, text: str, last: bool) -> tuple[str, str]:
        reasoning, close, rest = text.partition(self._close)
        if close:
            reasoning = self._trim_head(reasoning).rstrip()
            self._state, self._trim = "after", True
            return reasoning, rest
        # White space is held as well: it is markup if the closing tag follows.
        keep = len(text) if last else len(text[: find_partial_marker(text, self._close)].rstrip())
        self._held = text[keep:]
        return self._trim_head(text[:keep]), ""

    def _trim_head(self, text: str) -> str:
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        return text
