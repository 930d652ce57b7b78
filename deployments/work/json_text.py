"""Read and write JSON of clients and models exactly, also where `orjson` can't, and count its values unread.

`orjson` refuses half a character and turns an integer beyond 64 bits into a float; a text that may hold one is read
again by `json`. A body with more than `VALUES_MAX` values is refused unread. Invariants:
- An integer keeps every digit, up to Python's limit of 4,300, or the text is refused.
- Every text can be encoded: a half character becomes U+FFFD, unless the caller joins the halves itself.
- NaN, infinity and a number beyond a double are refused, unless the caller accepts what some upstreams send.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NoReturn

import orjson

from reliability.surrogates import join_all, may_hold_halves

_INT_DIGITS_MAX = 4_300  # as `sys.get_int_max_str_digits`
_HALVES = "half a character (a lone surrogate) in the request was read as U+FFFD"
# As many digits as the shortest integer beyond 64 bits; those of a fraction are none.
_LONG = b"0" * 19
_DIGITS = bytes(48 if chr(code).isdigit() and code < 128 else 32 for code in range(256))
_INTEGER = re.compile(rb"(?:^|[\s:,\[-])\d{19}")
_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")


def read_json(raw: bytes, *, nan: bool = False, halves: bool = False, notes: list[str] | None = None) -> Any:
    """Read a JSON text. `notes` takes what was changed in it. `halves`: half characters stay, since their other halves
    may follow; `nan`: NaN and infinity are read too. Raises ValueError: it is no JSON, or holds a number that can't be
    read; RecursionError: it is nested too deeply."""
    long = _LONG in raw.translate(_DIGITS) and _INTEGER.search(raw) is not None
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        if not (long or nan or _HALF.search(raw)):
            raise
    else:
        if not long:
            return value
    text = raw.decode("utf-8", "surrogatepass")
    if nan:
        value = json.loads(text, parse_int=_parse_int)
    else:
        value = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, parse_constant=_refuse)
    joined = value if halves else join_all(value)
    if joined is not value and notes is not None:
        notes.append(_HALVES)
    return joined


def load_object(text: str | bytes) -> dict[str, Any] | None:
    """Read a JSON object of this server's, or one that is only looked at; None where it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(value: Any, *, default: Callable[[Any], Any] | None = None, option: int | None = None) -> bytes:
    """Write a value as JSON, with integers of any length. Half a character is U+FFFD. `default` and `option` are
    `orjson`'s; of the options only sorted keys count where `orjson` can't write the value. Raises TypeError,
    ValueError: something in it has no JSON, or two keys are the same but for half characters."""
    try:
        return orjson.dumps(value, default=default, option=option)
    except TypeError:
        sort = bool((option or 0) & orjson.OPT_SORT_KEYS)
        plain = json.loads(json.dumps(value, default=default, allow_nan=False, sort_keys=sort))
        return json.dumps(join_all(plain), ensure_ascii=False, separators=(",", ":")).encode()


def join_arguments(given: Sequence[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """Return a conversation's messages without half characters in their calls' arguments, and what was changed."""
    messages, changed = list(given), False
    for at, message in enumerate(messages):
        if not (known := message.get("tool_calls")):
            continue
        calls = [_join_call(call) for call in known]
        if any(call is not old for call, old in zip(calls, known, strict=True)):
            messages[at], changed = message | {"tool_calls": calls}, True
    return tuple(messages), (_HALVES,) if changed else ()


def _join_call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    if not isinstance(arguments, str) or not may_hold_halves(arguments):
        return call
    changed: list[str] = []
    try:
        value = read_json(arguments.encode(), notes=changed)
    except (ValueError, RecursionError):
        return call  # no JSON, so that an escape in it is a text of six letters
    return call | {"function": call["function"] | {"arguments": write_json(value).decode()}} if changed else call


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > _INT_DIGITS_MAX:
        raise ValueError(f"an integer of more than {_INT_DIGITS_MAX:,} digits")
    return int(digits)


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number beyond what a double holds")
    return number


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


VALUES_MAX = 200_000
_PIECE_BYTES = 128 * 1024
_DELIMITERS = (b",", b"[", b"{")
_CONTAINERS = (dict, list, tuple)


def has_more_values(raw: bytes, values_max: int = VALUES_MAX) -> bool:
    """Tell whether this text has more values than may be. What is no JSON is counted as if it were."""
    if len(raw) <= values_max or _count_delimiters(raw) <= values_max:
        return False
    found, inside, odd = 0, 0, b""
    for at in range(0, len(raw), _PIECE_BYTES):
        piece = odd + raw[at : at + _PIECE_BYTES]
        whole = piece.rstrip(b"\\")
        odd = b"\\" * ((len(piece) - len(whole)) % 2)  # it escapes what the next piece begins with
        parts = whole.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        found += _count_delimiters(b"".join(parts[inside::2]))
        inside ^= (len(parts) - 1) % 2
        if found > values_max:
            return True
    return False


def _count_delimiters(raw: bytes) -> int:
    return sum(map(raw.count, _DELIMITERS))


def is_too_deep(value: Any, depth_max: int) -> bool:
    """Tell whether a value has a level beyond `depth_max`."""
    return any(level for level in islice(_list_levels(value), depth_max, None))


def count_values(value: Any) -> int:
    """Count what the lists and objects of a value hold, each key with its value as one."""
    return sum(sum(map(len, level)) for level in _list_levels(value))


def _list_levels(value: Any) -> Iterator[list[Any]]:
    level = [value]
    while level:
        yield level
        inner = (node.values() if isinstance(node, dict) else node for node in level)
        # Most are texts, and `isinstance` is slow for those.
        level = [child for children in inner for child in children if type(child) in _CONTAINERS]
