"""Chat templates of the families that were popular in late 2026, built from the habits that their makers describe: the
marks of a turn, where a system message may stand, who takes turns, how calls and results are written, and what becomes
of words beside a call and of earlier reasoning. None of the published text is here.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The habits of one family. Marks are Jinja: `{}` in `turn` is the role. `call` writes `c`, the arguments are `a`;
    `result` writes `m`.

    system   anywhere | head: raises behind it | once: drops later ones | never: raises | dropped | user: before the
             first user's words | last: before the last user's words | hoisted: all of them at the head
    turns    in turn: raises where user and assistant don't take turns, calls and results aside
    calls    all | one: raises where there are more | first: drops the others | none
    beside   what becomes of words beside a call: kept | dropped | later: dropped once an answer follows
    results  said | dropped | behind a call, of a call (by its id), not last: raises elsewhere | never: raises
    ids      nine: raises where an id hasn't nine signs
    marks    refused: raises where an answer has Harmony's marks
    thought  none | loop: an empty thought is written in the turns since the user's last words, as Qwen3.5 does
    """

    turn: str
    end: str
    call: str
    result: str
    system: str = "anywhere"
    turns: str = "free"
    calls: str = "all"
    beside: str = "kept"
    results: str = "said"
    ids: str = "any"
    marks: str = "any"
    thought: str = "none"
    tools: str = "head"
    around: tuple[str, str] = ("", "")
    assistant: str = "assistant"
    tool: str = "tool"
    opening: str = ""


# -- how a call is written ---------------------------------------------------------------------------------------------

_JSON = '{"name": "{{ c.name }}", "arguments": {{ a|tojson }}}'
HERMES = f"<tool_call>\n{_JSON}\n</tool_call>"
QWEN_XML = (
    "<tool_call>\n<function={{ c.name }}>\n@EACH<parameter={{ k }}>\n@TEXT\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>"
)
INVOKE = '<invoke name="{{ c.name }}">\n@EACH<parameter name="{{ k }}">@TEXT</parameter>\n{% endfor %}</invoke>\n'
PAIRS = (
    "<tool_call>{{ c.name }}\n@EACH<arg_key>{{ k }}</arg_key>\n<arg_value>@TEXT</arg_value>\n{% endfor %}</tool_call>"
)
DSML = (
    '<｜DSML｜invoke name="{{ c.name }}">\n@EACH<｜DSML｜parameter name="{{ k }}" '
    "string=\"{{ 'true' if v is string else 'false' }}\">@TEXT</｜DSML｜parameter>\n{% endfor %}</｜DSML｜invoke>\n"
)
DEEPSEEK = "<｜tool▁call▁begin｜>{{ c.name }}<｜tool▁sep｜>{{ a|tojson }}<｜tool▁call▁end｜>"
KIMI = "<|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>{{ a|tojson }}<|tool_call_end|>"
K3 = (
    '<|open|>call tool="{{ c.name }}" index="{{ loop.index }}"<|sep|>@EACH<|open|>argument key="{{ k }}" '
    "type=\"{{ 'string' if v is string else 'other' }}\"<|sep|>@TEXT<|close|>argument<|sep|>{% endfor %}"
    "<|close|>call<|sep|>"
)
MISTRAL = "[TOOL_CALLS]{{ c.name }}[ARGS]{{ a|tojson }}"
LLAMA = '{"name": "{{ c.name }}", "parameters": {{ a|tojson }}}'
HARMONY = "<|start|>assistant to=functions.{{ c.name }}<|channel|>commentary json<|message|>{{ a|tojson }}<|call|>"
COMMAND = (
    '{"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ c.name }}", "parameters": {{ a|tojson }}}'
    "{{ ',' if not loop.last }}"
)
SOLAR = "<|tool_call:begin|>{{ id }}<|tool_call:name|>{{ c.name }}<|tool_call:args|>{{ a|tojson }}<|tool_call:end|>"
APERTUS = '{"{{ c.name }}": {{ a|tojson }}}{{ ", " if not loop.last }}'
ELEMENT = '<function name="{{ c.name }}">@EACH<param name="{{ k }}">@TEXT</param>{% endfor %}</function>'
BRACES = (
    '{% macro brace(v) %}{% if v is string %}<|"|>{{ v }}<|"|>{% elif v is mapping %}{{ "{" }}'
    "{% for k, w in v.items() %}{{ k }}:{{ brace(w) }}{{ ',' if not loop.last }}{% endfor %}"
    "{{ '}' }}{% elif v is sequence %}["
    "{% for w in v %}{{ brace(w) }}{{ ',' if not loop.last }}{% endfor %}]{% else %}{{ v|tojson }}{% endif %}"
    "{% endmacro %}"
    "<|tool_call>call:{{ c.name }}{{ brace(a) }}<tool_call|>"
)

