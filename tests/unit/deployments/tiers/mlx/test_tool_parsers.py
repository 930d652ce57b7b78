"""What mlx-lm's own parsers of tool calls read, the reader of calls in texts reads as well."""

import importlib
import json
import pkgutil
from typing import Any

import pytest

from reliability.tools import build_toolbox
from tests.support.renderings import tool
from tests.support.streaming import cut_at, play, whole

parsers = pytest.importorskip("mlx_lm.tool_parsers")
TOOL = tool(
    "find_part",
    {"type": "object", "properties": {"code": {"type": "string"}, "count": {"type": "integer"}}, "required": ["code"]},
)
BOX = build_toolbox([TOOL])
CALL = ("find_part", {"code": "K-7", "count": 2})
JSON = '{"name": "find_part", "arguments": {"code": "K-7", "count": 2}}'
OBJECT = '{"code": "K-7", "count": 2}'
PAIRS = "<arg_key>code</arg_key><arg_value>K-7</arg_value><arg_key>count</arg_key><arg_value>2</arg_value>"
ELEMENTS = "<function=find_part>\n<parameter=code>\nK-7\n</parameter>\n<parameter=count>\n2\n</parameter>\n</function>"
INVOKE = '<invoke name="find_part"><parameter name="code">K-7</parameter><parameter name="count">2</parameter></invoke>'
# What stands between the marks of a parser, as its models write it.
BODIES: dict[str, tuple[str, ...]] = {
    "function_gemma": ("call:find_part{code:<escape>K-7<escape>,count:2}", "call:find_part{code:K-7,count:2}"),
    "gemma4": ('call:find_part{code:<|"|>K-7<|"|>,count:2}',),
    "glm47": (f"find_part{PAIRS}", JSON),
    "json_tools": (f"\n{JSON}\n",),
    "kimi_k2": (
        f"<|tool_call_begin|>functions.find_part:0<|tool_call_argument_begin|>{OBJECT}<|tool_call_end|>",
        f"functions.find_part:0<|tool_call_argument_begin|>{OBJECT}",
    ),
    "kimi_k3": (
        '<|open|>call tool="find_part" index="1"<|sep|><|open|>argument key="code" type="string"<|sep|>K-7<|close|>'
        'argument<|sep|><|open|>argument key="count" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>',
        f'<|open|>call tool="find_part" index="1"<|sep|><|open|>json type="object"<|sep|>{OBJECT}<|close|>json<|sep|>'
        "<|close|>call<|sep|>",
    ),
    "laguna": (f"find_part{PAIRS}",),
    "longcat": (f"find_part{PAIRS.replace('arg_', 'longcat_arg_')}", JSON),
    "minicpm5": ('"find_part"><param name="code">K-7</param><param name="count"><![CDATA[2]]></param>',),
    "minimax_m2": (f"\n{INVOKE}\n",),
    "mistral": (f"find_part[ARGS]{OBJECT}", f"[{JSON}]"),
    "muse_spark": (INVOKE.replace("<", "<atem:").replace("<atem:/", "</atem:"),),
    "pythonic": ('[find_part(code="K-7", count=2)]', "[find_part(code='K-7', count=2)]"),
    "qwen3_coder": (f"\n{ELEMENTS}\n",),
}
NAMES = sorted(module.name for module in pkgutil.iter_modules(parsers.__path__))


def normalised(found: Any) -> list[tuple[str, Any]]:
    calls = found if isinstance(found, list) else [found]
    return [
        (call["name"], json.loads(call["arguments"]) if isinstance(call["arguments"], str) else call["arguments"])
        for call in calls
    ]


@pytest.mark.parametrize("name", NAMES)
def test_each_parser_has_a_sample(name: str) -> None:
    """Law: a parser that a new version of mlx-lm brings isn't overlooked."""
    assert BODIES.get(name), f"mlx-lm reads {name}: how do its models write a call?"


@pytest.mark.parametrize(("name", "body"), [(name, body) for name in BODIES for body in BODIES[name] if name in NAMES])
def test_what_it_reads_is_read_here(name: str, body: str) -> None:
    """Law: the same call between the parser's own marks, whole and in any pieces, with text before it and without."""
    parser = importlib.import_module(f"mlx_lm.tool_parsers.{name}")
    assert normalised(parser.parse_tool_call(body, [TOOL])) == [CALL]

    text = parser.tool_call_start + body + parser.tool_call_end
    for full in (text, f"I look it up.\n{text}", f"<think>Hm.</think>\n{text}"):
        told = whole(full, BOX)
        assert (told.calls, told.refused) == ([CALL], False)
        for size in (1, 3, 1000):
            assert play(cut_at(full, [size]), BOX) == told
