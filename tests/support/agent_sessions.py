"""Ten requests of one session of Claude Code, and of Codex, in the shapes in which the unmodified agents were recorded:
what stands in which block or item, which messages come behind results, and what changes from request to request.

Every text, and every text in the arguments of a call, holds a word that no other one holds.
"""

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deployments.api.anthropic.messages_body import parse_messages
from deployments.api.openai_responses.response_body import parse_response
from reliability.types import ChatRequest

Block = dict[str, Any]
WORD = re.compile(r"said\d{3}word")
LIMITS: dict[str, Any] = {"request_id": "r", "tokens_max": 64, "timeout_s": 60.0}
CACHED = {"cache_control": {"type": "ephemeral"}}
STRING = {"type": "string"}


def list_words(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the words of a conversation in the order in which they were said, the model's reasoning apart."""
    out = []
    for message in messages:
        out += find_words(json.dumps(message.get("content")))
        for call in message.get("tool_calls") or ():
            out += find_words(json.dumps(call["function"]["arguments"]))
    return out


def find_words(text: str) -> list[str]:
    return WORD.findall(text)


class _Speaker:
    """Says words that were never said."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def say(self, around: str = "I say {}.") -> str:
        return around.format(f"said{next(self._count):03d}word")

    def id(self, prefix: str) -> str:
        return f"{prefix}{next(self._count):024x}"


CLAUDE_TOOLS = [
    {"name": name, "description": f"{name} of the agent.", "input_schema": {"type": "object", "properties": properties}}
    for name, properties in (
        ("Bash", {"command": STRING, "timeout": {"type": "number"}, "description": STRING}),
        ("Read", {"file_path": STRING, "offset": {"type": "number"}}),
        ("TodoWrite", {"todos": {"type": "array", "items": {"type": "object", "properties": {"content": STRING}}}}),
    )
]


def _remind(speaker: _Speaker) -> Block:
    return _text(speaker.say("<system-reminder>\nRemember {}.\n</system-reminder>"))


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _use(speaker: _Speaker, name: str, arguments: Any) -> Block:
    return {"type": "tool_use", "id": speaker.id("call_"), "name": name, "input": arguments}


def _result(use: Block, content: Any, **fields: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": use["id"], "content": content} | fields


def _converse_as_claude(speaker: _Speaker) -> Iterator[list[Block]]:
    """Yield what each of the ten requests adds to the conversation."""
    say = speaker.say

    def user(*blocks: Block) -> Block:
        return {"role": "user", "content": list(blocks)}

    def model(*blocks: Block) -> Block:
        return {"role": "assistant", "content": list(blocks)}

    def bash() -> Block:
        return _use(speaker, "Bash", {"command": say("grep {} *"), "description": say()})

    def read() -> Block:
        return _use(speaker, "Read", {"file_path": say("src/{}.py"), "offset": 10})

    yield [user(_remind(speaker), _text(say())), {"role": "system", "content": say()}]
    first = bash()
    yield [model(_text(say()), first), user(_result(first, say()))]
    two = [read(), bash()]
    yield [model(*two), user(_result(two[0], say()), _result(two[1], [_text(say())]), _remind(speaker))]
    yield [model(_text(say())), user(_text(say()), _remind(speaker))]
    todo = _use(speaker, "TodoWrite", {"todos": [{"content": say()}, {"content": say()}]})
    yield [model(todo), user(_result(todo, [_text(say()), _text(say())], is_error=True))]
    mixed = [bash(), read()]
    results = [_result(mixed[1], say()), _result(mixed[0], say())]
    yield [model(_text(say()), *mixed), user(*results), {"role": "system", "content": say()}]
    silent = bash()
    yield [model(silent), user(_result(silent, []))]
    yield [model(_text(say())), user(_text(say("[Request interrupted by user: {}]"))), user(_text(say()))]
    last = read()
    yield [model(_text(say()), last), user(_result(last, say()), _text(say()))]
    three = [bash(), bash(), read()]
    yield [model(*three), user(*(_result(use, say()) for use in three))]


def _ask_as_claude() -> Iterator[ChatRequest]:
    """Ask as Claude Code does: the line of the bill changes, and the marker of the cache moves to the newest block."""
    speaker = _Speaker()
    prompts = [_text(speaker.say("You are {}.")) | CACHED, _text(speaker.say()) | CACHED]
    messages: list[Block] = []
    for turn, added in enumerate(_converse_as_claude(speaker)):
        messages += added
        bill = _text(f"x-anthropic-billing-header: cc_version=2.1.197; cc_entrypoint=cli; cch={turn:05x};")
        sent = json.loads(json.dumps(messages))
        newest = next(message for message in reversed(sent) if isinstance(message["content"], list))
        newest["content"][-1] |= CACHED
        fields = {"model": "fast", "max_tokens": 32000, "system": [bill, *prompts], "tools": CLAUDE_TOOLS}
        raw = json.dumps(fields | {"messages": sent, "thinking": {"type": "adaptive"}, "stream": True}).encode()
        yield parse_messages(raw, {}, **LIMITS).request


CLOSED = {"type": "object", "additionalProperties": False}
CODEX_TOOLS: list[dict[str, Any]] = [
    *(
        {"type": "function", "name": name, "description": f"{name} of the agent.", "strict": False}
        | {"parameters": CLOSED | {"properties": properties}}
        for name, properties in (
            ("exec_command", {"cmd": STRING, "workdir": STRING, "yield_time_ms": {"type": "number"}}),
            ("update_plan", {"plan": {"type": "array", "items": {"type": "object", "properties": {"step": STRING}}}}),
        )
    ),
    {"type": "custom", "name": "apply_patch", "description": "Edits files."},
]


def _converse_as_codex(speaker: _Speaker) -> Iterator[list[Block]]:
    """Yield what each of the ten requests adds to `input`."""
    say = speaker.say

    def told(role: str, *texts: str) -> Block:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text} for text in texts]}

    def call(name: str, arguments: Any) -> Block:
        written = json.dumps(arguments, indent=None if name == "exec_command" else 1)
        return {"type": "function_call", "call_id": speaker.id("call_"), "name": name, "arguments": written}

    def run() -> Block:
        return call("exec_command", {"cmd": say("rg {}"), "yield_time_ms": 1000})

    def patch() -> Block:
        words = say("*** Begin Patch\n*** Add File: a.txt\n+{}\n*** End Patch")
        return {"type": "custom_tool_call", "call_id": speaker.id("call_"), "name": "apply_patch", "input": words}

    def output(of: Block, words: Any) -> Block:
        return {"type": f"{of['type']}_output", "call_id": of["call_id"], "output": words}

    developer = [told("developer", say()), told("developer", say(), say())]
    yield [*developer, told("user", say("<environment_context>{}</environment_context>")), told("user", say())]
    first = run()
    yield [told("assistant", say()), first, output(first, say("Exit code: 0\nOutput:\n{}"))]
    two = [run(), run()]
    yield [*two, *(output(one, say()) for one in two)]
    edit = patch()
    yield [told("assistant", say()), edit, output(edit, say())]
    yield [told("assistant", say()), told("developer", say()), told("user", say())]
    plan = call("update_plan", {"plan": [{"step": say()}, {"step": say()}]})
    yield [plan, output(plan, say()), told("developer", say())]
    mixed = [run(), patch(), run()]
    yield [told("assistant", say()), *mixed, *(output(one, say()) for one in reversed(mixed))]
    yield [told("assistant", say()), told("user", say("<turn_aborted>{}</turn_aborted>")), told("user", say())]
    parts = run()
    yield [parts, output(parts, [{"type": "input_text", "text": say()}, {"type": "input_text", "text": say()}])]
    last = run()
    yield [last, output(last, say()), told("user", say())]


def _ask_as_codex() -> Iterator[ChatRequest]:
    """Ask as Codex does: all items each time, with nothing stored."""
    speaker = _Speaker()
    instructions = speaker.say("You are {}.")
    items: list[Block] = []
    for added in _converse_as_codex(speaker):
        items += added
        fields = {"model": "fast", "instructions": instructions, "input": items, "tools": CODEX_TOOLS}
        raw = json.dumps(fields | {"store": False, "stream": True, "parallel_tool_calls": True}).encode()
        yield parse_response(raw, {}, **LIMITS).request


SESSIONS: Mapping[str, Sequence[ChatRequest]] = {
    "Claude Code": tuple(_ask_as_claude()),
    "Codex": tuple(_ask_as_codex()),
}
