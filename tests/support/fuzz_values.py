"""Values that careless readers change, drawn fast from a seed: for the differential fuzz of `tests.values_fuzz`."""

import json
from random import Random
from typing import Any

from tests.support.call_values import MARKS

# What looks like another type, like nothing, or like a part of what stands around it.
WHOLE = (
    "", " ", "\n", "\r\n", "\t", "007", "0", "-0", "1", "1.0", "1e3", "1e400", "0x1F", "1_000", "true", "True", "null",
    "None", "undefined", "NaN", "Infinity", "{}", "[]", '""', "''", '"x"', "'x'", " x ", "x ", " x", "\nx\n", "x\n",
    "\nx", "  x\n    y\n  ", "{'a': 1}", '{"a": 1}', "[1, 2]", "C:\\new\\table", "\\", "\\\\", '\\"', "\\u0041",
    "\\ud83d", "$&", "/* x */", "// x", "# x", "a=1", "key: value", "x,y", "f(a=1)", "```json\n{}\n```", "---",
    "<![CDATA[x]]>", "&lt;&amp;", "12345678901234567890123", "2026-11-25", "../../etc", "%00", "${x}", "{{ x }}",
    "{% if %}", "x\u2028y",
)  # fmt: skip
PIECES = (
    *MARKS, "\x00", "\x01", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\x85", "\xa0", "\u200b", "\u200d", "\u2028", "\u2029",
    "\u202e", "\ufeff", "\ufffd", "\ufffe", "e\u0301", "ß", "İ", "א", "ب", "漢", "ﬁ", "😀", "👨\u200d👩\u200d👧", "🇳🇴",
    "\U0010ffff", "“", "”", "«", "`", "\n", "\r\n", "\r", "\t", "  ", "\n    ", "\\n", "\\t", "\\x41", "\\_", "_", "<",
    ">", "&", "</", "/>", "|>", "<|", "a", "Z", "</minimax:tool_call>", "<tool_call|>", "<|tool_call>", "<escape>",
    "<tool_sep>", "<|close|>argument<|sep|>", "✿RESULT✿", "</arg_value>", "<｜DSML｜", "]<]minimax[>[", "</invoke>",
    "<|eom_id|>", "<|im_end|>", "[/TOOL_CALLS]", "<｜tool▁call▁end｜>",
)  # fmt: skip
KEYS = (
    "a", "b", "path", "content", "x_1", "type", "name", "arguments", "id", "Key", "from_", "items", "properties", "n",
)  # fmt: skip
INTEGERS = (
    0, 1, -1, 7, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 12345678901234567890123, 10**400,
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 1.0, 0.1 + 0.2, 1e16, 1e22, 1e23, 1.5e-7, 5e-324, 1.7976931348623157e308, 123456789.123456789, -2.5,
)  # fmt: skip


def draw_text(dice: Random) -> str:
    """A short text: one that means something else, or one of pieces."""
    if dice.random() < 0.3:
        return dice.choice(WHOLE)
    return "".join(dice.choice(PIECES) for _ in range(dice.randint(0, 5)))


def draw_number(dice: Random) -> int | float:
    """A number at the edge of some reader, or any other."""
    match dice.randrange(4):
        case 0:
            return dice.choice(INTEGERS)
        case 1:
            return dice.choice(FLOATS)
        case 2:
            return dice.randint(-(10 ** dice.randint(1, 40)), 10 ** dice.randint(1, 40))
    return dice.uniform(-1, 1) * 10.0 ** dice.randint(-20, 20)


def draw_value(dice: Random, depth: int = 3) -> Any:
    kind = dice.randrange(10 if depth else 7)
    if kind < 4:
        return draw_text(dice)
    if kind < 6:
        return draw_number(dice)
    if kind == 6:
        return dice.choice((None, True, False))
    if kind == 7:
        return [draw_value(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    return {draw_key(dice): draw_value(dice, depth - 1) for _ in range(dice.randint(0, 3))}


def draw_key(dice: Random) -> str:
    return dice.choice(KEYS) if dice.random() < 0.5 else draw_text(dice)


def draw_schema(dice: Random, value: Any) -> dict[str, Any] | None:
    """A schema that takes the value: its type, several, none; None for a property that isn't declared."""
    kind = "number" if isinstance(value, float) else TYPES[type(value)]
    either = {"anyOf": [{"type": kind}, {"type": dice.choice(("string", "integer", "null", "object"))}]}
    found = dice.choice(({"type": kind}, {"type": kind}, {"type": kind}, either, {"type": [kind, "null"]}, {}, None))
    return None if found is None else found | {"description": "may be empty"}


TYPES = {
    str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object", type(None): "null",
}  # fmt: skip


def count_values(value: Any) -> int:
    """How many values there are in one, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count_values, inner))


def exact(value: Any) -> str:
    """A spelling that differs where anything does: a type, a digit, a sign, the order of nothing."""
    return json.dumps(value, sort_keys=True)
