"""ONE table of the formats in which models write their calls as text: a row per family.

    examples  a call of `search` with {"query": "x"}, as the family writes it, in each of its forms
    opens     regular expressions of what says that a call begins; how it is read follows from `reader`
    closes    what ends it
    holds     what the gate holds until it is known whether it opens a call (`Start`); None: `opens`, as they are
    reader    who reads it (`extract/` has the readers); None: nobody, it is only known as a repetition
    place     where `opens` counts: anywhere, or only where a line begins
    named     `opens` stands behind a name: `search[ARGS]{...}`
    marked    `opens` says by itself that this is a call; where it doesn't, only a declared name does
    endless   no `closes` is missed at the end
    compared  what begins a call that the loop check compares with the others of the same answer
    writes    the opener and the closer with which this server writes a call itself

An *envelope* is said around calls. Models mix envelopes up (a wrong special token, a missing one), so any opener of
one goes with any closer, and any notation may stand between: what counts is what is written there.

Who reads it: the gate (`reliability.answer.call_starts`), which sees a text in pieces; the extraction, which sees it
whole; the loop check inside an answer (`reliability.loops.written`); the grammar
(`deployments.tiers.mlx.grammar.lark`), which writes the form of the first row. `delimiters.py` has the table's
expressions, compiled.

The expressions in `holds` (and in `opens` where they are held as they are) are rows of single characters and sets of
characters, each with at most a `?` or `{n,m}` behind it, so that `delimiters.beginnings` can say of a cut text whether
it may still become one. White space and names are bounded; marks are compared without case, words to the letter.

What must never happen: a call in a streamed answer that is none in the whole one, or the other way round, or a part of
a call that leaves as text. A word that begins a call is held, and belongs to it, where a line or a sentence begins
(`Place`): to hold it everywhere would delay each "a" and "to" of ordinary prose. In the middle of a sentence it is a
word of the sentence, streamed or not, and the call behind it is a call.
"""

from __future__ import annotations

from reliability.tools.format_row import Format, Place, Reader, Start, Until

__all__ = ["CALL_FORMATS", "FRAME_FENCE", "FRAME_TAG", "HERMES", "NAME", "SPEECH_ENDS"]

NAME = r"[A-Za-z_][A-Za-z0-9_.:/-]{0,127}+"
# What may frame a call without being a mark: a code fence, or any tag that is closed behind it.
FRAME_FENCE = r"`{3,8}[\w+.#-]{0,32}"
FRAME_TAG = r"<\|?[A-Za-z][\w:-]{0,40}\|?>"
# What ends whatever a model says, a call or not.
SPEECH_ENDS = (r"<\|call\|>", r"<\|eom_id\|>", r"<\|eot_id\|>", r"<\|im_end\|>", r"<\|end\|>", r"<\|return\|>")


def _tags(*names: str) -> tuple[str, ...]:
    """Opening tags of these names, with any namespace: `<name>`, `<|name|>`, `<minimax:name>`, `<dots_name>`."""
    return tuple(rf"<\|?{space}{name}\|?>" for name in names for space in ("", r"\w{1,32}[:_]"))


def _end_tags(*names: str) -> tuple[str, ...]:
    """The same, closing; and `<name|>`, as Gemma 4 writes it."""
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
    """A row of marks around calls."""
    return Format(
        family=family,
        examples=examples,
        reader=Reader.ENVELOPE,
        opens=opens,
        closes=closes,
        holds=holds,
        marked=True,
        endless=endless,
        compared=opens,
        writes=writes,
    )


def _any_case(word: str) -> str:
    return "".join(f"[{letter.upper()}{letter.lower()}]" if letter.isalpha() else letter for letter in word)


