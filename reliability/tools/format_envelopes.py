"""The envelopes of the table of call formats (`formats.py`): what stands around calls."""

from __future__ import annotations

import re
from typing import Any

from reliability.tools.format_row import (
    DSML,
    DSML_CALL,
    ELEMENTS_CALL,
    GEMMA_CALL,
    INVOKE_CALL,
    JSON_CALL,
    M3_CALL,
    M3_TOKEN,
    PARAMETERS_CALL,
    SPACES_OF_TAGS,
    SUFFIX_OF_TAGS,
    Format,
    Place,
    Reader,
    Start,
)


def _tags(*names: str) -> tuple[str, ...]:
    """Return opening tags of these names, with any namespace: `<name>`, `<|name|>`, `<minimax:name>`, `<ifm|name>`."""
    return tuple(tag for name in names for space in SPACES_OF_TAGS for tag in _tag("", f"{space}{name}"))


def _end_tags(*names: str) -> tuple[str, ...]:
    """Return the same, closing; and `<name|>`, as Gemma 4 writes it."""
    ends = [tag for name in names for space in SPACES_OF_TAGS for tag in _tag("/", f"{space}{name}")]
    return (*ends, *(rf"<{name}\|>" for name in names))


def _tag(slash: str, name: str) -> tuple[str, ...]:
    return (rf"<\|?{slash}{name}\|?>", rf"<{slash}{name}{SUFFIX_OF_TAGS}>")


def _envelope(family: str, *examples: str, opens: tuple[str, ...], **more: Any) -> Format:
    return Format(
        family=family, examples=examples, reader=Reader.ENVELOPE, opens=opens, explicit=True, compared=opens, **more
    )


def _pair(family: str, opener: str, body: str, closer: str) -> Format:
    return _envelope(family, f"{opener}{body}{closer}", opens=(re.escape(opener),), closes=(re.escape(closer),))


_DEEPSEEK_OPENS = (r"<[|｜]tool[▁_ ]calls?[▁_ ]begin[|｜]>",)
_DEEPSEEK_SEPARATOR = r"<[|｜]tool[▁_ ]sep[|｜]>"

HERMES = _envelope(
    "Hermes, Qwen, GLM, and most open models",
    f"<tool_call>\n{JSON_CALL}\n</tool_call>",
    f"<tool_call>\n{ELEMENTS_CALL}\n</tool_call>",
    "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
    f"<minimax:tool_call>\n{INVOKE_CALL}\n</minimax:tool_call>",
    f"<seed:tool_call>\n{ELEMENTS_CALL}\n</seed:tool_call>",
    "<longcat_tool_call>search\n<longcat_arg_key>query</longcat_arg_key>\n"
    "<longcat_arg_value>x</longcat_arg_value>\n</longcat_tool_call>",
    f"<|tool_call>{GEMMA_CALL}<tool_call|>",
    f"<abc:tool_call>{JSON_CALL}</abc:tool_call>",
    opens=_tags("tool[_-]?calls?"),
    closes=_end_tags("tool[_-]?calls?"),
    writes=("<tool_call>", "</tool_call>"),
)

