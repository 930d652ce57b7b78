"""ONE table of the marks of chat templates: what ends a turn, what begins another one, and what begins a tool's result.

A model that isn't stopped at the end of its turn writes the conversation on. The answer ends where the turn does:

    It is clear.<|im_end|>\\n<|im_start|>user\\n...     an end mark, and another role, a result or nothing behind it
    It is clear.<|user|>                              a role's mark that ends turns itself, glued to the last word
    {call}<tool_response>21</tool_response>{call}     behind a call: a result, or another role
    {call}\\n**Output:** 21\\n{call}                    between two calls: a line that gives a result

An answer that begins with a tool's result, or with what agents add to the user's turn, is asked for again.

In quotes, in code, with other text behind it, or apart in a sentence, such a mark is talked of.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from reliability.tools.formats import QUOTES, beginnings, begins_sentence, compile_any, is_quoted

_RESULT_CHARS = 32  # more than the beginning of a line that gives a result
LINE_CHARS = 100  # of the line before a mark, looked through for inline code: fewer than the gate keeps
_ROLE_WORDS = "user|human|system|developer|tool|function|observation|ipython|assistant|model"
# Elements in which agents wrap what they add to the user's side of a conversation.
HARNESS_TAGS = ("system-reminder", "system_reminder", "environment_details", "environment_context")
_RESULT_NAMES = (
    "observation",
    *(f"{who}_{what}" for who in ("tool", "function", "tool_call") for what in ("response", "result", "output")),
)


class _Turns(NamedTuple):
    """The marks of one family. `stops`: roles that end the turn before them; `own`: what opens the answer's turn."""

    family: str
    ends: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    own: tuple[str, ...] = ()


def _pipes(*names: str) -> tuple[str, ...]:
    """Return the marks of these names: `<|name|>`."""
    return tuple(rf"<\|{name}\|>" for name in names)


_DEEPSEEK_ASSISTANT = (r"<[|｜]Assistant[|｜]>",)

TURNS: tuple[_Turns, ...] = (
    _Turns(
        "ChatML: Qwen, Hermes, Yi, LFM2",
        _pipes("im_end", "endoftext"),
        _pipes("im_start"),
        own=(r"<\|im_start\|>assistant", *_pipes("im_start")),
    ),
    _Turns(
        "Llama 3",
        _pipes("eot_id", "eom_id", "end_of_text"),
        _pipes("start_header_id", "begin_of_text"),
        own=(r"<\|start_header_id\|>assistant<\|end_header_id\|>", *_pipes("begin_of_text")),
    ),
    _Turns(
        "Llama 4", _pipes("eot", "eom"), _pipes("header_start"), own=(r"<\|header_start\|>assistant<\|header_end\|>",)
    ),
    _Turns("Llama 2, Mistral", ("</s>",), ("<s>",), (r"\[INST\]",), (r"\[TOOL_RESULTS\]",)),
    _Turns(
        "Gemma",
        ("<end_of_turn>", "<eos>"),
        ("<start_of_turn>",),
        results=("<start_function_response>",),
        own=("<start_of_turn>model",),
    ),
    _Turns("Gemma 4", (r"<turn\|>",), (r"<\|turn>",), results=(r"<\|tool_response>",), own=(r"<\|turn>model",)),
    _Turns("GLM", (), _pipes("assistant", "system"), _pipes("user", "observation"), own=_pipes("assistant")),
    _Turns(
        "DeepSeek",
        (r"<[|｜]end[▁_]of[▁_]sentence[|｜]>",),
        _DEEPSEEK_ASSISTANT,
        (r"<[|｜]User[|｜]>",),
        (r"<[|｜]tool[▁_]outputs?[▁_]begin[|｜]>",),
        _DEEPSEEK_ASSISTANT,
    ),
    _Turns(
        "Kimi",
        (),
        _pipes("im_assistant"),
        _pipes("im_user", "im_system"),
        own=(r"<\|im_assistant\|>assistant<\|im_middle\|>",),
    ),
    _Turns("Harmony: gpt-oss", _pipes("return", "call", "end"), _pipes("start"), own=(r"<\|start\|>assistant",)),
    _Turns("MiniMax", (r"\[e~\[",), (r"\]~b\]", r"\]~!b\["), own=(r"\]~b\]ai",)),
    _Turns("Granite", (), _pipes("start_of_role"), own=(r"<\|start_of_role\|>assistant<\|end_of_role\|>",)),
    _Turns(
        "Command",
        _pipes("END_OF_TURN_TOKEN"),
        _pipes("START_OF_TURN_TOKEN"),
        results=_pipes("START_TOOL_RESULT"),
        own=(r"<\|START_OF_TURN_TOKEN\|><\|CHATBOT_TOKEN\|>",),
    ),
    _Turns(
        "EXAONE",
        (r"\[\|endofturn\|\]",),
        (r"\[\|assistant\|\]",),
        (r"\[\|user\|\]",),
        (r"\[\|tool\|\]",),
        (r"\[\|assistant\|\]",),
    ),
    _Turns("HyperCLOVA X, K-EXAONE, OpenChat", _pipes("endofturn", "end_of_turn")),
    _Turns("Seed", ("<seed:eos>",), ("<seed:bos>",), own=("<seed:bos>assistant",)),
    _Turns("Hunyuan", _pipes("eos"), (), (r"<[|｜]hy_User[|｜]>",), own=(r"<[|｜]hy_Assistant[|｜]>",)),
    _Turns("Ling", _pipes("role_end"), ("<role>",), own=("<role>ASSISTANT</role>",)),
    _Turns("dots", _pipes("endofresponse"), _pipes("userprompt"), own=_pipes("response")),
    _Turns("LongCat", ("</longcat_s>",)),
    _Turns(
        "Nemotron Nano 2",
        ("<SPECIAL_12>",),
        ("<SPECIAL_10>", "<SPECIAL_11>Assistant"),
        ("<SPECIAL_11>User",),
        own=("<SPECIAL_11>Assistant",),
    ),
    _Turns("Jamba", _pipes("eom"), _pipes("bom"), own=(r"<\|bom\|><\|assistant\|>",)),
    _Turns("Solar Open", _pipes("end"), (r"<\|begin\|>user", r"<\|begin\|>tool", r"<\|begin\|>system")),
    _Turns("TeleChat", ("<_end>",), ("<_bot>",), ("<_user>",), own=("<_bot>",)),
    _Turns("Apertus", _pipes("assistant_end"), _pipes("user_start", "assistant_start"), own=_pipes("assistant_start")),
    _Turns("functionary v3", own=(">>>all\n",)),
    _Turns("Phi", roles=_pipes("tool")),
    _Turns(
        "results as tags",
        results=tuple(f"<{name}s?>" for name in _RESULT_NAMES),
        # An answer may begin with the end of the result before it.
        own=tuple(f"</{name}{end}>" for name in _RESULT_NAMES for end in ("", "s")),
    ),
    _Turns("results as tokens", results=_pipes(*(f"{name}s?" for name in _RESULT_NAMES[1:]), "tool_response_start")),
    _Turns("results in brackets", results=(r"\[TOOL_RESULT\]",)),
    _Turns("what agents add to the user's turn", results=tuple(f"<{tag}>" for tag in HARNESS_TAGS)),
)

