"""The `format` keyword, asserted.

jsonschema knows some formats by itself and others only with packages that this project doesn't carry. The
ones that tools really use and that can be judged without guessing are added here; every other name means
nothing, as the standard says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from jsonschema import Draft202012Validator, FormatChecker

from reliability.tools.schema.patterns import BrokenPattern, Unasserted, translate

__all__ = ["FORMATS"]

_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_DATE_TIME = re.compile(rf"(\d{{4}}-\d\d-\d\d)[Tt ]{_CLOCK}", re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]*")
_HOSTNAME = re.compile(r"(?=.{1,253}\Z)(?!-)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.?", re.ASCII)
_DURATION = re.compile(
    r"P(?=[\dT])(?:\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)", re.ASCII
)


def _is_date_time(text: str) -> bool:
    match = _DATE_TIME.fullmatch(text)
    return match is not None and bool(date.fromisoformat(match[1]))


def _is_regex(text: str) -> bool:
    try:
        translate(text)
    except Unasserted:
        return True
    except BrokenPattern:
        return False
    return True


def _match_by(expression: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: expression.fullmatch(text) is not None


def _build_checker() -> FormatChecker:
    """Build a checker of jsonschema's own draft 2020-12 formats, and of ours."""
    checker = FormatChecker(formats=())
    checker.checkers = dict(Draft202012Validator.FORMAT_CHECKER.checkers)
    ours: dict[str, Callable[[str], bool]] = {
        "date-time": _is_date_time,
        "time": _match_by(_TIME),
        "uri": _match_by(_URI),
        "hostname": _match_by(_HOSTNAME),
        "duration": _match_by(_DURATION),
        "regex": _is_regex,
    }
    for name, check in ours.items():
        checker.checks(name, raises=ValueError)(_skip_other_kinds(check))
    return checker


def _skip_other_kinds(check: Callable[[str], bool]) -> Callable[[object], bool]:
    """Let a format say nothing about values that are no strings."""
    return lambda value: not isinstance(value, str) or check(value)


FORMATS = _build_checker()
