"""What a call does, without what agents change in it from lap to lap although they mean the same.

Left out, where something else is left of the call: arguments about the run or the model (a description, an attempt, a
timeout, a request's id), null, comments, white space, and what `shell_commands` leaves out of a command. Masked:

- numbers that stand for themselves, and in a command a UUID or a moment: by `HOLE`. Such a call is the same only where
  its results say something (`says_enough`): five orders that are deleted by id all answer `ok`;
- references of a browser that counts them on (`ref=e34`): by `REFERENCE`, equal where the page shows all of its
  references anew, too. Of one that names its snapshot (`uid=3_7`, `s5e9`) that name is left out;
- places in a text or a list and limits of a search: by `PLACE`. Such calls are the same even where there is nothing.

Invariants: an edit's texts are never masked. An id of what a call is about is never left out, whatever its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import Any

from reliability.loops.comparison import shell_commands
from reliability.loops.comparison.findings import SeenCall, canonical, has_failed, is_number, parse, spell
from reliability.loops.comparison.volatile_fields import UUID, keep_by_name, word_set, words_of

HOLE = "\ufffc"
PLACE, REFERENCE = f"{HOLE}p", f"{HOLE}r"
_COMMAND_CHARS = 20_000  # a longer command is its own spelling
_FIGURES_CHARS = 1_000  # a longer one is a script: its figures are its own
#: A result with fewer letters says too little; a shorter one that has been done or found nothing says nothing.
_SAID_LETTERS_MIN, _SAID_CHARS = 24, 120
_PLACES_MAX = 16  # so many values of a list may be places

_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#(?!!)|//)[^\n]*", re.MULTILINE)
_ADDRESS = re.compile(r"[a-z]{2,8}://[^\s<>]{1,2000}")
_SHELL_WORDS = 3  # bash -lc COMMAND
#: Commands that show some lines of a file.
_SHOWS_LINES = re.compile(r"\s*(?:cat \S+ \| )?(?:sed -n|awk '?\"?NR|head|tail)\b")
#: Options of a command that say how much it shows.
_SHOWN = re.compile(
    r"(?<!\S)(?:-[a-zA-Z]{0,3}[ABCLmn]|-maxdepth"
    r"|--(?:tail|lines|max-?depth|max-count|context|depth|limit|level|last))[ =]\Z"
)
_RANDOM = re.compile(
    rf"{UUID}|20\d\d-[01]\d-[0-3]\d[T _]\d\d[:-]\d\d(?:[:-]\d\d)?(?:\.\d+)?Z?"
    r"|\b20\d{6}[T_-]\d{4,6}\b|\b1[789]\d{8}(?:\d{3})?\b",
    re.IGNORECASE,
)
_CHANGING = re.compile(
    rf"{_RANDOM.pattern}|(?:(?<=\s)-|(?<=[\s=(,:'\"\[]))\d+(?:[,.:-]\d+)*[a-z%]?(?=[\s),;:'\"\]|]|$)",
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

#: What a result only repeats of its call, in how many values, of how many characters, how deep. Values longer
#: than that, and their lines, are masked where they stand alone.
ECHO = "\ufff9"
_ECHOES = re.compile(rf"{ECHO}(?:\s*\n{ECHO})+")
_VALUES_MAX, _VALUE_CHARS, _RESULT_CHARS, _DEPTH = 16, 400, 4_000, 2
POINTS = word_set("click type hover fill select drag tap")
_REFERENCE = re.compile(r"(?:s?\d{1,6}(?=[e_]))?(?P<place>(?P<counted>(?<!\d)e\d{1,6})|[e_]\d{1,6})")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def blur_call(call: SeenCall, ignored: frozenset[str]) -> tuple[str, str]:
    """Return what two calls share that mean the same, as it is spelled and with its figures masked: the name and the
    arguments. `ignored`: arguments to leave out whatever they hold."""
    text = call.arguments.strip()
    known, value = parse(text) if text.startswith("{") else (False, None)
    if not known or not isinstance(value, dict):
        spelled = canonical(call.arguments, ignored) if text.startswith("[") else _spell_code(text)
        masked = spelled if text.startswith("[") else _mask_figures(spelled)
        return f"{call.name}\x1f{spelled}", f"{call.name}\x1f{masked}"
    kept: dict[str, Any] = {}
    remarks: list[str] = []
    figures: dict[str, str] = {}
    for key, item in value.items():
        about = _classify_argument(key)
        if key in ignored or item is None or (about is _About.RUN and shell_commands.tells_run(key, item)):
            continue
        kept[key] = _spell_value(about, item)
        if (found := _read_reference(call.name, key, item)) is not None:
            kept[key] = found["place"]
            if found["counted"] and any("element" in words_of(name) for name in value):
                figures[key] = REFERENCE
            continue
        if about is _About.REMARK:
            remarks.append(key)
        elif (masked := _mask_value(about, kept[key])) != kept[key]:
            figures[key] = masked
    if len(remarks) < len(kept):
        for key in remarks:
            del kept[key]
    spelled = f"{call.name}\x1f{spell(kept) or text}"
    return spelled, f"{call.name}\x1f{spell(kept | figures) or text}" if figures else spelled


def _read_reference(name: str, key: str, value: Any) -> re.Match[str] | None:
    """Read what a browser's snapshot calls a part of the page, where the tool acts on one."""
    refers = words_of(key)[-1:] in (("ref",), ("uid",)) and not POINTS.isdisjoint(words_of(name))
    return _REFERENCE.fullmatch(value) if refers and isinstance(value, str) else None


