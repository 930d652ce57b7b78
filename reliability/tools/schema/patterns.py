"""Regular expressions of JSON Schema (ECMA 262), matched by RE2 in linear time; and the `format` keyword.

    broken in every dialect (`[`)                     the client's mistake: `BrokenPattern`, a 400
    needs what no linear engine has (`(a)\\1`)         not asserted, and said so (`Unasserted`, `Tool.unchecked`)
    larger than this server compiles (`(a{99}){99}`)   the same

Invariant: Python's `re` never sees a client's pattern. A match costs up to the size of the program times the length of
the text, and is paid for with the caller's steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any

import re2
from jsonschema import Draft202012Validator, FormatChecker

from reliability.tools.schema.ecma import NotLinear, match_single_repeat, to_re2

PATTERN_CHARS_MAX = 1_000
_PATTERNS_CACHED_MAX = 512
COUNTED_MAX = 2_500  # what is counted beyond doesn't fit into the memory
_MEMORY_BYTES_MAX = 1 << 20  # of one program with its automaton
_BYTES_A_STEP = 100  # instructions times bytes in about a microsecond, where the automaton doesn't fit
_OPTIONS = re2.Options()
_OPTIONS.max_mem = _MEMORY_BYTES_MAX
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_COUNTS = re.compile(r"\{(\d{0,9}),?(\d{0,9})\}")
_TOO_LARGE = ("repetition size", "too large", "nesting", "out of memory")
# As pydantic and browsers take them: without seconds or a zone, and a URL with what it had better escape.
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d(?::(?:[0-5]\d|60)(?:\.\d+)?)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):?[0-5]\d)?"
_DATE_TIME = re.compile(rf"(\d{{4}}-\d\d-\d\d)[Tt ]{_CLOCK}", re.ASCII)
_TIME = re.compile(_CLOCK, re.ASCII)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S*")
_HOSTNAME = re.compile(r"(?=.{1,253}\Z)(?!-)[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*\.?", re.ASCII)
_DURATION = re.compile(
    r"P(?=[\dT])(?:\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)", re.ASCII
)


class BrokenPattern(ValueError):
    """No regular expression in any dialect."""


class Unasserted(ValueError):
    """A regular expression that is not asserted here; the text says why."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A compiled pattern: `parts` must be found (True) or be absent (False), in `low` to `high` characters."""

    parts: tuple[tuple[Any, bool], ...]
    size: int
    low: int = 0
    high: int | None = None

    def steps(self, text: str) -> int:
        """Estimate what one match of this text may cost, in steps of about a microsecond."""
        return 2 + self.size * len(text) // _BYTES_A_STEP

    def allows(self, text: str) -> bool:
        """Return whether the pattern is found in the text. A lone surrogate counts as a question mark."""
        if len(text) < self.low or (self.high is not None and len(text) > self.high):
            return False
        raw = text.encode("utf-8", "replace")
        return all((part.search(raw) is not None) is wanted for part, wanted in self.parts)


def estimate_compile_steps(pattern: str) -> int:
    """Estimate what compiling may cost, in steps of about a microsecond, as its length and its repeats say."""
    if match_single_repeat(pattern) is not None:
        return 100
    counts = sum(int(high or low or 0) for low, high in _COUNTS.findall(pattern))
    return 50 + 4 * len(pattern) + 16 * min(counts, COUNTED_MAX) + 800 * (pattern.count("\\p") + pattern.count("\\P"))


@lru_cache(maxsize=_PATTERNS_CACHED_MAX)
def translate(pattern: str, _owner: str = "") -> _Pattern:
    """Compile a pattern; what is kept serves its owner alone. Raises `BrokenPattern` or `Unasserted`."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise Unasserted("is longer than this server asserts")
    low, high = 0, None
    try:
        if (repeat := match_single_repeat(pattern)) is not None:
            pattern, low, high = repeat
        parts = [(_compile_source(part), wanted) for part, wanted in to_re2(pattern)]
    except NotLinear as why:
        raise Unasserted(str(why)) from None
    except RecursionError:
        raise Unasserted("is nested deeper than this server asserts") from None
    return _Pattern(tuple(parts), sum(part.programsize for part, _ in parts), low, high)


def _compile_source(source: str) -> Any:
    try:
        # Bytes: offsets aren't needed, and RE2's own are those of UTF-8.
        return re2.compile(source.encode(), _OPTIONS)
    except re2.error as error:
        if any(words in str(error) for words in _TOO_LARGE):
            raise Unasserted("is larger than this server asserts") from None
        if re.search(r"\\[pP]\{", source):
            raise Unasserted("uses a property of characters that this server doesn't know") from None
        raise BrokenPattern("is no regular expression") from None


def _is_regex(text: str) -> bool:
    with suppress(Unasserted):
        translate(text)  # a broken one raises a ValueError, which says that it is none
    return True


def _build_checker() -> FormatChecker:
    """Build a checker of jsonschema's own draft 2020-12 formats, and of ours."""
    checker = FormatChecker(formats=())
    checker.checkers = dict(Draft202012Validator.FORMAT_CHECKER.checkers)
    ours: dict[str, Callable[[str], object]] = {
        "date-time": lambda text: (match := _DATE_TIME.fullmatch(text)) and date.fromisoformat(match[1]),
        "time": _TIME.fullmatch,
        "uri": _URI.fullmatch,
        "hostname": _HOSTNAME.fullmatch,
        "duration": _DURATION.fullmatch,
        "regex": _is_regex,
    }
    for name, check in ours.items():
        checker.checks(name, raises=ValueError)(_skip_other_kinds(check))
    return checker


def _skip_other_kinds(check: Callable[[str], object]) -> Callable[[object], bool]:
    return lambda value: not isinstance(value, str) or bool(check(value))


FORMATS = _build_checker()