# -- how turns are marked ----------------------------------------------------------------------------------------------

_CHATML = {"turn": "<|im_start|>{}\n", "end": "<|im_end|>\n"}
_QWEN = _CHATML | {"call": HERMES, "result": "<tool_response>\n{{ m.content }}\n</tool_response>", "tool": "user"}
_LLAMA3 = {
    "turn": "<|start_header_id|>{}<|end_header_id|>\n\n", "end": "<|eot_id|>", "call": LLAMA, "calls": "one",
    "beside": "dropped", "result": "{{ m.content|tojson }}", "tool": "ipython",
}  # fmt: skip
_GEMMA = {"turn": "<start_of_turn>{}\n", "end": "<end_of_turn>\n", "assistant": "model", "turns": "in turn"}
_INST = {
    "turn": "{% if role == 'user' %}[INST]{% endif %}",
    "end": "{{ '[/INST]' if role == 'user' else '</s>' if role == 'assistant' else '' }}", "call": MISTRAL,
    "beside": "dropped", "result": "[TOOL_RESULTS]{{ m.content }}[/TOOL_RESULTS]", "turns": "in turn", "ids": "nine",
}  # fmt: skip
_GLM = {"turn": "<|{}|>\n", "end": "", "call": PAIRS, "result": "<tool_response>\n{{ m.content }}\n</tool_response>"}
_DEEPSEEK = {
    "turn": "{{ '<｜User｜>' if role == 'user' else '<｜Assistant｜>' if role == 'assistant' else '' }}",
    "end": "{{ '<｜end▁of▁sentence｜>' if role == 'assistant' else '' }}", "call": DEEPSEEK,
    "around": ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    "result": "<｜tool▁output▁begin｜>{{ m.content }}<｜tool▁output▁end｜>", "system": "hoisted",
}  # fmt: skip
_KIMI = {
    "turn": "<|im_{{ role if role in ('user', 'assistant') else 'system' }}|>{}<|im_middle|>", "end": "<|im_end|>",
    "call": KIMI, "around": ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    "result": "## Return of {{ m.tool_call_id }}\n{{ m.content }}",
}  # fmt: skip
_GRANITE = {"turn": "<|start_of_role|>{}<|end_of_role|>", "end": "<|end_of_text|>\n", "result": "{{ m.content }}"}
_HARMONY = {
    "marks": "refused", "turn": "<|start|>{}<|message|>", "end": "<|end|>", "call": HARMONY, "calls": "first",
    "beside": "later",
    "result": "<|start|>functions to=assistant<|channel|>commentary<|message|>{{ m.content|tojson }}",
    "results": "behind a call", "system": "once",
}  # fmt: skip
_MINIMAX = {
    "turn": "]~b]{}\n", "end": "[e~[\n", "call": INVOKE, "around": ("<minimax:tool_call>\n", "</minimax:tool_call>"),
    "result": "<response>{{ m.content }}</response>", "assistant": "ai", "system": "once",
}  # fmt: skip
_COMMAND = {
    "turn": "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>", "end": "<|END_OF_TURN_TOKEN|>", "call": COMMAND,
    "around": ("<|START_ACTION|>[", "]<|END_ACTION|>"),
    "result": "<|START_TOOL_RESULT|>{{ m.content }}<|END_TOOL_RESULT|>", "assistant": "CHATBOT",
}  # fmt: skip
_BARE_RESULT = {"result": "{{ m.content }}"}