_About = Enum("_About", "RUN REMARK CODE ENTITY PLACE PATH SENT OTHER")
#: What an argument is about, by a word of its name; the first that fits counts.
_BY_WORDS = (
    (
        _About.REMARK,
        "description explanation explain reason reasoning rationale justification thought thoughts thinking intent "
        "intention purpose",
    ),
    (_About.CODE, "command cmd commands code script input source bash shell program expression statement"),
    (_About.ENTITY, "id ids uuid guid key port user account year month day zip version pid channel seed"),
    (
        _About.PLACE,
        "offset start begin end stop skip page pages cursor line lines position range limit first last view count size "
        "min max lower upper minimum maximum since until after before from to least most top days hours context",
    ),
    (_About.ENTITY, "number no"),
    (_About.PATH, "path file filename filepath directory dir folder"),
    (_About.SENT, "header headers param params query meta metadata"),  # with an address and a content
)


@keep_by_name
def _classify_argument(key: str) -> _About:
    words = words_of(key)
    if shell_commands.tells_run(key, 0):
        return _About.RUN
    return next((about for about, known in _BY_WORDS if not word_set(known).isdisjoint(words)), _About.OTHER)


def names_place(key: str) -> bool:
    """Return whether an argument of this name says where something stands (a file), or is code."""
    return _classify_argument(key) in (_About.PATH, _About.CODE)


def names_item(key: str) -> bool:
    """Return whether an argument of this name may say what the call is about: no remark, nothing of the run."""
    return _classify_argument(key) not in (_About.REMARK, _About.RUN)


def spell_aim(call: SeenCall) -> str:
    """Spell what a call is about: the call without what tells of the run, what is said of it, and the figures that say
    how much of it; empty where nothing is left."""
    known, fields = parse(call.arguments)
    if not known or not isinstance(fields, dict):
        return ""
    spelled = {}
    for key, value in fields.items():
        about = _classify_argument(key)
        if names_item(key) and (about is not _About.PLACE or not isinstance(value, int | None)):
            item = _spell_value(about, value)
            spelled[key] = _RANDOM.sub("", item) if about is _About.CODE and isinstance(item, str) else item
    return f"{call.name} {spell(spelled)}" if spelled else ""


