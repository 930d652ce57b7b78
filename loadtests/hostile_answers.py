"""What a hostile or broken upstream answers: the other half of the fuzz (see `hostile`).

Each kind is the pieces of a body of server-sent events, or of a JSON answer, as they would come off the wire. Pieces
are made as they are sent: an endless line needs no memory.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from loadtests.hostile import ANSWER_MARK, LONG_ARGUMENTS, Body, lines, tool, user

__all__ = ["ANSWERS", "asking_for", "chunk", "pieces_of"]

PIECE_BYTES = 65_536
DONE = b"data: [DONE]\n\n"

Answer = Callable[[random.Random], Iterator[bytes]]


def asking_for(kind: str, seed: str) -> Body:
    """The request that has the upstream answer in this way."""
    text = f"{ANSWER_MARK}{kind}"
    stream = random.Random(f"{seed}/{kind}").random() < 0.5
    return {"messages": [user(text)], "tools": [tool(), tool("write_file")], "stream": stream}


def pieces_of(kind: str, seed: str) -> Iterator[bytes]:
    """The answer's body, piece by piece."""
    return ANSWERS[kind](random.Random(f"{seed}/{kind}"))


def chunk(delta: Body, finish: str | None = None) -> bytes:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def _ended(*parts: bytes) -> Iterator[bytes]:
    yield from parts
    yield chunk({}, "stop")
    yield DONE


def _text(text: str) -> Answer:
    """A text in one chunk."""
    return lambda _: _ended(chunk({"content": text}))


def _drops(text: str, size: int = 1) -> Answer:
    """A text in tiny chunks, many of them in one read."""

    def pieces(_: random.Random) -> Iterator[bytes]:
        waiting = b""
        for at in range(0, len(text), size):
            waiting += chunk({"content": text[at : at + size]})
            if len(waiting) > PIECE_BYTES:
                yield waiting
                waiting = b""
        yield from _ended(waiting)

    return pieces


def _called(arguments: str, name: str = "write_file") -> Answer:
    """One native call."""
    function = {"name": name, "arguments": arguments}
    return lambda _: _ended(chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]}))


def _trickled(arguments: str) -> Answer:
    """One native call, a character a chunk."""

    def pieces(_: random.Random) -> Iterator[bytes]:
        yield chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "write_file", "arguments": ""}}]})
        for at in range(0, len(arguments), 400):
            deltas = ({"tool_calls": [{"index": 0, "function": {"arguments": c}}]} for c in arguments[at : at + 400])
            yield b"".join(map(chunk, deltas))
        yield from _ended()

    return pieces


def _many_calls(_: random.Random) -> Iterator[bytes]:
    function = {"name": "write_file", "arguments": '{"path":"' + "x" * 3_000 + '"}'}
    yield from _ended(chunk({"tool_calls": [{"index": n, "id": f"c{n}", "function": function} for n in range(1_000)]}))


def _endless_line(_: random.Random) -> Iterator[bytes]:
    yield b'data: {"choices":[{"index":0,"delta":{"content":"'
    for _n in range(1_600):
        yield b"x" * PIECE_BYTES


def _endless_drips(_: random.Random) -> Iterator[bytes]:
    yield b'data: {"choices":[{"index":0,"delta":{"content":"'
    for _n in range(60_000):
        yield b"x" * 64


def _endless_json(_: random.Random) -> Iterator[bytes]:
    yield b'{"choices":[{"index":0,"message":{"content":"'
    for _n in range(1_600):
        yield b"x" * PIECE_BYTES


