"""ECMA 262's regular expressions, written in RE2's dialect.

The two agree on nearly everything; this module rewrites what they write or mean differently:

    ECMA                                  here
    \\u0041 \\u{1F600} \\uD83D\\uDE00 \\cJ    \\x{41} \\x{1F600} \\x{1F600} \\x{A}
    .  \\s  \\S                             their sets, spelled out: RE2's \\s knows six characters of ECMA's 25
    [^] [] [[a] [\\w-.]                    any, none, an escaped [, an escaped -
    (?<name>x), (x), (?P<name>x)          (?:x): nothing refers to a group
    \\p{Script=Greek}                      \\p{Greek}
    ^(?=a)(?!b)c                          three patterns: ^a found, ^b not found, ^c found

Python's own words that clients' generators write are taken as meant: \\A, \\Z, \\z, {,3}, (?i). What no linear engine
has is `NotLinear`: back-references, look-arounds anywhere else, possessive repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

COUNT_MAX = 1_000  # of one repeat in RE2

_SPACES = r"\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_NO_SPACES = (
    r"\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}"
    r"\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}"
)
_ANY, _NONE = r"[\x{0}-\x{10ffff}]", r"[^\x{0}-\x{10ffff}]"
_DOT = r"[^\n\r\x{2028}\x{2029}]"
_SAME = frozenset("tnvfrdDwW")
_OUTSIDE = {"b": r"\b", "B": r"\B", "A": r"\A", "Z": r"\z", "z": r"\z", "s": f"[{_SPACES}]", "S": f"[^{_SPACES}]"}
_IN_CLASS = {"b": r"\x{8}", "s": _SPACES, "S": _NO_SPACES}

_PIECE = re.compile(
    r"(?P<count>\{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\}(?P<lazy>\??))"
    r"|(?P<group>\(\?(?:P?<(?![=!])\w+>|:|[is]+\)|[is]+:|<?[=!]|.?))"
    r"|(?P<repeat>[*+?]\??)"
    r"|(?P<escape>\\)|(?P<class>\[)|(?P<other>.)",
    re.DOTALL,
)
_SINGLE_REPEAT = re.compile(r"\^.+?(?P<count>\{(?P<low>\d{0,9})(?P<comma>,?)(?P<high>\d{0,9})\}\??)\$", re.DOTALL)
_HEX = re.compile(
    r"u\{(?P<braced>[0-9a-fA-F]{1,6})\}|u[dD](?P<high>[89abAB][0-9a-fA-F]{2})\\u[dD](?P<low>[c-fC-F][0-9a-fA-F]{2})"
    r"|u(?P<four>[0-9a-fA-F]{4})|x(?P<two>[0-9a-fA-F]{2})|c(?P<control>[A-Za-z])|(?P<nul>0)(?!\d)"
)
_PROPERTY = re.compile(r"([pP])\{(?:(?:Script|sc|General_Category|gc)=)?(\w+)\}")


class NotLinear(ValueError):
    """It needs what no linear engine has. The text says why it is not asserted."""


def to_re2(pattern: str) -> list[tuple[str, bool]]:
    """Return patterns in RE2's dialect, all of which must be found (True) or be absent (False). Raises `NotLinear`."""
    found: list[tuple[str, bool]] = []
    rest = pattern
    while (ahead := _split_look_ahead(rest)) is not None:
        inner, wanted, rest = ahead
        found.append((f"^(?:{_rewrite(inner)})", wanted))
    return [*found, (_rewrite(rest), True)]


def match_single_repeat(pattern: str) -> tuple[str, int, int | None] | None:
    """Return `^x{1,2000}$` as (`^x*$`, 1, 2000), where x is one character and None no bound; None for all else."""
    found = _SINGLE_REPEAT.fullmatch(pattern)
    if found is None or pattern[:1] != "^":
        return None
    begin, end, kind = next(_split_tokens(pattern, 1), (1, 1, "("))
    if end != found.start("count") or kind in "(|)*+?{^$" or (kind == "\\" and pattern[begin + 1] not in "dDwWsS.-"):
        return None
    if not (found["low"] or found["high"]):
        return None
    low, high = _read_bounds(found)
    return f"^{pattern[begin:end]}*$", low, high


def _split_look_ahead(pattern: str) -> tuple[str, bool, str] | None:
    if pattern[:4] not in ("^(?=", "^(?!"):
        return None
    if any(kind == "|" and depth <= 0 for _, kind, depth in _walk_groups(pattern)):
        return None  # alternatives at the top: then `^` belongs to the first of them only
    end = next((end for end, _, depth in _walk_groups(pattern, 1) if depth == 0), len(pattern))
    if pattern[end : end + 1] in ("*", "+", "?", "{"):
        return None
    return pattern[4 : end - 1], pattern[3] == "=", "^" + pattern[end:]


def _split_tokens(pattern: str, at: int = 0) -> Iterator[tuple[int, int, str]]:
    """Yield (begin, end, first character) of escapes, classes and single characters."""
    while at < len(pattern):
        end = at + 1
        if pattern[at] == "\\":
            end += 1
        elif pattern[at] == "[":
            while end < len(pattern) and pattern[end] != "]":
                end += 2 if pattern[end] == "\\" else 1
            end += 1
        yield at, end, pattern[at]
        at = end


def _walk_groups(pattern: str, at: int = 0) -> Iterator[tuple[int, str, int]]:
    """Yield the end and the first character of each token, and how many groups are open behind it."""
    depth = 0
    for _, end, kind in _split_tokens(pattern, at):
        depth += (kind == "(") - (kind == ")")
        yield end, kind, depth