_JSON = '{"name": "search", "arguments": {"query": "x"}}'
_PARAMETERS = '{"name": "search", "parameters": {"query": "x"}}'
_ELEMENTS = "<function=search>\n<parameter=query>\nx\n</parameter>\n</function>"
_INVOKE = '<invoke name="search">\n<parameter name="query">x</parameter>\n</invoke>'
_GEMMA = 'call:search{query:<|"|>x<|"|>}'
_SPACES = r"\s{0,64}"
_OBJECT = rf"{_SPACES}\{{"
_FENCED = rf"{_SPACES}`{{3,8}}[\w+.#-]{{0,32}}{_SPACES}\{{"
_KEYS = (r"\"[^\"\n]{0,128}\"", r"'[^'\n]{0,128}'", r"“[^”\n]{0,128}”")
_BARE_KEY = r"[^\W\d]\w{0,128}"
_CHANNELS = ("", "commentary ", "analysis ", "assistantcommentary ", "assistantanalysis ")
_HEADER_WORDS = ("assistant", "analysis", "commentary", "final")
_HARMONY = (r"<\|start\|>", r"<\|channel\|>", r"<\|constrain\|>", r"<\|message\|>")
_SEPARATORS = (r"\[ARGS\]", r"\[CALL_ID\]")
_INDEX_SEPARATORS = (r"<\|tool_call_argument_begin\|>", r"<｜tool▁sep｜>")
_PAIR_KEYS = (r"<arg_key>", r"<longcat_arg_key>")

HERMES = _envelope(
    "Hermes, Qwen, GLM, and most open models",
    f"<tool_call>\n{_JSON}\n</tool_call>",
    f"<tool_call>\n{_ELEMENTS}\n</tool_call>",
    "<tool_call>search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
    f"<minimax:tool_call>\n{_INVOKE}\n</minimax:tool_call>",
    f"<seed:tool_call>\n{_ELEMENTS}\n</seed:tool_call>",
    "<longcat_tool_call>search\n<longcat_arg_key>query</longcat_arg_key>\n"
    "<longcat_arg_value>x</longcat_arg_value>\n</longcat_tool_call>",
    f"<|tool_call>{_GEMMA}<tool_call|>",
    f"<abc:tool_call>{_JSON}</abc:tool_call>",
    opens=_tags("tool[_-]?calls?"),
    closes=_end_tags("tool[_-]?calls?"),
    writes=("<tool_call>", "</tool_call>"),
)