_ROWS: dict[str, dict[str, object]] = {
    "Qwen2.5, Qwen3, Qwen3-Next, MiMo": _QWEN,
    "Qwen3-Coder": _QWEN | {"call": QWEN_XML},
    "Qwen3.5": _QWEN | {"call": QWEN_XML, "system": "head", "thought": "loop"},
    "Qwen3.6, Nemotron-3": _QWEN | {"call": QWEN_XML, "system": "head"},
    "Hermes": _QWEN | {"tool": "tool"},
    "SmolLM3": _CHATML | {"call": HERMES, "system": "once", "tool": "user", **_BARE_RESULT},
    "MiniCPM5": _CHATML | {"call": ELEMENT, **_BARE_RESULT},
    "LFM2": _CHATML | {"call": "", "calls": "none", **_BARE_RESULT},
    "Nemotron-Nano-v2": {"turn": "<SPECIAL_11>{}\n", "end": "\n", "call": _JSON + '{{ ", " if not loop.last }}',
        "around": ("<TOOLCALL>[", "]</TOOLCALL>"), "result": "<TOOL_RESPONSE>[{{ m.content }}]</TOOL_RESPONSE>",
        "system": "once"},
    "Ling": _CHATML | {"turn": "<role>{}</role>", "end": "<|role_end|>", "call": HERMES, **_BARE_RESULT},
    "Laguna": _CHATML | {"turn": "<{}>\n", "end": "\n</turn>\n", "call": PAIRS, **_BARE_RESULT},
    "Llama 3": _LLAMA3,
    "Llama 4": _LLAMA3 | {"turn": "<|header_start|>{}<|header_end|>\n\n", "end": "<|eot|>", "calls": "all"},
    "Gemma 2": _GEMMA | {"call": "", "calls": "none", "system": "never", "result": "", "tools": "none"},
    "Gemma 3": _GEMMA | {"call": "", "calls": "none", "system": "user", "result": "", "tools": "none"},
    "Gemma 4": _GEMMA | {"turn": "<|turn>{}\n", "end": "<turn|>\n", "call": BRACES,
        "result": "<|tool_response>{{ m.content }}<tool_response|>", "turns": "free"},
    "Mistral 7B, Nemo": _INST | {"call": _JSON + '{{ ", " if not loop.last }}',
        "around": ("[TOOL_CALLS][", "]"), "system": "last", "tools": "last"},
    "Mistral Small 3.2": _INST | {"tools": "last"},
    "Ministral 3, Devstral": _INST | {"ids": "any", "beside": "kept"},
    "GLM-4.5": _GLM,
    "GLM-4.7, GLM-5": _GLM | {"turn": "<|{}|>"},
    "DeepSeek V3.1": _DEEPSEEK,
    "DeepSeek V3.2": _DEEPSEEK | {"call": DSML, "around": ("<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>")},
    "DeepSeek V4": _DEEPSEEK | {"call": DSML, "around": ("<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>")},
    "Kimi K2": _KIMI,
    "Kimi K3": _KIMI | {"call": K3, "around": ("<|open|>tools<|sep|>", "<|close|>tools<|sep|>")},
    "gpt-oss": _HARMONY,
    "MiniMax M2": _MINIMAX,
    "Granite 3.3": _GRANITE | {"call": "", "calls": "none"},
    "Granite 4": _GRANITE | {"call": HERMES},
    "Command A": _COMMAND,
    "Apertus": {"turn": "<|{}_start|>", "end": "<|{}_end|>", "call": APERTUS,
        "around": ("<|tools_prefix|>[", "]<|tools_suffix|>"), "system": "head", **_BARE_RESULT},
    "Seed-OSS": {"turn": "<seed:bos>{}\n", "end": "<seed:eos>",
        "call": QWEN_XML.replace("tool_call>", "seed:tool_call>"), **_BARE_RESULT},
    "Hunyuan": _GLM | {"turn": "<|hy_{}|>", "end": "<|eos|>"},
    "Solar Open": {"turn": "<|begin|>{}", "end": "<|end|>", "call": SOLAR,
        "around": ("<|tool_calls|>", "<|calls|>"), "beside": "dropped", "system": "hoisted", **_BARE_RESULT},
    "GigaChat 3": {"turn": "{}<|role_sep|>\n", "end": "<|message_sep|>\n\n",
        "call": "<|message_sep|>\n\nfunction call<|role_sep|>\n" + _JSON, "calls": "first", **_BARE_RESULT},
}  # fmt: skip
FAMILIES = {name: Family(**habits) for name, habits in _ROWS.items()}  # type: ignore[arg-type]


