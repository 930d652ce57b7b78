"""Seeded damages of a right call: each gives the two surfaces that the damaged call can have, native and as
Hermes text.

A damage that doesn't apply to a call (no field to drop, nothing to encode twice) gives None. `place` is
the beginning of the path that a refusal must name.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True)
class Damaged:
    """A call after its damage; None where a surface can't show it."""

    name: str
    native: str | None
    hermes: str | None
    place: str


Call = Mapping[str, Any]
Damage = Callable[[Call, Mapping[str, Any], Random], Damaged | None]


def hermes(name: str, arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def write(call: Call) -> str:
    """The whole call as JSON."""
    return json.dumps({"name": call["name"], "arguments": call["arguments"]}, ensure_ascii=False)


def both(name: str, arguments: Any, place: str) -> Damaged:
    return Damaged(name, json.dumps(arguments, ensure_ascii=False), hermes(name, arguments), place)


def broken_json(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """One structural character is lost, or the end is."""

    def broken(text: str) -> str:
        for _ in range(50):
            at = dice.choice([i for i, c in enumerate(text) if c in '{}[]",:'])
            damaged = text[:at] + text[at + 1 :] if dice.random() < 0.7 else text[: max(1, at)]
            try:
                json.loads(damaged)
            except ValueError:
                return damaged
        return text[:-1]

    inner = write(call)
    native = broken(json.dumps(call["arguments"], ensure_ascii=False))
    return Damaged(call["name"], native, f"<tool_call>\n{broken(inner)}\n</tool_call>", "/0")


def dropped_required(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """A required field is left out."""
    keys = [key for key in schema.get("required", []) if key in call["arguments"]]
    if not keys:
        return None
    key = dice.choice(keys)
    rest = {k: v for k, v in call["arguments"].items() if k != key}
    return both(call["name"], rest, f"/0/arguments/{key}")


def wrong_type(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """A field holds a value of a type that its schema doesn't allow."""
    wrong: dict[str, list[Any]] = {
        "string": [12345, ["a"], {"a": 1}, True],
        "integer": ["12", 5.5, [1], "many"],
        "number": ["1.5", [1.5], True],
        "boolean": ["yes", 1, "on"],
        "array": ["one", 3],
        "object": ["one", [1]],
    }
    properties = schema.get("properties", {})
    keys = [key for key in call["arguments"] if properties.get(key, {}).get("type") in wrong]
    if not keys:
        return None
    key = dice.choice(keys)
    value = dice.choice(wrong[properties[key]["type"]])
    return both(call["name"], {**call["arguments"], key: value}, f"/0/arguments/{key}")


def invented_name(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """The tool doesn't exist."""
    name = dice.choice(
        ["do_" + call["name"], call["name"] + "_v2", "execute", call["name"][: len(call["name"]) // 2] + "x"]
    )
    return both(name, call["arguments"], "/0/name")


def extra_text(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """A remark stands before or behind the JSON."""
    before = dice.choice(["", "Sure, here you go:\n", "Here are the arguments: "])
    behind = dice.choice(["\nI hope this helps!", " Done.", "}", "\n\nLet me know if you need more, okay?"])
    native = before + json.dumps(call["arguments"], ensure_ascii=False) + behind
    return Damaged(call["name"], native, f"<tool_call>\n{before}{write(call)}{behind}\n</tool_call>", "/0")


def fence(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """A code fence stands around the JSON."""
    mark = dice.choice(["```json\n", "```\n", "```JSON "])
    native = f"{mark}{json.dumps(call['arguments'], ensure_ascii=False)}\n```"
    return Damaged(call["name"], native, f"<tool_call>\n{mark}{write(call)}\n```\n</tool_call>", "/0")


def python_literal(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """The arguments are written as Python writes them."""
    inner = repr({"name": call["name"], "arguments": call["arguments"]})
    return Damaged(call["name"], repr(call["arguments"]), f"<tool_call>\n{inner}\n</tool_call>", "/0")


def double_encoding(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """An object or an array, or all of the arguments, stand as JSON text in a string."""
    keys = [key for key, value in call["arguments"].items() if isinstance(value, (dict, list))]
    if keys:
        key = dice.choice(keys)
        return both(call["name"], {**call["arguments"], key: json.dumps(call["arguments"][key])}, f"/0/arguments/{key}")
    return both(call["name"], json.dumps(call["arguments"]), "/0/arguments")


def missing_tag(call: Call, schema: Mapping[str, Any], dice: Random) -> Damaged | None:
    """The opening or the closing tag is missing."""
    text = hermes(call["name"], call["arguments"])
    lost = dice.choice(["<tool_call>\n", "\n</tool_call>"])
    return Damaged(call["name"], None, text.replace(lost, ""), "/0")


DAMAGES: dict[str, Damage] = {
    "broken JSON": broken_json,
    "dropped required field": dropped_required,
    "wrong type": wrong_type,
    "invented name": invented_name,
    "extra text": extra_text,
    "fence": fence,
    "Python literal": python_literal,
    "double encoding": double_encoding,
    "missing tag": missing_tag,
}
