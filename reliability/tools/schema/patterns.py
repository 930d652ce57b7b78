"""Regular expressions of JSON Schema (ECMA 262), matched by RE2: in linear time, whatever the pattern says.

    pattern ─▶ ecma.py: the same in RE2's dialect ─▶ RE2 ─▶ allows(text)

Three things can be wrong with a client's `pattern`, and each has one answer:

    broken in every dialect (`[`)                     the client's mistake: `BrokenPattern`, a 400
    needs what no linear engine has (`(a)\\1`)         not asserted, and said so (`Unasserted`)
    larger than this server compiles (`(a{99}){99}`)   the same

The second and the third are the reasons why `Tool.unchecked` exists: no tool becomes unusable for that. Python's `re`
never sees a client's pattern, since it can take for ever on bounded repeats too (`(a{1,2}){50}b`) and holds the whole
process while it does.

Linear isn't free: a match costs up to the size of the program times the length of the text. So a pattern is matched
against the caller's steps (`Pattern.steps`), like everything else that grows. Look-aheads at the very beginning
(`^(?=.*\\d)(?!.*\\s).{8,}$`, the common form of a rule for passwords) are patterns of their own, all of which must
hold.

Measured 2026-11-23, 2 vCPU AMD EPYC, Linux, RE2 1.1.20251105 beside jsonschema-rs 0.60.0: all patterns that run for
ever in Python's `re` (`test_patterns.py`) in at most 33 ms with RE2, most in 0.2 ms; compiling
takes 15 to 100 µs, 9 ms at the most within `MEMORY_BYTES_MAX`. jsonschema-rs matches as fast, but its validation has no
bound (a valid filter of and/or/not, nested 9 deep: 3.0 s; an invalid one, 7 deep, 11 s with its errors), and it can be
neither counted nor stopped, which is why it isn't used here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from reliability.tools.schema.ecma import NotLinear, match_single_repeat, to_re2

__all__ = ["BrokenPattern", "Pattern", "Unasserted", "estimate_compile_steps", "translate"]

PATTERN_CHARS_MAX = 1_000
PATTERNS_CACHED_MAX = 512
COUNTED_MAX = 2_500  # what is counted beyond doesn't fit into the memory
MEMORY_BYTES_MAX = 1 << 20  # of one program with its automaton
BYTES_A_STEP = 100  # instructions times bytes in about a microsecond, where the automaton doesn't fit
_COUNTS = re.compile(r"\{(\d{0,9}),?(\d{0,9})\}")


class BrokenPattern(ValueError):
    """No regular expression in any dialect."""


class Unasserted(ValueError):
    """A regular expression that is not asserted here; the text says why."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern. `parts` must all be found (True) or be absent (False), in a text of `low` to `high`
    characters (None: any number)."""

    parts: tuple[tuple[Any, bool], ...]
    size: int
    low: int = 0
    high: int | None = None

    def steps(self, text: str) -> int:
        """Estimate what one match of this text may cost, in steps of about a microsecond."""
        return 2 + self.size * len(text) // BYTES_A_STEP

    def allows(self, text: str) -> bool:
        """Return whether the pattern is found in the text. A lone surrogate counts as a question mark."""
        if len(text) < self.low or (self.high is not None and len(text) > self.high):
            return False
        raw = text.encode("utf-8", "replace")
        return all((part.search(raw) is not None) is wanted for part, wanted in self.parts)


def estimate_compile_steps(pattern: str) -> int:
    """Estimate what compiling may cost, in steps of about a microsecond, as its length and its repeats
    say."""
    if match_single_repeat(pattern) is not None:
        return 100
    counts = sum(int(high or low or 0) for low, high in _COUNTS.findall(pattern))
    return 50 + 4 * len(pattern) + 16 * min(counts, COUNTED_MAX) + 800 * (pattern.count("\\p") + pattern.count("\\P"))


@lru_cache(maxsize=PATTERNS_CACHED_MAX)
def translate(pattern: str) -> Pattern:
    """Return the same expression, compiled. Raises `BrokenPattern` or `Unasserted`."""
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
    return Pattern(tuple(parts), sum(part.programsize for part, _ in parts), low, high)


def _build_options() -> Any:
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    return options


_OPTIONS = _build_options()
_TOO_LARGE = ("repetition size", "too large", "nesting", "out of memory")


def _compile_source(source: str) -> Any:
    try:
        # Bytes: offsets aren't needed, and RE2's own are those of UTF-8.
        return re2.compile(source.encode(), _OPTIONS)
    except re2.error as error:
        if any(words in str(error) for words in _TOO_LARGE):
            raise Unasserted("is larger than this server asserts") from None
        raise BrokenPattern("is no regular expression") from None