# -- one template of all habits ----------------------------------------------------------------------------------------

_RAISE = "{{{{ raise_exception('{}') }}}}".format


def _refuse(condition: str, words: str) -> str:
    return f"{{% if {condition} %}}{_RAISE(words)}{{% endif %}}"


_SYSTEM = {
    "anywhere": "@OPEN{{ m.content }}@CLOSE",
    "head": _refuse("not loop.first", "a system message stands at the head") + "@OPEN{{ m.content }}@CLOSE",
    "once": "{% if loop.first %}@OPEN{{ m.content }}@CLOSE{% endif %}",
    "never": _RAISE("no system role"),
    "dropped": "",
    "user": _refuse("not loop.first", "roles take turns"),
    "last": _refuse("not loop.first", "only user, assistant and tool"),
    "hoisted": "",
}
_IN_TURN = (
    "{% set at = namespace(user=true) %}{% for m in messages %}"
    "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
    + _refuse("(m.role == 'user') != at.user", "roles take turns")
    + "{% set at.user = not at.user %}{% endif %}{% endfor %}"
)
_BESIDE = {
    "kept": "{{ m.content }}",
    "dropped": "{{ m.content if not m.tool_calls }}",
    "later": "{{ m.content if not m.tool_calls or loop.index0 > ns.answer }}",
}
_COUNT = {
    "all": "{% set calls = m.tool_calls or [] %}",
    "one": "{% set calls = m.tool_calls or [] %}" + _refuse("calls|length > 1", "one call"),
    "first": "{% set calls = (m.tool_calls or [])[:1] %}",
    "none": "{% set calls = [] %}",
}
_RESULTS = {
    "said": "",
    "not last": _refuse("(loop.nextitem or {}).role == 'user'", "after a result"),
    "behind a call": _refuse("ns.called == 0", "no call before"),
    "of a call": _refuse("m.tool_call_id not in ns.ids", "no such call"),
    "never": _RAISE("no tool role"),
    "dropped": "",
}
_MARKS = {"any": "", "refused": _refuse("'<|channel|>' in m.content", "marks")}
_THOUGHT = {"none": "", "loop": "{% if loop.index0 > ns.user %}<think>\n\n</think>\n\n{% endif %}"}
_PLACES = ("first", "last")
_NINE = _refuse("id|length != 9", "nine signs")


