"""What stands between an opener and its closer: one call or several, in any notation; and delimiters without a call.

Inside an envelope every name is taken and everything must be read; else the whole envelope is `Unreadable`. The closer,
a fence, and prose before or behind the call may be missing or too much without loss.

A delimiter without a call is meant at the end of an answer or in a line of its own, with a declared name or arguments
behind it, or with a closer where a sentence begins; else it is talked of. A closer is meant behind something that looks
like a call; where a sentence would begin, or glued to the last word, it closes nothing and is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from reliability.tool_calls import RepairKind
from reliability.tools import formats
from reliability.tools.extract import markup, payloads
from reliability.tools.extract.literal import Unreadable
from reliability.tools.extract.payloads import Found
from reliability.tools.extract.pythonic import read_python
from reliability.tools.extract.sections import read_flowers, read_sections
from reliability.tools.extract.shapes import Setting
from reliability.tools.extract.text import holds_argument, is_harmless_after, is_harmless_before
from reliability.tools.format_reasoning import REASONING_CLOSE
from reliability.tools.format_row import DSML, M3_TOKEN, NAME, Reader
from reliability.tools.schema.toolbox import ToolBox

TAIL_CHARS = 64
_INLINE_CHARS_MAX = 120  # of prose between an opener in the middle of a line and its call

_NotationReader = Callable[[str, int, Setting], Found | None]

_READERS: tuple[_NotationReader, ...] = (
    read_python,
    markup.read_elements,
    read_sections,
    markup.read_name_and_arguments,
    markup.read_children,
    markup.read_pairs,
    payloads.read_braces,
    payloads.read_named,
    payloads.read_json,
)

FENCE_LINE = re.compile(r"`{3,}[\w-]{0,32}\s*")
_DELIMITER = re.compile(
    rf"(?P<thought>{REASONING_CLOSE.pattern})|(?P<close>{formats.CLOSER.pattern})|(?P<open>{formats.OPENER.pattern})",
    re.IGNORECASE,
)
_PART = re.compile(
    rf"(?P<close>{formats.CLOSER.pattern}|{formats.INNER_CLOSERS.pattern})|{formats.OPENER.pattern}"
    rf"|<(?:\w{{1,32}}:|{DSML})?(?:function|invoke)\b",
    re.IGNORECASE,
)
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\w{1,7});")
_SEPARATORS = re.compile(r"[\s,;]*+")
_EMPTY = re.compile(r"[\s,;]*+(?:(?P<list>\[\s*+\]|\{\s*+\}|null\b)|(?:none|nil|n/a)\b)?[\s,;.]*+", re.IGNORECASE)
_FRAMING = re.compile(r"[\s`]*+")
_NEXT = re.compile(
    rf"\{{|\[\{{|(?:{M3_TOKEN})?<(?:\w{{1,32}}:|{DSML})?(?:function|invoke)\b|<\|open\|>call\b|{NAME}\[ARGS\]"
)
_NAME_FIRST = re.compile(rf"{NAME}\s{{0,8}}")
_FENCED_NAME = re.compile(rf"{NAME}\s*`{{1,8}}[\w-]{{0,32}}")
_PAYLOAD = re.compile(rf"\{{|<function=|<(?:\w{{1,32}}:|{DSML})?invoke\s{{1,8}}name")
NEAR_CHARS = 400
_ARGUMENTS = re.compile(r"[{}=]|\w\(")
_WORD = re.compile(NAME)
_JOINT = re.compile(r"[\s,;:/&.…`'\"-]*(?:(?:and|or|to|with|und|et)[\s,;:/&.…`'\"-]*|(?:\.\.\.|…)\s*)")
_LINE_ENDS = re.compile(r"[ \t\r]*(?:\n(?![ \t]*`{3})|\Z)")
_TAG = re.compile(
    rf"<function=\s*(?:(?P<name>{NAME})|[\"']?\Z)|<(?:\w{{1,32}}:|{DSML})?(?:function|invoke)(?:=|\s{{0,8}}name)(?P<rest>[^<>\n]{{1,160}})>"
)
OPEN_READERS = {
    Reader.ELEMENTS: markup.read_elements,
    Reader.CHILDREN: markup.read_children,
    Reader.SECTIONS: read_sections,
    Reader.FLOWERS: read_flowers,
    Reader.ATTRIBUTES: markup.read_attributes,
    Reader.PAIRS: markup.read_pairs,
    Reader.NAMED: payloads.read_named,
    Reader.BRACES: payloads.read_braces,
    Reader.PYTHON: read_python,
    Reader.JSON: payloads.read_json,
    Reader.REACT: payloads.read_announced,
    Reader.CHANNEL: payloads.read_announced,
    Reader.ANNOUNCED: payloads.read_fenced,
}


class Nothing(Unreadable):
    """An opener with nothing behind it that could be a call."""


def read_envelope(text: str, start: int, at: int, setting: Setting, *, inline: bool = False) -> Found:
    """Read all calls of one envelope, whose opener stands from `start` to `at`, and where it ends. `inline`: other text
    stands before it on its line; then prose before a call must be short."""
    begin, fenced = _skip_openers(text, at)
    found, before = _read_first(text, begin, setting, inline)
    calls, unended = list(found.calls), found.unended
    end, closed = skip_closers(text, found.end)
    while not closed and (place := _find_next(text, end)) >= 0:
        more = _read_notation(text, place, setting)
        if more is None or not more.calls:
            break
        calls, unended = calls + more.calls, more.unended
        end, closed = skip_closers(text, more.end)
    behind = False
    if not closed:
        at, (end, closed, behind) = end, _find_end(text, end)
        if behind and any(holds_argument(text[at:end], setting.box.find(c.name), c.arguments) for c in calls):
            raise Unreadable("an argument stands behind the others", at)
    if text.startswith("&", start) and _ENTITY.search(formats.CLOSER.sub("", text[begin:end])):
        raise Unreadable("signs of HTML that may be the text's own or stand for others", begin)
    missing = not closed and formats.ENDLESS.match(text, start) is None
    kinds = [RepairKind.FENCE] * fenced + [RepairKind.EXTRA_TEXT] * (before or behind) + [RepairKind.ENVELOPE] * missing
    return Found([payloads.record_repairs(call, kinds) for call in calls], end, unended=unended)


def find_region_end(text: str, at: int) -> int:
    """Find where something unreadable ends: behind a closer, before an opener, or with the text."""
    delimiter = _DELIMITER.search(text, at)
    if delimiter is None:
        return len(text)
    return skip_closers(text, delimiter.start())[0] if delimiter.lastgroup == "close" else delimiter.start()


def find_empty_end(text: str, at: int) -> int | None:
    """Find the place behind an envelope that holds nothing, an empty list, or a word for nothing; else None."""
    inside = _EMPTY.match(text, _skip_openers(text, at)[0])
    if inside is None:
        return None
    end, closed = skip_closers(text, inside.end())
    return end if closed or inside["list"] else None


def is_closer_next(text: str, at: int) -> bool:
    """Return whether the next delimiter is a closer, of a call or of a part of one."""
    part = _PART.search(text, at)
    return part is not None and part.lastgroup == "close"


def skip_closers(text: str, at: int) -> tuple[int, bool]:
    """Return the place behind a row of closers (a fence may stand before it), and whether there was one."""
    framing = _FRAMING.match(text, at)
    closer = formats.CLOSER.match(text, framing.end() if framing else at)
    if closer is None:
        return at, False
    while closer is not None:
        at = closer.end()
        closer = formats.CLOSER.match(text, payloads.skip_space(text, at))
    return at, True


def _skip_openers(text: str, at: int) -> tuple[int, bool]:
    at, fenced = payloads.skip_space(text, at), False
    while (match := formats.OPENER.match(text, at) or FENCE_LINE.match(text, at)) is not None:
        fenced = fenced or match[0].startswith("`")
        at = payloads.skip_space(text, match.end())
    return at, fenced


def _read_notation(text: str, at: int, setting: Setting) -> Found | None:
    for reader in _READERS:
        found = reader(text, at, setting)
        if found is not None:
            return found
    return None


def may_open(text: str) -> bool:
    """Return whether a text that begins with a start marker in a line of prose may still become a call."""
    parts = formats.INNER_CLOSERS.match(text)  # behind them the closer of the call may follow
    closing = parts is not None and (parts.end() == len(text) or text[parts.end()] in "<[]")
    if closing or markup.may_have_children(text):
        return True
    name = _NAME_FIRST.match(text)
    delimiter = formats.START_MARKER.match(text, name.end() if name else 0)
    if delimiter is None:
        return False
    rest = text[_skip_openers(text, delimiter.end())[0] :].strip()
    return _fits_line(rest) or _FENCED_NAME.fullmatch(rest) is not None


def _fits_line(prose: str) -> bool:
    return len(prose) <= _INLINE_CHARS_MAX and "\n" not in prose


def _read_first(text: str, at: int, setting: Setting, inline: bool) -> tuple[Found, bool]:
    """Read the first call in an envelope, and whether prose stood before it."""
    found = _read_notation(text, at, setting)
    if found is not None and found.calls:
        return found, False
    start = _PAYLOAD.search(text, at, find_region_end(text, at))
    before = text[at : start.start()].strip() if start is not None else ""
    if found is None and start is not None and is_harmless_before(before) and (_fits_line(before) or not inline):
        found = _read_notation(text, start.start(), setting)
        if found is not None and found.calls:
            return found, True
    raise (Nothing if found is None else Unreadable)("no call could be read here", at)


def _find_next(text: str, at: int) -> int:
    """Find the place where another call of the same envelope may begin, or -1."""
    match = _SEPARATORS.match(text, at)
    place = match.end() if match else at
    return place if _NEXT.match(text, place) and not formats.OPENER.match(text, place) else -1


def _find_end(text: str, at: int) -> tuple[int, bool, bool]:
    """Find where an envelope ends that goes on behind its calls; whether a closer is there, and prose."""
    delimiter = _DELIMITER.search(text, at)
    if delimiter is None or delimiter.lastgroup != "close" or formats.SPEECH_END.fullmatch(delimiter[0]):
        if text[at : at + TAIL_CHARS].lstrip()[:1] in (",", ":", '"'):
            raise Unreadable("the text goes on where a part of the call would", at)
        return at, False, False
    if not is_harmless_after(text[at : delimiter.start()]):
        raise Unreadable("there is more in it than a call", at)
    return skip_closers(text, delimiter.start())[0], True, True


def is_opener_meant(text: str, start: int, at: int, box: ToolBox, *, begins_line: bool) -> bool:
    """Return whether an opener, from `start` to `at`, was meant that no call stands behind."""
    if _ends_behind_delimiters(text, at):
        return begins_line or formats.begins_sentence(text, start)
    delimiter = _DELIMITER.search(text, at)
    inside = text[at : delimiter.start() if delimiter else len(text)]
    closed = delimiter is not None and delimiter.lastgroup == "close"
    if (closed or begins_line) and looks_like_calling(inside, box):
        return True
    if closed:
        return formats.begins_sentence(text, start) and not _JOINT.fullmatch(inside, 0, NEAR_CHARS)
    return begins_line and _LINE_ENDS.match(text, at) is not None


def is_closer_lost(text: str, begin: int, start: int, end: int) -> bool:
    """Return whether a closer, from `start` to `end`, closes nothing. `begin`: where its paragraph begins."""
    ends = _ends_behind_delimiters(text, end) or _LINE_ENDS.match(text, end) is not None
    glued = start > begin and (text[start - 1].isalnum() or text[start - 1] in ")]>*_")
    return ends and (glued or formats.begins_sentence(text, start) or not text[begin:start].strip())


def is_tag_meant(text: str, start: int, box: ToolBox) -> bool:
    """Return whether an unreadable `<function=` was meant: with a declared name in it, or cut off."""
    tag = _TAG.match(text, start)
    if tag is None:
        return False
    cut = tag.end() == len(text) and formats.begins_sentence(text, start)
    names = [tag["name"]] if tag["name"] else _WORD.findall(tag["rest"] or "")
    return cut or any(box.find(name) is not None for name in names)


def _ends_behind_delimiters(text: str, at: int) -> bool:
    return len(text) - at <= NEAR_CHARS and formats.has_only_delimiters(text[at:])


def looks_like_calling(text: str, box: ToolBox) -> bool:
    """Return whether arguments, or the name of a declared tool, stand in a text."""
    if _ARGUMENTS.search(text):
        return True
    return any(box.find(name) is not None for name in set(_WORD.findall(text, 0, NEAR_CHARS)))