CALL_FORMATS: tuple[Format, ...] = (
    HERMES,
    _envelope(
        "Granite, OLMo, GigaChat, dots, Claude's XML",
        f"<function_calls>\n{_INVOKE}\n</function_calls>",
        f"<|function_call|>{_JSON}",
        f"<foo:function_call>{_JSON}</foo:function_call>",
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
    _envelope("tool", f"<tool>{_JSON}</tool>", opens=("<tool>",), closes=(r"<\|?/tool\|?>", r"<\|?/\w{1,32}:tool\|?>")),
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
        f"<|python_tag|>{_PARAMETERS}<|eom_id|>",
        f"<|python_tag|>{_PARAMETERS}",
        opens=(r"<\|python_tag\|>",),
        closes=(r"<\|eom_id\|>",),
        endless=True,
    ),
    _envelope(
        "InternLM",
        f"<|action_start|><|plugin|>{_JSON}<|action_end|>",
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
        f"[TOOL_CALLS] [{_JSON}]",
        opens=(r"\[TOOL_CALLS?\]",),
        closes=(r"\[/TOOL_CALLS?\]",),
        endless=True,
    ),
    _envelope(
        "LM Studio",
        f"[TOOL_REQUEST]{_JSON}[END_TOOL_REQUEST]",
        opens=(r"\[TOOL_REQUEST\]",),
        closes=(r"\[END_TOOL_REQUEST\]",),
    ),
    Format(
        family="Phi 4",
        examples=(f"functools[{_JSON}]",),
        reader=Reader.ENVELOPE,
        opens=(r"functools(?=\[\s{0,8}\{)",),
        holds=(Start(r"functools\[\s{0,8}\{", place=Place.SENTENCE),),
        marked=True,
        endless=True,
    ),
    Format(
        family="elements: Qwen3-Coder, MiniMax, MiniCPM, functionary",
        examples=(
            _ELEMENTS,
            _INVOKE,
            '<function=search>{"query": "x"}</function>',
            '<function name="search"><param name="query">x</param></function>',
        ),
        reader=Reader.ELEMENTS,
        opens=(r"<(?:\w{1,32}:)?(?:function|invoke)(?==|\s)",),
        closes=(r"</(?:\w{1,32}:)?(?:function|invoke)>",),
        holds=tuple(
            Start(rf"<{space}{tag}")
            for space in ("", r"\w{1,32}:")
            for tag in ("function=", r"function\s{1,8}name", r"invoke=", r"invoke\s{1,8}name", "parameter=")
        ),
    ),
    Format(
        family="attributes",
        examples=('<tool name="search" query="x" />',),
        reader=Reader.ATTRIBUTES,
        opens=(r"<tool\s{1,8}name",),
        closes=(r"/>", r">\s*</tool>"),
    ),
    Format(
        family="pairs: GLM without its tags",
        examples=("search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>",),
        reader=Reader.PAIRS,
        opens=_PAIR_KEYS,
        holds=(
            *map(Start, _PAIR_KEYS),
            *(Start("", rf"\s{{0,8}}{key}", place=Place.SENTENCE) for key in _PAIR_KEYS),
            Start("", rf"{_SPACES}<", place=Place.LINE),
        ),
        named=True,
    ),
    Format(
        family="name and JSON: Mistral without its tags",
        examples=('search[ARGS]{"query": "x"}', 'search[CALL_ID]abc123def[ARGS]{"query": "x"}'),
        reader=Reader.NAMED,
        opens=_SEPARATORS,
        holds=(
            *map(Start, _SEPARATORS),
            *(Start("", rf"\s{{0,8}}{mark}", place=Place.SENTENCE) for mark in _SEPARATORS),
        ),
        named=True,
        marked=True,
    ),
    Format(
        family="name and JSON: Kimi and DeepSeek without their tags",
        examples=('search<|tool_call_argument_begin|>{"query": "x"}', 'search<｜tool▁sep｜>{"query": "x"}'),
        reader=Reader.NAMED,
        opens=_INDEX_SEPARATORS,
        holds=(
            *map(Start, _INDEX_SEPARATORS),
            *(
                Start(head, rf"[:\d]{{0,8}}\s{{0,8}}{mark}", place=Place.SENTENCE)
                for head in ("", r"functions\.")
                for mark in _INDEX_SEPARATORS
            ),
            Start("", rf"{_SPACES}:", place=Place.LINE),
        ),
        named=True,
    ),
    Format(
        family="name and JSON: a line of its own",
        examples=(
            'search\n{"query": "x"}',
            'search\n```json\n{"query": "x"}\n```',
            '[search]\n{"query": "x"}',
            '[search]\n{"query": "x"}[END_TOOL_REQUEST]',
        ),
        reader=Reader.NAMED,
        opens=(rf"[ \t]{{0,8}}(?:\[{NAME}\]|{NAME}[ \t]{{0,8}}(?=\r?\n))(?=\s{{0,8}}[{{`])",),
        holds=(
            Start("", _OBJECT, Until.LAST_CLOSES, Place.LINE),
            Start("", _FENCED, Until.LAST_CLOSES, Place.LINE),
            Start(rf"\[{_SPACES}", rf"\]{_OBJECT}", Until.LAST_CLOSES),
            Start(rf"\[{_SPACES}", rf"\]{_FENCED}", Until.LAST_CLOSES),
        ),
        place=Place.LINE,
    ),
    Format(
        family="name and JSON: functions.",
        examples=('functions.search({"query": "x"})', 'functions.search{"query": "x"}'),
        reader=Reader.NAMED,
        opens=(rf"functions\.(?={NAME}\(?\s{{0,8}}\{{)",),
        holds=(
            Start(r"functions\.", r"\s{0,8}\(", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"functions\.", r"\s{0,8}\{", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"functions\.", r":\d{1,6}\s{0,8}\{", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"functions\.", rf"{_SPACES}[:<]", place=Place.LINE),
        ),
    ),
    Format(
        family="braces: Gemma without its tags",
        examples=(_GEMMA, "call:search{query:<escape>x<escape>}"),
        reader=Reader.BRACES,
        opens=(rf"call:(?={NAME}\{{)",),
        holds=(
            Start("call:", r"\{", Until.LAST_CLOSES, Place.SENTENCE),
            Start(r"\{<\|\"\|>", until=Until.FIRST_CLOSES),
            Start(r"\{<escape>", until=Until.FIRST_CLOSES),
        ),
    ),
    Format(
        family="Python: a list",
        examples=('[search(query="x")]',),
        reader=Reader.PYTHON,
        opens=(rf"\[(?=\s{{0,64}}{NAME}\()",),
        holds=(Start(rf"\[{_SPACES}", r"\(", Until.FIRST_CLOSES),),
    ),
    Format(
        family="Python: all from here on",
        examples=('search(query="x")', '```tool_code\nsearch(query="x")\n```'),
        reader=Reader.LINES,
        opens=(rf"[ \t]{{0,8}}(?={NAME}\()",),
        holds=(Start("", rf"{_SPACES}\(", Until.LAST_CLOSES, Place.LINE),),
        place=Place.LINE,
    ),
    Format(
        family="ReAct",
        examples=('Action: search\nAction Input: {"query": "x"}',),
        reader=Reader.REACT,
        opens=(rf"[ \t]{{0,8}}{_any_case('Action:')}[ \t]{{0,8}}",),
        holds=(
            Start(rf"{_any_case('Action:')}[ \t]{{0,8}}", r"[ \t]{0,8}\r?\n\s{0,8}Action Input:", place=Place.LINE),
        ),
        place=Place.LINE,
    ),
    Format(
        family="Harmony without its tags",
        examples=(
            'commentary to=functions.search json{"query": "x"}',
            'assistantcommentary to=functions.search json{"query": "x"}',
            'to=functions.search {"query": "x"}',
        ),
        reader=Reader.CHANNEL,
        opens=tuple(rf"{words}to=functions\." for words in _CHANNELS),
        holds=tuple(
            Start(rf"{words}to=functions\.", r"[^\n{]{0,64}\s{0,8}\{", Until.LAST_CLOSES, Place.SENTENCE)
            for words in _CHANNELS
        ),
    ),
    Format(
        family="Harmony: gpt-oss",
        examples=(
            '<|channel|>commentary to=functions.search <|constrain|>json<|message|>{"query": "x"}<|call|>',
            '<|start|>assistant to=functions.search<|channel|>commentary json<|message|>{"query": "x"}<|call|>',
            '<|channel|>analysis to=functions.search code<|message|>{"query": "x"}',
            ' to=functions.search<|channel|>commentary <|constrain|>json<|message|>{"query": "x"}<|call|>',
        ),
        reader=Reader.MESSAGES,
        opens=_HARMONY[:2],
        holds=(
            *map(Start, _HARMONY),
            *(Start(rf"{word}\s{{0,8}}<\|", place=Place.SENTENCE) for word in _HEADER_WORDS),
        ),
        closes=(r"<\|call\|>", r"<\|end\|>", r"<\|return\|>"),
        marked=True,
        compared=(r"<\|start\|>assistant<\|channel\|>commentary to=", r"<\|channel\|>commentary to="),
    ),
    Format(
        family="JSON",
        examples=(
            _JSON,
            _PARAMETERS,
            f"[{_JSON}]",
            '{"action": "search", "action_input": {"query": "x"}}',
            "{'name': 'search', 'arguments': {'query': 'x'}}",
        ),
        reader=Reader.JSON,
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
    Format(
        family="a line of a transcript",
        examples=("⏺ search: x\n",),
        reader=None,
        opens=("⏺",),
        closes=(r"\n",),
        compared=("⏺",),
    ),
)
