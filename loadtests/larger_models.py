"""What the larger models of `auto` cost on a CPU: `python -m loadtests.larger_models [small large]`.

For each: the seconds from the file to a converted folder and the memory that takes (in a process of its own), the
seconds until the model is loaded, the memory of the process then, prefill in tokens a second, the milliseconds of a
step of one sequence and of four, and one tool call from the question to the checked call and on to the answer with its
result. The model must be on this machine: `mlx-stack-serve pull standard`, `pull longctx`. Times are given twice, by
the clock and in seconds of CPU: on a machine that others use, the second with `--threads 1` says more.

The figures stand in README.md, with their date and machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from deployments.models import gguf
from deployments.models.sources import CODER_LARGE, CODER_SMALL
from deployments.tiers.mlx.mlx_tier import MlxTier
from loadtests.tier_loop import start_tier, write_prompt
from reliability.tools import ToolBox, build_toolbox, check_calls, extract_calls, id_source
from reliability.types import ChatRequest, Finish
from tests.support.tier_asking import WEATHER_TOOL, answer, calls_of, text_of

MODELS = {"small": CODER_SMALL, "large": CODER_LARGE}
PATIENCE_S = 1800.0
STEPS, PROMPT_TOKENS = 16, 256


def request(text: str, **fields: Any) -> ChatRequest:
    """Build a greedy request."""
    usual: dict[str, Any] = {"max_tokens": 64, "timeout_s": PATIENCE_S, "request_id": "r", "session_id": "s"}
    return ChatRequest(messages=({"role": "user", "content": text},), **(usual | {"temperature": 0.0} | fields))


async def measure_prefill(tier: MlxTier, tokens: int, seed: int) -> tuple[float, float]:
    """Measure prefill, in tokens a second, by the clock and by the CPU."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    events = await answer(tier, request(write_prompt(tokens, seed), max_tokens=1))
    finish = events[-1]
    assert isinstance(finish, Finish), finish
    assert finish.usage is not None
    read = finish.usage.prompt_tokens - finish.usage.cached_tokens
    return round(read / (time.monotonic() - began_s), 1), round(read / (time.process_time() - began_cpu_s), 1)


async def measure_step(tier: MlxTier, sequences: int) -> tuple[float, float]:
    """Measure a step of so many sequences, in milliseconds, by the clock and by the CPU: what an answer of `STEPS`
    tokens takes more than one of one token."""
    asked = [
        request(f"Write a long story about fox number {number} who lives at the edge of a forest.", max_tokens=1)
        for number in range(sequences)
    ]
    await _time_answers(tier, asked)  # the prompts are known from here on
    first_s, first_cpu_s = await _time_answers(tier, asked)
    all_s, all_cpu_s = await _time_answers(tier, [replace(one, max_tokens=1 + STEPS) for one in asked])
    return round(1000 * (all_s - first_s) / STEPS), round(1000 * (all_cpu_s - first_cpu_s) / STEPS)


async def _time_answers(tier: MlxTier, asked: Sequence[ChatRequest]) -> tuple[float, float]:
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    answers = await asyncio.gather(*(answer(tier, one) for one in asked))
    ends = [events[-1] for events in answers]
    assert all(
        isinstance(end, Finish) and end.usage and end.usage.completion_tokens == asked[0].max_tokens for end in ends
    ), ends
    return time.monotonic() - began_s, time.process_time() - began_cpu_s


async def call_tool(tier: MlxTier) -> dict[str, Any]:
    """Ask for a call, check it, send its result, and return what came."""
    asked = request("What is the weather in Paris?", tools=(WEATHER_TOOL,), max_tokens=96)
    events = await answer(tier, asked)
    box = build_toolbox([WEATHER_TOOL])
    assert isinstance(box, ToolBox)
    native = calls_of(events)
    written = extract_calls(text_of(events), box)
    calls = check_calls(written.calls, box, new_id=id_source("b")).calls if not native else ()
    name, arguments = (native[0][1], native[0][2]) if native else (calls[0].name, calls[0].arguments)
    shown = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    told = {"role": "tool", "tool_call_id": "call_1", "content": '{"sky": "clear", "celsius": 21}'}
    messages = (*asked.messages, {"role": "assistant", "content": None, "tool_calls": [shown]}, told)
    reply = await answer(tier, replace(asked, messages=messages, tools=()))
    return {"call": f"{name}({arguments})", "form": "native" if native else "text", "reply": text_of(reply)[:120]}


async def measure(source: str, threads: int) -> dict[str, Any]:
    """Measure one model."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    tier = await start_tier(source, blas_threads=threads)
    load_s = (round(time.monotonic() - began_s, 1), round(time.process_time() - began_cpu_s, 1))
    found: dict[str, Any] = {"load_s": load_s}
    found["rss_mb"] = round(psutil.Process().memory_info().rss / 1e6)
    found["prefill_tokens_s"] = [await measure_prefill(tier, PROMPT_TOKENS, seed) for seed in (1, 2)]
    found["step_1_ms"] = await measure_step(tier, 1)
    found["step_4_ms"] = await measure_step(tier, 4)
    found |= await call_tool(tier)
    found["rss_peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
    await tier.close()
    return found


def measure_conversion(file: Path) -> dict[str, Any]:
    """Convert in this process: the seconds, and the most memory that it had."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        gguf.convert(file, Path(folder))
    seconds = (round(time.monotonic() - began_s, 1), round(time.process_time() - began_cpu_s, 1))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"convert_s": seconds, "convert_peak_mb": round(peak_mb)}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure the models that are named, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), help="small, large")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--convert", type=Path, help="a GGUF file: measure its conversion instead")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.convert:
        print(json.dumps(measure_conversion(arguments.convert)))
    elif arguments.one:
        print(json.dumps(asyncio.run(measure(MODELS[arguments.models[0]], arguments.threads))))
    else:
        for name in arguments.models:
            command = [sys.executable, "-m", "loadtests.larger_models", name, "--one"]
            command += ["--threads", str(arguments.threads)]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            print(name, out.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
