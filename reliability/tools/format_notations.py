"""The notations of the table of call formats (`formats.py`): how a call says what it calls and with what, in an
envelope or in the open. The last row is a line of a transcript, which isn't read as a call.
"""

from __future__ import annotations

from typing import Any

from reliability.tools.format_row import (
    DSML,
    DSML_CALL,
    ELEMENTS_CALL,
    GEMMA_CALL,
    INVOKE_CALL,
    JSON_CALL,
    K3_CALL,
    M3_CALL,
    M3_TOKEN,
    NAME,
    PARAMETERS_CALL,
    Format,
    Place,
    Reader,
    Start,
    Until,
)

_SPACES = r"\s{0,64}"
_OBJECT = rf"{_SPACES}\{{"
_FENCED = rf"{_SPACES}`{{3,8}}[\w+.#-]{{0,32}}{_SPACES}\{{"
_SPACES_OF_ELEMENTS = ("", r"\w{1,32}:", DSML)
_ELEMENT_TAGS = ("function", "invoke")
_ELEMENT_BEGINS = (*(f"<{space}" for space in _SPACES_OF_ELEMENTS), rf"{M3_TOKEN}<")
_ELEMENT_ENDS = (*(f"</{space}" for space in _SPACES_OF_ELEMENTS), rf"{M3_TOKEN}</")
_KEYS = (r"\"[^\"\n]{0,128}\"", r"'[^'\n]{0,128}'", r"“[^”\n]{0,128}”")
_BARE_KEY = r"[^\W\d]\w{0,128}"
_CHANNELS = ("", "commentary ", "analysis ", "assistantcommentary ", "assistantanalysis ")
_HEADER_WORDS = ("assistant", "analysis", "commentary", "final", "to=self", "to=user")
_ATEM_CALL = (
    '<atem:function_calls>\n<atem:invoke name="search">\n<atem:parameter name="query">x</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>"
)
_HARMONY = (r"<\|start\|>", r"<\|channel\|>", r"<\|constrain\|>", r"<\|message\|>")
_SEPARATORS = (r"\[ARGS\]", r"\[CALL_ID\]")
_ESCAPED_NAME = r"[A-Za-z0-9_\\][A-Za-z0-9_.:/\\-]{0,127}+"
_INDEX_SEPARATORS = (r"<\|tool_call_argument_begin\|>", r"<[|｜]tool[▁_ ]sep[|｜]>")
# The name that a mark stands behind, as far as the loop check looks.
_NAMED_BEFORE = r"[A-Za-z0-9_][\w.:-]{0,48}"
_ACTION = "[Aa][Cc][Tt][Ii][Oo][Nn]:"
_PAIR_KEYS = (r"<arg_key>", r"<\w{1,16}[_|:]arg_key>", r"<arg_key:\w{1,10}>")


def _notation(family: str, reader: Reader | None, *examples: str, **more: Any) -> Format:
    return Format(family=family, examples=examples, reader=reader, **more)


