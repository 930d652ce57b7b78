"""What a call does, without what agents change in it from lap to lap although they mean the same.

Left out or masked, where something else is left of the call:

- arguments that say something about the run or the model: a description, a reason, an attempt, a timeout, a request id,
  a timestamp (`date` and the like stay: they are what is asked for);
- in a command or code: comments, `timeout 30`, the number and kind of white space, `./`;
- numbers that stand for themselves (a line, an offset, a page), and in a command or code a UUID or a moment: masked by
  `HOLE`. Such a call is the same only where its results say something (see `says_enough`): five orders that are deleted
  by id all answer `ok`, and five ranges of prices may hold nothing. An id, a port, a day are what is asked for.

Blurred calls count as equal only where their results are the same; nearly the same is not enough. An edit's texts are
never blurred.
"""

from __future__ import annotations

import re
from typing import Any

from reliability.loops.comparison.canonical import canonical, parse, spell
from reliability.loops.comparison.errors import has_failed
from reliability.loops.comparison.volatile_fields import is_volatile, word_set, words_of
from reliability.loops.findings import Call, Result

__all__ = ["HOLE", "blur_call", "says_enough"]

HOLE = "\ufffc"
#: A longer command is its own spelling.
COMMAND_CHARS = 20_000
#: A result with fewer letters says too little; a shorter one that has been done or found nothing says nothing.
SAID_LETTERS_MIN, SAID_CHARS = 24, 120

_RUN = word_set("attempt attempts retry retries tries iteration timeout wait delay ttl deadline")
_STAMPS = frozenset({"timestamp", "ts", "epoch", "now", "nonce"})
_REMARKS = word_set(
    "description explanation explain reason reasoning rationale justification thought thoughts "
    "thinking intent intention "
    "purpose"
)
_CODE = word_set("command cmd commands code script input source bash shell program expression statement")
_PATHS = frozenset({"path", "file", "filename", "filepath", "directory", "dir", "folder"})
_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#(?!!)|//)[^\n]*", re.MULTILINE)
_TIMEOUT = re.compile(r"\btimeout (?:-\S+ )*\d+\w? |--(?:timeout|max-time|wait)[= ]\d+\w*")
_HERE = re.compile(r"(?<![\w./])\./(?=\w)")
_ENTITIES = word_set("id ids uuid number no key port user account year month day zip code version pid channel seed")
_CHANGING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|20\d\d-[01]\d-[0-3]\d[T _]\d\d[:-]\d\d(?:[:-]\d\d)?(?:\.\d+)?Z?"
    r"|\b20\d{6}[T_-]\d{4,6}\b|\b1[789]\d{8}(?:\d{3})?\b"
    r"|(?:(?<=\s)-|(?<=[\s=(,:'\"\[]))\d+(?:[,.:-]\d+)*[a-z%]?(?=[\s),;:'\"\]|]|$)",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    r"\bnot (?:be )?found\b|\bno (?:\w+ )?(?:such|match(?:es)?|results?|items?|data)\b|\bdoes(?:n't| "
    r"not) exist\b|\b404\b"
    r"|\[\s*\]|\{\s*\}|\b(?:success\w*|performed|done|completed|ok|updated|clicked|pressed|moved|typed|sent|written|"
    r"created|saved|added|deleted|removed|inserted|executed|applied)\b",
    re.IGNORECASE,
)


def blur_call(call: Call, ignored: frozenset[str]) -> str:
    """Return what two calls share that mean the same: the name and the arguments, blurred. `ignored`: arguments to
    leave out whatever they hold."""
    text = call.arguments.strip()
    known, value = parse(text) if text.startswith("{") else (False, None)
    if not known or not isinstance(value, dict):
        return f"{call.name}\x1f{canonical(call.arguments, ignored) if text.startswith('[') else _blur_command(text)}"
    kept = {
        key: _blur_value(key, item) for key, item in value.items() if key not in ignored and not _tells_run(key, item)
    }
    if len(kept) > 1:
        kept = {key: item for key, item in kept.items() if not (_REMARKS & set(words_of(key)))} or kept
    return f"{call.name}\x1f{spell(kept) or text}"


def _tells_run(key: str, value: Any) -> bool:
    """Return whether the argument is about the run: how long to wait, which attempt, which request it is."""
    words = words_of(key)
    named = set(words)
    if named & _RUN:
        return isinstance(value, (int, float)) or (isinstance(value, str) and len(value) <= 16)
    if named & _STAMPS:
        return True
    return bool(words) and words[-1] in ("id", "uuid", "guid", "key") and is_volatile(key, value, value, False)


def _blur_value(key: str, value: Any) -> Any:
    words = set(words_of(key))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value if words & _ENTITIES else HOLE
    if not isinstance(value, str):
        return value
    if words & _CODE:
        return _blur_command(value)
    return value.removeprefix("./") if words & _PATHS else value


def _blur_command(text: str) -> str:
    if len(text) > COMMAND_CHARS:
        return text
    bare = _HERE.sub("", _TIMEOUT.sub(" ", _COMMENT.sub("", text)))
    return " ".join(_CHANGING.sub(HOLE, bare).split()) or " ".join(text.split())


def says_enough(result: Result) -> bool:
    """Return whether a result is one that only the same deed would give: not `ok`, not "no such order", no bare
    error."""
    text = result.text.strip()
    if sum(map(str.isalpha, text[:SAID_CHARS])) < SAID_LETTERS_MIN:
        return False
    return len(text) >= SAID_CHARS or not (_SAYS_NOTHING.search(text) or has_failed(result))
