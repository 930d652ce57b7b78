"""Calls that a model writes into its text, in every form of the table, seen by the real openai client: streamed a few
characters at a time and whole, it is the same call, and nothing of it is text."""

import json
from typing import Any

import pytest

from reliability.tools.formats import CALL_FORMATS
from tests.support import scripts
from tests.support.matrices import take_turns
from tests.support.serving import Deploy, Server

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "search",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        },
    }
]
FORMS = [text for row in CALL_FORMATS if row.reader is not None for text in row.examples]
BEFORE = "I'll look that up.\n"
PIECE = 3  # characters


def pieces(text: str) -> list[dict[str, str]]:
    """The steps of a script that writes the text piece by piece."""
    return [{"raw": text[at : at + PIECE]} for at in range(0, len(text), PIECE)]


@pytest.fixture(scope="module")
def server(deploy: Deploy) -> Server:
    rules = [
        {"when": {"last_user": f"form {number:03}"}, "answer": pieces(BEFORE + text)}
        for number, text in enumerate(FORMS)
    ]
    args = scripts.args(tiers={"fast": {"kind": "scripted", "script": rules}})
    args["reliability"] = args["reliability"] | {"escalation": {"chain": ["fast"], "max_retries_before_escalate": 0}}
    return deploy({"tiers": args["tiers"], "reliability": args["reliability"]}, "forms")


@pytest.mark.parametrize("number", take_turns(range(len(FORMS))))
def test_a_form_is_one_call_streamed_and_whole(server: Server, number: int) -> None:
    """See the module."""
    asked: Any = {"model": "fast", "tools": TOOLS, "messages": [{"role": "user", "content": f"form {number:03}"}]}
    client = server.client()
    message = client.chat.completions.create(**asked).choices[0].message
    text, calls = "", {}
    for chunk in client.chat.completions.create(**asked, stream=True):
        for delta in (choice.delta for choice in chunk.choices):
            text += delta.content or ""
            for call in delta.tool_calls or ():
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))

    assert [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls] == [
        ("search", {"query": "x"})
    ]
    assert [(name, json.loads(arguments)) for name, arguments in calls.values()] == [("search", {"query": "x"})]
    assert (message.content or "").strip() == text.strip() == BEFORE.strip()