def _spell_value(about: _About, value: Any) -> Any:
    if isinstance(value, str):
        if about is _About.CODE:
            return _spell_code(value)
        if about is _About.PATH:
            return shell_commands.spell_path(value.strip())
        return shell_commands.spell_query(value) if _ADDRESS.fullmatch(value) else value
    if about is _About.SENT and isinstance(value, dict):
        return {name: item for name, item in value.items() if not shell_commands.tells_request(name, item)}
    if about is _About.SENT and isinstance(value, list):
        return [item for item in value if not shell_commands.is_run_header(item)]
    if about is _About.CODE and isinstance(value, list) and all(isinstance(item, str) for item in value):
        shell = len(value) == _SHELL_WORDS and value[1].startswith("-")
        return _spell_code(value[2] if shell else " ".join(value))
    return value


def _mask_value(about: _About, value: Any) -> Any:
    items = value if isinstance(value, list) and value else [value]
    figures = (is_number(item) or (isinstance(item, str) and item.isdecimal()) for item in items[:_PLACES_MAX])
    if about is _About.PLACE and all(figures):
        return PLACE
    if isinstance(value, str):
        return _mask_figures(value) if about is _About.CODE else value
    return HOLE if is_number(value) and about not in (_About.ENTITY, _About.CODE) else value


def _spell_code(text: str) -> str:
    """Spell a command or code: each step only where there is something for it."""
    if len(text) > _COMMAND_CHARS:
        return text
    bare = _COMMENT.sub("", text) if "#" in text or "//" in text else text
    if len(bare) <= _FIGURES_CHARS:
        bare = shell_commands.spell_command(bare)
    return " ".join(bare.split()) or " ".join(text.split())


def _mask_figures(code: str) -> str:
    if len(code) > _FIGURES_CHARS:
        return code
    shows = _SHOWS_LINES.match(code) is not None
    return _CHANGING.sub(lambda found: PLACE if shows or _SHOWN.search(code[: found.start()][-24:]) else HOLE, code)


def says_enough(result: str) -> bool:
    """Return whether only the same deed would give this result: not `ok`, "no such order" or a bare error."""
    text = result.strip()
    if sum(map(str.isalpha, text[:_SAID_CHARS])) < _SAID_LETTERS_MIN:
        return False
    return len(text) >= _SAID_CHARS or not (_FINDS_NOTHING.search(text) or says_done(text) or has_failed(result))


def says_done(text: str) -> bool:
    """Return whether a result says that something was done: then other figures were another deed."""
    return bool(_SAYS_DONE.search(text))


def mask_echoes(call: SeenCall, text: str) -> str:
    """Put one sign in the place of everything in the result that the call said itself: texts, lines of them, values."""
    known, arguments = parse(call.arguments)
    said = sorted(dict.fromkeys(_list_said(arguments if known else call.arguments)), key=len, reverse=True)
    masked = text
    for value in islice((value for value in said if "\n" in value), _VALUES_MAX):
        masked = masked.replace(value, ECHO)
    lines = {_drop_mark(line) for value in said for line in value.split("\n")} - {""} | {ECHO}
    masked = "\n".join(ECHO if _drop_mark(line) in lines else line for line in masked.split("\n"))
    masked = _ECHOES.sub(ECHO, masked)
    values = [value for value in said if len(value) <= _VALUE_CHARS][:_VALUES_MAX]
    if len(masked) > _RESULT_CHARS or not any(value in masked for value in values):
        return masked
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"(?<![\w.])(?:{pattern})(?!\w|\.\d)", ECHO, masked)


def _drop_mark(line: str) -> str:
    """Drop what a diff writes before a line, and the white space around it."""
    return line.strip().lstrip("+-").strip()


def _list_said(value: Any, depth: int = _DEPTH) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value[:_VALUES_MAX]:
            yield from _list_said(item, depth - 1) if depth else ()
    elif isinstance(value, str):
        text = value.strip()
        if text:
            yield text
        if len(text) <= _VALUE_CHARS:
            yield from _NUMBER.findall(text)
    elif is_number(value):
        yield str(value)
