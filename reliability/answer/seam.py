"""Joining what a model writes to the text that it was to go on with: never a word twice, never a gap, never a second
beginning.

A model that is shown the beginning of its answer does one of these:

    goes on at once      "… the third step" │ " is to close the valve."         where its API promises that: `trusted`
    says the end again   "… the third step" │ "the third step is to close …"    as it was asked to: the overlap is cut
    says all of it again "1. Open. … the third step is to close …"              the overlap is all that stands
    begins anew, or chats about it                                              not joined

So its text waits until it is known what it is. An *overlap* is an end of what stands that the new text begins with.
Where going on at once is promised, a short one is more likely the text's own repetition ("ha ha ha") than an echo, so
only `ECHO_CHARS` count; and where what stands ends within a sentence, an opening such as "Sure!" is no rest of it.
Where the end was asked for, at least `ANCHOR_CHARS` of it must be there, or all of it.

Pure: text goes in, and text or the verdict comes out. What must never happen: a join on a guess.
"""

from __future__ import annotations

__all__ = ["ANCHOR_CHARS", "Seam", "find_anchor"]

ANCHOR_CHARS = 24
ANCHOR_CHARS_MAX = 200
ECHO_CHARS = 24
BEGINNING_CHARS = 24  # a text that begins with so much of what stands begins anew
# How models open who were asked to go on and tell so, in lower case, with what follows such a word there.
OPENINGS = tuple(
    word + mark
    for words, marks in (
        (("sure", "certainly", "of course", "absolutely", "okay", "ok", "sorry", "apologies", "i apologize"), "!,.: "),
        (
            ("i'm sorry", "i’m sorry", "i am sorry", "i can't", "i can’t", "i cannot", "continuing", "understood"),
            "!,.: ",
        ),
        (("here is", "here's", "here’s", "here are", "it looks like", "it seems", "as an ai", "let me"), " "),
    )
    for word in words
    for mark in marks
)
# Behind these a sentence may begin: its end, a line's, a quotation, a heading, a point of a list.
_SENTENCE_ENDS = frozenset(".!?:;\n。！？\"'“”‘«»([{*#->`_|")
_BEFORE_ANCHOR = " \t\r\n\"'`“”«»…."


def find_anchor(begun: str) -> str:
    """Return the end of a text that a model is to begin with: whole words, and more where they have stood before.
    Nothing where they always have: nobody could tell the end of such a text from its middle."""
    text = begun.rstrip()
    for chars in range(ANCHOR_CHARS, ANCHOR_CHARS_MAX, ANCHOR_CHARS):
        anchor = _cut_to_words(text, chars)
        if text.find(anchor) == len(text) - len(anchor):
            return anchor
    return ""


def _cut_to_words(text: str, chars: int) -> str:
    start = max(0, len(text) - chars)
    while start > 0 and not text[start - 1].isspace() and len(text) - start < ANCHOR_CHARS_MAX:
        start -= 1
    return text[start:].lstrip()


class Seam:
    """The end of `begun` and the first words behind it. `trusted`: the upstream promises to go on at once.

    `joined`: it is known where the new text begins. `torn`: it doesn't join.
    """

    def __init__(self, begun: str, *, trusted: bool) -> None:
        self._begun, self._trusted = begun, trusted
        self._end = begun.rstrip()
        self._anchor = find_anchor(begun)
        self._held = self._space = ""
        self.joined = False
        self.torn = False

    def feed(self, text: str) -> str:
        """Return what of the text may leave."""
        if self.joined:
            return self._drop_space(text)
        if self.torn:
            return ""
        self._held += text
        return self._decide(final=False)

    def finish(self) -> str:
        """Return what may still leave, once no more comes."""
        return "" if self.joined or self.torn else self._decide(final=True)

    def _decide(self, *, final: bool) -> str:
        # What was asked for may stand in quotation marks, and may begin with one itself.
        heads = [self._held, self._held.lstrip(_BEFORE_ANCHOR)]
        head = heads[1]
        if not self._trusted and not self._anchor:
            self.torn = True
            return ""
        if not self._trusted and (said := next((one for one in heads if one.startswith(self._anchor)), None)):
            return self._join(said[len(self._anchor) :])
        if not final and (not head or head in self._end):
            return ""  # so far it says what stands
        overlap = self._find_overlap(head)
        if overlap and overlap >= (ECHO_CHARS if self._trusted else len(self._anchor)):
            return self._join(head[overlap:])
        if self._trusted and not final and self._may_be_opening(head):
            return ""
        if self._trusted and not self._begins_anew(head) and not self._is_opening(head):
            return self._join(self._held)
        self.torn = bool(head) or not self._trusted
        return ""

    def _find_overlap(self, head: str) -> int:
        """Find how much of the head is the end of what stands: the most that is."""
        most = min(len(head), len(self._end))
        first = head[:1]
        at = self._end.find(first, len(self._end) - most) if first else -1
        while at >= 0:
            if head.startswith(self._end[at:]):
                return len(self._end) - at
            at = self._end.find(first, at + 1)
        return 0

    def _begins_anew(self, head: str) -> bool:
        known = self._begun.lstrip()[:BEGINNING_CHARS]
        return len(known) == BEGINNING_CHARS and head.startswith(known)

    def _may_be_opening(self, head: str) -> bool:
        """Tell whether the head may become a remark about the text, in the middle of a sentence."""
        return self._within_sentence and any(opening.startswith(head.lower()) for opening in OPENINGS)

    def _is_opening(self, head: str) -> bool:
        # Said in capitals as a new turn is: in the middle of a sentence "okay, " may well be its next word.
        return self._within_sentence and head[:1].isupper() and head.lower().startswith(OPENINGS)

    @property
    def _within_sentence(self) -> bool:
        return bool(self._end) and self._begun[-1] not in _SENTENCE_ENDS and self._end[-1] not in _SENTENCE_ENDS

    def _join(self, rest: str) -> str:
        self.joined, self._space = True, self._begun[len(self._end) :]
        return self._drop_space(rest)

    def _drop_space(self, text: str) -> str:
        """Drop the white space that stands at the end of `begun` already."""
        while self._space and text:
            if text[0] != self._space[0]:
                self._space = ""
                break
            text, self._space = text[1:], self._space[1:]
        return text
