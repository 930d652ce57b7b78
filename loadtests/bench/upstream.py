"""The scripted upstream: `python -m loadtests.bench.upstream PORT`, an OpenAI-compatible server of little cost.

It runs in a process of its own. How it answers is the first word of the last message, up to a colon:

    at-once          64 tokens, each in a write of its own, as fast as they can be written
    after-50         the same, the first token after 50 ms
    paced            the same, 5 ms between two tokens
    brief            as paced, and only 8 tokens
    faulty           every tenth request is answered 503, unless it is for the model `spare`
    always-faulty    each request is answered 429, unless it is for the model `spare`

Any other word is as good as `at-once`, and any model answers, so that one tier, or one entry of a proxy, serves all.
A request with `tools` gets a tool call, its arguments in 8 pieces; any other gets text. `GET /calls` says how many
completions have been asked for since the start. Connections are kept, bodies must have a Content-Length.

Why 429: without a Retry-After it says nothing of the model's health and no call soon after would fare better. So it
opens no breaker, and neither this server nor LiteLLM waits or asks the same model again. With `always-faulty` each
request meets just one fault, and its median is the time of such a request; with a 503 each time it would soon be the
time of requests that an open breaker spares the fault.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import suppress

TOKENS = 64
FIRST_TOKEN_S = {"after-50": 0.05}
GAP_S = {"paced": 0.005, "brief": 0.005}
BRIEF = 8
FAULT_EVERY = 10
SPARE = "spare"
USAGE = {"prompt_tokens": 12, "completion_tokens": TOKENS, "total_tokens": 12 + TOKENS}
WORDS = [f"word{i} " for i in range(TOKENS)]
ARGUMENTS = json.dumps({"path": "src/" + "x" * 48 + ".py", "line": 12})
NOTHING: dict[str, object] = {}
calls = 0


def _build_chunk(delta: dict[str, object], finish: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"data: " + json.dumps({**head, "choices": [choice], **more}).encode() + b"\n\n"


def _build_call_delta(arguments: str, *, head: bool) -> dict[str, object]:
    function = {"name": "read_file", "arguments": arguments} if head else {"arguments": arguments}
    named = {"id": "call_1", "type": "function"} if head else {}
    return {"tool_calls": [{"index": 0, **named, "function": function}]}


STEP = len(ARGUMENTS) // 8 + 1
PIECES = [ARGUMENTS[at : at + STEP] for at in range(0, len(ARGUMENTS), STEP)]
TEXT_FRAMES = [_build_chunk({"content": word}) for word in WORDS]
CALL_FRAMES = [_build_chunk(_build_call_delta(piece, head=not at)) for at, piece in enumerate(PIECES)]


def _build_whole(tools: bool) -> bytes:
    message: dict[str, object] = {"role": "assistant", "content": None if tools else "".join(WORDS)}
    if tools:
        function = {"name": "read_file", "arguments": ARGUMENTS}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if tools else "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted"}
    return json.dumps({**head, "choices": [choice], "usage": USAGE}).encode()


WHOLE = {tools: _build_whole(tools) for tools in (False, True)}


def _build_tail(tools: bool) -> bytes:
    end = _build_chunk({}, "tool_calls" if tools else "stop")
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    usage = json.dumps({**head, "choices": [], "usage": USAGE}).encode()
    return end + b"data: " + usage + b"\n\ndata: [DONE]\n\n"


TAIL = {tools: _build_tail(tools) for tools in (False, True)}


def _build_response(body: bytes, status: str = "200 OK") -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


FAULTY = _build_response(b'{"error": {"message": "scripted fault"}}', "503 Service Unavailable")
TURNED_AWAY = _build_response(b'{"error": {"message": "scripted fault"}}', "429 Too Many Requests")


def _choose_fault(manner: str, model: str) -> bytes:
    """Choose the fault that this request meets; empty: none."""
    if model == SPARE:
        return b""
    if manner == "always-faulty":
        return TURNED_AWAY
    return FAULTY if manner == "faulty" and calls % FAULT_EVERY == 0 else b""


def _frame_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _choose_frames(manner: str, tools: bool) -> list[bytes]:
    if tools:
        return CALL_FRAMES
    return TEXT_FRAMES[:BRIEF] if manner == "brief" else TEXT_FRAMES


async def _answer(raw: bytes, writer: asyncio.StreamWriter) -> None:
    global calls  # noqa: PLW0603
    calls += 1
    body = json.loads(raw)
    manner, tools = body["messages"][-1]["content"].partition(":")[0], bool(body.get("tools"))
    if fault := _choose_fault(manner, body["model"]):
        writer.write(fault)
        return
    if wait_s := FIRST_TOKEN_S.get(manner):
        await asyncio.sleep(wait_s)
    if not body.get("stream"):
        writer.write(_build_response(WHOLE[tools]))
        return
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    writer.write(head)
    for frame in _choose_frames(manner, tools):
        writer.write(_frame_chunk(frame))
        await asyncio.sleep(GAP_S.get(manner, 0))
    writer.write(_frame_chunk(TAIL[tools]) + b"0\r\n\r\n")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
            raw = await reader.readexactly(int(fields.get(b"content-length", b"0")))
            if head.startswith(b"GET"):
                writer.write(_build_response(json.dumps({"calls": calls}).encode()))
            else:
                await _answer(raw, writer)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client is gone
    finally:
        with suppress(Exception):
            writer.close()


async def start_upstream(port: int) -> asyncio.Server:
    """Start the upstream in this process; port 0: any that is free."""
    return await asyncio.start_server(_serve, "127.0.0.1", port, backlog=1024)


async def _main(port: int) -> None:
    async with await start_upstream(port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
