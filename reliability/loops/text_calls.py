"""Calls that a model has written into its text, as the harnesses of text agents read them.

For a history it is enough to tell equal calls from others, so they are read by their shape: fences and `<code>`, a
framework's list of calls, an envelope of the table of call formats, an XML element, `Action:` and its input, JSON with
a name at the end of the text. The first form that is found counts, with all its calls.

Invariants: `_TEXT_CHARS` of a text, `CALLS_MAX` calls.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from reliability.loops.comparison.findings import SeenCall, Turn, dumps, parse
from reliability.loops.comparison.volatile_fields import word_set
from reliability.loops.written import find_bodies

_TEXT_CHARS = 32_000
CALLS_MAX = 16
_MAY_HOLD = re.compile(r"```|<[a-zA-Z|｜]|\bAction\b|^[^\S\n]*+[\[{]|Calling tools|\[TOOL|⏺|✿", re.MULTILINE)
_FENCE = re.compile(r"```[ \t]*+([\w+#.-]*+)[^\n]{0,200}+\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_CODE = re.compile(r"<code>(.*?)(?:</code>|\Z)", re.DOTALL)
_LISTED = re.compile(r"Calling tools:\s*(\[.*\])", re.DOTALL)
_ELEMENT = re.compile(r"<([a-z]\w{1,40})(?:[ =][^<>\n]{0,80})?>")
_ACTION = re.compile(
    r"^[ \t*]*Action[ \t*]*\d{0,3}[ \t*]*:[ \t*]*([^\n*]{1,120}?)[ \t*]*$(?:\s*^[ \t*]*Action[ _]Input"
    r"[ \t*]*\d{0,3}[ \t*]*:[ \t]*(.*?)(?=^[ \t*]*"
    r"(?:Observation|Thought|Action)\b|\Z))?",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_TOOL_ELEMENTS = word_set("bash shell command execute tool action invoke function run python search edit")
_NO_TOOLS = word_set("think thinking thought thoughts reasoning plan answer result final_answer")
_DATA_TURNS = 8  # so many turns back the data of a call is looked for
_NAMES = ("name", "tool", "tool_name", "action", "function", "request", "command")
_JSON = re.compile(r"^[^\S\n]*+[\[{]", re.MULTILINE)


def read_text_calls(text: str) -> tuple[SeenCall, ...]:
    """Return the calls that the text holds, in their order; none where it is talk."""
    text = text[:_TEXT_CHARS]
    if not _MAY_HOLD.search(text):
        return ()
    found = (tuple(islice(calls, CALLS_MAX)) for calls in _list_forms(text))
    return next(filter(None, found), ())


def read_as_written(answer: Turn, turns: Sequence[Turn]) -> Turn:
    """Read the calls in the answer's text, where the agent writes them. An answer whose only call has the data that an
    earlier text is made of is that text: a client that wants data by a call (instructor) writes the data down."""
    found = parse(answer.calls[0].arguments) if len(answer.calls) == 1 else (False, None)
    for turn in turns[-_DATA_TURNS:] if found[0] else ():
        if turn.text.startswith("{") and (turn.written or not turn.calls) and parse(turn.text) == found:
            answer = replace(answer, calls=(), results=(), text=turn.text)
            break
    if answer.calls or not any(turn.written for turn in turns):
        return answer
    calls = read_text_calls(answer.text)
    return replace(answer, calls=calls, results=(None,) * len(calls), written=bool(calls))


def _list_forms(text: str) -> Iterator[Iterator[SeenCall]]:
    """List the calls of each form in which they may be written, the form that counts first."""
    yield _read_listed(text)
    yield (SeenCall("code", match[1].strip()) for match in _CODE.finditer(text))
    yield (_read_body("call", body) for body in find_bodies(text))
    yield _read_elements(text)
    yield (_read_body(match[1].strip(), match[2] or "{}") for match in _ACTION.finditer(text))
    yield (_read_body(match[1] or "code", match[2]) for match in _FENCE.finditer(text) if match[2].strip())
    yield _read_json(text)


def _read_listed(text: str) -> Iterator[SeenCall]:
    """Read a list that a framework has written down; an interpreter's call stands in its code as well."""
    match = _LISTED.search(text)
    value = _evaluate(match[1]) if match else None
    for entry in value if isinstance(value, list) else []:
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return
        arguments = function.get("arguments")
        if function["name"] == "python_interpreter" and _CODE.search(text):
            return
        yield SeenCall(function["name"], arguments if isinstance(arguments, str) else dumps(arguments))


def _evaluate(text: str) -> Any:
    known, value = parse(text)
    if known:
        return value
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _read_elements(text: str) -> Iterator[SeenCall]:
    at, open_ended = 0, set[str]()
    for match in _ELEMENT.finditer(text):
        name = match[1]
        if match.start() < at or name in open_ended or name in _NO_TOOLS or not ("_" in name or name in _TOOL_ELEMENTS):
            continue
        end = text.find(f"</{name}>", match.end())
        if end < 0:
            open_ended.add(name)
            continue
        yield _read_body(name, text[match.end() : end])
        at = end


def _read_json(text: str) -> Iterator[SeenCall]:
    begun = _JSON.search(text)
    known, value = parse(text[begun.start() :]) if begun else (False, None)
    for entry in value if known and isinstance(value, list) else [value]:
        if isinstance(entry, dict) and any(isinstance(entry.get(key), (str, dict)) for key in _NAMES):
            yield _read_body("call", dumps(entry))


def _read_body(name: str, body: str) -> SeenCall:
    """Read a call from its body: the name that its JSON has, and the rest without ids; else the body as it is."""
    known, value = parse(body.strip()) if body.lstrip()[:1] == "{" else (False, None)
    if not known or not isinstance(value, dict):
        return SeenCall(name, body.strip())
    key = next((key for key in _NAMES if isinstance(value.get(key), str)), None)
    rest = {k: v for k, v in value.items() if k not in (key, "id", "call_id")}
    inner = next((rest[k] for k in ("arguments", "parameters", "args", "input", "action_input") if k in rest), None)
    if key is None:
        return SeenCall(name, dumps(rest))
    arguments = inner if inner is not None and len(rest) == 1 else rest
    return SeenCall(value[key], arguments if isinstance(arguments, str) else dumps(arguments))
