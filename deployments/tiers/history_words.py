"""Write what a chat template leaves out into the words of a conversation: calls in the model's own form, words next to
a call in a turn of their own. Pure; for messages whose arguments are objects and whose contents are texts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from keyword import iskeyword
from typing import Any

from reliability.tools import ToolBox, build_toolbox, extract_calls
from reliability.tools.extract import harmony
from reliability.tools.format_envelopes import HERMES
from reliability.tools.format_row import Reader
from reliability.tools.formats import CALL_FORMATS, CLOSER, OPENER

JSON, LIST, PYTHON = "{json}", "[{json}]", "[{python}]"
HERMES_FORM = f"{HERMES.writes[0]}\n{JSON}\n{HERMES.writes[1]}"
_NAME, _ARGUMENTS = "find_train", {"city": "Bern", "seats": 2}


def split_words(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give words that stand beside a call a turn of their own before it."""
    out = []
    for message in map(dict, messages):
        if message.get("tool_calls") and message.get("content"):
            out.append({key: value for key, value in message.items() if key != "tool_calls"})
            message["content"] = ""
        out.append(message)
    return out


def part_contents(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give each content as a list of its one part, for templates that know no other contents."""
    return [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in messages]


def give_thoughts(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give each answer an empty thought where it has none: some templates write it in the last turns only."""
    return [
        {"reasoning_content": "", **message} if message["role"] == "assistant" else dict(message)
        for message in messages
    ]


def strip_channels(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave of an answer in which Harmony's marks stand what it says to the user: some templates refuse the marks."""
    out = []
    for message in map(dict, messages):
        text = message.get("content")
        if message["role"] == "assistant" and isinstance(text, str) and harmony.is_harmony(text):
            spoken = [part for part in harmony.split(text) if part.recipient is None and not part.is_reasoning]
            message["content"] = "\n".join(part.body for part in spoken)
        out.append(message)
    return out


def say_calls(messages: Sequence[Mapping[str, Any]], written: str) -> list[dict[str, Any]]:
    """Write each call into the words of its turn. `written`: the form, as `find_written` returns it."""
    out = []
    for message in map(dict, messages):
        calls = message.pop("tool_calls", None) or ()
        said = [_write_call(call["function"]["name"], call["function"].get("arguments"), written) for call in calls]
        message["content"] = "\n".join(filter(None, (message.get("content"), *said)))
        out.append(message)
    return out


def _write_call(name: str, arguments: Any, written: str) -> str:
    given = arguments if isinstance(arguments, Mapping) else {}
    call = json.dumps({"name": name, "arguments": given}, ensure_ascii=False)
    if not all(isinstance(key, str) and key.isidentifier() and not iskeyword(key) for key in given):
        written = written.replace("{python}", "{json}")
    pairs = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return written.replace("{json}", call) if "{json}" in written else written.replace("{python}", f"{name}({pairs})")


def find_written(words: str, tokens: Collection[str] = ()) -> str:
    """Find how a model writes its calls by what its system prompt says of them: the first of its marks, and the form
    that is read back behind it. Where it says nothing, by the first mark of calls among the model's `tokens`; else in
    Hermes' form, which most models know."""
    examples = [row.examples[0] for row in CALL_FORMATS if row.reader is Reader.ENVELOPE]
    known = [text for text in examples if (mark := OPENER.match(text)) is not None and mark[0] in tokens]
    return _find_form(words) or _find_form("\n".join(known[:1])) or HERMES_FORM


def _find_form(words: str) -> str | None:
    box = build_toolbox([{"type": "function", "function": {"name": _NAME, "parameters": {"type": "object"}}}])
    assert isinstance(box, ToolBox)
    for opener in dict.fromkeys(found[0] for found in OPENER.finditer(words)):
        at = words.find(opener) + len(opener)
        mark = CLOSER.search(words, at)
        closer = mark[0] if mark is not None and OPENER.search(words, at, mark.start()) is None else ""
        behind = words[at:].lstrip()[:2]
        first = LIST if behind == "[{" else PYTHON if behind[:1] == "[" else JSON
        for payload in dict.fromkeys((first, JSON, LIST, PYTHON)):
            written = f"{opener}{payload}{closer}"
            found = extract_calls(_write_call(_NAME, _ARGUMENTS, written), box)
            if not found.malformed and [(c.name, c.arguments) for c in found.calls] == [(_NAME, _ARGUMENTS)]:
                return written
    return None
