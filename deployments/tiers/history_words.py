"""Read the arguments of past calls as objects, and write calls that a chat template leaves out into the words of a
conversation, in the model's own form. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from keyword import iskeyword
from typing import Any

from reliability.surrogates import join_all, join_surrogates
from reliability.tools import ToolBox, build_toolbox, extract_calls
from reliability.tools.extract.text import read_arguments
from reliability.tools.format_envelopes import HERMES
from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS, CLOSER, OPENER

_JSON, _LIST, _PYTHON = "{json}", "[{json}]", "[{python}]"
HERMES_FORM = f"{HERMES.writes[0]}\n{_JSON}\n{HERMES.writes[1]}"
UNREADABLE = "unreadable_arguments"  # the key under which arguments stay that are no object
NAME, ARGUMENTS = "find_train", {"city": "Bern", "seats": 2}


def read_past_arguments(arguments: Any) -> dict[str, Any]:
    """Read the arguments of a past call as an object. What can't be read stays, as a text in an object."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, str):
        return {UNREADABLE: json.dumps(arguments, ensure_ascii=False, default=str)}
    read = read_arguments(arguments)
    if not isinstance(read, str) and isinstance(read.value, str):  # written as JSON twice
        read = read_arguments(read.value)
    value = read if isinstance(read, str) else read.value
    if value is None:
        return {}
    try:
        return join_all(value) if isinstance(value, dict) else {UNREADABLE: join_surrogates(arguments)}
    except ValueError:  # two keys that half characters alone tell apart
        return {UNREADABLE: join_surrogates(arguments)}


def say_calls(messages: Sequence[Mapping[str, Any]], written: str) -> list[dict[str, Any]]:
    """Write each call into the words of its turn. `written`: the form, as `find_written` returns it."""
    out = []
    for message in map(dict, messages):
        calls = message.pop("tool_calls", None) or ()
        said = [_write_call(call["function"]["name"], call["function"].get("arguments"), written) for call in calls]
        content = message.get("content")
        if isinstance(content, list):  # beside pictures
            message["content"] = [*content, *({"type": "text", "text": one} for one in said)]
        else:
            message["content"] = "\n".join(filter(None, (content, *said)))
        out.append(message)
    return out


def _write_call(name: str, arguments: Any, written: str) -> str:
    given = read_past_arguments(arguments)
    call = json.dumps({"name": name, "arguments": given}, ensure_ascii=False)
    if not all(isinstance(key, str) and key.isidentifier() and not iskeyword(key) for key in given):
        written = written.replace("{python}", "{json}")
    pairs = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return written.replace("{json}", call) if "{json}" in written else written.replace("{python}", f"{name}({pairs})")


def find_written(words: str, tokens: Collection[str] = ()) -> str:
    """Find how a model writes its calls: by the first mark that its system prompt names and the form that is read back
    behind it, else by the first mark of calls among the model's `tokens`; else in Hermes' form."""
    examples = [row.examples[0] for row in CALL_FORMATS if row.reader is Reader.ENVELOPE]
    known = [text for text in examples if (mark := OPENER.match(text)) is not None and mark[0] in tokens]
    return _find_form(words) or _find_form("\n".join(known[:1])) or HERMES_FORM


def _find_form(words: str) -> str | None:
    box = build_toolbox([{"type": "function", "function": {"name": NAME, "parameters": {"type": "object"}}}])
    assert isinstance(box, ToolBox)
    for opener in dict.fromkeys(found[0] for found in OPENER.finditer(words)):
        at = words.find(opener) + len(opener)
        mark = CLOSER.search(words, at)
        closer = mark[0] if mark is not None and OPENER.search(words, at, mark.start()) is None else ""
        behind = words[at:].lstrip()[:2]
        first = _LIST if behind == "[{" else _PYTHON if behind[:1] == "[" else _JSON
        for payload in dict.fromkeys((first, _JSON, _LIST, _PYTHON)):
            written = f"{opener}{payload}{closer}"
            found = extract_calls(_write_call(NAME, ARGUMENTS, written), box)
            if not found.malformed and [(c.name, c.arguments) for c in found.calls] == [(NAME, ARGUMENTS)]:
                return written
    return None
