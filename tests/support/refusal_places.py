"""Where the words of a refusal stand: in a body of any status, in a frame, in what a gateway hands on."""

import json
from collections.abc import Callable
from typing import Any

from tests.support.plays import SSE, Head, Play, Send, chunk, frame, whole


def _in_body(status: int, build: Callable[[str], Any]) -> Callable[[str], Play]:
    return lambda said: whole(json.dumps(build(said)).encode(), status_code=status)


def _in_stream(*before: bytes, build: Callable[[str], Any], behind: bytes = b"") -> Callable[[str], Play]:
    return lambda said: (
        Head(headers=SSE),
        *(Send(one) for one in before),
        Send(frame(build(said))),
        *([Send(behind)] if behind else []),
    )


def _as_openai(said: str) -> Any:
    return {"error": {"message": said, "type": "error"}}


def _as_openrouter(said: str) -> Any:
    raw = json.dumps({"message": said})
    return {"error": {"message": "Provider returned error", "metadata": {"raw": raw}}}


WORDS = chunk({"role": "assistant", "content": "Let me look. "})
# A refusal that comes before any word, by where its words stand.
BODIES: dict[str, Callable[[str], Play]] = {
    "400": _in_body(400, _as_openai),
    "422": _in_body(422, lambda said: {"detail": said}),
    "400 without a type": _in_body(400, lambda said: {"message": said}),
    "400 as a text": _in_body(400, lambda said: {"error": said}),
    "400 handed on": _in_body(400, _as_openrouter),
}
BROKEN: dict[str, Callable[[str], Play]] = {
    "500": _in_body(500, _as_openai),
    "500 as a text": _in_body(500, lambda said: {"error": said}),
    "500 handed on": _in_body(500, _as_openrouter),
    "frame": _in_stream(build=_as_openai),
    "frame handed on": _in_stream(build=_as_openrouter),
    "relay": _in_stream(build=lambda said: {"message": said}, behind=chunk({}, "error_finish")),
}
LATE: dict[str, Callable[[str], Play]] = {
    "frame behind words": _in_stream(WORDS, build=_as_openai),
    "relay behind words": _in_stream(WORDS, build=lambda said: {"message": said}, behind=chunk({}, "error_finish")),
}