_ENDS = tuple(end for turns in TURNS for end in turns.ends)
_STOPS = tuple(stop for turns in TURNS for stop in turns.stops)
_ROLES = (*(role for turns in TURNS for role in turns.roles), *_STOPS)
_RESULTS = tuple(result for turns in TURNS for result in turns.results)
ENDS = (*_ENDS, *_STOPS)  # what the gate holds
GIVEN_RESULTS = (*(result for result in _RESULTS if result != "<observations?>"), r"<\|observation\|>")
GIVEN_RESULT = re.compile(rf"(?:{'|'.join(GIVEN_RESULTS)})(?![,.:;)]|[ \t]+(?-i:[a-z]))", re.IGNORECASE)
RESULT_ALONE = re.compile(rf"\s*+{GIVEN_RESULT.pattern}[ \t]*\r?\n\s*+\S", re.IGNORECASE)
"""How an answer begins that goes on with a result which it gives itself."""
MARKS = (*_ENDS, *_ROLES, *_RESULTS)

_OWN = tuple(own for turns in TURNS for own in turns.own)
OWN_TURN = "|".join(rf"{own}(?!\w)" if own[-1].isalpha() else own for own in _OWN)
OWN_TURN_BEGUN = "|".join(beginnings(own, complete=False) for own in _OWN)
MARK = compile_any(MARKS)
_END = compile_any(_ENDS)
_STOP = compile_any(_STOPS)
_ROLE = compile_any(_ROLES)
_OPENED = "|".join(map(beginnings, (*_ROLES, *_RESULTS)))  # or the beginning of one, where the text ends
_ROW = re.compile(rf"(?:\s|{_END.pattern})*+", re.IGNORECASE)
_FOLLOWED = re.compile(
    rf"(?:\s|{_END.pattern})*+(?:\Z|{_OPENED}|(?:{_ROLE_WORDS})(?:[ \t]*(?:\n|\Z)|(?P<colon>:)))", re.IGNORECASE
)
_NOTHING = re.compile(rf"(?:\s|{_END.pattern})*+\Z", re.IGNORECASE)
_RESULT_WORDS = ("Observation:", *(f"```{name}" for name in _RESULT_NAMES), "✿RESULT✿", "✿RETURN✿", "## Return of ")
# A role whose mark was left out, as servers do that skip special tokens; a call of a tool of that name it isn't.
_BARE_ROLE = (
    r"(?:[Hh]uman|[Uu]ser):|(?:user|human|tool|ipython|observation)[ \t]*(?:\Z|\r?\n(?!\s{0,8}[{`\[]))"
    r"|\{\s{0,8}\"role\"\s{0,8}:\s{0,8}\"(?:user|tool|function)\""  # a message, as APIs write it
)
RESULT_LINE = re.compile(
    rf"[ \t]{{0,8}}(?:{'|'.join(map(re.escape, _RESULT_WORDS))}|(?P<sure>`{{3,8}}outputs?\b|(?P<role>{_BARE_ROLE})))"
)
"""How a line begins that gives a result behind a call; `sure`: behind a sure one. A `role`: right behind it."""
_GIVEN = r"(?:result|output|response|observation)s?(?![^\W_])"
GIVEN_LINE = re.compile(
    rf"[ \t]{{0,8}}(?:(?:[*_]{{1,3}}|\[|(?P<heading>\#{{1,6}} ?))?"
    rf"(?:(?P<tool>(?:tool|function)(?:[ _]call)?[ _]{_GIVEN})|{_GIVEN})"
    rf"(?:[ \t]*[*_\]]{{0,3}}:|[*_\]]{{1,3}}|(?(heading)[ \t]*\r?\n|(?!)))"
    r"|(?:the )?`?[\w.]{1,64}`?(?: (?:tool|function|call))? (?:returned|responded):"
    rf"|`{{3,8}}{_GIVEN}[ \t]*\r?\n|(?P<tag><(?:call_)?(?:result|output|response)>))",
    re.IGNORECASE,
)
"""How a line begins that gives a result between two calls: a `tool`'s anywhere, all else right behind the first."""
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.MULTILINE)
_CLOSED_FENCE = re.compile(r"`{3,}[ \t]*\Z")


