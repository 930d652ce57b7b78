"""One call, written in every notation that models use: what the extraction must read back exactly.

A rendering is a function from a name and arguments to text. `plain` notations carry bare text without
types, so they need a schema that says which values are strings, and strings in which no tag begins.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Arguments = Mapping[str, Any]
Rendering = Callable[[str, Arguments], str]


SPELLING: dict[str, Any] = {"ensure_ascii": False}
"""How JSON is spelled: what `json.dumps` takes. The fuzz of values changes it from call to call."""


def text(value: Any) -> str:
    return json.dumps(value, **SPELLING)


def call(name: str, arguments: Arguments) -> str:
    return text({"name": name, "arguments": arguments})


def bare(value: Any) -> str:
    return value if isinstance(value, str) else text(value)


def keywords(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def braces(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{braces(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(braces, value)) + "]"
    return text(value)


def each(form: str, arguments: Arguments, string: str = "true", other: str = "false") -> str:
    """The arguments, each in this form: `{key}`, `{value}`, and in a `{kind}` whether it is a string."""
    kinds = {key: string if isinstance(value, str) else other for key, value in arguments.items()}
    return "".join(form.format(key=key, value=bare(value), kind=kinds[key]) for key, value in arguments.items())


def elements(name: str, arguments: Arguments, frame: str = "\n") -> str:
    inner = each(f"<parameter={{key}}>{frame}{{value}}{frame}</parameter>\n", arguments)
    return f"<function={name}>\n{inner}</function>"


def invoke(name: str, arguments: Arguments, mark: str = "") -> str:
    inner = each(f'<{mark}parameter name="{{key}}">{{value}}</{mark}parameter>\n', arguments)
    return f'<{mark}invoke name="{name}">\n{inner}</{mark}invoke>'


def pairs(name: str, arguments: Arguments) -> str:
    inner = each("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n", arguments)
    return f"<tool_call>{name}\n{inner}</tool_call>"


def marked(name: str, arguments: Arguments, mark: str = "｜DSML｜", block: str = "function_calls") -> str:
    """DeepSeek V3.2, and GigaChat 3.5 with marks of its own: each parameter says whether it is a string."""
    inner = each(f'<{mark}parameter name="{{key}}" string="{{kind}}">{{value}}</{mark}parameter>\n', arguments)
    return f'<{mark}{block}>\n<{mark}invoke name="{name}">\n{inner}</{mark}invoke>\n</{mark}{block}>'


def sections(name: str, arguments: Arguments) -> str:
    """Kimi K3: each argument says its type."""
    form = '<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{each(form, arguments, "string", "other")}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def m3(name: str, arguments: Arguments) -> str:
    """MiniMax M3: each tag has its token."""
    token = "]<]minimax[>["
    inner = each(f"{token}<{{key}}>{{value}}{token}</{{key}}>\n", arguments)
    return f'{token}<tool_call>\n{token}<invoke name="{name}">\n{inner}{token}</invoke>\n{token}</tool_call>'


def solar(name: str, arguments: Arguments) -> str:
    """Solar Open 2: each argument in marks of its own."""
    inner = each("<|tool_arg:start|>{key}<|tool_arg:value|>{value}<|tool_arg:end|>\n", arguments)
    return f"<|tool_call:start|>{name}\n{inner}<|tool_call:end|>"


JSON: dict[str, Rendering] = {
    "hermes": lambda n, a: f"<tool_call>\n{call(n, a)}\n</tool_call>",
    "hermes without opener": lambda n, a: f"{call(n, a)}\n</tool_call>",
    "hermes without closer": lambda n, a: f"<tool_call>\n{call(n, a)}",
    "hermes in a fence": lambda n, a: f"<tool_call>\n```json\n{call(n, a)}\n```\n</tool_call>",
    "bare": call,
    "bare array": lambda n, a: f"[{call(n, a)}]",
    "pretty": lambda n, a: json.dumps({"name": n, "arguments": a}, indent=2),
    "parameters": lambda n, a: text({"type": "function", "name": n, "parameters": a}),
    "args": lambda n, a: text({"tool": n, "args": a}),
    "arguments first": lambda n, a: text({"arguments": a, "name": n}),
    "react object": lambda n, a: text({"action": n, "action_input": a}),
    "openai": lambda n, a: text({"id": "x", "type": "function", "function": {"name": n, "arguments": text(a)}}),
    "tool_calls": lambda n, a: text({"tool_calls": [{"name": n, "arguments": a}]}),
    "function_call": lambda n, a: text({"function_call": {"name": n, "arguments": text(a)}}),
    "python literal": lambda n, a: repr({"name": n, "arguments": dict(a)}),
    "fence": lambda n, a: f"```json\n{call(n, a)}\n```",
    "tool request": lambda n, a: f"[TOOL_REQUEST]\n{call(n, a)}\n[END_TOOL_REQUEST]",
    "tool name in brackets": lambda n, a: f"[{n}]\n{text(a)}[END_TOOL_REQUEST]",
    "harmony": lambda n, a: f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{text(a)}<|call|>",
    "harmony in role": lambda n, a: (
        f"<|start|>assistant to=functions.{n}<|channel|>commentary json<|message|>{text(a)}<|call|>"
    ),
    "harmony analysis": lambda n, a: f"<|channel|>analysis to=functions.{n} code<|message|>{text(a)}",
    "harmony stripped": lambda n, a: f"assistantcommentary to=functions.{n} json{text(a)}",
    "llama": lambda n, a: f"<|python_tag|>{text({'name': n, 'parameters': a})}<|eom_id|>",
    "function tag": lambda n, a: f"<function={n}>{text(a)}</function>",
    "mistral": lambda n, a: f"[TOOL_CALLS] [{call(n, a)}]",
    "mistral args": lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{text(a)}",
    "functools": lambda n, a: f"functools[{call(n, a)}]",
    "deepseek fenced": lambda n, a: (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n{text(a)}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek": lambda n, a: (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{text(a)}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "kimi": lambda n, a: (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{n}:0<|tool_call_argument_begin|>"
        f"{text(a)}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "name and json": lambda n, a: f"{n}\n{text(a)}",
    "react": lambda n, a: f"Action: {n}\nAction Input: {text(a)}",
    "plamo": lambda n, a: (
        f"<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{n}<|plamo:end_tool_name:plamo|>"
        f"<|plamo:begin_tool_arguments:plamo|><|plamo:msg|>{text(a)}<|plamo:end_tool_arguments:plamo|>"
        "<|plamo:end_tool_request:plamo|>"
    ),
    "apertus": lambda n, a: f"<|tools_prefix|>[{text({n: a})}]<|tools_suffix|>",
    "command": lambda n, a: f"<|START_ACTION|>[{text({'tool_name': n, 'parameters': a})}]<|END_ACTION|>",
    "gigachat": lambda n, a: f"function call<|role_sep|>\n{call(n, a)}",
    "solar": lambda n, a: (
        f"<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>{n}<|tool_call:args|>{text(a)}"
        "<|tool_call:end|><|calls|>"
    ),
    "qwen2": lambda n, a: f"✿FUNCTION✿: {n}\n✿ARGS✿: {text(a)}\n✿RESULT✿",
    "foreign envelope": lambda n, a: f"<function_call> {call(n, a)} </function_call>",
}
"""Notations whose arguments are JSON, so that every JSON value can be said."""

PYTHON: dict[str, Rendering] = {
    "pythonic": lambda n, a: f"[{keywords(n, a)}]",
    "pythonic in marks": lambda n, a: f"<|tool_call_start|>[{keywords(n, a)}]<|tool_call_end|>",
    "python tag": lambda n, a: f"<|python_tag|>{keywords(n, a)}",
    "python alone": keywords,
}
"""Notations of Python source: keys and names must be identifiers."""

PLAIN: dict[str, Rendering] = {
    "qwen3_coder": lambda n, a: f"<tool_call>\n{elements(n, a)}\n</tool_call>",
    "qwen3_coder without opener": lambda n, a: f"{elements(n, a)}\n</tool_call>",
    "seed": lambda n, a: f"<seed:tool_call>{elements(n, a, '')}</seed:tool_call>",
    "minimax": lambda n, a: f"<minimax:tool_call>\n{invoke(n, a)}\n</minimax:tool_call>",
    "invoke": invoke,
    "glm": pairs,
    "gemma": lambda n, a: f"<|tool_call>call:{n}{braces(dict(a))}<tool_call|>",
    "deepseek v3.2": marked,
    "gigachat 3.5": lambda n, a: marked(n, a, "｜GCML｜", "tool_calls"),
    "solar 2": solar,
    "muse": lambda n, a: (
        f" to={n}<|message|><atem:function_calls>\n{invoke(n, a, 'atem:')}\n</atem:function_calls><|eom|>"
    ),
    "kimi k3": sections,
    "minimax m3": m3,
}
"""Notations of bare text: strings in which no tag begins."""

ALL: dict[str, Rendering] = {**JSON, **PYTHON, **PLAIN}
_TAG = re.compile(r"<|\A\s|\s\Z|\A\"", re.DOTALL)


def fits(kind: str, arguments: Arguments) -> bool:
    """True where this notation can say these arguments at all."""
    if kind in PLAIN:
        keys_fit = all(re.fullmatch(r"\w+", key) for key in keys(arguments))
        return keys_fit and not any(_TAG.search(string) for string in strings(arguments))
    return kind in JSON or all(key.isidentifier() and key.isascii() for key in arguments)


def keys(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [*value, *(key for inner in value.values() for key in keys(inner))]
    return [key for inner in value for key in keys(inner)] if isinstance(value, list) else []


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [string for inner in value.values() for string in strings(inner)]
    return [string for inner in value for string in strings(inner)] if isinstance(value, list) else []


def schema_of(value: Any) -> dict[str, Any]:
    """A schema that says the type of every field of a value, and requires all of them."""
    if isinstance(value, Mapping):
        properties = {key: schema_of(inner) for key, inner in value.items()}
        return {"type": "object", "properties": properties, "required": list(value)}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", type(None): "null"}
    return {"type": kinds[type(value)]}


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER_TOOL = tool("get_weather", schema_of({"city": "Paris"}))
