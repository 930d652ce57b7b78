"""How fast a model answers: first token and tokens/s by prompt length, and under concurrent requests.

Each prompt begins with a number of its own, also across evaluations, so no prompt cache helps where none is measured.
The cell `cache` asks the same twice. `warm` wakes a sleeping replica and counts nowhere.
"""

from __future__ import annotations

import functools
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from deployments.evaluate.asking.chat_client import ChatClient, ChatReply

T = TypeVar("T")


def run_side_by_side(jobs: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
    """Run the jobs at the same time; yield each one's number and result as they end. What a job raises is raised."""
    if len(jobs) == 1:
        yield 0, jobs[0]()
        return
    ended: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()

    def run(number: int) -> None:
        try:
            ended.put((number, jobs[number](), None))
        except BaseException as error:
            ended.put((number, None, error))

    for number in range(len(jobs)):
        threading.Thread(target=run, args=(number,), name=f"evaluate-{number}", daemon=True).start()
    for _ in jobs:
        number, result, error = ended.get()
        if error is not None:
            raise error
        yield number, result  # type: ignore[misc]


ANSWER_TOKENS = 16
TOGETHER_PROMPT_TOKENS, TOGETHER_ANSWER_TOKENS = 32, 8
CACHE_PROMPT_TOKENS, CACHE_ANSWER_TOKENS = 256, 2
# Words that are mostly one token each, so that a prompt of some length can be written.
WORDS = ("the", "fox", "walks", "along", "the", "river", "and", "looks", "for", "a", "place", "to", "sleep", "before")


def _write_prompt(tokens: int, mark: int) -> str:
    """Write a text of about so many tokens; another mark begins otherwise."""
    words = " ".join(WORDS[(mark + i) % len(WORDS)] for i in range(max(1, tokens - 12)))
    return f"{mark} {words}. Tell a long story about it."


def _stream(client: ChatClient, model: str, prompt: str, within_s: float, tokens: int = ANSWER_TOKENS) -> ChatReply:
    body = {"model": model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": tokens}
    return client.stream(body, session=f"evaluate-speed-{prompt.split()[0]}", within_s=within_s)


def warm_up(client: ChatClient, model: str, *, within_s: float) -> dict[str, Any]:
    """Ask for a word; a replica that sleeps comes up for it."""
    began_s = time.monotonic()
    timing = _stream(client, model, "Say hello.", within_s, 4)
    return {"seconds": round(time.monotonic() - began_s, 3), "error": timing.error}


def measure_speed(
    client: ChatClient, model: str, kind: str, name: str, *, mark: int, within_s: float
) -> dict[str, Any] | None:
    """Measure a cell: `cache`, `together` of so many requests, or a `length` and its repetition. Each has prompts of
    its own, by `mark`. None where it took longer than it may."""
    if kind == "cache":
        prompt = _write_prompt(CACHE_PROMPT_TOKENS, mark + 900)
        first = _stream(client, model, prompt, within_s, CACHE_ANSWER_TOKENS)
        again = _stream(client, model, prompt, within_s, CACHE_ANSWER_TOKENS)
        return None if first.late or again.late else {"first": _describe(first), "again": _describe(again)}
    if kind == "together":
        return _measure_together(client, model, int(name), mark + 10 * int(name), within_s)
    length, _, repeat = name.partition("-")
    timing = _stream(client, model, _write_prompt(int(length), mark + int(length) + int(repeat)), within_s)
    return None if timing.late else _describe(timing)


def _measure_together(client: ChatClient, model: str, count: int, mark: int, within_s: float) -> dict[str, Any] | None:
    """Measure so many requests that come at the same time."""
    prompts = [_write_prompt(TOGETHER_PROMPT_TOKENS, mark + number) for number in range(count)]
    jobs = [functools.partial(_stream, client, model, prompt, within_s, TOGETHER_ANSWER_TOKENS) for prompt in prompts]
    began_s = time.monotonic()
    timings = [timing for _, timing in run_side_by_side(jobs)]
    seconds = time.monotonic() - began_s
    if any(timing.late for timing in timings):
        return None
    good = [timing for timing in timings if not timing.error]
    firsts = [timing.first_s for timing in good if timing.first_s is not None]
    return {
        "seconds": round(seconds, 3),
        "tokens_s": round(sum(timing.completion_tokens for timing in good) / seconds, 3),
        "first_s": round(statistics.median(firsts), 3) if firsts else None,
        "first_s_max": round(max(firsts), 3) if firsts else None,
        "failed": len(timings) - len(good),
        "errors": sorted({timing.error for timing in timings if timing.error})[:3],
    }


def _describe(timing: ChatReply) -> dict[str, Any]:
    names = ("prompt_tokens", "completion_tokens", "cached_tokens", "first_s", "tokens_s", "seconds", "error")
    figures = {name: getattr(timing, name) for name in names}
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}
