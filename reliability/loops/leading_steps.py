"""Steps: calls that do something, so that the same call is work to be done again.

A person may ask for six more in the cart, twelve lines down, eight tickets. Each such call is equal to the one before,
and what it answers tells how far it has led: `selected: row 7`, `Ticket TCK-1044 created`, or no more than `ok`. A step
is told from a repetition by two things:

- the call acts (`acts`): its name or its action names a step, or names anything but reading, checking and editing a
  file. A shell, a code runner and a call that is given a path are none: the same edit, again and again, is a loop;
- the result leads on (`leads_on`): it is short, no failure and no refusal ("already at the last row").

How far steps may go is said in `history`. `read_number` reads how many of them a person asks for. Whoever says in so
many words that a thing is to be done ten times asks for no loop, whatever it is (`read_times`).
"""

from __future__ import annotations

import re

from reliability.loops.comparison.blurring import names_place
from reliability.loops.comparison.canonical import parse
from reliability.loops.comparison.errors import has_failed
from reliability.loops.comparison.findings import Call, Result
from reliability.loops.comparison.volatile_fields import MARKED, word_set, words_of

__all__ = [
    "ACTION_KEYS",
    "acknowledges",
    "acts",
    "find_entities",
    "is_done",
    "is_generic_tool",
    "leads_on",
    "read_number",
    "read_texts",
    "read_times",
]

_GENERIC = word_set(
    "bash shell sh terminal exec execute run command cmd console powershell python ipython jupyter code repl "
    "browser computer"
)
_STEPS = word_set(
    "press key keys hotkey keypress click tap swipe scroll step next continue resume move turn go "
    "forward back backward "
    "backwards up down left right add increment increase decrement decrease raise lower advance rotate undo redo jump "
    "walk zoom tab enter drag skip play roll draw n s c fin stepi nexti"
)
_READS = word_set(
    "get read list ls search find fetch show view query check look inspect describe status state cat grep lookup count "
    "is has test tests validate lint verify compile analyze calculate compute info help whoami ping diagnose retrieve "
    "explain summarize logs price prices quote monitor"
)
_EDITS = word_set("edit editor replace write patch overwrite save apply rewrite str")
ACTION_KEYS = ("action", "operation", "op", "mode", "command", "cmd", "key", "type")
#: A longer text is a command or a content, and names no step.
ACTION_CHARS = 16
#: A longer result shows a file or a page, and a figure in it is none of the call's doing.
STEP_CHARS, DONE_CHARS = 500, 80
_DONE = re.compile(
    r"\W*(?:ok(?:ay)?|done|success(?:ful(?:ly)?)?|succeeded|true|null|none|completed|executed|performed|pressed|clicked|"
    r"tapped|moved|added|sent|stepped|scrolled|updated|fertig|erledigt|hecho|listo|fait)?\W*",
    re.IGNORECASE,
)
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

NUMBER_MAX, REQUEST_CHARS = 200, 2_000
_NUMBER = re.compile(r"(?<![\w.,:/#$€£-])\d{1,3}(?![\w%°]|[.,:/-]\d)")
_NUMBER_WORDS = {
    word: number
    for words, number in (
        ("two twice zwei zweimal dos deux", 2),
        ("three thrice drei dreimal tres trois", 3),
        ("four vier viermal cuatro quatre", 4),
        ("five fünf fünfmal cinco cinq", 5),
        ("six sechs sechsmal seis", 6),
        ("seven sieben siebenmal siete sept", 7),
        ("eight acht achtmal ocho huit", 8),
        ("nine neun neunmal nueve neuf", 9),
        ("ten zehn zehnmal diez dix", 10),
        ("eleven elf once onze", 11),
        ("twelve dozen zwölf zwölfmal dutzend doce docena douze douzaine", 12),
        ("thirteen dreizehn trece treize", 13),
        ("fourteen vierzehn catorce quatorze", 14),
        ("fifteen fünfzehn quince quinze", 15),
        ("sixteen sechzehn dieciséis seize", 16),
        ("seventeen siebzehn siebzehnmal diecisiete", 17),
        ("eighteen achtzehn dieciocho", 18),
        ("nineteen neunzehn neunzehnmal diecinueve", 19),
        ("twenty zwanzig zwanzigmal veinte vingt", 20),
        ("thirty dreißig treinta trente", 30),
        ("forty vierzig cuarenta quarante", 40),
        ("fifty fünfzig cincuenta cinquante", 50),
        ("sixty sechzig sesenta soixante", 60),
        ("hundred hundert cien cent", 100),
    )
    for word in words.split()
}
_TENS = re.compile(r"\b(twenty|thirty|forty|fifty|sixty)[- ](one|two|three|four|five|six|seven|eight|nine)\b")
_WORD = re.compile(r"[^\W\d_]+")
_CHINESE = "一二三四五六七八九十"
_TIMES = re.compile(
    r"(?:(?<![\w.,:/#$€£-])(?:(\d{1,3}|[^\W\d_]{3,12}) ?-?(?:times|mal|veces|fois|volte|vezes|раза?)\b"
    r"|(\d{1,3})x\b|([^\W\d_]{4,20})(?<=mal)\b)"
    r"|(?<![\d.])(\d{1,3}) ?[次遍回번]|([一二三四五六七八九十]{1,3}) ?[次遍回])"
    r"(?! (?:as|a|an|the|per|out|more|less|better|\w{2,12}er)\b)",
    re.IGNORECASE,
)


