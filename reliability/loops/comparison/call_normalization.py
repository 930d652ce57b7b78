"""What a call does, without what agents change in it from lap to lap although they mean the same.

Left out or masked, where something else is left of the call:

- arguments about the run or the model: a description, an attempt, a timeout, a request id, a timestamp;
- in a command or code: comments, `timeout 30`, `sleep 5`, `attempt 3`, a request's id and moment, white space, `./`;
- numbers that stand for themselves, and in a command a UUID or a moment: masked by `HOLE`. Such a call is the same only
  where its results say something (`says_enough`): five orders that are deleted by id all answer `ok`;
- places in a text or a list and limits of a search: masked by `PLACE` and `BOUND`. Such calls are the same even where
  there is nothing at those places, but for far longer (see `history`).

`mask_echoes` masks in a result what the call said itself: "no offset 900" and "no offset 950" are the same.

Invariants: an edit's texts are never masked; calls that were masked are equal only where their results are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Any

from reliability.loops.comparison.findings import Result, SeenCall, canonical, has_failed, parse, spell
from reliability.loops.comparison.volatile_fields import NAMES_MAX, is_volatile, word_set, words_of

HOLE = "\ufffc"
PLACE, BOUND = f"{HOLE}p", f"{HOLE}b"
#: A longer command is its own spelling.
COMMAND_CHARS = 20_000
#: A longer one is a script: its figures are its own.
FIGURES_CHARS = 1_000
#: A result with fewer letters says too little; a shorter one that has been done or found nothing says nothing.
SAID_LETTERS_MIN, SAID_CHARS = 24, 120

_RUN = word_set("attempt attempts retry retries tries iteration timeout wait delay ttl deadline")
#: A longer text is no waiting time.
RUN_CHARS = 16
_HANDLES = frozenset({"id", "uuid", "guid", "key"})
_STAMPS = frozenset({"timestamp", "ts", "epoch", "now", "nonce"})
_REMARKS = word_set(
    "description explanation explain reason reasoning rationale justification thought thoughts "
    "thinking intent intention "
    "purpose"
)
_CODE = word_set("command cmd commands code script input source bash shell program expression statement")
_PATHS = frozenset({"path", "file", "filename", "filepath", "directory", "dir", "folder"})
_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#(?!!)|//)[^\n]*", re.MULTILINE)
#: What a command says of its run: how long it waits, which attempt, request and moment it is.
_RUNS = re.compile(
    r"\btimeout (?:-\S+ )*\d+\w? |--(?:timeout|max-time|wait)[= ]\d+\w*|\bsleep \d+(?:\.\d+)?[smh]?(?![\w.])"
    r"|\b(?:attempt|try|retry|retries|nonce)(?: no\.?)?[ =:_#-]{0,3}\d+(?![\w./-])"
    r"|(?:-H|--header)[ =]['\"]?(?:X-)?(?:Request|Correlation|Trace|Span|Idempotency)-(?:Id|Key): ?[\w.:-]+['\"]?"
    r"|(?<=[?&])(?:_|cb|cachebuster|nocache|rand|nonce)=[\w.-]+"
    r"|(?<=[?&])(?:t|ts|time|timestamp)=(?:20\d\d-|1[789]\d{8})[\w.:%+-]*",
    re.IGNORECASE,
)
_HERE = re.compile(r"(?<![\w./])\./(?=\w)")
_ENTITIES = word_set("id ids uuid key port user account year month day zip code version pid channel seed")
_PLACES = word_set(
    "offset start begin end stop skip page pages cursor line lines position range limit first last view count size"
)
_BOUNDS = word_set("min max lower upper minimum maximum since until after before from to least most")
#: Commands that show some lines of a file.
_SHOWS_LINES = re.compile(r"\s*(?:cat \S+ \| )?(?:sed -n|awk '?\"?NR|head|tail)\b")
_CHANGING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|20\d\d-[01]\d-[0-3]\d[T _]\d\d[:-]\d\d(?:[:-]\d\d)?(?:\.\d+)?Z?"
    r"|\b20\d{6}[T_-]\d{4,6}\b|\b1[789]\d{8}(?:\d{3})?\b"
    r"|(?:(?<=\s)-|(?<=[\s=(,:'\"\[]))\d+(?:[,.:-]\d+)*[a-z%]?(?=[\s),;:'\"\]|]|$)",
    re.IGNORECASE,
)
_FINDS_NOTHING = re.compile(
    r"\bnot (?:be )?found\b|\bno (?:\w+ )?(?:such|match(?:es)?|results?|items?|data)\b|\bdoes(?:n't| "
    r"not) exist\b|\b404\b|\[\s*\]|\{\s*\}",
    re.IGNORECASE,
)
_SAYS_DONE = re.compile(
    r"\b(?:success\w*|performed|done|completed|ok|updated|clicked|pressed|moved|typed|sent|written|"
    r"created|saved|added|deleted|removed|inserted|executed|applied)\b",
    re.IGNORECASE,
)

#: What a result only repeats of its call, in how many values, of how many characters, how deep.
ECHO = "\ufff9"
VALUES_MAX, VALUE_CHARS, RESULT_CHARS, DEPTH = 16, 400, 4_000, 2
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def blur_call(call: SeenCall, ignored: frozenset[str]) -> str:
    """Return what two calls share that mean the same: the name and the arguments, blurred. `ignored`: arguments to
    leave out whatever they hold."""
    text = call.arguments.strip()
    known, value = parse(text) if text.startswith("{") else (False, None)
    if not known or not isinstance(value, dict):
        return f"{call.name}\x1f{canonical(call.arguments, ignored) if text.startswith('[') else _blur_command(text)}"
    kept: dict[str, Any] = {}
    remarks: list[str] = []
    for key, item in value.items():
        about = _classify_argument(key)
        if key in ignored or _tells_run(about, key, item):
            continue
        kept[key] = _blur_value(about, item)
        if about is _About.REMARK:
            remarks.append(key)
    if len(remarks) < len(kept):
        for key in remarks:
            del kept[key]
    return f"{call.name}\x1f{spell(kept) or text}"


class _About(Enum):
    RUN = 1  # how long to wait, which attempt
    STAMP = 2
    HANDLE = 3  # an id or a key: of the run, or of what is asked for
    REMARK = 4
    ENTITY = 5
    CODE = 6
    PATH = 7
    PLACE = 8
    BOUND = 9
    OTHER = 10


_BY_WORDS = (
    (_RUN, _About.RUN),
    (_STAMPS, _About.STAMP),
    (_REMARKS, _About.REMARK),
    (_CODE, _About.CODE),
    (_ENTITIES, _About.ENTITY),
    (_PLACES, _About.PLACE),
    (_BOUNDS, _About.BOUND),
    (frozenset({"number", "no"}), _About.ENTITY),
    (_PATHS, _About.PATH),
)


@lru_cache(NAMES_MAX)
def _classify_argument(key: str) -> _About:
    words = words_of(key)
    if words and words[-1] in _HANDLES:
        return _About.HANDLE
    return next((about for known, about in _BY_WORDS if not known.isdisjoint(words)), _About.OTHER)


def names_place(key: str) -> bool:
    """Return whether an argument of this name says where something stands (a file), or is code."""
    return _classify_argument(key) in (_About.PATH, _About.CODE)


def _tells_run(about: _About, key: str, value: Any) -> bool:
    """Return whether the argument is about the run: how long to wait, which attempt, which request it is."""
    if about is _About.RUN:
        return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= RUN_CHARS)
    return about is _About.STAMP or (about is _About.HANDLE and is_volatile(key, value, value))


def _blur_value(about: _About, value: Any) -> Any:
    if about in (_About.PLACE, _About.BOUND) and _holds_numbers(value):
        return PLACE if about is _About.PLACE else BOUND
    if isinstance(value, str):
        if about is _About.CODE:
            return _blur_command(value)
        return value.removeprefix("./") if about is _About.PATH else value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if about in (_About.ENTITY, _About.HANDLE, _About.CODE) else HOLE
    return value


def _holds_numbers(value: Any) -> bool:
    items = value if isinstance(value, list) and value else [value]
    return all(
        (isinstance(item, (int, float)) and not isinstance(item, bool)) or (isinstance(item, str) and item.isdecimal())
        for item in items[:RUN_CHARS]
    )


def _blur_command(text: str) -> str:
    """Blur a command or code: each step only where there is something for it."""
    if len(text) > COMMAND_CHARS:
        return text
    bare = _COMMENT.sub("", text) if "#" in text or "//" in text else text
    if len(bare) <= FIGURES_CHARS:
        hole = PLACE if _SHOWS_LINES.match(bare) else HOLE
        bare = _CHANGING.sub(hole, _HERE.sub("", _RUNS.sub(" ", bare)))
    return " ".join(bare.split()) or " ".join(text.split())


def says_enough(result: Result) -> bool:
    """Return whether only the same deed would give this result: not `ok`, "no such order" or a bare error."""
    text = result.text.strip()
    if sum(map(str.isalpha, text[:SAID_CHARS])) < SAID_LETTERS_MIN:
        return False
    return len(text) >= SAID_CHARS or not (_FINDS_NOTHING.search(text) or says_done(text) or has_failed(result))


def says_done(text: str) -> bool:
    """Return whether a result says that something was done: then other figures were another deed."""
    return bool(_SAYS_DONE.search(text))


def mask_echoes(call: SeenCall, text: str) -> str:
    """Put one sign in the place of everything in the result that the call said itself."""
    if len(text) > RESULT_CHARS:
        return text
    known, arguments = parse(call.arguments)
    said = dict.fromkeys(_list_said(arguments if known else call.arguments))
    values = sorted(said, key=len, reverse=True)[:VALUES_MAX]
    if not any(value in text for value in values):
        return text
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"(?<![\w.])(?:{pattern})(?!\w|\.\d)", ECHO, text)


def _list_said(value: Any, depth: int = DEPTH) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value[:VALUES_MAX]:
            yield from _list_said(item, depth - 1) if depth else ()
    elif isinstance(value, str):
        text = value.strip()
        if 0 < len(text) <= VALUE_CHARS:
            yield text
            yield from _NUMBER.findall(text)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)
