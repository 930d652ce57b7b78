"""Steps: calls that do something, so that the same call is work to be done again.

Six more in the cart, twelve lines down, eight tickets: each such call is equal to the one before. A step is told from a
repetition by its call, which names a step or anything but reading, checking and editing a file (`acts`), and by its
result, which is short, no failure and no refusal (`leads_on`) or only says that it was done (`acknowledges`).

How far steps may go is said in `history`, and how many of them a person asks for in `content`.
"""

from __future__ import annotations

import re
from typing import Any

from reliability.loops.comparison.call_normalization import names_place
from reliability.loops.comparison.findings import Result, SeenCall, has_failed, parse
from reliability.loops.comparison.volatile_fields import MARKED, word_set, words_of

_GENERIC = word_set(
    "bash shell sh terminal exec execute run command cmd console powershell python ipython jupyter code repl "
    "browser computer"
)
_STEPS = word_set(
    "press key keys hotkey keypress click tap swipe scroll step next continue resume move turn go forward back "
    "backward backwards up down left right add increment increase decrement decrease raise lower advance rotate undo "
    "redo jump walk zoom tab enter drag skip play roll draw n s c fin stepi nexti"
)
_WALKS = word_set("step next continue finish over into out n s c ni si fin stepi nexti")
READS = word_set(
    "get read list ls search find fetch show view query check look inspect describe status state cat grep lookup count "
    "is has test tests validate lint verify compile analyze calculate compute info help whoami ping diagnose retrieve "
    "explain summarize logs price prices quote monitor"
)
_EDITS = word_set("edit editor replace write patch overwrite save apply rewrite str")
#: Where a shell or a terminal is told what to do.
COMMAND_KEYS = ("command", "cmd", "input", "chars", "keys")
ACTION_KEYS = ("action", "operation", "op", "mode", "command", "cmd", "key", "type")
#: A longer text is a command or a content, and names no step.
ACTION_CHARS = 16
#: A longer result shows a file or a page, and a figure in it is none of the call's doing.
STEP_CHARS, DONE_CHARS = 500, 80
#: Words that say no more than that it was done, and those that name the deed.
_DONE = word_set(
    "ok okay done success successful successfully succeeded true null none completed executed performed fertig "
    "erledigt hecho listo fait"
)
_DEEDS = word_set(
    "undone redone sent set put made drawn shown hit cut taken given thrown driven spun gone built sold bought eaten"
)
_NO_DEEDS = word_set(
    "need feed seed speed exceed proceed hundred limited expired crashed timed errored aborted disconnected "
    "interrupted terminated exhausted required expected exceeded prohibited completed executed performed succeeded "
    "queued enqueued accepted submitted scheduled dispatched"
)
_DEED = re.compile(r"[a-z]{3,20}ed")
#: Words beside it that tell of the log and not of the deed.
_LEVELS = word_set("info debug log notice result status output message")
DONE_WORDS = 3
_FOLDER_UP = re.compile(r"\s*(?:cd|pushd|popd)\b[ ./~-]*(?:&& ls)?\s*")
_REFUSES = re.compile(
    r"\b(?:already|unchanged|cannot|can't|could not|unable|rejected|denied|refused|invalid|failed|failure|blocked|"
    r"no (?:change|effect|more|such)\w{0,1}|nothing|not (?!e\b)\w+|bereits|fehl\w+|nicht|erreur|échec|impossible|déjà|"
    r"no se|ya est\w+|imposible)\b",
    re.IGNORECASE,
)
_ENTITY = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![a-z0-9])(?=\d{0,24}[a-f])(?=[a-f]{0,24}\d)[0-9a-f]{8,24}(?![a-z0-9])",
    re.IGNORECASE,
)
ENTITY_LABEL_CHARS = 24


def is_generic_tool(name: str) -> bool:
    """Return whether it is a shell, a code runner or a browser: with other arguments another tool."""
    return not _GENERIC.isdisjoint(words_of(name))


def read_texts(call: SeenCall) -> dict[str, str]:
    """Return the texts among a call's arguments, by name."""
    return {key: value for key, value in read_fields(call).items() if isinstance(value, str)}


def read_fields(call: SeenCall) -> dict[str, Any]:
    """Return a call's arguments, by name."""
    known, arguments = parse(call.arguments)
    return arguments if known and isinstance(arguments, dict) else {}


def _name_actions(call: SeenCall, texts: dict[str, str]) -> set[str]:
    named = set(words_of(call.name))
    for key in ACTION_KEYS:
        named.update(words_of(texts.get(key, "")) if len(texts.get(key, "")) <= ACTION_CHARS else ())
    return named


def acts(call: SeenCall) -> bool:
    """Return whether the call does something, of which a person may want more."""
    named = _name_actions(call, read_texts(call))
    if not READS.isdisjoint(named):
        return "next" in named
    if not _STEPS.isdisjoint(named):
        return True
    return bool(named) and named.isdisjoint(_GENERIC | _EDITS) and not any(map(names_place, read_fields(call)))


def walks(call: SeenCall) -> bool:
    """Return whether the call steps through a program in a debugger: in a loop of it the same lines come again."""
    named = words_of(call.name)
    if any(word.startswith("debug") for word in named) and not _WALKS.isdisjoint(named):
        return True
    texts = read_texts(call)
    return any(texts[key].strip().lower() in _WALKS for key in (*ACTION_KEYS, *COMMAND_KEYS) if key in texts)


def leads_on(result: Result | None) -> bool:
    """Return whether the result may be one of a step: short, no failure, no refusal."""
    if result is None or len(result.text) > STEP_CHARS:
        return False
    return not has_failed(result) and not _REFUSES.search(result.text)


def acknowledges(call: SeenCall, result: str) -> bool:
    """Return whether the call goes one step on, and its result says no more than that it was done."""
    if not _is_done(result):
        return False
    texts = read_texts(call)
    if not _STEPS.isdisjoint(_name_actions(call, texts)):
        return True
    if is_generic_tool(call.name):
        return any(_FOLDER_UP.fullmatch(texts.get(key, "-")) for key in COMMAND_KEYS)
    return acts(call) and any(map(_is_deed, words_of(result)))


def _is_done(result: str) -> bool:
    """Return whether a result says no more than that something was done."""
    if len(result) > DONE_CHARS:
        return False
    known, value = parse(result)
    if known and isinstance(value, dict):
        items = value.values()
        return all(item in (True, None, 0, "") or (isinstance(item, str) and _says_done(item)) for item in items)
    return _says_done(result)


def _says_done(text: str) -> bool:
    if not any(map(str.isalnum, text)):
        return True
    words = [word for word in words_of(text) if word not in _LEVELS]
    few = 0 < len(words) <= DONE_WORDS and not _REFUSES.search(text)
    return few and any(word in _DONE or _is_deed(word) for word in words)


def _is_deed(word: str) -> bool:
    """Return whether the word names what was done: `deleted`, `undone`."""
    return word in _DEEDS or (word not in _NO_DEEDS and bool(_DEED.fullmatch(word)))


def find_entities(text: str) -> frozenset[str]:
    """Find the random ids of what a step has made; one that names the request or the message is none."""
    found = (match for match in _ENTITY.finditer(text[:STEP_CHARS]))
    return frozenset(match[0] for match in found if MARKED.isdisjoint(words_of(_read_label(text, match.start()))))


def _read_label(text: str, at: int) -> str:
    return text[max(0, at - ENTITY_LABEL_CHARS) : at].rpartition(",")[2]
