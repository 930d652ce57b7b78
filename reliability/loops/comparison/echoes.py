"""Echoes: what a result only repeats of the call that it answers.

`offset 900 is behind the end of the file` says the same as `offset 950 is behind the end of the file`, if those are the
offsets that were asked for. So where calls with other arguments are compared, what each call said itself is masked in
its result: the values of its arguments and the numbers in them, where they stand alone; and of places in a text
(`names_range`) the sums too, since `start` and `count` come back as a start and an end.

Bounds: `VALUES_MAX` values of at most `VALUE_CHARS`, `DEPTH` levels deep, in results of at most `RESULT_CHARS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from reliability.loops.comparison.call_normalization import names_range
from reliability.loops.comparison.canonical import parse
from reliability.loops.comparison.findings import Call

__all__ = ["mask_echoes"]

ECHO = "\ufff9"
VALUES_MAX, VALUE_CHARS, RESULT_CHARS, DEPTH = 16, 400, 4_000, 2
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def mask_echoes(call: Call, text: str) -> str:
    """Put one sign in the place of everything in the result that the call said itself."""
    if len(text) > RESULT_CHARS:
        return text
    known, arguments = parse(call.arguments)
    said = dict.fromkeys(_list_said(arguments if known else call.arguments))
    if known and isinstance(arguments, dict):
        said |= dict.fromkeys(_list_places(arguments))
    values = sorted(said, key=len, reverse=True)[:VALUES_MAX]
    if not any(value in text for value in values):
        return text
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"(?<![\w.])(?:{pattern})(?!\w|\.\d)", ECHO, text)


def _list_said(value: Any, depth: int = DEPTH) -> Iterator[str]:
    """List the texts and numbers among some arguments."""
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


def _list_places(arguments: dict[str, Any]) -> Iterator[str]:
    """List what follows from the places in a text that are asked for."""
    places = [value for key, value in arguments.items() if type(value) is int and names_range(key)][:VALUES_MAX]
    for place in places:
        yield from (str(place - 1), str(place + 1))
    for one, other in combinations(places, 2):
        yield from (str(one + other), str(one + other - 1), str(one + other + 1))
