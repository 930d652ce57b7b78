"""Regular expressions of JSON Schema (ECMA 262), asserted with Python's `re`, or not at all.

Three things can go wrong with a client's `pattern`, and each has one answer:

    broken in both languages (`[`)      the client's mistake: `BrokenPattern`, a 400
    ECMA only (`\\p{L}`, `\\u{1F600}`)  not asserted, and said so: no tool becomes unusable for that
    may backtrack without end           not asserted, and said so: no string may stop the server

The second and the third are the reasons why `Tool.unchecked` exists. "May backtrack" is decided by looks,
never by trial: an unbounded repeat inside a repeated group, a repeated group with alternatives that may begin
alike, or a back-reference. That refuses some harmless patterns, which costs a check and nothing else. What is
left is polynomial in the length of the string, to the power of its unbounded repeats (one more where it isn't
anchored), so it is asserted on strings up to the length at which that stays under `STEPS_MAX`, and on no
longer ones.

Differences in meaning that are mended: `$` is the end of the string (Python's also stands before a last
newline), `(?<name>` is `(?P<name>`, and `\\d`, `\\w` and `\\b` are ASCII.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["BrokenPattern", "Pattern", "Unasserted", "translate"]

PATTERN_CHARS_MAX = 1_000
PATTERNS_CACHED_MAX = 1_024
STEPS_MAX = 10_000_000
COUNT_MAX = 100  # a bounded repeat above this counts as unbounded

_ECMA_ONLY = re.compile(r"\\[pP]\{|\\u\{|\\c[A-Za-z]|\\k<|\[\^?\]|\(\?[imsx-]+:")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?:<[=!]|<\w+>|[:=!])|[*+?]\??|\{\d*,?\d*\}\??|.", re.DOTALL)
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")


class BrokenPattern(ValueError):
    """No regular expression in any dialect."""


class Unasserted(ValueError):
    """A regular expression that is not asserted here; the text says why."""


@dataclass(slots=True)
class _Group:
    """What was seen inside one open parenthesis."""

    unbounded: int = 0
    branches: bool = False
    starts: list[str] = field(default_factory=lambda: [""])


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern in Python's dialect, and the longest string that it is asserted on."""

    python: re.Pattern[str]
    chars_max: int

    def allows(self, text: str) -> bool:
        """False only where the text is short enough to be judged and doesn't match."""
        return len(text) > self.chars_max or self.python.search(text) is not None


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def translate(pattern: str) -> Pattern:
    """The same expression for Python's `re`. Raises `BrokenPattern` or `Unasserted`."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise Unasserted("longer than this server asserts")
    tokens = _TOKEN.findall(pattern)
    python = "(?a:" + "".join(map(_token, tokens)) + ")"
    try:
        compiled = re.compile(python)
    except (re.error, RecursionError, OverflowError):
        if _ECMA_ONLY.search(pattern):
            raise Unasserted("uses what only ECMA 262 knows") from None
        raise BrokenPattern("is no regular expression") from None
    repeats = _repeats(tokens)
    if repeats is None:
        raise Unasserted("may backtrack without end")
    power = repeats + (not pattern.startswith("^"))
    return Pattern(compiled, int(STEPS_MAX ** (1 / max(power, 1))))


def _token(token: str) -> str:
    """One token in Python's dialect."""
    if token == "$":
        return r"\Z"
    if token == r"\/":
        return "/"
    if token.startswith("(?<") and token[3] not in "=!":
        return "(?P" + token[2:]
    return token


def _unbounded(token: str) -> bool | None:
    """True for a repeat without an end, False for a bounded one, None for anything else."""
    if token[0] in "*+":
        return True
    if token[0] == "?":
        return False
    count = _COUNT.match(token)
    if count is None or not (count[1] or count[3]):
        return None
    low, comma, high = count.groups()
    return (bool(comma) and not high) or int(high or low) > COUNT_MAX


def _repeats(tokens: list[str]) -> int | None:
    """How many unbounded repeats there are; None where one holds another, or alternatives that may begin
    alike."""
    stack = [_Group()]
    closed: _Group | None = None
    for token in tokens:
        if re.match(r"\\[1-9]|\\k<", token):
            return None
        if (endless := _unbounded(token)) is not None:
            if endless and closed is not None and (closed.unbounded or _alike(closed)):
                return None
            stack[-1].unbounded += endless
            closed = None
            continue
        closed = _step(stack, token)
    return stack[0].unbounded


def _step(stack: list[_Group], token: str) -> _Group | None:
    """Open, close, branch or note one atom; the group that this token closed."""
    if token[0] == "(":
        stack.append(_Group())
    elif token == ")" and len(stack) > 1:
        closed = stack.pop()
        stack[-1].unbounded += closed.unbounded
        return closed
    elif token == "|":
        stack[-1].branches = True
        stack[-1].starts.append("")
    elif not stack[-1].starts[-1]:
        stack[-1].starts[-1] = token
    return None


def _alike(group: _Group) -> bool:
    """True unless all alternatives begin with different plain characters."""
    plain = all(len(start) == 1 and start not in ".^$" for start in group.starts)
    return group.branches and not (plain and len(set(group.starts)) == len(group.starts))
