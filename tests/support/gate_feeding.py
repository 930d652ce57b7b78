"""A gate that is fed in pieces, and small stand-ins for who decides what a text is."""

import json
import random

from reliability.answer.gate import Gate, TextKind, finish, open_gate, step
from reliability.types import Event, Text

TOOLS = ("get_weather", "search", "write-file", "f")


def decide(text: str, before: str = "") -> TextKind:
    """A small stand-in for the extraction: a tag, or a declared name in brackets, makes a call."""
    bare = text.strip().removesuffix("```").strip()
    if bare.startswith(("<tool_call>{", "[TOOL_REQUEST]", "<|channel|>commentary", "⏺ get_weather")):
        return TextKind.CALL
    if bare.startswith(("get_weather(", "search(", "[get_weather(")):
        return TextKind.CALL
    try:
        value = json.loads(bare)
    except ValueError:
        return TextKind.OPEN if len(text) < 200 else TextKind.PROSE
    items = value if isinstance(value, list) else [value]
    named = any(isinstance(item, dict) and item.get("name") in TOOLS for item in items)
    return TextKind.CALL if named else TextKind.PROSE


def never(text: str, before: str = "") -> TextKind:
    return TextKind.PROSE


def always_open(text: str, before: str = "") -> TextKind:
    return TextKind.OPEN


def fed(gate: Gate, chunks: list[str]) -> tuple[str, str]:
    out: list[Event] = []
    for chunk in chunks:
        gate, events = step(gate, Text(chunk))
        out += events
    events, held = finish(gate)
    return "".join(e.text for e in (*out, *events) if isinstance(e, Text)), "".join(
        e.text for e in held if isinstance(e, Text)
    )


def cut(text: str, seed: int, size: int = 9) -> list[str]:
    """The text in pieces of 1 to `size` characters."""
    dice = random.Random(seed)
    chunks, at = [], 0
    while at < len(text):
        end = at + dice.randint(1, size)
        chunks.append(text[at:end])
        at = end
    return chunks


def live(chunks: list[str], kind: object = decide) -> list[str]:
    """What leaves after each chunk, before the answer is over."""
    gate, outs = open_gate(TOOLS, kind), []  # type: ignore[arg-type]
    for chunk in chunks:
        gate, events = step(gate, Text(chunk))
        outs.append("".join(e.text for e in events if isinstance(e, Text)))
    return outs
