"""What it costs to find out why a prompt doesn't begin as the session's last one did.

    python -m loadtests.prefix_bench

A history of 502 messages, 40,000 tokens and 20 tools, and the next turn of it: which only goes on, which has its tools
in another order, or whose system prompt is another. The time is that of `SessionPrompts` alone, without rendering.
Bar: 0.3 ms for a turn that only goes on.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from deployments.tiers.session_prompts import SessionPrompts
from deployments.work.wire import Codec, codec_of
from reliability.types import ChatRequest

TURNS, TOKENS, TOOLS, ROUNDS = 250, 40_000, 20, 60
VOCABULARY = 150_000

Turn = tuple[ChatRequest, list[int]]


class Bare:
    """A tokenizer that opens no answer: what a template costs is not asked here."""

    chat_template = None

    def apply_chat_template(self, *_: Any, **__: Any) -> str:
        return ""

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return []


def main() -> None:
    """Measure each case and print its median."""
    dice = random.Random(1)
    first = _build_turn(dice)
    for name, change in CASES.items():
        took_ms = statistics.median(_measure(first, change(*first, dice)) for _ in range(ROUNDS))
        print(f"| {name} | {took_ms:.3f} ms |")


def _measure(first: Turn, second: Turn) -> float:
    """Return the milliseconds that the second turn takes, behind the first."""
    prompts = SessionPrompts(Bare())
    prompts.note(prompts.prepare(first[0], datetime.now()), first[1])
    codec: Codec[ChatRequest] = codec_of(ChatRequest)
    request = codec.decode(codec.encode(second[0]))  # as it comes from another process: no object is shared
    began_ns = time.perf_counter_ns()
    prompts.note(prompts.prepare(request, datetime.now()), second[1])
    return (time.perf_counter_ns() - began_ns) / 1e6


def _build_turn(dice: random.Random) -> Turn:
    said = [{"role": "system", "content": _write(dice, 8000)}]
    for _ in range(TURNS):
        said += [{"role": role, "content": _write(dice, 900)} for role in ("user", "assistant")]
    said.append({"role": "user", "content": "Go on."})
    tools = tuple(_build_tool(dice, number) for number in range(TOOLS))
    request = ChatRequest(
        request_id="r", session_id="s", messages=tuple(said), tools=tools, max_tokens=64, timeout_s=60.0
    )
    return request, [dice.randrange(VOCABULARY) for _ in range(TOKENS)]


def _build_tool(dice: random.Random, number: int) -> dict[str, Any]:
    properties = {f"p{i}": {"type": "string", "description": _write(dice, 150)} for i in range(8)}
    parameters = {"type": "object", "properties": properties}
    described = {"name": f"tool_{number}", "description": _write(dice, 1200), "parameters": parameters}
    return {"type": "function", "function": described}


def _write(dice: random.Random, chars: int) -> str:
    return "".join(dice.choices("abcdefghij klmnop\n", k=chars))


def _go_on(request: ChatRequest, tokens: list[int], dice: random.Random) -> Turn:
    more = ({"role": "assistant", "content": _write(dice, 300)}, {"role": "user", "content": _write(dice, 600)})
    return replace(request, messages=(*request.messages, *more)), [*tokens, *range(300)]


def _permute(request: ChatRequest, tokens: list[int], dice: random.Random) -> Turn:
    request, tokens = _go_on(request, tokens, dice)
    return replace(request, tools=request.tools[::-1]), tokens


def _lose(request: ChatRequest, tokens: list[int], dice: random.Random) -> Turn:
    request, tokens = _go_on(request, tokens, dice)
    system = {"role": "system", "content": _write(dice, 8000)}
    return replace(request, messages=(system, *request.messages[1:])), [*tokens[:200], 0, *tokens[201:]]


CASES: dict[str, Callable[[ChatRequest, list[int], random.Random], Turn]] = {
    "goes on": _go_on,
    "goes on, its tools permuted": _permute,
    "another system prompt": _lose,
}

if __name__ == "__main__":
    main()
