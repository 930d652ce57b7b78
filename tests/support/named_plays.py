"""Answers of an upstream, each by a name: one of every kind that an API has words for."""

import json
from typing import Any

from tests.support.plays import SSE, Head, Play, Seen, Send, chunk, cut, good, status, tail, tools, words

PARIS, ROME = {"city": "Paris"}, {"city": "Rome"}
TOKEN = {"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}
TOP = {**TOKEN, "top_logprobs": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105]}]}


def _play_refusal(text: str = "") -> Play:
    pieces = ({"refusal": piece} for piece in ("I can't ", "help with that."))
    return (Head(headers=SSE), *words(text), *(Send(chunk(piece)) for piece in pieces), *tail())


def _play_logprobs(token: dict[str, Any]) -> Play:
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [token], "refusal": None}}
    return (Head(headers=SSE), Send(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"), *tail())


def _play_stop() -> Play:
    end = {"index": 0, "delta": {}, "finish_reason": "stop", "stop_reason": "END"}
    return (Head(headers=SSE), *words("As far as"), Send(b'data: {"choices": [' + json.dumps(end).encode() + b"]}\n\n"))


PLAYS: dict[str, Play] = {
    "plain": good(),
    "reasoning": good(reasoning="Let me see."),
    "json": good('{"city": "Paris"}'),
    "call": tools(("get_weather", PARIS)),
    "calls": tools(("get_weather", PARIS), ("get_weather", ROME)),
    "said-call": tools(("get_weather", PARIS), text="I'll look."),
    "custom": tools(("write", {"input": "x"})),
    "refusal": _play_refusal(),
    "said-refusal": _play_refusal("Well."),
    "logprobs": _play_logprobs(TOKEN),
    "top": _play_logprobs(TOP),
    "stop": _play_stop(),
    "length": (Head(headers=SSE), *words("As far as I"), *tail("length")),
    "filter": (Head(headers=SSE), *words("I may not"), *tail("content_filter")),
    "breaks": cut(2),
    "fails": status(500),
}


def play_named(seen: Seen) -> Play:
    """Play what the last user message names as `play:NAME.`; behind the result of a call, and unasked, plain words."""
    last = seen.body["messages"][-1]
    said = json.dumps(last) if last["role"] == "user" else ""
    if [tool["function"]["name"] for tool in seen.body.get("tools") or ()] == ["json"]:
        return tools(("json", PARIS))  # how the AI SDK asks Anthropic's models for an object
    return next((play for name, play in PLAYS.items() if f"play:{name}." in said), PLAYS["plain"])
