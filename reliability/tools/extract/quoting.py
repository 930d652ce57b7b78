"""Whether a call is only told of: in inline code or in quotation marks with other words on its line, in a block quote,
behind the same mark of a diff, a comment, a table or a listing as the lines next to it, in a diff, or at the end of a
sample in a programming language.

    Never write `{call}` into a file.      told: it stays prose
    `{call}`                               alone on its line it is the call: weak models write so
    > {call}                               told
    -{line of a call}, -{line of a call}   told; behind one list marker ("- {call}") it is the call
    ```diff, {call}, ```                   told, and in a fence within a longer fence
    ```python, other code, f(a=1), ```     told; alone in its fence, but for comments, it is the call

A line is looked at `_QUOTED_CHARS` characters on each side of a call, so that a stream, whose gate keeps more than
that, finds what the complete answer says.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from reliability.tools.format_row import NAME
from reliability.tools.formats import CLOSER, OPENER
from reliability.tools.schema.toolbox import ToolBox

_QUOTED_CHARS = 140  # fewer than the gate keeps
LINE_CHARS, SAMPLE_CHARS = 4_000, 20_000  # of a quoted line or an inner fence, and of a sample, before a call

# What opens a quotation, and what closes it. An apostrophe counts only right beside the call.
_PAIRS = {"`": "`", '"': '"', "'": "'", "“„": "”“", "”": "”", "‘‚": "’‘", "’": "’", "«": "»", "»": "«", "‹": "›"}
_PAIRS |= {"›": "‹", "「": "」", "『": "』", "《": "》", "〈": "〉", "〝": "〞〟", "＂": "＂"}
_APOSTROPHES = "'’"
_TAGS = {f"<{name}>": f"</{name}>" for name in ("code", "pre", "kbd", "samp", "tt", "q")}
_TAGS |= {"<!--": "-->", "&quot;": "&quot;", "&#34;": "&#34;", "``": "''", "\\texttt{": "}"}
_MARKS = "".join(opens + closes for opens, closes in _PAIRS.items())
_BLOCK_QUOTE = re.compile(r"[ \t]{0,8}>(?!>>)")
_LINE_MARK = re.compile(r"[ \t]{0,8}(?P<mark>[+\-#/*|│┃;$%!>]{1,3}|\d{1,6}[ \t]{0,4}[:→|│])[ \t]{0,8}")
_LIST_MARK = re.compile(r"(?:[ \t]{2,8})?[-*+$][ \t]+")
_DIFF = re.compile(r"```[ \t]*(?:diff|patch)\b", re.IGNORECASE)
_FENCE = re.compile(r"(?P<ticks>```+)(?P<info>[^`\n]*)$", re.MULTILINE)
_OPENING_TICKS = re.compile(r"(?<!`)`{1,2}(?!`)")
_LETTER = re.compile(r"[^\W\d_]")
_NAMES = [re.compile(pattern) for pattern in (NAME, r"[\w.-]+", r"\w+")]
_MARK = re.compile(r"<[|｜][^<>]{0,40}[|｜]>(?:assistant|commentary|analysis|final)?")
_CALL_END = re.compile(r"[}\])>][\"']")
_WORDS = re.compile(rf"[^\n{re.escape(_MARKS)}]*?[^\W\d_]")
_STOPS = " \t.,;:!?…"
_OPENERS = "„‚「『《〈〝"  # what closes nothing
_BEFORE_QUOTATION = "([{<=:>*_-–—|"
_LANGUAGES = (
    "python|python3|py|ipython|javascript|js|jsx|typescript|ts|tsx|java|kotlin|scala|go|golang|rust|rs|ruby|rb|php|perl"
    "|c|cpp|c\\+\\+|cs|csharp|swift|lua|r|julia|dart|bash|sh|shell|zsh|powershell"
)
_SAMPLE = re.compile(rf"```[ \t]*(?:{_LANGUAGES})[ \t]*\r?\n", re.IGNORECASE)
_NO_CODE = re.compile(r"(?:[ \t]*(?:(?:#|//)[^\n]*)?(?:\n|\Z))*+[ \t]*\Z")


# What stands where a call would have its name, or all of it: `{json}`, `[{...}]`, `{"name": ...`, `<function=NAME>`.
_STANDIN = r"(?:(?:TOOL|FUNCTION)_)?NAME|(?:example_)?(?:function|tool)[_-]name"
_FORM = re.compile(
    rf"(?:(?i:{OPENER.pattern})|\s)*+(?:(?:\[\s*)?\{{\s*(?:(?:[A-Za-z][\w ]{{0,40}}|\.{{3}}|…)\s*\}}"
    rf"|[\"']?name[\"']?\s*:\s*(?:\.{{3}}|…|<[A-Za-z][\w -]{{0,40}}>|[\"']?(?:{_STANDIN})\b))"
    rf"|(?:<function=|call:)?(?:{_STANDIN})\b(?:\[ARGS\]\s*\{{[\w.…]{{1,40}}\}})?)"
)
_PARAGRAPH_BEFORE = re.compile(r"(?:\A|\n[ \t\r]*\n|[.:!?…。：！？*_>][ \t\r]*\n|(?P<fence>```[^\n`]*\n)\s*)[ \t]*\Z")
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
_BEFORE_CHARS = 64


class _Telling(NamedTuple):
    """Whether a call is told, and up to where; `open`: the text ends too early to tell."""

    told: bool = False
    open: bool = False
    end: int = 0


_CALL = _Telling()


def is_block_quoted(text: str, least: int, at: int, *, whole: bool = False) -> bool:
    """Return whether the line of this place begins as one of a block quote. `least`: where the answer begins, if this
    is the `whole` of it."""
    line = text.rfind("\n", max(least, at - LINE_CHARS), at) + 1 or least
    known = whole or line > least or at - least <= _QUOTED_CHARS
    return known and _BLOCK_QUOTE.match(text, line, at) is not None


def is_paragraph(text: str, least: int, start: int, end: int, behind: int) -> bool:
    """Return whether code, from `start` to `end`, stands in lines or a fence of its own, behind a line that ends a
    sentence. `least`: where the answer begins; `behind`: what comes next, behind fences and white space."""
    near = max(least, start - _BEFORE_CHARS)
    before = _PARAGRAPH_BEFORE.search(text[near:start])
    if before is None or (near > least and not before[0]):
        return False
    between = text[end:behind]
    line = text[behind : behind + _QUOTED_CHARS].partition("\n")[0].rstrip()
    ends = _BLANK_LINE.search(between) is not None or ("\n" in between and line.endswith((":", "：")))
    return ends and (before["fence"] is not None) == ("```" in between)


def is_in_sample(text: str, least: int, taken: Sequence[tuple[int, int]], start: int) -> bool:
    """Return whether other code stands before this place in a code block of a programming language. `taken`: where the
    calls before this one stand, whose own fences open nothing."""
    kept = taken[-1][1] if taken else 0
    fence = text.rfind("```", max(least, start - SAMPLE_CHARS), start)
    while fence >= 0 and (at := bisect_right(taken, (fence, len(text)))) and fence < taken[at - 1][1]:
        fence = text.rfind("```", max(least, start - SAMPLE_CHARS), taken[at - 1][0])
    if fence >= 0 and (_DIFF.match(text, fence) or _is_in_inner_fence(text, max(least, start - LINE_CHARS), start)):
        return True
    sample = _SAMPLE.match(text, fence) if fence >= 0 else None
    return sample is not None and _NO_CODE.match(text, max(sample.end(), kept), start) is None


def _is_in_inner_fence(text: str, least: int, start: int) -> bool:
    """Return whether a fence is open here within a longer one."""
    if text.find("````", least, start) < 0:
        return False
    opened: list[int] = []
    for fence in _FENCE.finditer(text, least, start):
        ticks = len(fence["ticks"])
        if text[max(least, fence.start() - 1) : fence.start()].strip():
            continue
        if opened and ticks >= opened[-1] and not fence["info"].strip():
            while opened and ticks >= opened[-1]:
                opened.pop()
        elif not opened or ticks < opened[-1]:
            opened.append(ticks)
    return len(opened) > 1


def find_telling(text: str, least: int, start: int, end: int, *, broken: bool = False) -> _Telling:
    """Say whether a call, from `start` to `end`, stands in quotes and in a sentence. `broken`: it can't be read, so
    that its end is a guess, and the quotes may end before it."""
    least = max(least, start - _QUOTED_CHARS)
    line = max(text.rfind("\n", least, start) + 1, least)
    if not text[line:start].strip():
        return _CALL
    if (mark := _LINE_MARK.fullmatch(text, line, start)) is not None:
        return _look_at_lines(text, least, mark, end, broken=broken)
    found = [
        _look_behind(text, line, start, end, opener, closes, broken=broken)
        for opens, closes in _PAIRS.items()
        if (opener := _find_opener(text, line, start, opens, closes))
    ]
    found += [
        _look_behind(text, line, start, end, opener, closer, broken=False)
        for opener, closer in _TAGS.items()
        if (at := text.rfind(opener, line, start)) >= 0 and text.find(closer, at + len(opener), start) < 0
    ]
    told = next((telling for telling in found if telling.told), _CALL)
    return told if told.told else _Telling(open=any(telling.open for telling in found))


def _look_at_lines(text: str, least: int, mark: re.Match[str], end: int, *, broken: bool) -> _Telling:
    """Say whether the lines of a call begin with the same mark as its first one; where it has only one, whether a line
    next to it does. `broken`: as above, so that it is told up to the last such line."""
    last = text.find("\n", mark.end(), end)
    if last < 0:
        if _LIST_MARK.fullmatch(mark[0]):
            return _CALL
        before = max(text.rfind("\n", least, max(least, mark.start() - 1)) + 1, least)
        behind = text.find("\n", end, end + _QUOTED_CHARS)
        near = behind + 1 + len(mark[0])
        beside = [before] * (before < mark.start()) + [behind + 1] * (behind >= 0)
        if any(_has_mark(text, line, mark) for line in beside):
            return _Telling(told=True, end=end)
        return _Telling(open=len(text) < (end + _QUOTED_CHARS if behind < 0 else near))
    first = last
    while last >= 0 and _has_mark(text, last + 1, mark):
        last = text.find("\n", last + 1, end)
    told = last < 0 or (broken and last > first)
    return _Telling(told=True, end=end if last < 0 else last) if told else _CALL


def _has_mark(text: str, at: int, mark: re.Match[str]) -> bool:
    """Return whether the line that begins here has the same mark; a number may be another."""
    other = _LINE_MARK.match(text, at)
    return other is not None and other["mark"].lstrip("0123456789") == mark["mark"].lstrip("0123456789")


def find_form(text: str, least: int, start: int, end: int, box: ToolBox, *, broken: bool = False) -> _Telling:
    """Say whether what stands from `start` to `end` is the form of a call and none: it has a stand-in for its name,
    names no declared tool, and stands in a sentence. `broken`: as above."""
    least = max(least, start - _QUOTED_CHARS)
    line = max(text.rfind("\n", least, start) + 1, least)
    newline = text.find("\n", start, end + _QUOTED_CHARS)
    stop = newline if newline >= 0 else min(end + _QUOTED_CHARS, len(text))
    form = _FORM.match(text, start, min(end, stop))
    if form is None or not _LETTER.search(text, line, start):
        return _CALL
    names = {name for pattern in _NAMES for name in pattern.findall(text, start, min(end, stop))}
    if any(box.find(name) is not None for name in names):
        return _CALL
    closed = end <= stop and (not broken or CLOSER.search(text, start, end) is not None)
    if not text[end if closed else form.end() : stop].strip(" \t}])"):
        return _Telling(open=newline < 0 and stop == len(text))
    return _Telling(told=True, end=min(end, stop))


def _find_opener(text: str, line: int, start: int, opens: str, closes: str) -> str:
    """Find the mark that opens a quotation before this place, and hasn't been closed; "" where there is none."""
    if opens == "`":
        ticks = list(_OPENING_TICKS.finditer(text, line, start))
        at, opener = (ticks[-1].start(), ticks[-1][0]) if ticks else (-1, "")
    else:
        at = max(text.rfind(mark, line, start) for mark in opens + closes)
        opener = text[at : at + 1] if at >= 0 and text[at] in opens else ""
    behind = at + len(opener)
    if not opener or opener in _OPENERS:
        return opener
    before, between = text[line:at], text[behind:start]
    apart = not before or before[-1].isspace() or before[-1] in _BEFORE_QUOTATION
    if not _MARK.sub("", between).strip():
        beside = not between[:1].isspace() and before.count(opener) % 2 == 0
        return opener if apart or beside else ""
    speaks = not between[0].isspace() and between[0] not in _STOPS
    return opener if apart and speaks and opener not in _APOSTROPHES else ""


