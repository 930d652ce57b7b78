"""What decoding under a grammar costs, and whether it holds: on recorded tool-call cases.

    python -m loadtests.grammar_bench --compile --data FOLDER    every tool and case through llguidance, no model
    python -m loadtests.grammar_bench --alone --data FOLDER      mask, apply and consume without a model beside them
    python -m loadtests.grammar_bench --costs --data FOLDER      a demanded call for every case: validity; mask, apply
                                                                 and consume against the decode step, batch 1 and 8

The default is all of it, with the default model (SmolLM2-135M, float32 on Linux). What the layers of the server add to
each other is measured by `loadtests.layers_bench`. Figures: `compiler.py` and `masker.py` in
`deployments/tiers/mlx/grammar/`.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deployments.models.sources import DEFAULT_SOURCE
from deployments.tiers.mlx.grammar.compiler import Constraints
from deployments.tiers.mlx.grammar.masker import Masker
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.mlx.scheduler import Scheduler
from loadtests.bfcl import Case, Score, build_request, collect_events, find_valid_calls, sample_cases
from loadtests.series import quantile
from loadtests.table import Figure
from loadtests.tier_loop import start_tier
from loadtests.turns import Turns
from tests.evals.tool_cases import records

RUNNING_MAX = 8
CASES = 100
US = 1_000_000


def compile_all(tokenizer: Any, data: Path | None) -> None:
    """Compile the grammar of every case that has tools, and say how many hold only part of a schema."""
    constraints = Constraints(tokenizer)
    cases = [case for case in records("bfcl_cases", data) if case["tools"]]
    spent_ms: list[float] = []
    parts: collections.Counter[str] = collections.Counter()
    tools = 0
    for case in cases:
        began_s = time.perf_counter()
        constraint = constraints.of(build_request(case, tool_choice="required"))
        spent_ms.append(1e3 * (time.perf_counter() - began_s))
        assert constraint is not None
        tools += len(case["tools"])
        parts.update(note.partition("(")[2].partition(")")[0] for note in constraint.notes)
    print(f"grammars: {len(cases)} cases, {tools} tools; held in part: {dict(parts) or 0}; refused: 0")
    rest = _format_quantiles(spent_ms[1:])
    print(f"  compile + first mask, ms: {rest} (the first, with the vocabulary: {spent_ms[0]:.0f})")


def _format_quantiles(values: Sequence[float]) -> str:
    p50, p95, p99 = (quantile(values, share) for share in (0.5, 0.95, 0.99))
    return f"p50 {p50:.3g}, p95 {p95:.3g}, p99 {p99:.3g}, max {max(values):.3g}"


def measure_alone(tokenizer: Any, cases: Sequence[Case]) -> None:
    """Measure the parts of a step without a model beside them, over the right calls of the cases."""
    import mlx.core as mx

    constraints, spent = Constraints(tokenizer), collections.defaultdict(list)
    logits = mx.zeros((1, len(tokenizer.get_vocab())))
    mx.eval(logits)
    for case in cases:
        constraint = constraints.of(build_request(case, tool_choice="required"))
        assert constraint is not None
        masker = constraint.masker()
        opening = f'<tool_call>\n{{"name": "{case["ground_truth"][0]["name"]}", "arguments": {{'
        for token in tokenizer.encode(opening, add_special_tokens=False):
            moments = [time.perf_counter()]
            masker._move(token)
            moments.append(time.perf_counter())
            allowed = masker._compute_allowed(logits.shape[-1])
            moments.append(time.perf_counter())
            mx.eval(mx.where(mx.array(allowed), logits, -mx.inf))
            moments.append(time.perf_counter())
            for name, began_s, ended_s in zip(("consume", "mask", "apply"), moments, moments[1:], strict=False):
                spent[name].append(ended_s - began_s)
    for name, values in spent.items():
        print(f"alone: {name}, us: {_format_quantiles([US * s for s in values])} ({len(values)} tokens)")


@dataclass
class Meter:
    """What the parts of a step took, in seconds. Only the engine thread writes."""

    spent: dict[str, list[float]] = field(default_factory=lambda: collections.defaultdict(list))

    def time_calls(self, owner: Any, method: str, name: str) -> None:
        """Time every call of a method from now on."""
        original: Callable[..., Any] = getattr(owner, method)

        def call_and_time(*inputs: Any, **options: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return original(*inputs, **options)
            finally:
                self.spent[name].append(time.perf_counter() - began_s)

        setattr(owner, method, call_and_time)


def bench_grammar(turns: Turns) -> Iterator[Figure]:
    """Measure for `loadtests.mlx_bench`: as many of the hundred cases as there is time for."""
    return iter(asyncio.run(_measure_figures(turns)))


async def _measure_figures(turns: Turns) -> list[Figure]:
    tier = await start_tier(DEFAULT_SOURCE, max_running=RUNNING_MAX, max_waiting=4 * RUNNING_MAX)
    try:
        found = await measure_costs(tier, sample_cases(CASES, None), start_timing(), time.monotonic() + turns.seconds)
    finally:
        await tier.close()
    turns.made = turns.most  # its rounds are the cases, and their number stands in the table
    figures = [
        Figure(f"batch {together}, mask + apply + consume, of a decode step", words, share, 0.05, "of it")
        for together, share, words, _ in found
    ]
    score = found[-1][-1]
    words = f"{score.valid} of {score.done} demanded calls, {score.right} right"
    return [Figure("schema-valid", words, score.valid / max(1, score.done), 1.0), *figures]


Cost = tuple[int, float, str, Score]


async def measure_costs(tier: MlxTier, cases: Sequence[Case], meter: Meter, end_s: float = math.inf) -> list[Cost]:
    """Run every case with a demanded call, as many as begin before `end_s`: four alone, then all, eight at once. Return
    what the grammar's parts take of a step, and whether each call is valid."""
    found: list[Cost] = []
    for together, some in ((1, cases[:4]), (RUNNING_MAX, cases)):
        meter.spent.clear()
        slots, score = asyncio.Semaphore(together), Score("demanded")

        async def one(case: Case, slots: asyncio.Semaphore = slots, score: Score = score) -> None:
            async with slots:
                if time.monotonic() > end_s:
                    return
                events = await collect_events(tier, build_request(case, tool_choice="required"))
            calls, words = find_valid_calls(case, events)
            score.add(case, calls, 1, words)
            if score.done % 20 == 0:
                print(f"  {score.done} cases: valid {score.valid}, right {score.right}", flush=True)

        await asyncio.gather(*map(one, some))
        found.append((together, *_print_costs(meter, together), score))
        print(
            f"  valid {score.valid} of {score.done}, right {score.right}; {score.misses or 'none refused'}", flush=True
        )
    return found


