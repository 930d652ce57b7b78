"""So many tools that a tier defers them, and a template that writes each message and each tool on a line."""

import json
from typing import Any

LINES = """{%- for tool in tools or [] %}{{- tool | tojson + '\\n' }}{%- endfor %}{%- for m in messages %}
{{- '<' + m.role + '>' + m.content + ((m.tool_calls | tojson) if m.tool_calls else '') + '\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}"""


def make_tool(name: str) -> dict[str, Any]:
    """A tool with one required integer, and many words about it."""
    number = {"type": "integer", "description": f"What {name} works on, in full. " * 20}
    parameters = {"type": "object", "properties": {"number": number}, "required": ["number"]}
    described = {"name": name, "description": f"Work as {name} does. Nothing else.", "parameters": parameters}
    return {"type": "function", "function": described}


TOOLS: tuple[dict[str, Any], ...] = tuple(make_tool(f"tool_{number}") for number in range(20))


def write_call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_call": {"name": name, "arguments": arguments}}


def make_call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
