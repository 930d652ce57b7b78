"""Calls about one thing after another that fail alike: of twenty routes each is forbidden, and that is the answer.

A thing is what differs between the calls: a short value of an argument that is no remark. It was named where it, or the
last part of its path, stands in the user's request or in a result before the failures. It counts once: a call about
what was tried before is about nothing new, however it is combined.

Invariant: so many characters of a history are read (`_READ_CHARS`), and only where failures are to be judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reliability.loops.comparison.call_normalization import names_item
from reliability.loops.comparison.findings import SeenCall, Turn, is_number, read_fields

#: So many turns of failures are looked through: as many things as a person may order.
ITEMS_MAX = 200
_READ_CHARS, _VALUE_CHARS, _WORDS_MAX = 200_000, 200, 3
_NAME_CHARS_MIN = 3  # a shorter name, or one without a letter, is known from the user only
_TOKEN, _ITEM = re.compile(r"[^\s,;\"'`()\[\]{}<>|=]+"), re.compile(r"[,;\n\"'|]")
_QUOTES = "\"'`;,()"
_EDGES = " \t\r-*•.:!?&"


def count_items(turns: Sequence[Turn], request: str, before: Sequence[Turn]) -> tuple[int, int]:
    """Return how many of the turns are about a thing that is new and was named in the request or a result before, and
    how many are about anything new."""
    said = [frozenset(value for call in turn.calls for value in _list_values(call)) for turn in turns]
    things = [values - frozenset.intersection(*said) for values in said]
    asked, told = _list_names(request), _list_names(_read_back(before))
    named = [{name for value in values if (name := _find_name(value, asked, told))} for values in things]
    return _count_new(named), _count_new(things)


def _count_new(turns: Iterable[Iterable[str]]) -> int:
    seen: set[str] = set()
    count = 0
    for values in map(set, turns):
        count += not values <= seen
        seen |= values
    return count


def _list_values(call: SeenCall) -> Iterator[str]:
    """List the short values of a call's arguments that may name what it is about, and the words of a command that have
    a figure."""
    for key, value in read_fields(call).items():
        if key and names_item(key):
            for each in value if isinstance(value, list) else [value]:
                yield from _read_value(each)


def _read_value(value: Any) -> list[str]:
    if is_number(value):
        return [str(value)]
    text = value.strip().casefold() if isinstance(value, str) and len(value) <= _VALUE_CHARS else ""
    words = text.split()
    named = [word.strip(_QUOTES) for word in words if any(map(str.isdigit, word))] if len(words) > 1 else []
    return [text, *named] if 0 < len(words) <= _WORDS_MAX else named


def _find_name(value: str, asked: frozenset[str], told: frozenset[str]) -> str:
    """Return under which name the value was told; empty where it wasn't. The last part of a path may be a word of any
    sentence, unless it has more than letters."""
    last = value.rstrip("/").rpartition("/")[2]
    for name in (value, last) if not last.isalpha() else (value,):
        plain = len(name) >= _NAME_CHARS_MIN and any(map(str.isalpha, name))
        if name in asked or (plain and name in told):
            return name
    return ""


def _read_back(turns: Sequence[Turn]) -> str:
    """Read the results of the turns, the newest first, as far as is read at all."""
    texts, left = [], _READ_CHARS
    for result in (result for turn in reversed(turns) for result in turn.results if result):
        texts.append(result[:left])
        left -= len(texts[-1])
        if left <= 0:
            break
    return "\n".join(texts)


def _list_names(text: str) -> frozenset[str]:
    """List the words and the items of lists in a text, paths also by their last part."""
    lower = text[:_READ_CHARS].casefold()
    words = [word.strip(_EDGES) for word in _TOKEN.findall(lower)]
    parts = [part for word in words for part in (word.rpartition("/")[2], word.partition(":")[0])]
    return frozenset([*words, *parts, *(item.strip(_EDGES) for item in _ITEM.split(lower))]) - {""}