def _build(family: Family) -> str:
    macro, end, call = family.call.rpartition("{% endmacro %}")
    said = "Write <|tool_call_start|>[name(key=value)]<|tool_call_end|>. " if not family.call else ""
    tools = f"{{% if tools %}}{said}{{{{ tools|tojson }}}}{{% endif %}}"
    hoisted = "{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}"
    roles = {
        "system": _SYSTEM[family.system],
        "user": _build_user(family, tools),
        "assistant": _build_answer(family, call),
        "tool": f"@OPEN{_RESULTS[family.results]}{family.result}@CLOSE",
    }
    text = "".join(
        (
            macro + end,
            "{% set ns = namespace(user=-1, answer=-1, called=0, ids=[]) %}{% for m in messages %}"
            "{% if m.role == 'user' %}{% set ns.user = loop.index0 %}"
            "{% elif m.role == 'assistant' and not m.tool_calls %}{% set ns.answer = loop.index0 %}{% endif %}"
            "{% endfor %}",
            _IN_TURN if family.turns == "in turn" else "",
            tools if family.tools == "head" else "",
            hoisted if family.system == "hoisted" else "",
            "{% for m in messages %}{% set role = m.role %}{% if false %}",
            *(f"{{% elif role == '{role}' %}}{write}" for role, write in roles.items()),
            "{% else %}" + _RAISE("role") + "{% endif %}{% endfor %}",
            "{% if add_generation_prompt %}{% set role = 'assistant' %}@OPEN{% endif %}",
        )
    )
    names = f"{{{{ {{'assistant': '{family.assistant}', 'tool': '{family.tool}'}}[role] or role }}}}"
    parts = {"OPEN": family.turn.replace("{}", names), "CLOSE": family.end.replace("{}", names)}
    parts |= {"EACH": "{% for k, v in a.items() %}", "TEXT": "{{ v if v is string else v|tojson }}"}
    return re.sub("@([A-Z]+)", lambda mark: parts[mark[1]], text)


def _build_user(family: Family, tools: str) -> str:
    at = {"last": "ns.user", "user": "1"}.get(family.system)
    head = (
        f"{{% if messages[0].role == 'system' and loop.index0 == {at} %}}{{{{ messages[0].content }}}}\n\n{{% endif %}}"
    )
    shown = f"{{% if loop.index0 == ns.user %}}{tools}{{% endif %}}" if family.tools == "last" else ""
    return f"{shown}@OPEN{head if at else ''}{{{{ m.content }}}}@CLOSE"


def _build_answer(family: Family, call: str) -> str:
    before, behind = (
        f"{{% if loop.{place} %}}{mark}{{% endif %}}" for place, mark in zip(_PLACES, family.around, strict=True)
    )
    each = "{% set c = call.function %}{% set a = c.arguments %}{% set id = call.id %}"
    each += _NINE if family.ids == "nine" else ""
    calls = f"{_COUNT[family.calls]}{{% for call in calls %}}{before}{each}{call}{behind}{{% endfor %}}"
    said = f"{_THOUGHT[family.thought]}{_BESIDE[family.beside]}"
    known = "{% set ns.called = 1 if m.tool_calls else 0 %}"
    known += "{% for c in m.tool_calls or [] %}{% set ns.ids = ns.ids + [c.id] %}{% endfor %}"
    return f"{_MARKS[family.marks]}{known}@OPEN{said}{calls}@CLOSE"


FAMILY_TEMPLATES = {name: _build(family) for name, family in FAMILIES.items()}
SOME_TEMPLATES = {name: FAMILY_TEMPLATES[name] for name in ("Mistral 7B, Nemo", "Llama 3", "LFM2", "gpt-oss")}
"""Of each other way to write calls one family."""
REWRITTEN = frozenset(
    name for name, family in FAMILIES.items() if family.thought == "loop" or "last" in (family.tools, family.system)
)
"""Whose earlier turns are written otherwise once the user speaks again: the tools, or the system prompt, stand before
the user's last words, or a thought is left out."""


SYSTEMS, TURNS = ("anywhere", "head", "once", "never", "dropped"), ("free", "in turn")


def make_templates(system: str, turns: str) -> Iterator[tuple[str, str]]:
    """Make a template for each of the other habits, with these two: its name and its text."""
    for calls, results, (ids, marks) in itertools.product(_COUNT, _RESULTS, (("any", "any"), ("nine", "refused"))):
        habits = {"system": system, "turns": turns, "calls": calls, "results": results, "ids": ids, "marks": marks}
        result = "" if results == "dropped" else "{{ m.content }}"
        yield str(habits), _build(Family(**_CHATML, call=HERMES, result=result, **habits))
