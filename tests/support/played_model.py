"""A chat completions server on loopback whose model is a function: what an evaluation can be run against at once.

    with PlayedServer({"m": play}) as server: ChatClient(server.url).ask(...)

`play(body)` returns the message of the answer (`say`, `call`), or a status with an error object.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.loopback import LoopbackHandler, LoopbackServer

USAGE = {"prompt_tokens": 40, "completion_tokens": 4, "total_tokens": 44, "prompt_tokens_details": {"cached_tokens": 8}}
Message = dict[str, Any]
Play = Callable[[Mapping[str, Any]], Message | tuple[int, dict[str, Any]]]


def say(text: str) -> Message:
    return {"role": "assistant", "content": text}


def call(name: str, **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
    }


class PlayedServer(LoopbackServer):
    """The server; `asked` has the body and the headers of each request."""

    def __init__(self, models: Mapping[str, Play]) -> None:
        super().__init__(_Handler)
        self.models, self.paths = models, dict[str, Any]()
        self.asked: list[tuple[Mapping[str, Any], Mapping[str, str]]] = []


class _Handler(LoopbackHandler):
    def get(self) -> None:
        if self.path == "/v1/models":
            self._send(200, {"data": [{"id": name, "context_length": 4096} for name in self.server.models]})
        else:
            known = self.server.paths.get(self.path)
            self._send(404 if known is None else 200, known or {"error": {"message": "no such route"}})

    def post(self) -> None:
        body = json.loads(self.read_body())
        self.server.asked.append((body, dict(self.headers)))
        answer = self.server.models[body["model"]](body)
        if isinstance(answer, tuple):
            self._send(*answer)
        elif body.get("stream"):
            deltas = [{"choices": [{"delta": {"content": word}}]} for word in (answer["content"] or "x").split()]
            frames = [json.dumps(frame) for frame in (*deltas, {"choices": [], "usage": USAGE})]
            data = "".join(f"data: {frame}\n\n" for frame in (*frames, "[DONE]"))
            self.reply(data.encode(), headers={"content-type": "text/event-stream"})
        else:
            self._send(200, {"choices": [{"message": answer, "finish_reason": "stop"}], "usage": USAGE})

    def _send(self, status: int, value: Any) -> None:
        self.reply(json.dumps(value).encode(), status, {"content-type": "application/json"})
