"""The engine against what it is built on: `make bench-mlx`, or `python -m loadtests.mlx_bench --only decode`.

    decode   tokens a second while 1 or 8 sequences decode: a bare `BatchGenerator` loop, then the tier
    lookup   guesses from the prompt, on and off: edits, prose, four edits at once (lookup_bench.py)
    reuse    time to the first token of a session of 900 tokens: cold, the next turn, another session with its system
             prompt
    leave    from the moment that a client leaves to the free slot, less one decode step
    budget   eight clients that name no length, in a budget for one answer at its longest: memory set aside for all that
             an answer may come to, and as it grows
    server   the whole graph against `mlx_lm.server`: tokens a second and the time to the first text (server_bench.py)
    grammar  what decoding under a grammar costs, and whether its answers are valid (grammar_bench.py)
    prefill  tokens of a prompt a second: mlx-lm as it comes, then the tier

Both sides of a comparison take turns, `--rounds` times, and the ratio is the median of the rounds' ratios. The model is
SmolLM2-135M in float32, for `lookup` Qwen2.5-Coder-0.5B. No comparison begins a round after its share of the time
(`BENCHES`), so that all of them together take about half an hour on a quiet machine; the table says how many rounds
there were.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing

from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.scheduler import AHEAD_TOKENS
from loadtests.bare_loop import QUESTION, Bare, Speed
from loadtests.grammar_bench import bench_grammar
from loadtests.lookup_bench import bench_lookup
from loadtests.server_bench import bench_server
from loadtests.table import Figure, write
from loadtests.tier_loop import PATIENCE_S, decode_by_tier, load_tier, request
from loadtests.turns import Turns
from reliability.types import ChatRequest, Counted, Finish, Text
from tests.support.tier_asking import eventually

# Decoding.


def bench_decode(turns: Turns) -> Iterator[Figure]:
    """Compare batch 1 and 8, bare and tier by turns."""
    bare, tier = Bare(), load_tier()
    try:
        runs: dict[int, list[tuple[Speed, Speed]]] = {1: [], 8: []}
        for _ in turns.rounds("decode"):
            for count, both in runs.items():
                theirs = bare.decode(count)
                both.append((asyncio.run(decode_by_tier(tier, count)), theirs))
        for count, both in runs.items():
            for clock, of in (("second", "wall"), ("CPU second", "cpu")):
                pairs = [(getattr(a, of), getattr(b, of)) for a, b in both]
                mine, bare_s = (statistics.median(side) for side in zip(*pairs, strict=True))
                ratio = statistics.median(a / b for a, b in pairs)
                detail = f"{mine:.1f} against {bare_s:.1f} tokens a {clock}"
                yield Figure(f"batch {count}, against a bare loop, by the {clock}", detail, ratio, 0.97)
    finally:
        asyncio.run(tier.close())


# Reuse.


async def read_first_text(tier: MlxTier, asked: ChatRequest) -> tuple[float, str, int]:
    """Return the seconds to the first text, the complete text, and how many tokens of the prompt were reused."""
    began_s, first_s, text, cached = time.perf_counter(), 0.0, "", 0
    async with aclosing(tier.stream(asked)) as stream:
        async for events in stream:
            for event in events:
                if isinstance(event, Text):
                    first_s = first_s or time.perf_counter() - began_s
                    text += event.text
                elif isinstance(event, Finish) and event.usage:
                    cached = event.usage.cached_tokens
    return first_s, text, cached


def bench_reuse(turns: Turns) -> Iterator[Figure]:
    """Compare cold, next turn, other session: in each round under a system prompt of its own."""
    tier = load_tier()

    async def one_round(number: int) -> tuple[float, float, float]:
        rules = " ".join(f"Rule {i}: never speak of number {i * 7 + number}." for i in range(58))
        system = f"Session {number}. You answer in one short sentence. {rules}"
        cold_s, answer, _ = await read_first_text(
            tier, request("What is the capital of France?", system=system, max_tokens=24)
        )
        turns = ("What is the capital of France?", answer, "And of Italy?")
        turn_s, _, reused = await read_first_text(tier, request(*turns, system=system, max_tokens=24))
        other_s, _, shared = await read_first_text(tier, request("Name three colours.", system=system, max_tokens=24))
        assert reused > 800, reused
        assert shared > 800, shared
        return cold_s, turn_s, other_s

    try:
        runs = [asyncio.run(one_round(number)) for number in turns.rounds("reuse")]
    finally:
        asyncio.run(tier.close())
    cold, turn, other = (statistics.median(times) for times in zip(*runs, strict=True))
    for what, index, seconds, least in (("next turn", 1, turn, 15.0), ("same system prompt", 2, other, 10.0)):
        ratio = statistics.median(run[0] / run[index] for run in runs)
        yield Figure(f"first token, 900 tokens, {what}", f"{cold:.2f} s cold, {seconds:.3f} s", ratio, least)


# Prefill.


def bench_prefill(turns: Turns) -> Iterator[Figure]:
    """Compare the tokens of a prompt that are read in a second, bare and by the tier by turns."""
    bare, tier = Bare(), load_tier()

    async def read_by_tier(number: int) -> float:
        text = " ".join(f"Rule {i}: never speak of number {i * 7 + number}." for i in range(58))
        asked = request(text, system=f"Reader {number}.", max_tokens=1)
        began_s = time.perf_counter()
        async with aclosing(tier.stream(asked)) as stream:
            usages = [one.usage async for events in stream for one in events if isinstance(one, Finish) and one.usage]
        return (usages[-1].prompt_tokens - usages[-1].cached_tokens) / (time.perf_counter() - began_s)

    try:
        runs = [(asyncio.run(read_by_tier(number)), bare.prefill(48)) for number in turns.rounds("prefill")]
    finally:
        asyncio.run(tier.close())
    mine, theirs = (statistics.median(side) for side in zip(*runs, strict=True))
    ratio = statistics.median(a / b for a, b in runs)
    yield Figure("prefill, against MLX as it comes", f"{mine:.1f} against {theirs:.1f} tokens a second", ratio, 15.0)


# Leaving.


def bench_leave(turns: Turns) -> Iterator[Figure]:
    """Time how long a slot takes to be free when a client leaves, alone and beside three others."""
    tier = load_tier()
    try:
        found: dict[int, list[tuple[float, float]]] = {0: [], 3: []}
        for _ in turns.rounds("leave"):
            for beside, seen in found.items():
                seen.append(asyncio.run(leave_once(tier, beside)))
        for beside, runs in found.items():
            free, step = (statistics.median(times) for times in zip(*runs, strict=True))
            over = statistics.median(free - step for free, step in runs)
            detail = f"free after {free * 1000:.0f} ms, a step takes up to {step * 1000:.0f} ms"
            yield Figure(f"a client leaves, {beside} beside it: over one step", detail, max(0.0, over), 0.1, "s")
    finally:
        asyncio.run(tier.close())


async def leave_once(tier: MlxTier, beside: int) -> tuple[float, float]:
    """Return the seconds from leaving to the free slot, and of the longest step seen before it."""
    engine = tier._engine
    others = [asyncio.create_task(drain(tier)) for _ in range(beside)]
    pieces: list[float] = []
    async with aclosing(tier.stream(request(QUESTION, max_tokens=400))) as stream:
        async for events in stream:
            if len(engine._batch or ()) == beside + 1 and any(isinstance(event, Text) for event in events):
                pieces.append(time.perf_counter())
            if len(pieces) > 12:
                break
        left_s = time.perf_counter()
    await eventually(lambda: len(engine._batch or ()) <= beside, PATIENCE_S)
    free_s = time.perf_counter() - left_s
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await eventually(lambda: not engine._batch, PATIENCE_S)
    return free_s, max(after - before for before, after in itertools.pairwise(pieces))


async def drain(tier: MlxTier) -> None:
    """Read as another client does, who stays."""
    async with aclosing(tier.stream(request(QUESTION, max_tokens=400))) as stream:
        async for _ in stream:
            pass


# A small budget.


BUDGET_BYTES = 1300 << 20  # the model, and one answer of its whole context
BUDGET_S = 12.0


def bench_budget(turns: Turns) -> Iterator[Figure]:
    """Compare the tokens a second of eight clients at once, the two ways by turns."""
    tier = load_tier(memory_bytes=BUDGET_BYTES)
    try:
        runs = [(_measure_crowd(tier, AHEAD_TOKENS), _measure_crowd(tier, 10**6)) for _ in turns.rounds("budget")]
    finally:
        asyncio.run(tier.close())
    mine, whole = (statistics.median(side) for side in zip(*runs, strict=True))
    ratio = statistics.median(a / b for a, b in runs)
    yield Figure("eight answers in a budget for one", f"{mine:.1f} against {whole:.1f} tokens/s", ratio, 1.5)


def _measure_crowd(tier: MlxTier, ahead_tokens: int) -> float:
    batch = tier._engine._batch
    assert batch is not None
    batch._ahead = ahead_tokens
    batch._drafts, batch._generator = (
        False,
        batch._new_generator(),
    )  # a lone answer that goes in circles gains by guesses
    return asyncio.run(_run_crowd(tier))


async def _run_crowd(tier: MlxTier) -> float:
    """Return the tokens a second from the first to the end of `BUDGET_S`, of eight clients."""
    seen: list[tuple[float, int]] = []
    latest = [0] * 8

    async def read(number: int) -> None:
        asked = request(f"{QUESTION} Number {number}.", max_tokens=16384)
        async with aclosing(tier.stream(asked)) as stream:
            async for events in stream:
                for event in events:
                    if isinstance(event, Counted):
                        latest[number] = event.usage.completion_tokens
                        seen.append((time.perf_counter(), sum(latest)))

    clients = [asyncio.create_task(read(number)) for number in range(len(latest))]
    await eventually(lambda: bool(seen) and time.perf_counter() - seen[0][0] > BUDGET_S, PATIENCE_S)
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    await eventually(lambda: not tier._engine._batch, PATIENCE_S)
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


# Each with its share of the time: seconds, on top of what loading takes.
BENCHES: dict[str, tuple[Callable[[Turns], Iterator[Figure]], float]] = {
    "decode": (bench_decode, 90.0),
    "lookup": (bench_lookup, 400.0),
    "reuse": (bench_reuse, 60.0),
    "leave": (bench_leave, 60.0),
    "budget": (bench_budget, 60.0),
    "server": (bench_server, 110.0),
    "grammar": (bench_grammar, 600.0),
    "prefill": (bench_prefill, 60.0),
}


def main() -> None:
    """Run the benchmarks and write their tables; the exit status says nothing of the bars, the tables do."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.mlx_bench")
    parser.add_argument("--only", choices=BENCHES)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for name in [options.only] if options.only else list(BENCHES):
        bench, seconds = BENCHES[name]
        figures, turns = [], Turns(options.rounds, seconds)
        print(f"{name}: at most {options.rounds} rounds or about {turns.seconds:.0f} s", flush=True)
        for figure in bench(turns):
            figures.append(figure)
            print(figure.row(), flush=True)
        command = f"python -m loadtests.mlx_bench --only {name} --rounds {options.rounds}"
        write(name, command, figures, f"Rounds: {turns.made}." if turns.made < options.rounds else "")


if __name__ == "__main__":
    main()
