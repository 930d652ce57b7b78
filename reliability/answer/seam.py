"""Join what a model writes to the text that it is to continue: no word twice, no gap, no second beginning.

    continues            "… the third step" │ " is to close the valve."         where its API promises that: `trusted`
    repeats the end      "… the third step" │ "the third step is to close …"    as it was asked to: the overlap is cut
    repeats all of it    "1. Open. … the third step is to close …"              the overlap is the whole of `begun`
    begins anew, or speaks about it                                             not joined

An *overlap* is an end of `begun` that the new text begins with. It counts only where it stands once in `begun`, and not
where a sentence or a row has just ended.

Invariants: nothing is joined on a guess: where two readings remain, the seam tears. What has left is a beginning of
what is joined. The outcome doesn't depend on how a text was cut into chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from reliability.answer.wrapping import Wrapping, read_wrapping
from reliability.tools.format_reasoning import REASONING_OPEN
from reliability.tools.turns import MARK, opens_turn

ANCHOR_CHARS = 24
_ANCHOR_CHARS_MAX = 200
_ECHO_CHARS = 24
_BEGINNING_CHARS = 24  # a text that begins with so much of `begun` begins anew
_REMARK_CHARS = 100  # within so many characters a remark about the text names what it is about
# How models open who were asked to continue and say so, in lower case, with what follows such a word there.
_OPENINGS = tuple(
    word + mark
    for words, marks in (
        (("sure", "certainly", "of course", "absolutely", "okay", "ok", "sorry", "apologies", "i apologize"), "!,.: "),
        (("i'm sorry", "i’m sorry", "i am sorry", "i can't", "i can’t", "i cannot", "continuing"), "!,.: "),
        (("understood", "got it", "alright", "sure thing", "no problem", "thank you", "thanks"), "!,.: "),
        (("here is", "here's", "here’s", "here are", "it looks like", "it seems", "as an ai", "let me"), " "),
        (("resuming", "picking up", "my previous", "my last", "the previous", "below is", "the rest"), " "),
        (("as requested", "as you requested", "as you asked", "i'll continue", "i will continue"), ",.: "),
        (("assistant", "continued", "answer", "response"), ":"),
        (("it appears", "looks like", "you're right", "you’re right", "let's", "let’s", "to continue"), " ,"),
    )
    for word in words
    for mark in marks
)
# What an opening is about where it speaks of the text, and is no part of it.
_ABOUT = re.compile(
    r"\b(contin[uú]\w+|the rest|remain(der|ing)|left off|(cut|broke) off|truncated|(my|the) (last|previous)"
    r" (message|response|answer|text)|fortsetz\w*|rest (der|des)|reste|suite|resto|продолж\w*|остальн\w*)\b"
    r"|续|剩余|続き|계속|이어서|나머지|^assistant:",
    re.IGNORECASE,
)
# Behind these a sentence may begin: its end, a line's, a quotation, a heading, a point of a list.
_SENTENCE_ENDS = frozenset(".!?:;\n。！？\"'“”‘«»([{*#->`_|")
_BOUNDARIES = frozenset(" \t\r\n\u3000。！？")
_UNIT_ENDS = frozenset(".!?:;,。！？，、…|)]}>")  # behind these the same words may follow again
_WHOLE_ENDS = frozenset(".!?:。！？…")
# Dots glued to a word with the next word glued to them; a quotation mark glued to a word with a word behind it.
_GLUED_MARK = re.compile(r"(\.{2,}|…)\w|[\"“”«»`]\s*\w")
_MARK_START = re.compile(r"\.+|…|[\"“”«»`]\s*")
_FENCE_START = re.compile(r"\s*`{1,8}[\w+-]{0,20}[ \t]*\r?")
# The marks of a turn that a model opens anew; behind the mark of a role, whose it is.
_TURN_HEAD = re.compile(rf"(?:\s|{MARK.pattern}|<\|end_header_id\|>)*+", re.IGNORECASE)
_TURN_BEGUN = re.compile(rf"{REASONING_OPEN.pattern}|<\|channel\|>|\[/INST\]", re.IGNORECASE)
_MARK_BEGUN = re.compile(r"[<\[\]◁][^\s>\])▷]{0,40}\Z")
_OTHERS_TURN = re.compile(r"(?:user|human|system|developer|tool|function|observation|ipython)\b", re.IGNORECASE)
_ROLE_BEGUN = re.compile(r"\w{0,12}\Z")
_TITLE = re.compile(r"\W*continu\w*\W*", re.IGNORECASE)
_MARKER = re.compile(r"\s*[\[(]\s*continu\w+[^\n\])]{0,30}[\])]", re.IGNORECASE)
_MARKER_BEGUN = re.compile(r"\s*(?:[\[(](?:\s*[^\W\d]\w{0,11}(?:[^\n\])\w][^\n\])]{0,29})?)?)?\Z")
_BOM = "\ufeff"
_HELD_PARTS = 16  # what is held is looked at again when it has grown by such a part


def find_anchor(begun: str) -> str:
    """Return the end of a text that a model is to begin with: whole words, and more where they have stood before. Empty
    where they always do: the end of such a text can't be told from its middle."""
    text = begun.rstrip()
    for chars in range(ANCHOR_CHARS, _ANCHOR_CHARS_MAX, ANCHOR_CHARS):
        start = max(0, len(text) - chars)
        while start > 0 and not text[start - 1].isspace() and len(text) - start < _ANCHOR_CHARS_MAX:
            start -= 1
        anchor = text[start:].lstrip()
        if text.find(anchor) == len(text) - len(anchor) and not _ends_as_it_begins(anchor):
            return anchor
    return ""


