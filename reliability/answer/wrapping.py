"""Take off the marks that a model puts around the rest of an answer: quotation marks, dots, a code fence.

Fences come in pairs, so with an odd number of them the last one is the wrapping's. Quotation marks don't: where the
text has others of the same kind, or where the model has opened several, the seam tears. So it does where the wrapping
closes and something stands behind: a remark.
"""

from __future__ import annotations

import re

_CLOSINGS = {'"': '"', "“": "”", "«": "»", "'": "'", "‘": "’", "`": "`"}
_OPENING = re.compile(r"\s*(?:`{3,8}[\w+-]{0,20}[ \t]*\r?\n)?[ \t\r\n\"'`“”«»‘….]*")
_CLOSERS = frozenset(_CLOSINGS.values())
_APOSTROPHES = ("'", "’")
_FENCE = "```"
_FENCE_OPENED = re.compile(r"(`{3,8})[\w+-]{0,20}\s*")
_DOTS = re.compile(r"\.{2,}|…")
_TAIL_CHARS_MAX = 64  # of marks and white space that may close a wrapping
_END = re.compile(r"\r?\n?[ \t]*`{1,8}\s*\Z|[\"”»'’]\s*\Z|(?:\r|\r?\n\s*)\Z")
_FENCE_SHUT = r"\n[ \t]*{}`*[ \t]*\r?\n\s*\S"
_QUOTE_SHUT = r"(?<=[\S\n]){}(?:\s+\S|[^\w\s])"


def read_wrapping(text: str) -> tuple[str, str]:
    """Return the text behind the marks that it begins with, and those marks."""
    match = _OPENING.match(text)
    end = match.end() if match else 0
    return text[end:], text[:end].strip()


class Wrapping:
    """What a model has `opened` around the rest of `begun`. `torn`: a mark may close that or be the text's own."""

    def __init__(self, begun: str, opened: str) -> None:
        fence = _FENCE_OPENED.match(opened)
        self._fenced, marks = fence is not None, opened[fence.end() :] if fence else opened
        self._begun = begun
        quotes = [mark for mark in marks if mark in _CLOSINGS]
        self._quote = quotes[0] if quotes and not fence else ""
        self._dots = (_DOTS.search(marks) or [""])[0]
        self._fence = fence[1] if fence else _FENCE
        self._fences, self._last = begun.count(_FENCE), begun[-2:]
        self._kinds = {self._quote, _CLOSINGS.get(self._quote, "")} - {""}
        self._quotes = sum(map(begun.count, self._kinds))
        self._tail = ""
        mark, shut = (self._fence, _FENCE_SHUT) if fence else (_CLOSINGS.get(self._quote, ""), _QUOTE_SHUT)
        self._shut = re.compile(shut.format(re.escape(mark)))
        self.torn = len(quotes) + self._fenced > 1

    def drop_closing(self, rest: str) -> str:
        """Drop the closing mark of the words that were asked for, where it stands directly behind them."""
        closing = _CLOSINGS.get(self._quote, "")
        if self._fenced and rest.lstrip().startswith(_FENCE):
            self.torn = True  # it may be the text's own
        if self._dots and rest.startswith(self._dots):
            rest = rest.removeprefix(self._dots)
            # Only in the middle of a word they can't be the text's own.
            self.torn = self.torn or not (self._begun[-1:].isalnum() and rest[:1].isalnum())
        elif closing and (dots := _DOTS.match(rest)) is not None and rest.startswith(closing, dots.end()):
            self.torn = True  # the dots may be the model's or the text's own
        if closing and rest.startswith(closing):
            # It may close what the text itself has opened, or be the apostrophe of a word.
            apostrophe = closing in _APOSTROPHES and self._begun[-1:].isalnum()
            self.torn = self.torn or apostrophe or self._is_open(closing) or self._begun.endswith(closing)
            self._quote = ""
            return rest[len(closing) :]
        return rest

    def _is_open(self, closing: str) -> bool:
        if self._quote == closing:
            return self._quotes % 2 == 1
        return self._begun.count(self._quote) > self._begun.count(closing)

    def feed(self, text: str) -> str:
        """Return what may leave; a mark at the very end waits."""
        whole = self._tail + text
        match = _END.search(whole, max(0, len(whole) - _TAIL_CHARS_MAX))
        cut = match.start() if match else len(whole)
        self._tail, text = whole[cut:], whole[:cut]
        self.torn = self.torn or (bool(self._fenced or self._quote) and self._shuts(self._last + text))
        self._fences += (self._last + text).count(_FENCE)
        self._last = (self._last + text)[-2:]
        self._quotes += sum(text.count(mark) for mark in self._kinds)
        return text

    def _shuts(self, text: str) -> bool:
        """Return whether the wrapping is closed in a text (behind the last signs that have left): by a mark that closes
        nothing of the text's own."""
        seen, marks = (self._fences, {_FENCE}) if self._fenced else (self._quotes, self._kinds)
        at = 0 if self._fenced else len(self._last)
        for shut in self._shut.finditer(text):
            seen += sum(text.count(mark, at, shut.start()) for mark in marks)
            if seen % 2 == 0:
                return True
            at = shut.start()
        return False

    def finish(self) -> str:
        """Return what waited, without the closing mark."""
        tail, self._tail = self._tail, ""
        closing = _CLOSINGS.get(self._quote, "")
        if closing and tail.strip() in _CLOSERS:
            self.torn = self._quotes > 0 or tail.strip() != closing
            return ""
        if tail.strip() == self._fence and (self._fences % 2 == 0 or len(self._fence) > len(_FENCE)):
            return ""  # it would open one that nothing closes
        return tail