def ends_answer(
    text: str, start: int, end: int, *, begins: int = 0, behind_call: bool = False, opened: bool = False
) -> bool:
    """Return whether the answer, which begins at `begins`, ends at a mark. `behind_call`: a call stands before it;
    `opened`: another turn was opened in the answer, so that a template is explained."""
    if is_quoted(text, start, end) or stands_in_code(text, start):
        return False
    is_end = _END.match(text, start) is not None
    apart = text[max(0, start - 1) : start] in (" ", "\t") and not begins_sentence(text, start)
    if behind_call and not is_end:
        return not apart
    if not is_end:
        glued = start > begins and not text[start - 1].isspace() and text[start - 1] not in (*QUOTES, *"(<[{“‘")
        return glued and _STOP.match(text, start) is not None and text[end : end + 1] in ("", "\n")
    followed = _FOLLOWED.match(text, end)
    if followed is None or (opened and not behind_call):
        return False
    return not (apart and (followed["colon"] or _NOTHING.match(text, end) is not None))


def may_give_result(text: str, at: int) -> bool:
    """Return whether a text ends in what a line begins with that gives a result."""
    cut = text[at : at + _RESULT_CHARS].lstrip(" \t")
    return bool(cut) and at + _RESULT_CHARS > len(text) and any(word.startswith(cut) for word in _RESULT_WORDS)


def skip_ends(text: str, at: int) -> int:
    """Return the place behind a row of end marks: with other text behind it, none of them ends the answer."""
    row = _ROW.match(text, at)
    return row.end() if row else at


def opens_turn(mark: str) -> bool:
    """Return whether a mark opens a turn."""
    return _ROLE.fullmatch(mark) is not None


def stands_in_code(text: str, at: int) -> bool:
    """Return whether a place stands in inline code, as far as its line tells."""
    line = max(text.rfind("\n", max(0, at - LINE_CHARS), at) + 1, at - LINE_CHARS, 0)
    before = _CLOSED_FENCE.sub("", text[line:at])
    return not before.lstrip().startswith("```") and before.count("`") % 2 == 1


def list_fences(text: str) -> list[int]:
    """List the places of the lines that open or close a code block."""
    return [fence.start() for fence in _FENCE.finditer(text)]


def is_in_code_block(fences: list[int], at: int) -> bool:
    """Return whether a place stands in a code block that is closed behind it."""
    before = bisect_left(fences, at)
    return before % 2 == 1 and before < len(fences)