def _look_behind(text: str, line: int, start: int, end: int, opener: str, closes: str, *, broken: bool) -> _Telling:
    """Say whether the quotation is closed behind the call, and other words stand on its line."""
    limit = end + _QUOTED_CHARS
    newline = text.find("\n", end, limit)
    stop = newline if newline >= 0 else min(limit, len(text))
    goes_on = newline < 0 and len(text) < limit
    close = _find_closer(text, end, stop, opener, closes)
    if broken and (inner := _find_end_of_broken(text, start, stop, opener, closes)) >= 0:
        close = inner
    if close < 0:
        return _Telling(open=goes_on)
    before = text[line:start].replace(opener, "")
    words = _LETTER.search(_MARK.sub("", before)) or _LETTER.search(text, min(end, close), close)
    if words or _WORDS.match(text, close + len(_TAGS.get(opener, opener)), stop):
        return _Telling(told=True, end=close if broken else end)
    return _Telling(open=goes_on)


def _find_end_of_broken(text: str, start: int, stop: int, opener: str, closes: str) -> int:
    """Find the mark that closes a quotation in or behind a call that can't be read; -1 where there is none."""
    if opener not in "\"'":
        return _find_closer(text, start, stop, opener, closes)
    ends = (end.end() - 1 for end in _CALL_END.finditer(text, start, stop))
    return next((close for close in ends if text[close] == opener), -1)


def _find_closer(text: str, at: int, stop: int, opener: str, closes: str) -> int:
    """Find the mark that closes a quotation behind this place; -1 where there is none."""
    if _TAGS.get(opener) == closes:
        return text.find(closes, at, stop)
    if opener.startswith("`"):
        return text.find(opener, at, stop)
    places = [place for mark in closes if (place := text.find(mark, at, stop)) >= 0]
    close = min(places, default=-1)
    beside = close >= 0 and not text[at:close].strip(_STOPS)
    apart = close >= 0 and opener not in _APOSTROPHES and not text[close - 1].isspace()
    return close if beside or apart else -1