def _ends_as_it_begins(text: str) -> bool:
    """Return whether the last words are the first words: said once more, they would look like all of it."""
    return any(_is_boundary(text, start) for start in _list_ends(text, text, 1))


def _list_ends(text: str, head: str, least: int) -> Iterator[int]:
    """Yield each place, from `least` on, of an end of a text that a head begins with."""
    at = text.find(head[:1], least) if head else -1
    while at >= 0:
        if head.startswith(text[at:]):
            yield at
        at = text.find(head[:1], at + 1)


def _is_boundary(text: str, start: int) -> bool:
    before = text[start - 1 : start]
    return not before or before in _BOUNDARIES or (text[start:].isalnum() and not before.isalnum())


class Seam:
    """The end of `begun` and the first words behind it. `trusted`: the upstream promises to continue at once; `joined`:
    it is known where the new text begins; `torn`: it doesn't join, or can't be ended."""

    def __init__(self, begun: str, *, trusted: bool) -> None:
        self._begun, self._trusted = begun, trusted
        self._end = begun.rstrip()
        self._space = begun[len(self._end) :]
        self._anchor = find_anchor(begun)
        beginning = begun.lstrip()[:_BEGINNING_CHARS]
        self._beginning = beginning if len(beginning) == _BEGINNING_CHARS else ""
        self._held, self._ask_at = "", 0
        self._wrapping: Wrapping | None = None
        self.joined = self._called = False
        self.torn = not trusted and not self._anchor

    def feed(self, text: str) -> str:
        if self.torn or (self._called and text.strip()):
            return self._tear()
        if self.joined:
            return self._pass(text)
        self._held += text if self._held else text.removeprefix(_BOM)
        if len(self._held) < self._ask_at:
            return ""
        self._ask_at = len(self._held) + len(self._held) // _HELD_PARTS
        return self._decide(final=False)

    def finish(self, *, called: bool = False) -> str:
        """Return what may still leave, once no more text comes. `called`: a call does, and needs no words before."""
        self._called = self._called or (called and not self._held.strip() and self._end[-1:] in _WHOLE_ENDS)
        if self.torn or self._called:
            return ""
        out = "" if self.joined else self._decide(final=True)
        if self.joined and self._wrapping is not None:
            out += self._wrapping.finish()
            self.torn = self._wrapping.torn
            self._wrapping = None
        self.torn = self.torn or not (self.joined or (self._trusted and not self._held.strip()))
        return out

    def _decide(self, *, final: bool) -> str:
        # What was asked for may stand in quotation marks, and may begin with one itself.
        for head, opened in ((self._held, ""), read_wrapping(self._held)):
            if not self._trusted and head.startswith(self._anchor):
                return self._join_behind(head, len(self._anchor), opened, final=final)
        head, opened = read_wrapping(self._held)
        if not final and (not head or head in self._end or self._held.strip() in self._end):
            return ""  # so far it repeats what stands
        if not final and _FENCE_START.fullmatch(self._held):
            return ""
        start = next(_list_ends(self._end, head, max(0, len(self._end) - len(head))), len(self._end))
        overlap = len(self._end) - start
        if overlap and self._is_certain(overlap):
            return self._join_behind(head, overlap, opened, final=final)
        if not self._trusted or (overlap >= _ECHO_CHARS and self._stands_once and self._is_echo(head)):
            return self._tear()
        return self._believe(head, final=final)

    def _is_certain(self, overlap: int) -> bool:
        """Return whether an overlap of so many characters is an echo, and no repetition of the text's own."""
        end = self._end
        said, start = end[len(end) - overlap :], len(end) - overlap
        if overlap < _ECHO_CHARS or self._held[:1].isspace() > self._space[:1].isspace() or _ends_as_it_begins(said):
            return False
        if self._trusted and (end[-1] in _UNIT_ENDS or "\n" in self._space):
            return False
        if overlap == len(end):
            return end.find(end[:_ECHO_CHARS], 1) < 0
        begins_unit = end[start - 1] in "\n。！？" or end[:start].rstrip(" ")[-1:] in ".!?"
        return self._trusted and begins_unit and self._stands_once

    @property
    def _stands_once(self) -> bool:
        return self._end.find(self._end[-_ECHO_CHARS:]) == len(self._end) - _ECHO_CHARS

    def _join_behind(self, head: str, overlap: int, opened: str, *, final: bool) -> str:
        """Join what stands behind the overlap, unless it is the same words once more."""
        rest = head[overlap:]
        said = read_wrapping(rest)[0]
        again = read_wrapping(self._anchor or self._end[-_ECHO_CHARS:])[0]
        if not final and (again.startswith(said[: len(again)]) or self._may_begin_anew(said) or self._is_open(rest)):
            return ""
        glued = self._within_word and rest[:1].isalnum()
        if not final and glued and rest in self._end:
            return ""
        wrapping = Wrapping(self._begun, opened)
        rest = wrapping.drop_closing(rest)
        twice = said.startswith(again) or self._begins_anew(said) or (glued and self._is_echo(rest))
        if twice or wrapping.torn or self._is_chat(rest) or self._breaks_word(rest, paragraphs=True):
            return self._tear()
        if self._opens_turn(rest) or _MARKER.match(rest):
            return self._tear()
        self._wrapping = wrapping if opened or not self._trusted else None
        return self._join(rest)

    def _is_chat(self, rest: str) -> bool:
        """Return whether so short a beginning may as well open an answer about it: `As` and `As requested, …`."""
        if len(self._end) >= ANCHOR_CHARS:
            return False
        own = not self._within_sentence and _ABOUT.search(self._end) is None
        return len(self._end.split()) < 3 or (not own and (self._end + rest).lstrip().lower().startswith(_OPENINGS))

    def _breaks_word(self, rest: str, *, paragraphs: bool = False) -> bool:
        """Return whether marks or a blank line stand where only the rest of a word or a new word can."""
        if not self._within_word:
            return False
        if _GLUED_MARK.match(rest) and not (rest[0] in '"”»`' and self._begun.count(rest[0]) % 2 + (rest[0] in "”»")):
            return True
        blank = re.match(r"[ \t]*\r?\n\s*", rest)
        return paragraphs and blank is not None and rest[blank.end() : blank.end() + 1].islower()

    def _believe(self, head: str, *, final: bool) -> str:
        """Join the text of an upstream that promises to continue, as it came; not where it breaks its promise."""
        said = self._held.lstrip()
        if not final and (self._may_be_remark(said) or self._is_open(self._held)):
            return ""
        if self._opens_turn(said) or _MARKER.match(said) or self._is_announced(said):
            return self._tear()
        direct = self._held if said is not self._held and self._is_echo(self._held, lines=True) else said
        glued = direct is self._held or not self._held[:1].isspace()
        opens = head.lower().startswith(_OPENINGS)
        # Said in capitals as a new turn is: in the middle of a sentence "okay, " may well be its next word.
        speaks = opens and self._within_sentence and head[:1].isupper()
        line = head[:_REMARK_CHARS].partition("\n")[0]
        breaks = self._begins_anew(head) or speaks or (opens and _ABOUT.search(line) is not None)
        fenced = said.startswith("```") and glued and not self._space and self._end[-1:] not in ("", "\n", "`")
        if breaks or fenced or (glued and self._is_echo(direct)) or self._breaks_word(self._held):
            return self._tear()
        return self._join(self._held) if self._held else ""

    def _is_echo(self, head: str, *, lines: bool = False) -> bool:
        """Return whether the head begins with the last word or the last line of `begun`: said again, or the next."""
        end = self._end
        return any(
            end[start - 1] == "\n" if lines and start else _is_boundary(end, start)
            for start in _list_ends(end, head, max(0, len(end) - len(head)))
        )

    def _begins_anew(self, head: str) -> bool:
        return bool(self._beginning) and head.startswith(self._beginning)

    def _may_begin_anew(self, head: str) -> bool:
        return self._beginning.startswith(head) and bool(self._beginning)

    def _is_open(self, rest: str) -> bool:
        """Return whether the text may still become a fence, a mark of a turn, or a marker."""
        if _FENCE_START.fullmatch(rest) or (rest and _MARKER_BEGUN.match(rest)):
            return True
        head = _TURN_HEAD.match(rest)
        at = head.end() if head else 0
        if MARK.search(rest, 0, at) and _ROLE_BEGUN.match(rest, at):
            return True
        return _MARK_BEGUN.match(rest, at) is not None

    @staticmethod
    def _opens_turn(rest: str) -> bool:
        """Return whether the text opens a turn of its own, or a thought, where the turn is open already."""
        head = _TURN_HEAD.match(rest)
        at = head.end() if head else 0
        if _TURN_BEGUN.match(rest, at):
            return True
        opened = any(opens_turn(mark[0]) for mark in MARK.finditer(rest, 0, at))
        return opened and _OTHERS_TURN.match(rest, at) is None

    def _begins_apart(self, line: str) -> bool:
        """Return whether a line may be no part of the text: short, glued to it, and not in small letters."""
        glued = self._held[:1].isspace() <= self._space[:1].isspace()
        return glued and len(line) <= _REMARK_CHARS and not line[:1].islower()

    def _is_announced(self, said: str) -> bool:
        """Return whether the first line announces the text: it is about the rest, or all of it stands behind."""
        line, newline, behind = said.partition("\n")
        if self._within_word and line.lower() == "assistant":
            return bool(newline)
        if not self._begins_apart(line):
            return False
        if self._begins_anew(read_wrapping(behind)[0]):
            return True
        ends = line.rstrip("* \t\r")[-1:]
        about = _ABOUT.search(line) is not None and (ends in (":", "：") or self._within_sentence)
        about = about or _TITLE.fullmatch(line) is not None
        return bool(newline) and (about or (self._within_word and line[:1].isupper() and ends in (":", "：")))

    def _may_be_remark(self, said: str) -> bool:
        """Return whether the text may still become a remark about the text, or one glued to a word."""
        line, newline, behind = said.partition("\n")
        if self._begins_apart(line) and (not newline or self._may_begin_anew(read_wrapping(behind)[0])):
            return True
        head, low = read_wrapping(said)[0], read_wrapping(said)[0].lower()
        if self._within_sentence and any(opening.startswith(low) for opening in _OPENINGS):
            return True
        if self._within_word and not self._held[:1].isspace() and _MARK_START.fullmatch(said):
            return True
        open_line = len(head) < _REMARK_CHARS and "\n" not in head
        return open_line and (low.startswith(_OPENINGS) or any(opening.startswith(low) for opening in _OPENINGS))

    @property
    def _within_sentence(self) -> bool:
        return bool(self._end) and self._begun[-1] not in _SENTENCE_ENDS and self._end[-1] not in _SENTENCE_ENDS

    @property
    def _within_word(self) -> bool:
        return self._end[-1:].isalnum() and not self._space

    def _tear(self) -> str:
        self.torn = True
        return ""

    def _join(self, rest: str) -> str:
        self.joined = True
        return self._pass(rest)

    def _pass(self, text: str) -> str:
        """Drop the white space that stands at the end of `begun` already, and hold what may close a wrapping."""
        while self._space and text:
            if text[0] != self._space[0]:
                self._space = ""
                break
            text, self._space = text[1:], self._space[1:]
        out = text if self._wrapping is None else self._wrapping.feed(text)
        return self._tear() if self._wrapping is not None and self._wrapping.torn else out
