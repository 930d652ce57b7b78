"""What a draft model would gain: `python -m loadtests.draft_bench [--model SOURCE] [--draft SOURCE] [--tokens 48]`.

A small model with the same tokens could guess what the large one says next. How many of its guesses would stand is
known without building that: the large model answers greedily, the small one reads prompt and answer once, and where its
most likely token is the answer's, its guess would have stood. With the measured seconds of the steps of both models
that gives the time which the answer would have taken, for each number of guesses a step:

    steps of the large model, of one token and its guesses  +  as many steps of the small one as there are guesses

That favours the draft: its prefill costs nothing here, nor what it reads behind its last guess. What prompt lookup
gains on the same answers is measured, not reckoned. Prose, a program from nothing, and three edits, each cut to
`_LINES` lines.

Whether it is worth its memory is decided in `deployments/tiers/mlx/decoding/generators.py`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from deployments.models.sources import CODER_LARGE, CODER_SMALL, parse_source
from deployments.tiers.mlx.loading import load
from loadtests.edit_tasks import PROSE, build_tasks
from loadtests.lookup_bench import Pair
from loadtests.mlx_thread import print_and_exit

_LINES = 24
_COUNTS = (1, 2, 4, 6)
_REPEATS = 5
_PROGRAM = "Write a Python function that returns the ten most frequent values of a column of a CSV file."


def count_steps(stands: Sequence[bool], count: int) -> int:
    """Count the steps that an answer takes with `count` guesses a step, where `stands` says which tokens are guessed
    right behind those before them."""
    place = steps = 0
    while place < len(stands):
        place += 1 + sum(1 for _ in itertools.takewhile(bool, stands[place : place + count]))
        steps += 1
    return steps


def list_texts() -> list[tuple[str, str]]:
    """List the questions with their kinds."""
    tasks = build_tasks()
    edits = [(task.kind, _shorten(task.text)) for task in (tasks[0], tasks[4], tasks[7])]
    return [("prose", PROSE[1]), edits[0], ("program", _PROGRAM), edits[1], ("prose", PROSE[3]), edits[2]]


def _shorten(text: str) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[:_LINES], *(["```"] if lines[0].startswith("```") else []), lines[-1]])


def _time_steps(model: Any, prompt: Sequence[int], counts: Sequence[int]) -> dict[int, float]:
    """Time steps that read so many tokens behind a prompt; return the median seconds of each."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    cache = make_prompt_cache(model)
    mx.eval(model(mx.array([list(prompt)]), cache=cache))
    found = {}
    for count in counts:
        seconds = []
        for _ in range(_REPEATS):
            began_s = time.perf_counter()
            mx.eval(model(mx.array([[prompt[0]] * count]), cache=cache))
            seconds.append(time.perf_counter() - began_s)
            for layer in cache:
                layer.trim(count)
        found[count] = statistics.median(seconds)
    return found


def _compare_guesses(draft: Any, prompt: Sequence[int], answer: Sequence[int]) -> list[bool]:
    """Return which tokens of the answer, all but its first, the draft finds most likely where they stand."""
    import mlx.core as mx

    logits = draft(mx.array([[*prompt, *answer]]))[0]
    guesses: Any = mx.argmax(logits[len(prompt) : -1], axis=-1).tolist()
    return [guess == token for guess, token in zip(guesses, answer[1:], strict=True)]


def bench_draft(source: str, draft_source: str, max_tokens: int, threads: int, seconds: float) -> Iterator[str]:
    """Yield the lines of the report. No question is begun after `seconds`."""
    began_s = time.monotonic()
    pair = Pair(source, threads)
    draft = load(
        parse_source(draft_source), cache_dir=None, context_tokens=None, blas_threads=threads, say=lambda _: None
    ).model
    prompt = pair.encode(PROSE[0])
    large = _time_steps(pair.loaded.model, prompt, [1, *(count + 1 for count in _COUNTS)])
    small = _time_steps(draft, prompt, [1])[1]
    costs = ", ".join(f"{count}: {spent * 1e3:.0f}" for count, spent in large.items())
    yield f"a step of the model, ms by tokens read: {costs}; of the draft: {small * 1e3:.0f}"
    yield "| what | guesses that stand | " + " | ".join(f"{n} a step" for n in _COUNTS) + " | prompt lookup |"
    yield "|---|---|" + "---|" * (len(_COUNTS) + 1)
    for kind, text in list_texts():
        if time.monotonic() - began_s > seconds:
            return
        prompt = pair.encode(text)
        speeds = {}
        for lookup in (False, True):
            pair.answer(lookup, [prompt], 1)
            (answer,), speeds[lookup] = pair.answer(lookup, [prompt], max_tokens)
        stands = _compare_guesses(draft, prompt, answer)
        plain_s = len(stands) * large[1]
        gains = [plain_s / (count_steps(stands, n) * (large[n + 1] + n * small)) for n in _COUNTS]
        cells = [f"{gain:.2f} x" for gain in (*gains, speeds[True] / speeds[False])]
        yield f"| {kind} | {sum(stands)} of {len(stands)} | {' | '.join(cells)} |"


def main() -> None:
    """Print the report."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.draft_bench")
    parser.add_argument("--model", default=CODER_LARGE, help="a model source (default: %(default).40s…)")
    parser.add_argument("--draft", default=CODER_SMALL, help="one with the same tokens (default: %(default).40s…)")
    parser.add_argument("--tokens", type=int, default=48, help="where answers are cut (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of a step")
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which no question is begun")
    given = parser.parse_args()

    print_and_exit(bench_draft(given.model, given.draft, given.tokens, given.threads, given.seconds))


if __name__ == "__main__":
    main()
