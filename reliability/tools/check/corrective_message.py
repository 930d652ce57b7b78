"""The message to a model about its invalid call: everything that was wrong, where, and what it may call
instead.

The message is one text for all violations, so that one re-ask can repair them all. It is bounded, since it
is paid for with the prompt: the violations come first, then the signatures of the tools that were meant,
then the other tools, for as long as there is room. A plain resample has no message: the prompt stays as it
was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reliability.tool_calls import Violation
from reliability.tools.schema.toolbox import Tool, ToolBox

__all__ = ["corrective_message"]

MESSAGE_CHARS_MAX = 6_000
VIOLATIONS_CHARS_MAX = 3_000
SIGNATURE_CHARS_MAX = 600
MORE_CHARS = 24


def corrective_message(violations: Sequence[Violation], toolbox: ToolBox) -> str:
    """Write the text of a re-ask."""
    errors = _join_parts([_write_line(v) for v in violations], "; ", VIOLATIONS_CHARS_MAX)
    head = (
        f"Your previous response contained an invalid tool call. The error was: {errors}. "
        "You must respond with valid JSON matching the tool schema exactly. Available tools: "
    )
    meant = {violation.tool for violation in violations}
    tools = sorted(toolbox.tools, key=lambda tool: tool.name not in meant)
    return head + _join_parts([_write_signature(tool) for tool in tools], ", ", MESSAGE_CHARS_MAX - len(head) - 1) + "."


def _write_line(violation: Violation) -> str:
    where = f"{violation.path} " if violation.path else ""
    who = f"(in {violation.tool}) " if violation.tool and "/arguments" in violation.path else ""
    return f"{where}{who}{violation.message}".rstrip(".")


def _join_parts(parts: Sequence[str], separator: str, chars: int) -> str:
    """Join as many parts as there is room for, and how many more there are. The first one is there in
    any case, cut if it must be."""
    if not parts:
        return "none"
    limit = chars - MORE_CHARS
    found = [parts[0][:limit]]
    for i, part in enumerate(parts[1:], 1):
        if sum(map(len, found)) + len(separator) * i + len(part) > limit:
            return separator.join([*found, f"and {len(parts) - i} more"])
        found.append(part)
    return separator.join(found)


def _write_signature(tool: Tool) -> str:
    """Write `search(query: string, limit?: integer)`."""
    properties = tool.parameters.get("properties", {})
    names = [*tool.required, *(key for key in properties if key not in tool.required)]
    parts = [
        f"{key}{'' if key in tool.required else '?'}: {_write_type(properties.get(key))}"
        for key in dict.fromkeys(names)
    ]
    return f"{tool.name}({', '.join(parts)})"[:SIGNATURE_CHARS_MAX]


def _write_type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "any"
    if "enum" in schema:
        return "|".join(map(repr, schema["enum"][:12]))
    kind = schema.get("type", "any")
    return "|".join(kind) if isinstance(kind, list) else str(kind)