ENVELOPES: tuple[Format, ...] = (
    HERMES,
    _envelope(
        "tags as HTML shows them",
        f"&lt;tool_call&gt;\n{JSON_CALL}\n&lt;/tool_call&gt;",
        f"&lt;tool_call&gt;{JSON_CALL}</tool_call>",
        opens=("&lt;tool_calls?&gt;", "&lt;function=", "&lt;invoke name="),
        closes=("&lt;/tool_calls?&gt;",),
    ),
    _envelope(
        "Granite, OLMo, GigaChat, dots, Claude's XML",
        f"<function_calls>\n{INVOKE_CALL}\n</function_calls>",
        f"<|function_call|>{JSON_CALL}",
        f"<foo:function_call>{JSON_CALL}</foo:function_call>",
        '<dots_function_call><invoke name="search"><parameter name="query">x</parameter></invoke></dots_function_call>',
        '<function_calls>search(query="x")</function_calls>',
        opens=_tags("function[_-]?calls?"),
        closes=_end_tags("function[_-]?calls?"),
    ),
    _envelope(
        "DeepSeek V3.2 to V4, GigaChat 3.5",
        f"<｜｜DSML｜｜ calls>\n{DSML_CALL}\n</｜｜DSML｜｜ calls>",
        f"<｜DSML｜tool_calls>\n{DSML_CALL}\n</｜DSML｜tool_calls>",
        f"<｜DSML｜function_calls>\n{DSML_CALL}\n</｜DSML｜function_calls>",
        f"<｜DSML｜tool_calls>\n{DSML_CALL}\n</｜DSML｜tool_calls>".replace("｜", "|"),
        f"<｜DSML｜tool_calls>\n{DSML_CALL}\n</｜DSML｜tool_calls>".replace("DSML", "GCML"),
        f"<｜DSML｜tool_use>\n{DSML_CALL}\n</｜DSML｜tool_use>".replace("｜DSML｜", " | DSML | "),
        opens=(rf"<{DSML}calls>", rf"<{DSML}tool_use>"),
        closes=(rf"</{DSML}calls>", rf"</{DSML}tool_use>"),
    ),
    _envelope(
        "MiniMax M3",
        f"]<]minimax[>[<tool_call>\n{M3_CALL}\n]<]minimax[>[</tool_call>",
        opens=(rf"{M3_TOKEN}<tool_calls?>",),
        closes=(rf"{M3_TOKEN}</tool_calls?>",),
        holds=(Start(M3_TOKEN),),
    ),
    _envelope(
        "Kimi K3",
        '<|open|>tools<|sep|><|open|>call tool="search" index="1"<|sep|>'
        '<|open|>argument key="query" type="string"<|sep|>'
        "x<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        '<|open|>tools<|sep|><|open|>call tool="search" index="1"<|sep|><|open|>json type="object"<|sep|>{"query": "x"}'
        "<|close|>json<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
        opens=(r"<\|open\|>tools<\|sep\|>",),
        closes=(r"<\|close\|>tools<\|sep\|>",),
    ),
    _envelope(
        "PLaMo 3",
        "<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>search"
        "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>"
        '{"query": "x"}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>'
        "<|plamo:end_tool_requests:plamo|>",
        opens=(r"<\|plamo:begin_tool_requests?:plamo\|>",),
        closes=(r"<\|plamo:end_tool_requests?:plamo\|>",),
    ),
    _envelope(
        "Solar Open",
        '<|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>search<|tool_call:args|>{"query": "x"}<|tool_call:end|>',
        "<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>search<|tool_call:args|>"
        '{"query": "x"}<|tool_call:end|><|calls|>',
        "<|tool_call:start|>search\n<|tool_arg:start|>query<|tool_arg:value|>x<|tool_arg:end|>\n<|tool_call:end|>",
        opens=(r"<\|tool_call:begin\|>", r"<\|tool_call:start\|>"),
        closes=(r"<\|tool_call:end\|>", r"<\|calls\|>"),
    ),
    _pair("Apertus", "<|tools_prefix|>", '[{"search": {"query": "x"}}]', "<|tools_suffix|>"),
    _pair(
        "Command R7B, Command A",
        "<|START_ACTION|>",
        '[\n  {"tool_call_id": "0", "tool_name": "search", "parameters": {"query": "x"}}\n]',
        "<|END_ACTION|>",
    ),
    _pair("Inkling", "<|content_invoke_tool_json|>", '{"name": "search", "args": {"query": "x"}}', "<|end_message|>"),
    _pair("Llama 4", "<|python_start|>", '[search(query="x")]', "<|python_end|>"),
    _envelope(
        "HyperCLOVA X",
        f"-> tool/function_call\n[{JSON_CALL}]<|im_end|>",
        f" -> tool/function_call\n[{JSON_CALL}]",
        opens=(r"-> tool/function_call(?=\s{0,8}[\[{])",),
        closes=(r"<\|im_end\|>",),
        holds=(Start(r"-> tool/function_call\s{0,8}[\[{]", place=Place.SENTENCE),),
        endless=True,
    ),
    _envelope(
        "GigaChat 3",
        f"function call<|role_sep|>\n{JSON_CALL}",
        opens=(r"function call<\|role_sep\|>",),
        closes=(r"<\|message_sep\|>",),
        holds=(Start(r"function call<\|role_sep\|>", place=Place.SENTENCE),),
        endless=True,
    ),
    _envelope(
        "Gemma 3", '<tool_code>search(query="x")</tool_code>', opens=_tags("tool_code"), closes=_end_tags("tool_code")
    ),
    _envelope(
        "tool", f"<tool>{JSON_CALL}</tool>", opens=("<tool>",), closes=(r"<\|?/tool\|?>", r"<\|?/\w{1,32}:tool\|?>")
    ),
    _pair("LFM2", "<|tool_call_start|>", '[search(query="x")]', "<|tool_call_end|>"),
    _envelope(
        "Kimi K2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
        '{"query": "x"}<|tool_call_end|><|tool_calls_section_end|>',
        "<|tool_call_section_begin|><|tool_call_begin|>search:0<|tool_call_argument_begin|>"
        '{"query": "x"}<|tool_call_end|><|tool_call_section_end|>',
        opens=(r"<\|tool_calls?_section_begin\|>", r"<\|tool_call_begin\|>"),
        closes=(r"<\|tool_call_end\|>", r"<\|tool_calls?_section_end\|>"),
    ),
    _envelope(
        "DeepSeek V3 to V3.1, Step 3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>"
        '{"query": "x"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n"
        '```json\n{"query": "x"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜>"
        '<steptml:invoke name="search"><steptml:parameter name="query">x</steptml:parameter></steptml:invoke>'
        "<｜tool_call_end｜><｜tool_calls_end｜>",
        opens=(*_DEEPSEEK_OPENS, rf"function{_DEEPSEEK_SEPARATOR}"),
        closes=(r"<[|｜]tool[▁_ ]calls?[▁_ ]end[|｜]>",),
        holds=(*map(Start, _DEEPSEEK_OPENS), Start(rf"function{_DEEPSEEK_SEPARATOR}", place=Place.SENTENCE)),
    ),
    _envelope(
        "Llama 3",
        f"<|python_tag|>{PARAMETERS_CALL}<|eom_id|>",
        f"<|python_tag|>{PARAMETERS_CALL}",
        opens=(r"<\|python_tag\|>",),
        closes=(r"<\|eom_id\|>",),
        endless=True,
    ),
    _envelope(
        "functionary v2",
        '<|from|>assistant\n<|recipient|>search\n<|content|>{"query": "x"}<|stop|>',
        opens=(r"<\|from\|>assistant\s{0,8}<\|recipient\|>", r"<\|recipient\|>"),
        closes=(r"<\|stop\|>",),
        endless=True,
    ),
    _envelope(
        "InternLM",
        f"<|action_start|><|plugin|>{JSON_CALL}<|action_end|>",
        opens=(r"<\|action_start\|>", r"<\|plugin\|>"),
        closes=(r"<\|action_end\|>",),
    ),
    _pair("FunctionGemma", "<start_function_call>", "call:search{query:<escape>x<escape>}", "<end_function_call>"),
    _envelope(
        "Mistral",
        '[TOOL_CALLS]search[ARGS]{"query": "x"}',
        '[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{"query": "x"}',
        f"[TOOL_CALLS] [{JSON_CALL}]",
        opens=(r"\[TOOL_CALLS?\]",),
        closes=(r"\[/TOOL_CALLS?\]",),
        endless=True,
    ),
    _pair("LM Studio", "[TOOL_REQUEST]", JSON_CALL, "[END_TOOL_REQUEST]"),
    _envelope(
        "Phi 4",
        f"functools[{JSON_CALL}]",
        opens=(r"functools(?=\[\s{0,8}\{)",),
        holds=(Start(r"functools\[\s{0,8}\{", place=Place.SENTENCE),),
        endless=True,
    ),
)