def _rewrite(pattern: str) -> str:
    out: list[str] = []
    opened: list[int] = []
    last = 0  # where the last atom begins in `out`
    at = 0
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        assert piece is not None  # the last alternative takes any character
        at = piece.end()
        counted = piece["count"] and (piece["low"] or piece["high"])
        if counted:
            out[last:] = [_rewrite_count("".join(out[last:]), piece)]
        elif piece["repeat"]:
            out.append(piece["repeat"])
        if counted or piece["repeat"]:
            if pattern[at : at + 1] == "+":
                raise NotLinear("uses a possessive repeat")
            continue
        if piece["other"] == ")":
            last = opened.pop() if opened else len(out)
            out.append(")")
            continue
        last = len(out)
        if piece["group"] or piece["other"] == "(":
            opened.append(last)
            rewritten = _rewrite_group(piece["group"] or "(")
            if rewritten.endswith(")"):
                opened.pop()
        elif piece["escape"]:
            rewritten, at = _rewrite_escape(pattern, at)
        elif piece["class"]:
            rewritten, at = _rewrite_class(pattern, at)
        else:
            rewritten = {".": _DOT, "{": r"\{", "}": r"\}", "]": r"\]"}.get(piece[0], piece[0])
            if piece["count"]:
                rewritten = re.escape(piece[0])
        out.append(rewritten)
    return "".join(out)


def _rewrite_count(atom: str, piece: re.Match[str]) -> str:
    low, high = _read_bounds(piece)
    if max(low, high or 0) > COUNT_MAX:
        raise NotLinear("is larger than this server asserts")
    upper = "" if high is None else high
    bounds = f"{low},{upper}" if piece["comma"] else low
    return f"{atom}{{{bounds}}}{piece['lazy']}"


def _read_bounds(count: re.Match[str]) -> tuple[int, int | None]:
    low = int(count["low"][:9] or 0)
    if not count["comma"]:
        return low, low
    return low, int(count["high"][:9]) if count["high"] else None


def _rewrite_group(text: str) -> str:
    if text in ("(", "(?:") or (text.endswith(">") and text != "(?>"):
        return "(?:"
    if text[2:3] in ("=", "!") or text[2:4] in ("<=", "<!"):
        raise NotLinear("looks ahead or behind")
    if text[2:3] in ("i", "s") and text[-1] in ":)":
        return text
    if text[2:3] in (">", "#", "(", "P", "m", "x", "-"):
        raise NotLinear("uses a group that only some engines know")
    return text


def _rewrite_escape(pattern: str, at: int) -> tuple[str, int]:
    letter = pattern[at : at + 1]
    if letter in _OUTSIDE:
        return _OUTSIDE[letter], at + 1
    if letter == "k" or (letter in "123456789" and letter):
        raise NotLinear("refers back to a group")
    return _rewrite_character(pattern, at)


def _rewrite_character(pattern: str, at: int) -> tuple[str, int]:
    letter = pattern[at : at + 1]
    if letter in _SAME:
        return "\\" + letter, at + 1
    if found := _HEX.match(pattern, at):
        return _rewrite_code(found), found.end()
    if found := _PROPERTY.match(pattern, at):
        return rf"\{found[1]}{{{found[2]}}}", found.end()
    if letter.isalnum() and letter.isascii():
        raise NotLinear("uses an escape that engines read differently")
    return ("\\" + letter if letter.isascii() else letter), at + 1


def _rewrite_code(found: re.Match[str]) -> str:
    if found["control"]:
        code = ord(found["control"]) % 32
    elif found["high"]:
        code = 0x10000 + ((int("d" + found["high"], 16) - 0xD800) << 10) + int("d" + found["low"], 16) - 0xDC00
    else:
        code = int(found["braced"] or found["four"] or found["two"] or "0", 16)
    if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
        raise NotLinear("names half a character")
    return rf"\x{{{code:x}}}"


def _rewrite_class(pattern: str, at: int) -> tuple[str, int]:
    negated = pattern[at : at + 1] == "^"
    at += negated
    items: list[str] = []
    while pattern[at : at + 1] not in ("]", ""):
        letter = pattern[at]
        if letter == "\\":
            kind, at = pattern[at + 1 : at + 2], at + 1
            rewritten, at = (_IN_CLASS[kind], at + 1) if kind in _IN_CLASS else _rewrite_character(pattern, at)
        else:
            rewritten, at = ("\\" + letter if letter in "[&~^" else letter), at + 1
            if letter == "-" and not _is_range(pattern, items, at):
                rewritten = r"\-"
        items.append(rewritten)
    if not pattern[at : at + 1]:
        return "[", at  # it never ends: RE2 refuses that
    if not items:
        return (_ANY if negated else _NONE), at + 1
    return f"[{'^' if negated else ''}{''.join(items)}]", at + 1


def _is_range(pattern: str, items: list[str], at: int) -> bool:
    follows = pattern[at : at + 1]
    if not items or follows in ("]", "") or items[-1] == "-":
        return False
    if len(items) >= 2 and items[-2] == "-":
        return False
    wide = re.compile(r"\\[dDwWpP]|.{3,}", re.DOTALL)
    before = items[-1]
    if wide.match(before) and not re.fullmatch(r"\\x\{[0-9a-f]+\}", before):
        return False
    return not (follows == "\\" and pattern[at + 1 : at + 2] in tuple("dDwWsSpP"))
