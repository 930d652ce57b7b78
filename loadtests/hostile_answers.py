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

PIECE_BYTES = 65_536
DONE = b"data: [DONE]\n\n"

Answer = Callable[[random.Random], Iterator[bytes]]


def build_request_for(kind: str, seed: str) -> Body:
    """Build the request that has the upstream answer in this way."""
    text = f"{ANSWER_MARK}{kind}"
    stream = random.Random(f"{seed}/{kind}").random() < 0.5
    return {"messages": [user(text)], "tools": [tool(), tool("write_file")], "stream": stream}


def make_pieces(kind: str, seed: str) -> Iterator[bytes]:
    """Yield the answer's body, piece by piece."""
    return ANSWERS[kind](random.Random(f"{seed}/{kind}"))


def build_chunk(delta: Body, finish: str | None = None) -> bytes:
    """Build one chunk of a stream."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


def _yield_and_end(*parts: bytes) -> Iterator[bytes]:
    yield from parts
    yield build_chunk({}, "stop")
    yield DONE


def _answer_text(text: str) -> Answer:
    """Answer a text in one chunk."""
    return lambda _: _yield_and_end(build_chunk({"content": text}))


def _answer_drops(text: str, size: int = 1) -> Answer:
    """Answer a text in tiny chunks, many of them in one read."""

    def pieces(_: random.Random) -> Iterator[bytes]:
        waiting = b""
        for at in range(0, len(text), size):
            waiting += build_chunk({"content": text[at : at + size]})
            if len(waiting) > PIECE_BYTES:
                yield waiting
                waiting = b""
        yield from _yield_and_end(waiting)

    return pieces


def _answer_call(arguments: str, name: str = "write_file") -> Answer:
    """Answer one native call."""
    function = {"name": name, "arguments": arguments}
    return lambda _: _yield_and_end(build_chunk({"tool_calls": [{"index": 0, "id": "c", "function": function}]}))


def _trickle_call(arguments: str) -> Answer:
    """Answer one native call, a character a chunk."""

    def pieces(_: random.Random) -> Iterator[bytes]:
        yield build_chunk(
            {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "write_file", "arguments": ""}}]}
        )
        for at in range(0, len(arguments), 400):
            deltas = ({"tool_calls": [{"index": 0, "function": {"arguments": c}}]} for c in arguments[at : at + 400])
            yield b"".join(map(build_chunk, deltas))
        yield from _yield_and_end()

    return pieces


def _answer_many_calls(_: random.Random) -> Iterator[bytes]:
    function = {"name": "write_file", "arguments": '{"path":"' + "x" * 3_000 + '"}'}
    yield from _yield_and_end(
        build_chunk({"tool_calls": [{"index": n, "id": f"c{n}", "function": function} for n in range(1_000)]})
    )


def _answer_endless_line(_: random.Random) -> Iterator[bytes]:
    yield b'data: {"choices":[{"index":0,"delta":{"content":"'
    for _n in range(1_600):
        yield b"x" * PIECE_BYTES


def _answer_endless_drips(_: random.Random) -> Iterator[bytes]:
    yield b'data: {"choices":[{"index":0,"delta":{"content":"'
    for _n in range(60_000):
        yield b"x" * 64


def _answer_endless_json(_: random.Random) -> Iterator[bytes]:
    yield b'{"choices":[{"index":0,"message":{"content":"'
    for _n in range(1_600):
        yield b"x" * PIECE_BYTES


def _answer_json_of_numbers(_: random.Random) -> Iterator[bytes]:
    choice = {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop", "vector": [0.5] * 2_000_000}
    yield json.dumps({"choices": [choice]}).encode()


def _answer_frames_of_nothing(_: random.Random) -> Iterator[bytes]:
    for _n in range(200):
        yield b"data: {}\n\n" * 3_000
    yield from _yield_and_end(build_chunk({"content": "hi"}))


def _answer_lines_of_nothing(_: random.Random) -> Iterator[bytes]:
    for _n in range(200):
        yield b": ping\n" * 9_000
    yield from _yield_and_end(build_chunk({"content": "hi"}))


def _answer_probabilities(_: random.Random) -> Iterator[bytes]:
    token = {"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": [{"token": "b", "logprob": -3}] * 20}
    choice = {"index": 0, "delta": {"content": "a" * 2_000}, "logprobs": {"content": [token] * 2_000}}
    yield from _yield_and_end(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")


def _nest(depth: int) -> str:
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
    "a text": _answer_text("All is well."),
    "a call": _answer_call('{"path": "a.py"}'),
    "the same call": _answer_call('{"path": "a.py"}', "read_file"),
    "the same long call": _answer_call(LONG_ARGUMENTS, "read_file"),
    "a's": _answer_call(json.dumps({"path": "a" * 56 + "!"}), "read_file"),
    "nested": _answer_call(_nest(12), "read_file"),
    "objects": _answer_call(json.dumps({"items": _OBJECTS}), "read_file"),
    "words": _answer_call(json.dumps({"items": _WORDS}), "read_file"),
    "huge chunk": _answer_text(_SENTENCES * 3),
    "huge chunk, one word": _answer_text("x" * 3_500_000),
    "huge chunk, white": _answer_text(" \n" * 500_000),
    "huge chunk, unicode": _answer_text("漢é\U0001f600" * 200_000),
    "huge chunk of [": _answer_text("[" * 500_000),
    "huge chunk of [[{": _answer_text('[[{"a":' * 100_000),
    "huge chunk of {": _answer_text('{"name": ' * 60_000),
    "huge chunk of fences": _answer_text("```json\n{\n" * 60_000),
    "huge chunk of marks": _answer_text("<tool_call>" * 60_000),
    "huge chunk of named": _answer_text('read_file({"path": \n' * 40_000),
    "huge chunk of tags": _answer_text("<function=read_file><parameter=path>" * 20_000),
    "huge chunk of closers": _answer_text("</tool_call>" * 60_000),
    "huge chunk of thoughts": _answer_text("<think>" * 100_000 + "</think>{"),
    "huge chunk of Action": _answer_text("Action: read_file\nAction Input: {\n" * 20_000),
    "huge chunk of harmony": _answer_text("<|channel|>commentary to=functions.read_file<|message|>{" * 15_000),
    "huge chunk of quotes": _answer_text('{"name": "read_file", "arguments": {"path": "' + '\\"' * 400_000),
    "huge chunk of comments": _answer_text("{/*" * 200_000),
    "huge chunk of calls": _answer_text("".join(_CALL % n for n in range(12_000))),
    "huge chunk of data": _answer_text(json.dumps(_OBJECTS * 8)),
    "huge chunk of python": _answer_text("[read_file(path='a', " * 40_000),
    "huge call in text": _answer_text(f'<tool_call>{{"name": "write_file", "arguments": {_LONG}}}</tool_call>'),
    "100,000 drops": _answer_drops("".join(f"word{n} " for n in range(14_000))),
    "100,000 drops of [": _answer_drops("[" * 100_000),
    "100,000 drops of {": _answer_drops('{"a": [' * 14_000),
    "100,000 drops of fences": _answer_drops("```\n{" * 20_000),
    "100,000 drops of marks": _answer_drops("<tool_call>\n" * 8_000),
    "100,000 drops of spaces": _answer_drops("a " + " " * 200 + "\n" * 40 + "b" * 100_000),
    "drops of a huge call": _answer_drops(f'<tool_call>{{"name": "write_file", "arguments": {_LONG}}}</tool_call>', 7),
    "endless line": _answer_endless_line,
    "endless line in drips": _answer_endless_drips,
    "endless JSON": _answer_endless_json,
    "JSON of numbers": _answer_json_of_numbers,
    "frames of nothing": _answer_frames_of_nothing,
    "lines of nothing": _answer_lines_of_nothing,
    "probabilities": _answer_probabilities,
    "huge arguments": _answer_call(_LONG),
    "huge arguments, cut": _answer_call(_LONG[:-1]),
    "huge arguments, Python": _answer_call(str({"path": "a", "text": ["it's", True, None] * 60_000})),
    "huge arguments, escapes": _answer_call('{"path": "' + "\\d" * 300_000 + '"}'),
    "huge arguments, encoded": _answer_call(json.dumps(json.dumps(json.dumps({"path": "x" * 500_000})))),
    "huge arguments of [": _answer_call("[" * 500_000),
    "huge arguments, spoken": _answer_call("Here it is: " * 50_000 + '{"path": "a"}'),
    "huge arguments of words": _answer_call(json.dumps({"path": "a", "more": ["TODO"] * 50_000})),
    "huge arguments of keys": _answer_call(json.dumps({"path": "a"} | {f"k{n}": n for n in range(60_000)})),
    "drops of arguments": _trickle_call(json.dumps({"path": "a", "text": "x" * 100_000})),
    "1,000 calls": _answer_many_calls,
    "huge thought": lambda _: _yield_and_end(build_chunk({"reasoning_content": _SENTENCES * 3})),
}
