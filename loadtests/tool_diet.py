"""What deferred tools save and cost on a small model: tokens read, seconds of prefill, right calls, loads.

    python -m loadtests.tool_diet [--model SOURCE] [--cases 12] [--tools 60] [--data FOLDER] [--ways all deferred]

One list of tools for all cases of BFCL (`simple_python`), as one agent declares it: the right ones and others of the
set. Each case is a session of two requests, through the server's own loop and one `mlx` tier: the question, and a word
of thanks behind the call and its result. The list is read once and then found in the prompt cache; the first line of
each way is that reading.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.config.app_config import RouterConfig
from deployments.models.sources import CODER_LARGE
from deployments.request.policy import limits_of
from deployments.request.run_record import Run
from deployments.tiers.mlx.mlx_tier import MlxTier
from loadtests.bfcl import CASE_S, SEED, Case, drive_request, is_right, sample_cases
from reliability.types import ChatRequest

TIER, NS_PER_S = "fast", 1e9
TOKENS_MAX, THANKS_TOKENS_MAX = 128, 8
Message = dict[str, Any]


def draw(cases: int, tools: int, data: Path | None) -> tuple[list[Case], tuple[Message, ...]]:
    """Draw the cases, and the list of tools that all of them declare."""
    known = [case for case in sample_cases(4 * tools, data) if len(case["tools"]) == 1]
    by_name = {case["tools"][0]["function"]["name"]: case for case in known}
    chosen = list(by_name.values())
    declared = [case["tools"][0] for case in chosen][:tools]
    random.Random(SEED).shuffle(declared)
    return chosen[:cases], tuple(declared)


async def ask(tier: MlxTier, way: str, session: str, messages: Sequence[Message], tools: Any, tokens: int) -> Run:
    """Drive one request, greedy, with all tools or deferred ones."""
    request = ChatRequest(
        request_id=f"{session}-{len(messages)}",
        session_id=f"{way}-{session}",
        messages=tuple(messages),
        tools=tools,
        max_tokens=tokens,
        timeout_s=CASE_S,
        temperature=0.0,
        seed=SEED,
    )
    limits = replace(limits_of(RouterConfig(), kinds={TIER: "mlx"}), confidence_min=0.0)
    return await drive_request(request, {TIER: tier}, limits, frozenset({TIER} if way == "deferred" else ()))


def describe(run: Run) -> str:
    """Describe the attempts: tokens of the first prompt, tokens read, prefill, the whole, and what came of each."""
    used = [attempt.usage for attempt in run.attempts if attempt.usage is not None]
    read = sum(one.prompt_tokens - one.cached_tokens for one in used)
    prefill_s = sum(attempt.ttft_ns or 0 for attempt in run.attempts) / NS_PER_S
    whole_s = sum(attempt.elapsed_ns for attempt in run.attempts) / NS_PER_S
    ways = ["load" if a.loads is not None else (a.flaw or a.fault or "good") for a in run.attempts]
    return f"{used[0].prompt_tokens if used else 0} | {read} | {prefill_s:.1f} | {whole_s:.1f} | {' '.join(ways)}"


def answer(case: Case, run: Run) -> list[Message]:
    """Continue a conversation behind the call: its result, and thanks."""
    calls = run.judged.calls if run.finish is not None and run.judged is not None else ()
    made = [
        {"id": one.id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}} for one in calls
    ]
    turn: Message = {"role": "assistant", "content": "" if made else "I can't."}
    results = [{"role": "tool", "tool_call_id": one.id, "content": json.dumps({"result": 42})} for one in calls]
    thanks = {"role": "user", "content": "Thanks. Say in one word whether that was all."}
    return [*case["messages"], turn | ({"tool_calls": made} if made else {}), *results, thanks]


async def measure(tier: MlxTier, way: str, cases: Sequence[Case], tools: Any) -> None:
    """Measure all cases one way, and print a line for each."""
    hello = [{"role": "user", "content": "Hello."}]
    print(f"| {way}: the list | | {describe(await ask(tier, way, 'hello', hello, tools, 1))} | |", flush=True)
    right = loads = attempts = 0
    for case in cases:
        run = await ask(tier, way, case["id"], case["messages"], tools, TOKENS_MAX)
        calls = run.judged.calls if run.finish is not None and run.judged is not None else ()
        hit = is_right([(one.name, one.arguments) for one in calls], case)
        right, attempts = right + hit, attempts + len(run.attempts)
        loads += sum(attempt.loads is not None for attempt in run.attempts)
        again = await ask(tier, way, case["id"], answer(case, run), tools, THANKS_TOKENS_MAX)
        made = [f"{one.name}{one.arguments}"[:90] for one in calls] or [
            (run.judged.raw_text if run.judged else "")[:90]
        ]
        print(f"| {way}: {case['id']} | {hit} | {describe(run)} | {describe(again)} | {made} {run.notes}", flush=True)
    print(f"| {way}: {right} of {len(cases)} right, {loads} loads, {attempts} attempts |", flush=True)


async def main() -> None:
    """Measure each way, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=CODER_LARGE)
    parser.add_argument("--cases", type=int, default=12)
    parser.add_argument("--tools", type=int, default=60)
    parser.add_argument("--data", type=Path, help="a folder with bfcl_cases.jsonl.gz; else the stand-in set")
    parser.add_argument("--ways", nargs="+", default=["deferred", "all"], choices=["deferred", "all"])
    options = parser.parse_args()
    cases, tools = draw(options.cases, options.tools, options.data)
    tier = MlxTier(name=TIER, model=options.model)
    print(await tier.wait_for_load(CASE_S), flush=True)
    print(
        "| case | right | prompt | read | prefill s | whole s | attempts | next prompt | read | prefill s | whole s |"
    )
    try:
        for way in options.ways:
            await measure(tier, way, cases, tools)
    finally:
        await tier.close()


if __name__ == "__main__":
    asyncio.run(main())
