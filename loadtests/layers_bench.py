"""What each layer of the server adds on a weak model: raw, + repair, + retries, + constraint, on the same cases.

    python -m loadtests.layers_bench --cases 100 --data FOLDER [--model SOURCE [SOURCE]]

Each case is driven through the server's own loop (`deployments.request.drive`) with one mlx tier and no other, first
without grammars, then with them; an attempt that both would make alike (greedy, the same prompt) is made once. In the
first row a call counts only as it came from the model, unrepaired. With two models the last row is their chain: what
the first gives up goes to the second.

Measured 2026-11-25 on 2 × AMD EPYC, Linux, no GPU, SmolLM2-135M f32, the hundred cases (13 minutes):

    layer                   valid    right    attempts a case
    raw model                 2 %      0 %    1.00
    + repair                  2 %      0 %    1.00
    + retries                 3 %      0 %    3.90
    + constraint             99 %     30 %    2.96
    tool_choice required    100 %     38 %    1.03

The one case without a call under `+ constraint` was answered in prose, which `tool_choice: auto` allows.
Valid is not right: the grammar makes a weak model call, not think.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.config.app_config import RouterConfig
from deployments.models.sources import DEFAULT_SOURCE
from deployments.request.policy import limits_of
from deployments.request.run_record import Run
from deployments.tiers.mlx.mlx_tier import MlxTier
from loadtests.bfcl import (
    SEED,
    TOKENS_MAX,
    Case,
    Score,
    build_request,
    drive_request,
    find_valid_calls,
    sample_cases,
)
from loadtests.tier_loop import start_tier
from reliability.types import ChatRequest, Event

TIER, THEN = "fast", "standard"
KINDS = {TIER: "mlx", THEN: "mlx"}
RUNNING_MAX = 8


class Once:
    """A tier that is asked the same greedy question only once."""

    def __init__(self, tier: MlxTier) -> None:
        self._tier = tier
        self._known: dict[str, list[list[Event]]] = {}
        self.first: dict[str, list[Event]] = {}

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        key = repr(replace(request, timeout_s=0.0))
        if key not in self._known or request.temperature:
            async with aclosing(self._tier.stream(request)) as stream:
                self._known[key] = [chunk async for chunk in stream]
        self.first.setdefault(request.request_id, [e for chunk in self._known[key] for e in chunk])
        for chunk in self._known[key]:
            yield chunk

    async def status(self) -> Any:
        return await self._tier.status()

    async def close(self) -> None:
        await self._tier.close()


async def drive_case(tiers: Mapping[str, Once], case: Case, kinds: Mapping[str, str], **fields: Any) -> Run:
    """Drive one case through the server's own loop, with these tiers in their order."""
    return await drive_request(build_request(case, seed=SEED, **fields), tiers, limits_of(RouterConfig(), kinds=kinds))


async def measure_layers(tier: MlxTier, then: MlxTier | None, cases: Sequence[Case]) -> None:
    """Measure the share of valid and of right answers, layer by layer."""
    first, second = {TIER: Once(tier)}, {} if then is None else {THEN: Once(then)}
    names = ["raw model", "+ repair", "+ retries", "+ constraint", "tool_choice required"]
    scores = [Score(name) for name in [*names, *(["+ the second model"] if second else [])]]
    slots = asyncio.Semaphore(RUNNING_MAX)

    async def one(case: Case) -> None:
        async with slots:
            run = await drive_case(first, case, {})
            _score_raw(scores[0], case, first[TIER].first[case["id"]])
            _score_first(scores[1], case, run)
            _score_run(scores[2], case, run)
            _score_run(scores[3], case, await drive_case(first, case, KINDS))
            _score_run(scores[4], case, await drive_case(first, case, KINDS, tool_choice="required"))
            for score in scores[5:]:
                _score_run(score, case, await drive_case(first | second, case, KINDS))
            if scores[-1].done % 20 == 0 or scores[-1].done == len(cases):
                _print_table(scores)

    await asyncio.gather(*map(one, cases))
    for score in scores[3:]:
        for miss in score.misses:
            print(f"  {score.name}, without a call: {miss}")


def _print_table(scores: Sequence[Score]) -> None:
    """Print the table so far: whoever waits an hour wants to see it grow."""
    done = scores[-1].done
    print(f"{done} cases, greedy first attempt, at most {TOKENS_MAX} tokens an attempt")
    print("| layer | valid | right | attempts a case |\n|---|---|---|---|")
    print("\n".join(score.row() for score in scores), flush=True)


def _score_raw(score: Score, case: Case, events: Sequence[Event]) -> None:
    score.add(case, find_valid_calls(case, events)[0], 1)


def _score_first(score: Score, case: Case, run: Run) -> None:
    judged = run.judgements[0]
    good = judged is not None and judged.flaw is None
    score.add(case, [(call.name, call.arguments) for call in judged.calls] if judged and good else [], 1)


def _score_run(score: Score, case: Case, run: Run) -> None:
    calls = run.judged.calls if run.finish is not None and run.judged is not None else ()
    why = "; ".join(f"{attempt.flaw or attempt.fault or 'prose'}: {attempt.detail[:150]}" for attempt in run.attempts)
    score.add(case, [(call.name, call.arguments) for call in calls], len(run.attempts), why)


async def main() -> None:
    """Measure as asked on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--data", type=Path, help="a folder with bfcl_cases.jsonl.gz; else the stand-in set")
    parser.add_argument("--model", nargs="+", default=[DEFAULT_SOURCE], help="one source, or two for a chain")
    parser.add_argument("--threads", type=int, help="threads of a step")
    asked = parser.parse_args()
    options = {"max_running": RUNNING_MAX, "max_waiting": 4 * RUNNING_MAX, "blas_threads": asked.threads}
    tiers = [await start_tier(model, name, **options) for name, model in zip((TIER, THEN), asked.model, strict=False)]
    try:
        await measure_layers(tiers[0], tiers[1] if tiers[1:] else None, sample_cases(asked.cases, asked.data))
    finally:
        for tier in tiers:
            await tier.close()


if __name__ == "__main__":
    asyncio.run(main())
