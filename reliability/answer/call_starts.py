"""Where, in the text of an answer, a tool call may begin.

Weak models write their calls as text: bare JSON, in a code fence, behind a tag, or as `name(...)`. This
module looks at one place of a text and says one of three things: nothing begins here (None), something may
begin here but the text ends too early to tell (PARTIAL), or a *candidate* begins here (`Opening`). It doesn't
know where a candidate ends (that is `gate.py`) and doesn't parse it (that is the extraction of calls).

The answers are final: with more text after it, a place that was None stays None and an Opening stays that
Opening. So it doesn't matter how a text is cut. To keep it cheap, no place is looked at further than the
bounds below reach; every bound errs towards holding, except where a name and its bracket are further apart
than `SPACES_MAX`.

Names and tags are compared without case, and with `-` like `_`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

__all__ = ["MARKERS", "PARTIAL", "Kind", "Opening", "Words", "find_opening", "folded", "words"]

SPACES_MAX = 64  # white space between two parts of an opening
KEY_MAX = 128  # characters of the first key of an object
TICKS_MAX = 8  # backticks of a code fence
INFO_MAX = 32  # characters of a code fence's language
BRACES_MAX = 4  # `{{` and the like, as templates write them

# What begins a call wherever it stands.
MARKERS: Final = (
    "<tool_call",
    "<toolcall",
    "<tool_use",
    "<tool_code",
    "<tool name=",
    "<tool>",
    "<tools>",
    "<function=",
    "<function>",
    "<function name",
    "<function_call",
    "<functioncall",
    "<functions",
    "<start_function_call",
    "<invoke ",
    "<parameter=",
    "<arg_key>",
    "<minimax:tool",
    "<longcat_tool",
    "<seed:tool",
    "<atem:",
    "<|tool",
    "<|channel|>",
    "<|start|>",
    "<|message|>",
    "<|constrain|>",
    "<|python_tag|>",
    "<|call",
    "<|open|>",
    "<|plugin|>",
    "<|action_start|>",
    "<｜tool",
    "[tool_request",
    "[tool_call",
    "[toolcall",
    "⏺",
    "✿function",
)
# What models put before a name at the start of a line.
PREFIXES: Final = ("", "functions.", "default_api.", "call:", "print(", "print(default_api.")

PARTIAL: Final = "partial"
_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ-", "abcdefghijklmnopqrstuvwxyz_")
_MARKER_MAX = max(map(len, MARKERS))
_SPOT = re.compile(r"[{\[<`⏺✿\n]")
_SPACES = re.compile(rf"\s{{0,{SPACES_MAX + 1}}}")
_INDENT = re.compile(r"[ \t\r]*")
_TICKS = re.compile(rf"`{{1,{TICKS_MAX}}}")
_BRACES = re.compile(rf"\{{{{1,{BRACES_MAX}}}")
_BARE_KEY = re.compile(rf"[^\W\d]\w{{0,{KEY_MAX}}}")
_INFO = re.compile(rf"[\w+.#-]{{0,{INFO_MAX + 1}}}")
_QUOTES: Final = {'"': '"', "'": "'", "“": "”"}


class Kind(StrEnum):
    """How the end of a candidate is found: where its brackets close, or only by asking."""

    BRACKETS = "brackets"
    OPEN_ENDED = "open_ended"


@dataclass(frozen=True, slots=True)
class Opening:
    """A candidate. The call would begin at `call` (a fence may stand before it), its brackets at `scan`."""

    call: int
    scan: int
    kind: Kind
    strong: bool


Found = Opening | Literal["partial"] | None


@dataclass(frozen=True, slots=True)
class Words:
    """The declared names, made ready for looking up."""

    names: tuple[str, ...]
    whole: frozenset[str]
    in_order: tuple[str, ...]
    lengths: tuple[int, ...]


def folded(text: str) -> str:
    """The text without case, and with `-` as `_`; as long as before."""
    return text.translate(_FOLD)


def words(names: Iterable[str]) -> Words:
    """Make the names of the declared tools ready."""
    known = tuple(sorted({folded(name) for name in names if name}))
    whole = frozenset(prefix + name for prefix in PREFIXES for name in known)
    return Words(known, whole, tuple(sorted(whole)), tuple(sorted({len(word) for word in whole}, reverse=True)))


def find_opening(known: Words, text: str, at: int, line_start: bool) -> tuple[int, bool, Found]:
    """The first place from `at` on where something begins or may begin, and whether a line starts there."""
    while at < len(text):
        if line_start:
            at = _skip(_INDENT, text, at)
            found = _at_name(known, text, at) if at < len(text) else None
            if found is not None or at == len(text):
                return at, True, found
        spot = _SPOT.search(text, at)
        if spot is None:
            return len(text), False, None
        line_start = line_start and spot.start() == at
        at = spot.start()
        if text[at] == "\n":
            at, line_start = at + 1, True
            continue
        found = _at_spot(known, text, at)
        if found is not None:
            return at, line_start, found
        at, line_start = at + 1, False
    return len(text), line_start, None


def _at_spot(known: Words, text: str, at: int) -> Found:
    match text[at]:
        case "{":
            return _at_object(text, at)
        case "[":
            return _first(_at_marker(text, at), _at_list(known, text, at))
        case "`":
            return _at_fence(known, text, at)
    return _at_marker(text, at)


def _first(*found: Found) -> Found:
    """An opening if there is one, else a doubt if there is one."""
    return next((f for f in found if isinstance(f, Opening)), PARTIAL if PARTIAL in found else None)


def _at_marker(text: str, at: int) -> Found:
    rest = folded(text[at : at + _MARKER_MAX])
    for marker in MARKERS:
        if rest.startswith(marker):
            return Opening(at, at + len(marker), Kind.OPEN_ENDED, strong=True)
    return PARTIAL if any(marker.startswith(rest) for marker in MARKERS) else None


def _at_object(text: str, at: int) -> Found:
    """`{` opens a candidate when a key and a colon follow: a call must say what it calls."""
    opening = Opening(at, at, Kind.BRACKETS, strong=False)
    key = _past_spaces(text, _skip(_BRACES, text, at))
    if key is None:
        return opening
    if key < len(text) and text[key] == "\\":  # an object inside a string
        key += 1
    end = _past_key(text, key)
    colon = _past_spaces(text, end) if isinstance(end, int) and end < len(text) else end
    if colon is None:
        return opening if isinstance(end, int) else None
    if colon == PARTIAL or colon == len(text):
        return PARTIAL
    return opening if text[colon] == ":" else None


def _past_key(text: str, at: int) -> int | Literal["partial"] | None:
    """The end of the key that begins here."""
    if at >= len(text):
        return PARTIAL
    quote = _QUOTES.get(text[at])
    if quote is None:
        bare = _BARE_KEY.match(text, at)
        if bare is None or bare.end() - at > KEY_MAX:
            return None
        return PARTIAL if bare.end() == len(text) else bare.end()
    end = text.find(quote, at + 1, at + KEY_MAX + 2)
    line = text.find("\n", at + 1, end if end >= 0 else at + KEY_MAX + 2)
    if line >= 0:
        return None
    if end >= 0:
        return end + 1
    return PARTIAL if len(text) < at + KEY_MAX + 2 else None


def _at_list(known: Words, text: str, at: int) -> Found:
    """`[{`, `[name(` and `[name] {`."""
    opening = Opening(at, at, Kind.BRACKETS, strong=False)
    item = _past_spaces(text, at + 1)
    if item is None:
        return opening
    if item == len(text):
        return PARTIAL
    if text[item] == "{":
        return opening
    end = _past_name(known, text, item)
    if end is None or end == PARTIAL or end == len(text):
        return end if end is None else PARTIAL
    if text[end] == "(":
        return opening
    if text[end] != "]":
        return None
    body = _past_spaces(text, end + 1)
    if body is None or body == len(text):
        return None if body is None else PARTIAL
    return Opening(at, body, Kind.BRACKETS, strong=False) if text[body] == "{" else None


def _at_name(known: Words, text: str, at: int) -> Found:
    """A declared name with its arguments: `name(`, `name: `, `name {`, `name <`."""
    end = _past_name(known, text, at)
    if end is None or end == PARTIAL:
        return end
    body = _past_spaces(text, end)
    if body is None:
        return None
    if body == len(text):
        return PARTIAL
    match text[body]:
        case "(":
            return Opening(at, at, Kind.BRACKETS, strong=False)
        case "{" | "[":
            return Opening(at, body, Kind.BRACKETS, strong=False)
        case ":" | "<":
            return Opening(at, body, Kind.OPEN_ENDED, strong=False)
    return None


def _past_name(known: Words, text: str, at: int) -> int | Literal["partial"] | None:
    """The end of the longest declared name that stands here; who asks looks at what follows it."""
    if not known.lengths:
        return None
    rest = folded(text[at : at + known.lengths[0] + 1])
    if at + len(rest) == len(text):
        following = bisect_left(known.in_order, rest)
        if following < len(known.in_order) and known.in_order[following].startswith(rest):
            return PARTIAL
    for length in known.lengths:
        if rest[:length] in known.whole:
            return at + length
    return None


def _at_fence(known: Words, text: str, at: int) -> Found:
    """A code fence is a candidate when something inside it is, right at its beginning."""
    inside = _skip(_TICKS, text, at)
    if inside == len(text):
        return PARTIAL
    if inside - at < 3:
        return None
    info = _skip(_INFO, text, inside)
    body = _past_spaces(text, info)
    found = [_at_body(known, text, inside)]
    if info - inside <= INFO_MAX and body is not None and body > inside:
        found.append(_at_body(known, text, body))
    return _first(*found)


def _at_body(known: Words, text: str, at: int) -> Found:
    if at == len(text):
        return PARTIAL
    if text[at] in "{[<⏺✿":
        return _at_spot(known, text, at)
    return _at_name(known, text, at)


def _past_spaces(text: str, at: int) -> int | None:
    """The end of the white space that begins here; None: there is too much of it."""
    end = _skip(_SPACES, text, at)
    return None if end - at > SPACES_MAX else end


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()