def _print_costs(meter: Meter, together: int) -> tuple[float, str]:
    """Print the costs; return the share of a typical decode step, and its parts in words."""
    steps = meter.spent["step"]
    decode_s = statistics.median(meter.spent["decode"])
    parts = {name: meter.spent[name] for name in ("consume", "mask", "apply")}
    per_token_s = {name: statistics.median(values) for name, values in parts.items()}
    for name, values in parts.items():
        print(f"  {name}, us: {_format_quantiles([US * s for s in values])}")
    whole = sum(map(sum, parts.values())) / sum(steps)
    typical = sum(per_token_s.values()) * together / decode_s
    print(
        f"batch {together}: step p50 {1e3 * decode_s:.1f} ms of {len(steps)}; the grammar takes {100 * typical:.2f} % "
        f"of a typical step that only decodes (medians, full batch) and {100 * whole:.2f} % of all steps together"
    )
    words = ", ".join(f"{name} {US * seconds:.0f} us" for name, seconds in per_token_s.items())
    return typical, f"a token: {words}; a step {1e3 * decode_s:.1f} ms"


def start_timing() -> Meter:
    """Start timing the engine's parts. `apply` includes the time that MLX takes for the masked logits."""
    import mlx.core as mx

    meter = Meter()
    meter.time_calls(Masker, "_move", "consume")
    meter.time_calls(Masker, "_compute_allowed", "mask")
    step = Scheduler.step

    def step_and_time(batch: Scheduler) -> int:
        decodes_only = not batch._prefilling and not batch._queue
        began_s = time.perf_counter()
        made = step(batch)
        for name in ("step", "decode") if decodes_only else ("step",):
            meter.spent[name].append(time.perf_counter() - began_s)
        return made

    Scheduler.step = step_and_time  # type: ignore[method-assign]
    allowed = Masker.apply

    def apply_and_time(masker: Masker, mask: Any, logits: Any) -> Any:
        mx.eval(logits)
        began_s = time.perf_counter()
        out = allowed(masker, mask, logits)
        mx.eval(out)
        meter.spent["apply"].append(time.perf_counter() - began_s)
        return out

    Masker.apply = apply_and_time  # type: ignore[method-assign]
    return meter


async def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for part in ("compile", "alone", "costs"):
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--data", type=Path, help="a folder with bfcl_cases.jsonl.gz; else the stand-in set")
    parser.add_argument("--model", default=DEFAULT_SOURCE)
    asked = parser.parse_args()
    everything = not (asked.compile or asked.alone or asked.costs)
    tier = await start_tier(asked.model, max_running=RUNNING_MAX, max_waiting=4 * RUNNING_MAX)
    cases, loaded = sample_cases(asked.cases, asked.data), tier._engine.phase.loaded
    assert loaded is not None
    try:
        if asked.compile or everything:
            compile_all(loaded.tokenizer, asked.data)
        if asked.alone or everything:
            measure_alone(loaded.tokenizer, cases)
        if asked.costs or everything:  # last: it slows the engine down a little
            await measure_costs(tier, cases, start_timing())
    finally:
        await tier.close()


if __name__ == "__main__":
    asyncio.run(main())
