"""Where, in the text of an answer, a tool call may begin.

At one place nothing begins (None), something may begin but the text ends too early to tell (PARTIAL), or a *candidate*
of the table of call formats begins (`CallStart`), with the fence or the tag before it; `gate.py` finds its end.

Invariants: the answers are final, so it doesn't matter how a text is cut. No place is looked at further than the bounds
of the table reach; every bound errs towards holding, except where a name and its bracket are further apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reliability.answer.answer_head import DELIMITER_MAX, PARTIAL, Partial, Starts
from reliability.tools import format_reasoning, formats
from reliability.tools.format_reasoning import REASONING, Thought
from reliability.tools.format_row import Place, Reader, Start, Until
from reliability.tools.schema.tool_names import Lookup, prepare_tool_names
from reliability.tools.turns import ENDS, GIVEN_RESULTS, list_fences

_SAID_CHARS = 16  # behind a mark, to tell whether a sentence says something of it
_SPACES_MAX = 64  # white space between a fence or a tag and a candidate

_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ-", "abcdefghijklmnopqrstuvwxyz_")
_SPOT = re.compile(rf"[{{\[<`⏺✿◁{formats.SENTENCE_ENDS}]|\](?=<|\Z)|&(?=l|\Z)")
_MARK_SPOT = re.compile(r"<(?:[/|｜cu]|\Z)|\[(?:[/BE]|\Z)|◁")  # how a mark may begin that opens no reasoning
_THOUGHT_SPOT = re.compile(r"<|\[(?:T|\Z)|◁")
_BRACKET = re.compile(r"[{\[(]")
_INDENT = re.compile(r"[ \t\r]*")
_NAME = re.compile(r"[A-Za-z0-9_.:/\\-]{1,128}")
_NAME_PART = re.compile(r"[.:/-][^.:/-]*\Z")
_OPENERS = [(opener, row) for row in REASONING for opener in row.opens]
_THOUGHTS = Starts(opener for opener, _ in _OPENERS)
_MARKS = Starts((*format_reasoning.REASONING_CLOSES, *format_reasoning.ANSWER_MARKS))
_SIGNS = "{[]<>⏺✿&"
_FENCES = (Starts([rf"{formats.FRAME_FENCE}\s{{0,{_SPACES_MAX}}}"]), Starts(["`{3,8}"]))
_TAGS = Starts([rf"{formats.FRAME_TAG}\s{{0,{_SPACES_MAX}}}"])


@dataclass(frozen=True, slots=True)
class CallStart:
    """A candidate. The call would begin at `call` (a fence or a tag may stand before it). `until` says how its end is
    found; its brackets are counted from `scan`. `strong`: it may be a call though it names no declared tool."""

    call: int
    scan: int
    until: Until
    strong: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """Reasoning of this row begins here, or it ends, or a mark of the answer stands here; `end` is the place behind.
    `told`: an opener or its closer is only talked about."""

    end: int
    row: Thought | None
    told: bool = False


Found = CallStart | Mark | Partial | None


@dataclass(frozen=True, slots=True)
class DeclaredNames:
    """The declared names, and what is looked for. `firsts`: what they and the words of the table begin with."""

    names: tuple[str, ...]
    folded: Lookup
    exact: Lookup
    table: _Table
    firsts: frozenset[str]


class _Heads:
    """What may stand before a declared name, and what must stand behind it then; or words that need no name."""

    def __init__(self, starts: Iterable[Start]) -> None:
        by_head: dict[str, list[Start]] = {}
        for start in sorted(starts, key=lambda start: -len(start.head)):  # the longer before what it begins with
            by_head.setdefault(start.head, []).append(start)
        bare = by_head.pop("", [])
        self.bare = _Tails(bare) if bare else None
        self.heads = Starts(by_head, re.NOFLAG)
        # What stands behind each head: a name and a tail, or nothing that must.
        self.behind = [group[0].until if group[0].tail is None else _Tails(group) for group in by_head.values()]

    def find_at(self, names: Lookup, text: str, at: int) -> Found:
        head = self.heads.find_at(text, at)
        found: Found = None if isinstance(head, re.Match) else head
        if isinstance(head, re.Match):
            behind = self.behind[(head.lastindex or 1) - 1]
            if isinstance(behind, _Tails):
                found = behind.find_at(names, text, at, head.end())
            else:
                found = _build_call_start(at, head, behind, strong=True)
        if found is None and self.heads.may_become_another(text, at):  # a longer one
            found = PARTIAL
        if isinstance(found, CallStart) or self.bare is None:
            return found
        return _pick_first(self.bare.find_at(names, text, at, at), found)


class _Tails:
    def __init__(self, starts: Sequence[Start]) -> None:
        self.untils = [start.until for start in starts]
        self.tails = Starts(start.tail or "" for start in starts)

    def find_at(self, names: Lookup, text: str, start: int, at: int) -> Found:
        """Find the candidate that begins at `start`, with its name at `at`."""
        end = _skip_name(names, text, at)
        if not isinstance(end, int):
            return end
        tail = self.tails.find_at(text, end)
        if not isinstance(tail, re.Match):
            return tail
        return _build_call_start(start, tail, self.untils[(tail.lastindex or 1) - 1], strong=False)


def _build_call_start(start: int, match: re.Match[str], until: Until, *, strong: bool) -> CallStart:
    if until is Until.FIRST_CLOSES:
        bracket = _BRACKET.search(match.string, start)
        scan = bracket.start() if bracket else start
    else:
        scan = match.end() if until is Until.ASKED else match.end() - 1
    return CallStart(start, scan, until, strong)


def fold_text(text: str) -> str:
    """Return the text without case, and with `-` as `_`; as long as before."""
    return text.translate(_FOLD)


def _list_firsts(head: str) -> str:
    """Return the characters with which a text may begin that begins with this expression."""
    inside = re.match(r"\[([^\]]+)\]", head)
    return (inside[1] if inside else head).replace("\\", "")[: None if inside else 1]


class _Table:
    """What is looked for: by its first sign, by that before a declared name, and at the places of words."""

    def __init__(self, starts: Sequence[Start], marks: Iterable[str]) -> None:
        anywhere = [start for start in starts if start.place is Place.ANYWHERE]
        delimiters = _group_by_sign([*(start for start in anywhere if start.tail is None), *map(Start, marks)])
        named = _group_by_sign([start for start in anywhere if start.tail is not None and start.head])
        self.at_sign = {sign: Starts(start.head for start in group) for sign, group in delimiters.items()}
        self.untils = {sign: [start.until for start in group] for sign, group in delimiters.items()}
        self.named = {sign: _Heads(group) for sign, group in named.items()}
        self.at_place = {
            place: _Heads(start for start in starts if start.place in (place, Place.SENTENCE))
            for place in (Place.LINE, Place.SENTENCE)
        }
        words = [start.head for start in starts if start.place is not Place.ANYWHERE and start.head]
        self.firsts = frozenset(fold_text(first) for head in words for first in _list_firsts(head))


def _group_by_sign(starts: Iterable[Start]) -> dict[str, list[Start]]:
    found: dict[str, list[Start]] = {}
    for start in starts:
        found.setdefault(start.head.lstrip("\\")[0], []).append(start)
    return {sign: group for sign, group in found.items() if sign in _SIGNS}


_CALLS = _Table(
    [start for row in formats.CALL_FORMATS for start in row.starts],
    (
        *(closer for row in formats.CALL_FORMATS if row.reader is Reader.ENVELOPE for closer in row.closes),
        *formats.INNER_CLOSES,
        *dict.fromkeys(ENDS),
        *GIVEN_RESULTS,
    ),
)
# Where no tools are declared nothing is a call; only the marks of messages and of turns are no part of the answer.
_MESSAGES = _Table(
    [start for row in formats.CALL_FORMATS if row.reader is Reader.MESSAGES for start in row.starts],
    dict.fromkeys(ENDS),
)


def prepare_names(names: Iterable[str]) -> DeclaredNames:
    """Make the names of the declared tools ready."""
    known = tuple(dict.fromkeys(name for name in names if name))
    index = prepare_tool_names(known)
    table = _CALLS if known else _MESSAGES
    return DeclaredNames(
        tuple(sorted({fold_text(name) for name in known})),
        Lookup(index, exact=False),
        Lookup(index, exact=True),
        table,
        index.firsts | table.firsts,
    )


def is_plain(text: str) -> bool:
    """Tell whether nothing begins in a text that goes on within a line, and no sentence ends there."""
    return _SPOT.search(text) is None


def find_call_start(
    known: DeclaredNames,
    text: str,
    at: int,
    place: Place,
    before: str = "",
    *,
    fenced: bool = False,
    told: Sequence[Thought] = (),
) -> tuple[int, Place, Found]:
    """Find the first place from `at` on where something begins or may begin, and which place of its line that is.
    `before`: what stands before `at`; `fenced`: that ends in a code block; `told`: rows whose openers it tells of."""
    start = counted = at
    while at < len(text):
        if place is not Place.ANYWHERE:
            indent = _INDENT.match(text, at)
            at = at if indent is None else indent.end()
            found = _find_at_word(known, text, at, place) if at < len(text) else None
            if found is not None or at == len(text):
                return at, place, found
        spot = _SPOT.search(text, at)
        if spot is None:
            return len(text), Place.ANYWHERE, None
        place = place if spot.start() == at else Place.ANYWHERE
        at = spot.start()
        found = _find_mark_of_reasoning(text, at, place, start, before, told)
        if isinstance(found, Mark) and not found.told:
            lead = before if counted == start else text[max(start, counted - DELIMITER_MAX) : counted]
            fenced, counted = fenced ^ (count_fences(lead, text[counted:at]) % 2 == 1), at
            if fenced:
                found = None if found.row is None else Mark(found.end, found.row, told=True)
        if found is None:
            found = _find_at_spot(known, text, at, text[at - 1] if at else before[-1:])
        if found is not None:
            return at, place, found
        at, place = at + 1, place_behind(text[at])
    return len(text), place, None


def _find_mark_of_reasoning(
    text: str, at: int, place: Place, start: int, before: str, told: Sequence[Thought]
) -> Mark | Partial | None:
    """Find where reasoning begins or ends, or a mark of the answer. `before` is what stands before `start`."""
    if text[at] not in "<[◁":
        return None
    row = None
    found = _MARKS.find_at(text, at) if _MARK_SPOT.match(text, at) else None
    if found is None and _THOUGHT_SPOT.match(text, at):
        found = _THOUGHTS.find_at(text, at)
        row = _OPENERS[(found.lastindex or 1) - 1][1] if isinstance(found, re.Match) else None
    if not isinstance(found, re.Match):
        return found
    if format_reasoning.is_unsettled(text, found.end()):
        return PARTIAL
    lead = text[at - DELIMITER_MAX : at] if at - start >= DELIMITER_MAX else before + text[start:at]
    near, end = lead + text[at : found.end() + _SAID_CHARS], len(lead) + found.end() - at
    if row is not None:
        meant = place is not Place.ANYWHERE and format_reasoning.opens_reasoning(near, len(lead), end)
        passes = not meant and (row in told or formats.is_quoted(near, len(lead), end))
        return None if passes else Mark(found.end(), row, told=not meant)
    closed = next((one for one in told if format_reasoning.compile_ends(one).fullmatch(found[0])), None)
    if closed is not None:
        return Mark(found.end(), closed, told=True) if format_reasoning.ends_reasoning(near, len(lead), end) else None
    return Mark(found.end(), None) if format_reasoning.is_used(near, len(lead), end) else None


def count_fences(before: str, text: str) -> int:
    """Count the lines that open or close a code block in a text; `before` is what stands before it."""
    return len(list_fences(before + text)) - len(list_fences(before)) if "`" in text else 0


def place_behind(char: str) -> Place:
    """Say what kind of place stands behind a character."""
    if char not in formats.SENTENCE_ENDS:
        return Place.ANYWHERE
    return Place.LINE if char == "\n" else Place.SENTENCE


def _find_at_word(known: DeclaredNames, text: str, at: int, place: Place) -> Found:
    if fold_text(text[at]) not in known.firsts:
        return None
    lookup = known.folded if known.names and place is Place.LINE else known.exact
    return known.table.at_place[place].find_at(lookup, text, at)


def _find_at_spot(known: DeclaredNames, text: str, at: int, before: str) -> Found:
    if known.names and text[at] == "`":
        return _pick_first(*(_find_in_frame(known, fence, text, at, Place.LINE) for fence in _FENCES))
    found = _find_at_delimiter(known, text, at, before)
    if known.names and text[at] == "<" and not isinstance(found, CallStart):
        found = _pick_first(_find_in_frame(known, _TAGS, text, at, Place.SENTENCE), found)
    return found


def _pick_first(*found: Found) -> Found:
    return next((f for f in found if isinstance(f, CallStart)), PARTIAL if PARTIAL in found else None)


def _find_at_delimiter(known: DeclaredNames, text: str, at: int, before: str) -> Found:
    sign, table = text[at], known.table
    match = table.at_sign[sign].find_at(text, at) if sign in table.at_sign else None
    named = table.named[sign].find_at(known.folded, text, at) if sign in table.named else None
    if not isinstance(match, re.Match):
        return _pick_first(named, match)
    until = table.untils[sign][(match.lastindex or 1) - 1]
    if until is not Until.ASKED:
        return _build_call_start(at, match, until, strong=False)
    if before and before in formats.QUOTES:
        if match.end() == len(text):
            return PARTIAL
        if text[match.end()] == before:
            return None
    return _build_call_start(at, match, until, strong=True)


def _find_in_frame(known: DeclaredNames, frame: Starts, text: str, at: int, place: Place) -> Found:
    """Find a fence or a tag that is a candidate: something inside it is one, right at its beginning."""
    match = frame.find_at(text, at)
    if not isinstance(match, re.Match):
        return match
    inside = match.end()
    if inside == len(text):
        return PARTIAL
    if text[inside] in _SIGNS:
        return _find_at_delimiter(known, text, inside, "")
    return _find_at_word(known, text, inside, place)


def _skip_name(names: Lookup, text: str, at: int) -> int | Partial | None:
    """Return the end of the longest declared name that stands here; who asks looks at what follows it."""
    match = _NAME.match(text, at)
    if match is None:
        return PARTIAL if at == len(text) else None
    name = match[0]
    if "\\" in name:  # its underscores are escaped, as Markdown has it
        name, end = name.replace("\\", ""), match.end()
        if end == len(text) and names.may_become(name):
            return PARTIAL
        return end if names.knows(name) else None
    if match.end() == len(text) and _may_become(names, name):
        return PARTIAL
    while not names.knows(name):
        part = _NAME_PART.search(name)
        if part is None:
            return None
        name = name[: part.start()]
    return at + len(name)


def _may_become(names: Lookup, text: str) -> bool:
    if any(map(str.isalnum, text)):
        return names.may_become(text)
    return any(known.startswith(text) for known in names.index.exact)
