"""The first rows of the table of call formats: the envelopes, which stand around calls.

`formats.py` has the whole table, and says what its columns are.
"""

from __future__ import annotations

from reliability.tools.format_parts import ELEMENTS_CALL, GEMMA_CALL, INVOKE_CALL, JSON_CALL, PARAMETERS_CALL
from reliability.tools.format_row import Format, Place, Reader, Start

__all__ = ["ENVELOPES", "HERMES"]


def _tags(*names: str) -> tuple[str, ...]:
    """Return opening tags of these names, with any namespace: `<name>`, `<|name|>`, `<minimax:name>`, `<dots_name>`."""
    return tuple(rf"<\|?{space}{name}\|?>" for name in names for space in ("", r"\w{1,32}[:_]"))


def _end_tags(*names: str) -> tuple[str, ...]:
    """Return the same, closing; and `<name|>`, as Gemma 4 writes it."""
    ends = [rf"<\|?/{space}{name}\|?>" for name in names for space in ("", r"\w{1,32}[:_]")]
    return (*ends, *(rf"<{name}\|>" for name in names))


def _envelope(
    family: str,
    *examples: str,
    opens: tuple[str, ...],
    closes: tuple[str, ...],
    holds: tuple[Start, ...] | None = None,
    endless: bool = False,
    writes: tuple[str, str] = ("", ""),
) -> Format:
    """Build a row of delimiters around calls."""
    return Format(
        family=family,
        examples=examples,
        reader=Reader.ENVELOPE,
        opens=opens,
        closes=closes,
        holds=holds,
        explicit=True,
        endless=endless,
        compared=opens,
        writes=writes,
    )


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
        "Gemma 3",
        '<tool_code>search(query="x")</tool_code>',
        opens=_tags("tool_code"),
        closes=_end_tags("tool_code"),
    ),
    _envelope(
        "tool", f"<tool>{JSON_CALL}</tool>", opens=("<tool>",), closes=(r"<\|?/tool\|?>", r"<\|?/\w{1,32}:tool\|?>")
    ),
    _envelope(
        "LFM2",
        '<|tool_call_start|>[search(query="x")]<|tool_call_end|>',
        opens=(r"<\|tool_call_start\|>",),
        closes=(r"<\|tool_call_end\|>",),
    ),
    _envelope(
        "Kimi K2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0<|tool_call_argument_begin|>"
        '{"query": "x"}<|tool_call_end|><|tool_calls_section_end|>',
        opens=(r"<\|tool_calls_section_begin\|>", r"<\|tool_call_begin\|>"),
        closes=(r"<\|tool_call_end\|>", r"<\|tool_calls_section_end\|>"),
    ),
    _envelope(
        "DeepSeek V3",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>search<｜tool▁sep｜>"
        '{"query": "x"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>search\n"
        '```json\n{"query": "x"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        opens=(r"<｜tool▁calls▁begin｜>", r"<｜tool▁call▁begin｜>", r"function<｜tool▁sep｜>"),
        closes=(r"<｜tool▁calls▁end｜>", r"<｜tool▁call▁end｜>"),
        holds=(
            Start(r"<｜tool▁calls▁begin｜>"),
            Start(r"<｜tool▁call▁begin｜>"),
            Start(r"function<｜tool▁sep｜>", place=Place.SENTENCE),
        ),
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
        "InternLM",
        f"<|action_start|><|plugin|>{JSON_CALL}<|action_end|>",
        opens=(r"<\|action_start\|>", r"<\|plugin\|>"),
        closes=(r"<\|action_end\|>",),
    ),
    _envelope(
        "FunctionGemma",
        "<start_function_call>call:search{query:<escape>x<escape>}<end_function_call>",
        opens=("<start_function_call>",),
        closes=("<end_function_call>",),
    ),
    _envelope(
        "Mistral",
        '[TOOL_CALLS]search[ARGS]{"query": "x"}',
        '[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{"query": "x"}',
        f"[TOOL_CALLS] [{JSON_CALL}]",
        opens=(r"\[TOOL_CALLS?\]",),
        closes=(r"\[/TOOL_CALLS?\]",),
        endless=True,
    ),
    _envelope(
        "LM Studio",
        f"[TOOL_REQUEST]{JSON_CALL}[END_TOOL_REQUEST]",
        opens=(r"\[TOOL_REQUEST\]",),
        closes=(r"\[END_TOOL_REQUEST\]",),
    ),
    Format(
        family="Phi 4",
        examples=(f"functools[{JSON_CALL}]",),
        reader=Reader.ENVELOPE,
        opens=(r"functools(?=\[\s{0,8}\{)",),
        holds=(Start(r"functools\[\s{0,8}\{", place=Place.SENTENCE),),
        explicit=True,
        endless=True,
    ),
)