NOTATIONS: tuple[Format, ...] = (
    _notation(
        "elements: Qwen3-Coder, MiniMax, MiniCPM, functionary",
        Reader.ELEMENTS,
        ELEMENTS_CALL,
        INVOKE_CALL,
        '<function=search>{"query": "x"}</function>',
        '<function=search={"query": "x"}</function>',
        '<function name="search"><param name="query">x</param></function>',
        '<functionname="search"><paramname="query">x</param></function>',
        DSML_CALL,
        M3_CALL,
        opens=tuple(rf"{begin}{tag}(?==|\s|name)" for begin in _ELEMENT_BEGINS for tag in _ELEMENT_TAGS),
        closes=tuple(rf"{begin}{tag}>" for begin in _ELEMENT_ENDS for tag in _ELEMENT_TAGS),
        holds=(
            *(
                Start(rf"<{space}{tag}")
                for space in _SPACES_OF_ELEMENTS
                for tag in ("function=", r"function\s{0,8}name", r"invoke=", r"invoke\s{0,8}name", "parameter=")
            ),
            Start(M3_TOKEN),
        ),
        compared=tuple(rf"{begin}{tag}(?==|\s|name)" for begin in _ELEMENT_BEGINS for tag in _ELEMENT_TAGS),
    ),
    _notation(
        "sections: Kimi K3 and PLaMo without their tags",
        Reader.SECTIONS,
        '<|open|>call tool="search" index="1"<|sep|><|open|>argument key="query" type="string"<|sep|>x'
        "<|close|>argument<|sep|><|close|>call<|sep|>",
        "<|plamo:begin_tool_name:plamo|>search<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>"
        '<|plamo:constrain|>json<|plamo:msg|>{"query": "x"}<|plamo:end_tool_arguments:plamo|>',
        opens=(K3_CALL, r"call tool=(?=\"[^\"<>]{1,128}\"[^<>]{0,64}<\|sep\|>)", r"<\|plamo:begin_tool_name:plamo\|>"),
        holds=(Start(K3_CALL), Start("call tool=", place=Place.SENTENCE), Start(r"<\|plamo:begin_tool_name:plamo\|>")),
        closes=(r"<\|close\|>call<\|sep\|>", r"<\|plamo:end_tool_arguments:plamo\|>"),
        compared=(K3_CALL, r"<\|plamo:begin_tool_name:plamo\|>"),
        explicit=True,
    ),
    _notation(
        "Qwen2",
        Reader.FLOWERS,
        '✿FUNCTION✿: search\n✿ARGS✿: {"query": "x"}\n✿RESULT✿',
        '✿FUNCTION✿: search\n✿ARGS✿: {"query": "x"}',
        opens=("✿FUNCTION✿",),
        closes=("✿RESULT✿", "✿RETURN✿"),
        compared=("✿FUNCTION✿",),
        explicit=True,
    ),
    _notation(
        "attributes",
        Reader.ATTRIBUTES,
        '<tool name="search" query="x" />',
        opens=(r"<tool\s{1,8}name",),
        closes=(r"/>", r">\s*</tool>"),
        compared=(r"<tool\s{1,8}name",),
    ),
    _notation(
        "pairs: GLM without its tags",
        Reader.PAIRS,
        "search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>",
        opens=_PAIR_KEYS,
        holds=(
            *map(Start, _PAIR_KEYS),
            *(Start("", rf"\s{{0,8}}{key}", place=Place.SENTENCE) for key in _PAIR_KEYS),
            Start("", rf"{_SPACES}<", place=Place.LINE),
        ),
        named=True,
    ),
    _notation(
        "name and JSON: Mistral without its tags",
        Reader.NAMED,
        'search[ARGS]{"query": "x"}',
        'search[CALL_ID]abc123def[ARGS]{"query": "x"}',
        opens=_SEPARATORS,
        holds=(
            *map(Start, _SEPARATORS),
            *(Start("", rf"\s{{0,8}}{separator}", place=Place.SENTENCE) for separator in _SEPARATORS),
        ),
        named=True,
        explicit=True,
        compared=tuple(rf"{_NAMED_BEFORE}{separator}" for separator in _SEPARATORS),
    ),
    _notation(
        "name and JSON: Kimi and DeepSeek without their tags",
        Reader.NAMED,
        'search<|tool_call_argument_begin|>{"query": "x"}',
        'search<｜tool▁sep｜>{"query": "x"}',
        opens=_INDEX_SEPARATORS,
        holds=(
            *map(Start, _INDEX_SEPARATORS),
            *(
                Start(head, rf"[:\d]{{0,8}}\s{{0,8}}{separator}", place=Place.SENTENCE)
                for head in ("", r"functions\.")
                for separator in _INDEX_SEPARATORS
            ),
            Start("", rf"{_SPACES}:", place=Place.LINE),
        ),
        named=True,
        compared=tuple(rf"{_NAMED_BEFORE}{separator}" for separator in _INDEX_SEPARATORS),
    ),
    _notation(
        "Command R",
        Reader.ANNOUNCED,
        'Action: ```json\n[\n  {\n    "tool_name": "search",\n    "parameters": {"query": "x"}\n  }\n]```',
        'Action: {"name": "search", "arguments": {"query": "x"}}',
        opens=(rf"[ \t]{{0,8}}{_ACTION}(?=\s{{0,8}}(?:`{{3,8}}[\w+.#-]{{0,32}}\s{{0,8}})?[\[{{])",),
        holds=(
            Start(
                rf"{_ACTION}\s{{0,8}}`{{3,8}}[\w+.#-]{{0,32}}\s{{0,8}}[\[{{]",
                None,
                Until.LAST_CLOSES,
                Place.LINE,
            ),
            Start(rf"{_ACTION}\s{{0,8}}[\[{{]", None, Until.LAST_CLOSES, Place.LINE),
        ),
        place=Place.LINE,
    ),
    _notation(
        "name and JSON: a line of its own",
        Reader.NAMED,
        'search\n{"query": "x"}',
        'search\n```json\n{"query": "x"}\n```',
        '[search]\n{"query": "x"}',
        '[search]\n{"query": "x"}[END_TOOL_REQUEST]',
        opens=(rf"[ \t]{{0,8}}(?:\[{NAME}\]|{NAME}[ \t]{{0,8}}(?=\r?\n))(?=\s{{0,8}}(?:<\|content\|>)?[{{`])",),
        holds=(
            Start("", _OBJECT, Until.LAST_CLOSES, Place.LINE),
            Start("", _FENCED, Until.LAST_CLOSES, Place.LINE),
            Start(rf"\[{_SPACES}", rf"\]{_OBJECT}", Until.LAST_CLOSES),
            Start(rf"\[{_SPACES}", rf"\]{_FENCED}", Until.LAST_CLOSES),
        ),
        place=Place.LINE,
    ),
    _notation(
        "name and JSON: functionary",
        Reader.NAMED,
        '>>>search\n{"query": "x"}',
        '>>>search{"query": "x"}',
        opens=(rf">>>[ \t]{{0,8}}(?={NAME}\s{{0,8}}\{{)",),
        holds=(Start(r">>>[ \t]{0,8}", r"\s{0,8}\{", Until.LAST_CLOSES),),
    ),
    _notation(
        "name and JSON: functions.",
        Reader.NAMED,
        'functions.search({"query": "x"})',
        'functions.search{"query": "x"}',
        opens=(rf"functions\.(?={NAME}\(?\s{{0,8}}\{{)",),
        holds=(
            Start(r"functions\.", r"\s{0,8}\(", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"functions\.", r"\s{0,8}\{", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"functions\.", r":\d{1,6}\s{0,8}\{", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"functions\.", rf"{_SPACES}[:<]", place=Place.LINE),
        ),
    ),
    _notation(
        "braces: Gemma without its tags",
        Reader.BRACES,
        GEMMA_CALL,
        "call:search{query:<escape>x<escape>}",
        "call:search{query:x}",
        opens=(rf"call:(?={NAME}\{{)",),
        holds=(
            Start("call:", r"\{", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"\{<\|\"\|>", until=Until.FIRST_CLOSES),
            Start(r"\{<escape>", until=Until.FIRST_CLOSES),
        ),
        compared=(r"call:(?=[\w.-]{1,40}\{)",),
    ),
    _notation(
        "Python: a list",
        Reader.PYTHON,
        '[search(query="x")]',
        opens=(rf"\[(?=\s{{0,64}}{NAME}\()",),
        holds=(Start(rf"\[{_SPACES}", r"\(", Until.FIRST_CLOSES),),
    ),
    _notation(
        "Python: all from here on",
        Reader.LINES,
        'search(query="x")',
        'search(query="x");',
        'search({"query": "x"})',
        '"search"(query="x")',
        '["search(query=\\"x\\")"]',
        '```tool_code\nsearch(query="x")\n```',
        '```tool_code\nprint(search(query="x"))\n```',
        opens=(
            rf"[ \t]{{0,8}}(?=(?:print\(\s{{0,8}})?(?:{_ESCAPED_NAME}|[\"'`]{_ESCAPED_NAME}[\"'`])\()",
            rf"[ \t]{{0,8}}(?=\[\s{{0,64}}[\"']{_ESCAPED_NAME}\()",
            rf"[ \t]{{0,8}}(?=\[\s{{0,64}}{_ESCAPED_NAME}\()",
        ),
        holds=(
            Start("", rf"{_SPACES}\(", Until.LAST_CLOSES, Place.LINE),
            Start(r"print\(\s{0,8}", rf"{_SPACES}\(", Until.FIRST_CLOSES, Place.LINE),
            Start(r"[\"'`]", r"[\"'`]\(", Until.LAST_CLOSES, Place.LINE),
            Start(r"\[\s{0,64}[\"']", r"\(", Until.FIRST_CLOSES),
        ),
        place=Place.LINE,
    ),
    _notation(
        "ReAct",
        Reader.REACT,
        'Action: search\nAction Input: {"query": "x"}',
        'Action: search\nAction Input: ```json\n{"query": "x"}\n```',
        'Action: search\nAction Input:\n```\n{"query": "x"}\n```',
        opens=(rf"[ \t]{{0,8}}{_ACTION}[ \t]{{0,8}}",),
        holds=(Start(rf"{_ACTION}[ \t]{{0,8}}", r"[ \t]{0,8}\r?\n\s{0,8}Action Input:", place=Place.LINE),),
        place=Place.LINE,
    ),
    _notation(
        "Harmony without its tags",
        Reader.CHANNEL,
        'commentary to=functions.search json{"query": "x"}',
        'assistantcommentary to=functions.search json{"query": "x"}',
        'to=functions.search {"query": "x"}',
        opens=tuple(rf"{words}to=functions\." for words in _CHANNELS),
        holds=tuple(
            Start(rf"{words}to=functions\.", r"[^\n{]{0,64}\s{0,8}\{", Until.LAST_CLOSES, Place.SENTENCE)
            for words in _CHANNELS
        ),
        compared=tuple(rf"{words}to=functions\." for words in _CHANNELS),
    ),
    _notation(
        "Harmony: gpt-oss",
        Reader.MESSAGES,
        '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "x"}<|call|>',
        '<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "x"}<|call|>',
        '<|channel|>analysis to=functions.search code<|message|>{"query": "x"}',
        ' to=functions.search<|channel|>commentary <|constrain|>json<|message|>{"query": "x"}<|call|>',
        opens=_HARMONY[:2],
        holds=(*map(Start, _HARMONY), *(Start(rf"{word}\s{{0,8}}<\|", place=Place.SENTENCE) for word in _HEADER_WORDS)),
        closes=(r"<\|call\|>", r"<\|end\|>", r"<\|return\|>"),
        explicit=True,
        compared=(r"<\|start\|>assistant<\|channel\|>commentary to=", r"<\|channel\|>commentary to="),
    ),
    _notation(
        "Harmony with tags in it: Muse",
        Reader.MESSAGES,
        f" to=search<|message|>{_ATEM_CALL}<|eom|>",
        f"<|start|>assistant to=search<|message|>{_ATEM_CALL}",
        opens=_HARMONY[:1],
        holds=tuple(Start(head, r"\s{0,8}<\|", place=Place.SENTENCE) for head in ("to=", r"to=functions\.")),
        closes=(r"<\|eom\|>", r"<\|eot\|>"),
        explicit=True,
        compared=(r"<\|start\|>assistant to=[\w.:-]{1,48}<\|message\|>", r"to=[\w.:-]{1,48}<\|message\|>"),
    ),
    _notation(
        "parameters as tags: Cline, Roo",
        Reader.CHILDREN,
        "<search>\n<query>x</query>\n</search>",
        "<search><query>x</query></search>",
        '<search>{"query": "x"}</search>',
        opens=(rf"<(?={NAME}\s{{0,8}}/?>)",),
        holds=(Start("<", rf"\s{{0,8}}>{_SPACES}[<{{]"), Start("<", r"\s{0,8}/>")),
    ),
    _notation(
        "JSON",
        Reader.JSON,
        JSON_CALL,
        PARAMETERS_CALL,
        f"[{JSON_CALL}]",
        '{"action": "search", "action_input": {"query": "x"}}',
        "{'name': 'search', 'arguments': {'query': 'x'}}",
        f'{{"tool_calls": [{JSON_CALL}]}}',
        opens=(r"\{(?=\s*+[\"'\w}])", r"\[(?=\s*+[\[{A-Za-z_])"),
        # A key and a colon, since a call must say what it calls; too much white space is held, not waited for.
        holds=(
            *(Start(rf"\{{{{1,4}}{_SPACES}\\?{key}{_SPACES}[\"':]", until=Until.FIRST_CLOSES) for key in _KEYS),
            *(Start(rf"\{{{{1,4}}{_SPACES}\\?{key}\s{{65}}", until=Until.FIRST_CLOSES) for key in _KEYS),
            Start(rf"\{{{{1,4}}{_SPACES}\\?{_BARE_KEY}{_SPACES}:", until=Until.FIRST_CLOSES),
            Start(r"\{{1,4}\s{65}", until=Until.FIRST_CLOSES),
            Start(rf"\[{_OBJECT}", until=Until.FIRST_CLOSES),
            Start(r"\[\s{65}", until=Until.FIRST_CLOSES),
        ),
    ),
    _notation(
        "JSON: the name is the key, and all from here on",
        Reader.JSON,
        '{"search": {"query": "x"}}',
        '[{"search": {"query": "x"}}]',
        holds=(),
        place=Place.LINE,
    ),
    _notation(
        "name and JSON: all of a line",
        Reader.JSON,
        'search{"query": "x"}',
        'search {"query": "x"}',
        opens=(rf"[ \t]{{0,8}}(?!functions\.){NAME}[ \t]{{0,8}}(?=\{{\s{{0,8}}\")",),
        holds=(),
        place=Place.LINE,
    ),
    _notation(
        "a line of a transcript",
        None,
        "⏺ search: x\n",
        opens=("⏺",),
        closes=(r"\n",),
        compared=("⏺",),
    ),
)
