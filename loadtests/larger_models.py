"""What the larger models of `auto` cost on a CPU: `python -m loadtests.larger_models [small large]`.

For each: the seconds from the file to a converted folder and the memory that takes (in a process of its own), the
seconds until the model is loaded, the memory of the process then, prefill in tokens a second, the milliseconds of a
step of one sequence and of four, and one tool call from the question to the checked call and on to the answer with its
result. The model must be on this machine: `mlx-stack-serve pull standard`, `pull longctx`.

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
from pathlib import Path
from typing import Any

import psutil

from deployments.models import gguf
from deployments.models.sources import CODER_LARGE, CODER_SMALL
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.tools import ToolBox, build_toolbox, check_calls, extract_calls, id_source
from reliability.types import ChatRequest, Counted, Finish, TierState
from tests.support.tier_asking import WEATHER_TOOL, answer, calls_of, text_of

__all__ = ["main"]

MODELS = {"small": CODER_SMALL, "large": CODER_LARGE}
PATIENCE_S = 1800.0
STEPS = 24
# Words that are mostly one token each, so that a prompt of some length can be written.
WORDS = ("the", "fox", "walks", "along", "the", "river", "and", "looks", "for", "a", "place", "to", "sleep", "before")


def request(text: str, **fields: Any) -> ChatRequest:
    """Build a greedy request."""
    usual: dict[str, Any] = {"max_tokens": 64, "timeout_s": PATIENCE_S, "request_id": "r", "session_id": "s"}
    return ChatRequest(messages=({"role": "user", "content": text},), **(usual | {"temperature": 0.0} | fields))


def write_prompt(tokens: int, seed: int) -> str:
    """Write a text of about so many tokens; another seed begins otherwise, so that no cache helps."""
    return f"{seed} " + " ".join(WORDS[(seed + i) % len(WORDS)] for i in range(tokens))


async def measure_prefill(tier: MlxTier, tokens: int, seed: int) -> float:
    """Measure prefill, in tokens a second."""
    began_s = time.monotonic()
    events = await answer(tier, request(write_prompt(tokens, seed), max_tokens=1))
    finish = events[-1]
    assert isinstance(finish, Finish), finish
    assert finish.usage is not None
    return (finish.usage.prompt_tokens - finish.usage.cached_tokens) / (time.monotonic() - began_s)


async def measure_step(tier: MlxTier, sequences: int) -> float:
    """Measure a step of so many sequences, in milliseconds, from the first token to the last."""
    times = await asyncio.gather(*(_time_steps(tier, number) for number in range(sequences)))
    return 1000 * sum(times) / len(times)


async def _time_steps(tier: MlxTier, number: int) -> float:
    asked = request(f"Count from {number} on, in words, one a line.", max_tokens=STEPS + 8)
    moments: list[tuple[int, float]] = []
    async for events in tier.stream(asked):
        counts = [event.usage.completion_tokens for event in events if isinstance(event, Counted)]
        if counts:
            moments.append((counts[-1], time.monotonic()))
    (first, first_s), (last, last_s) = moments[0], moments[-1]
    return (last_s - first_s) / max(1, last - first)


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
    reply = await answer(tier, ChatRequest(**_fields(asked) | {"messages": messages}))
    return {"call": f"{name}({arguments})", "form": "native" if native else "text", "reply": text_of(reply)[:120]}


def _fields(asked: ChatRequest) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in asked.__dataclass_fields__}


async def measure(source: str, threads: int) -> dict[str, Any]:
    """Measure one model."""
    began_s = time.monotonic()
    tier = MlxTier(name="bench", model=source, blas_threads=threads)
    status = await tier.wait_for_load(PATIENCE_S)
    assert status.state is TierState.READY, status
    found: dict[str, Any] = {"load_s": round(time.monotonic() - began_s, 1)}
    found["rss_mb"] = round(psutil.Process().memory_info().rss / 1e6)
    found["prefill_tokens_s"] = [round(await measure_prefill(tier, 512, seed), 1) for seed in (1, 2)]
    found["step_1_ms"] = round(await measure_step(tier, 1))
    found["step_4_ms"] = round(await measure_step(tier, 4))
    found |= await call_tool(tier)
    found["rss_peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)
    await tier.close()
    return found


def measure_conversion(file: Path) -> dict[str, Any]:
    """Convert in this process: the seconds, and the most memory that it had."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        gguf.convert(file, Path(folder), progress=False)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {"convert_s": round(time.monotonic() - began_s, 1), "convert_peak_mb": round(peak_mb)}


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
            command = [
                sys.executable,
                "-m",
                "loadtests.larger_models",
                name,
                "--one",
                "--threads",
                str(arguments.threads),
            ]
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            print(name, out.splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