def is_generic_tool(name: str) -> bool:
    """Return whether it is a shell, a code runner or a browser: with other arguments another tool."""
    return not _GENERIC.isdisjoint(words_of(name))


def read_texts(call: Call) -> dict[str, str]:
    """Return the texts among a call's arguments, by name."""
    known, arguments = parse(call.arguments)
    if not known or not isinstance(arguments, dict):
        return {}
    return {key: value for key, value in arguments.items() if isinstance(value, str)}


def _name_actions(call: Call, texts: dict[str, str]) -> set[str]:
    named = set(words_of(call.name))
    for key in ACTION_KEYS:
        named.update(words_of(texts.get(key, "")) if len(texts.get(key, "")) <= ACTION_CHARS else ())
    return named


def acts(call: Call) -> bool:
    """Return whether the call does something, of which a person may want more."""
    known, arguments = parse(call.arguments)
    listed = arguments if known and isinstance(arguments, dict) else {}
    named = _name_actions(call, read_texts(call))
    if not _READS.isdisjoint(named):
        return "next" in named
    if not _STEPS.isdisjoint(named):
        return True
    return bool(named) and named.isdisjoint(_GENERIC | _EDITS) and not any(map(names_place, listed))


def leads_on(result: Result | None) -> bool:
    """Return whether the result may be one of a step: short, no failure, no refusal."""
    if result is None or len(result.text) > STEP_CHARS:
        return False
    return not has_failed(result) and not _REFUSES.search(result.text)


def acknowledges(call: Call, result: str) -> bool:
    """Return whether the call names a step, and its result says no more than that it was done."""
    return is_done(result) and not _STEPS.isdisjoint(_name_actions(call, read_texts(call)))


def is_done(result: str) -> bool:
    """Return whether a result says no more than that something was done."""
    if len(result) > DONE_CHARS:
        return False
    known, value = parse(result)
    if known and isinstance(value, dict):
        return all(
            item in (True, None, 0, "") or (isinstance(item, str) and _DONE.fullmatch(item)) for item in value.values()
        )
    words = words_of(result)
    return bool(_DONE.fullmatch(result)) or (0 < len(words) <= 3 and bool(_DONE.fullmatch(words[0])))


def find_entities(text: str) -> frozenset[str]:
    """Find the random ids of what a step has made; one that names the request or the message is none."""
    found = (match for match in _ENTITY.finditer(text[:STEP_CHARS]))
    return frozenset(match[0] for match in found if MARKED.isdisjoint(words_of(_read_label(text, match.start()))))


def _read_label(text: str, at: int) -> str:
    return text[max(0, at - ENTITY_LABEL_CHARS) : at].rpartition(",")[2]


def read_number(text: str) -> int:
    """Read the largest number that a short request names, in digits or in words; 0: none."""
    if len(text) > REQUEST_CHARS:
        return 0
    lower = text.lower()
    named = [_NUMBER_WORDS.get(word, 0) for word in _WORD.findall(lower)]
    named += [_NUMBER_WORDS[tens] + _NUMBER_WORDS[ones] for tens, ones in _TENS.findall(lower)]
    return max((n for n in (*named, *map(int, _NUMBER.findall(text))) if n <= NUMBER_MAX), default=0)


def read_times(text: str) -> int:
    """Read how often a short request says that a thing is to be done ("ten times", "6x", "zehnmal"); 0: it doesn't."""
    if len(text) > REQUEST_CHARS:
        return 0
    named = (_read_count(next(filter(None, match.groups())).lower()) for match in _TIMES.finditer(text))
    return max((number for number in named if number <= NUMBER_MAX), default=0)


def _read_count(word: str) -> int:
    if word.isdecimal():
        return int(word)
    if word[0] not in _CHINESE:
        return _NUMBER_WORDS.get(word, 0)
    tens, ten, ones = word.rpartition("十")
    return 10 * (_CHINESE.find(tens[-1:]) + 1 or 1) * bool(ten) + (_CHINESE.find(ones[-1:]) + 1 if ones else 0)
