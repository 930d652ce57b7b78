"""Chat templates of the strict kind, as models bring them, and an upstream that refuses what they refuse: the real
rules (`raise_exception`, `|items`), run by Jinja, behind real HTTP."""

import json
from collections.abc import Mapping
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.support.plays import Play, Player, Seen, good, status

# Qwen3.5 to 3.8: a system message at the very beginning, arguments that are objects, a user's question somewhere.
QWEN = """{%- for m in messages %}
{%- if m.role == 'system' %}
  {%- if not loop.first %}{{- raise_exception('System message must be at the beginning.') }}{%- endif %}
{{- '<|system|>' + m.content }}
{%- elif m.role == 'user' %}{{- '<|user|>' + m.content }}
{%- elif m.role == 'assistant' %}{{- '<|assistant|>' + (m.content or '') }}
  {%- for c in m.tool_calls or [] %}{{- '<call>' + c.function.name }}
    {%- for k, v in c.function.arguments|items %}{{- k + '=' + v|string }}{%- endfor %}{%- endfor %}
{%- elif m.role == 'tool' %}{{- '<|tool|>' + m.content }}
{%- else %}{{- raise_exception('Unexpected message role.') }}{%- endif %}
{%- endfor %}
{%- for t in tools or [] %}
{%- for k, v in t.function.parameters.properties|items %}{{- k }}{%- endfor %}{%- endfor %}"""

# Mistral and Llama 2: after one system message user and assistant take turns, but for calls and their results.
TURNS = """{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{%- set ns = namespace(i=0) %}
{%- for m in rest %}
  {%- if m.role not in ['user', 'assistant', 'tool'] %}
    {{- raise_exception('Only user, assistant and tool roles are supported here, got ' + m.role + '.') }}{%- endif %}
  {%- if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}
    {%- if (m.role == 'user') != (ns.i % 2 == 0) %}
      {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/...') }}
    {%- endif %}{%- set ns.i = ns.i + 1 %}{%- endif %}
  {{- '[' + m.role + ']' + (m.content or '') }}
  {%- for c in m.tool_calls or [] %}{{- c.function.name }}
    {%- for k, v in c.function.arguments|items %}{{- k }}{%- endfor %}{%- endfor %}
{%- endfor %}"""

# Gemma: no system role at all, and turns.
NO_SYSTEM = """{%- if messages[0].role == 'system' %}{{- raise_exception('System role not supported') }}{%- endif %}
{%- set ns = namespace(i=0) %}
{%- for m in messages %}
  {%- if m.role == 'tool' or m.tool_calls %}{{- m.content or '' }}
  {%- else %}
    {%- if (m.role == 'user') != (ns.i % 2 == 0) %}
      {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif %}
    {%- set ns.i = ns.i + 1 %}{{- '<' + m.role + '>' + m.content }}
  {%- endif %}
{%- endfor %}"""

# An API in front of a model: each call has its result behind it, each result its call.
PAIRS = """{%- set ns = namespace(open=[]) %}
{%- for m in messages %}
  {%- if m.role == 'tool' %}
    {%- if m.tool_call_id not in ns.open %}
      {{- raise_exception("messages with role 'tool' must be a response to a preceeding message with 'tool_calls'") }}
    {%- endif %}{%- set ns.open = ns.open|reject('equalto', m.tool_call_id)|list %}
  {%- else %}
    {%- if ns.open %}
      {{- raise_exception("An assistant message with 'tool_calls' must be followed by tool messages.") }}{%- endif %}
    {%- set ns.open = (m.tool_calls or [])|map(attribute='id')|list %}
  {%- endif %}
  {{- m.content or '' }}
{%- endfor %}
{%- if ns.open %}{{- raise_exception("An assistant message with 'tool_calls' must be followed by tool messages.") }}
{%- endif %}"""

TEMPLATES: Mapping[str, str] = {"qwen": QWEN, "turns": TURNS, "no system": NO_SYSTEM, "pairs": PAIRS}


def _raise(message: str) -> str:
    raise TemplateError(message)


_ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
_ENVIRONMENT.globals["raise_exception"] = _raise


def render_strictly(template: str, body: Mapping[str, Any]) -> str:
    """Render the prompt as an inference server does: arguments are read as JSON first, content parts as their texts.

    Raises:
        Exception: what the template, or the reading of the arguments, raises.
    """
    messages = []
    for message in body["messages"]:
        content = message.get("content")
        text = "".join(part.get("text", "") for part in content) if isinstance(content, list) else content
        calls = [
            {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
            for call in message.get("tool_calls") or ()
        ]
        messages.append({**message, "content": text, **({"tool_calls": calls} if calls else {})})
    return _ENVIRONMENT.from_string(template).render(messages=messages, tools=body.get("tools"))


def refuse_as_vllm(error: Exception) -> Play:
    """A 400 with the template's own words."""
    return status(400, str(error))


def refuse_as_llama_cpp(error: Exception) -> Play:
    """A 500 with a trace, whose first line is a rule."""
    trace = "\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n...%}↵  {{- raise_e"
    return status(500, f"{trace}\n           ^\nError: Jinja Exception: {error}")


def strict(template: str, refuse: Any) -> Player:
    """An upstream that renders what it is sent, and answers where its template takes it."""

    def play(seen: Seen) -> Play:
        try:
            render_strictly(template, seen.body)
        except Exception as error:
            return refuse(error)  # type: ignore[no-any-return]
        return good("Fine.")

    return play