def _json_of_numbers(_: random.Random) -> Iterator[bytes]:
    choice = {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop", "vector": [0.5] * 2_000_000}
    yield json.dumps({"choices": [choice]}).encode()


def _frames_of_nothing(_: random.Random) -> Iterator[bytes]:
    for _n in range(200):
        yield b"data: {}\n\n" * 3_000
    yield from _ended(chunk({"content": "hi"}))


def _lines_of_nothing(_: random.Random) -> Iterator[bytes]:
    for _n in range(200):
        yield b": ping\n" * 9_000
    yield from _ended(chunk({"content": "hi"}))


def _probabilities(_: random.Random) -> Iterator[bytes]:
    token = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -3}] * 20}
    choice = {"index": 0, "delta": {"content": "a" * 2_000}, "logprobs": {"content": [token] * 2_000}}
    yield from _ended(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")


def _nested(depth: int) -> str:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return json.dumps(value)


_SENTENCES = lines(random.Random(1), 1_000_000)
_CALL = '<tool_call>{"name": "write_file", "arguments": {"path": "%s"}}</tool_call>\n'
_OBJECTS = [{"id": n, "name": f"n{n}", "tags": ["a", n]} for n in range(4_000)]
_WORDS = [f"WORD{n}" for n in range(3_000)]
_LONG = json.dumps({"path": "a", "text": _SENTENCES[:600_000]})

ANSWERS: dict[str, Answer] = {
    "a text": _text("All is well."),
    "a call": _called('{"path": "a.py"}'),
    "the same call": _called('{"path": "a.py"}', "read_file"),
    "the same long call": _called(LONG_ARGUMENTS, "read_file"),
    "a's": _called(json.dumps({"path": "a" * 56 + "!"}), "read_file"),
    "nested": _called(_nested(12), "read_file"),
    "objects": _called(json.dumps({"items": _OBJECTS}), "read_file"),
    "words": _called(json.dumps({"items": _WORDS}), "read_file"),
    "huge chunk": _text(_SENTENCES * 3),
    "huge chunk, one word": _text("x" * 3_500_000),
    "huge chunk, white": _text(" \n" * 500_000),
    "huge chunk, unicode": _text("漢é\U0001f600" * 200_000),
    "huge chunk of [": _text("[" * 500_000),
    "huge chunk of [[{": _text('[[{"a":' * 100_000),
    "huge chunk of {": _text('{"name": ' * 60_000),
    "huge chunk of fences": _text("```json\n{\n" * 60_000),
    "huge chunk of marks": _text("<tool_call>" * 60_000),
    "huge chunk of named": _text('read_file({"path": \n' * 40_000),
    "huge chunk of tags": _text("<function=read_file><parameter=path>" * 20_000),
    "huge chunk of closers": _text("</tool_call>" * 60_000),
    "huge chunk of thoughts": _text("<think>" * 100_000 + "</think>{"),
    "huge chunk of Action": _text("Action: read_file\nAction Input: {\n" * 20_000),
    "huge chunk of harmony": _text("<|channel|>commentary to=functions.read_file<|message|>{" * 15_000),
    "huge chunk of quotes": _text('{"name": "read_file", "arguments": {"path": "' + '\\"' * 400_000),
    "huge chunk of comments": _text("{/*" * 200_000),
    "huge chunk of calls": _text("".join(_CALL % n for n in range(12_000))),
    "huge chunk of data": _text(json.dumps(_OBJECTS * 8)),
    "huge chunk of python": _text("[read_file(path='a', " * 40_000),
    "huge call in text": _text(f'<tool_call>{{"name": "write_file", "arguments": {_LONG}}}</tool_call>'),
    "100,000 drops": _drops("".join(f"word{n} " for n in range(14_000))),
    "100,000 drops of [": _drops("[" * 100_000),
    "100,000 drops of {": _drops('{"a": [' * 14_000),
    "100,000 drops of fences": _drops("```\n{" * 20_000),
    "100,000 drops of marks": _drops("<tool_call>\n" * 8_000),
    "100,000 drops of spaces": _drops("a " + " " * 200 + "\n" * 40 + "b" * 100_000),
    "drops of a huge call": _drops(f'<tool_call>{{"name": "write_file", "arguments": {_LONG}}}</tool_call>', 7),
    "endless line": _endless_line,
    "endless line in drips": _endless_drips,
    "endless JSON": _endless_json,
    "JSON of numbers": _json_of_numbers,
    "frames of nothing": _frames_of_nothing,
    "lines of nothing": _lines_of_nothing,
    "probabilities": _probabilities,
    "huge arguments": _called(_LONG),
    "huge arguments, cut": _called(_LONG[:-1]),
    "huge arguments, Python": _called(str({"path": "a", "text": ["it's", True, None] * 60_000})),
    "huge arguments, escapes": _called('{"path": "' + "\\d" * 300_000 + '"}'),
    "huge arguments, encoded": _called(json.dumps(json.dumps(json.dumps({"path": "x" * 500_000})))),
    "huge arguments of [": _called("[" * 500_000),
    "huge arguments, spoken": _called("Here it is: " * 50_000 + '{"path": "a"}'),
    "huge arguments of words": _called(json.dumps({"path": "a", "more": ["TODO"] * 50_000})),
    "huge arguments of keys": _called(json.dumps({"path": "a"} | {f"k{n}": n for n in range(60_000)})),
    "drops of arguments": _trickled(json.dumps({"path": "a", "text": "x" * 100_000})),
    "1,000 calls": _many_calls,
    "huge thought": lambda _: _ended(chunk({"reasoning_content": _SENTENCES * 3})),
}
