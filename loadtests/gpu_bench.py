"""What the engine does on a GPU, beside `mlx_lm.server`: `python -m loadtests.gpu_bench --tokenizer FOLDER [--bits 4]`.

    first    seconds from the request to the end of an answer of one token, of a prompt that nobody has read
    tokens   tokens a second of all clients together, 256 each, from the first request to the last answer

The model has the shape of Qwen2.5-7B and random weights, and answers at random, so that nothing can be guessed from the
prompt. Its tokenizer and template are those of a folder of that family. Both sides run one after the other, each alone
on the GPU: the tier within this process, the other over HTTP on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from deployments.config.free_port import free_port
from loadtests.tier_loop import request, start_tier, write_prompt
from reliability.types import Finish
from tests.support.tier_asking import answer

PROMPTS, CLIENTS, TOKENS, ROUNDS = (1_000, 8_000, 32_000), (1, 8, 32), 256, 3
SHAPE: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "vocab_size": 152064,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 65_536,
    "tie_word_embeddings": False,
    "eos_token_id": 151645,
}
Ask = Callable[[str, int], Awaitable[int]]  # a text and at most so many tokens; the tokens that were written


def write_model(folder: Path, tokenizer: Path, bits: int) -> None:
    """Write a model with random weights into the folder; `bits`: 4 or 8, or 16 for halves."""
    import mlx.core as mx
    import mlx.nn as nn
    from mlx.utils import tree_flatten
    from mlx_lm.models import qwen2

    model = qwen2.Model(qwen2.ModelArgs.from_dict(SHAPE))
    model.set_dtype(mx.bfloat16)
    config = dict(SHAPE)
    if bits < 16:
        nn.quantize(model, group_size=64, bits=bits)
        config["quantization"] = {"group_size": 64, "bits": bits}
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer / file, folder / file)


async def measure(ask: Ask) -> list[str]:
    """Measure one side: a cell for each prompt and each number of clients."""
    await ask("Hello.", 8)
    cells = []
    for size in PROMPTS:
        times = []
        for number in range(ROUNDS):
            began_s = time.perf_counter()
            await ask(write_prompt(size, size + number), 1)
            times.append(time.perf_counter() - began_s)
        cells.append(f"{statistics.median(times):.2f} s")
        print(size, *(f"{one:.2f}" for one in times), file=sys.stderr, flush=True)
    for count in CLIENTS:
        rates = []
        for number in range(ROUNDS):
            began_s = time.perf_counter()
            texts = [write_prompt(12, 1_000 * number + 40 * count + client) for client in range(count)]
            rates.append(sum(await asyncio.gather(*(ask(text, TOKENS) for text in texts))))
            rates[-1] /= time.perf_counter() - began_s
        cells.append(f"{statistics.median(rates):,.0f}")
        print(count, *(f"{one:.0f}" for one in rates), file=sys.stderr, flush=True)
    return cells


async def measure_tier(folder: Path) -> list[str]:
    """Measure this server's engine."""
    tier = await start_tier(f"path:{folder}", max_running=max(CLIENTS), max_waiting=max(CLIENTS), context_tokens=40_960)

    async def ask(text: str, tokens: int) -> int:
        events = await answer(tier, replace(request(text, max_tokens=tokens), temperature=1.0))
        return sum(one.usage.completion_tokens for one in events if isinstance(one, Finish) and one.usage)

    try:
        return await measure(ask)
    finally:
        await tier.close()


async def measure_server(folder: Path) -> list[str]:
    """Measure `mlx_lm.server` with its defaults."""
    port = free_port()
    command = [sys.executable, "-m", "mlx_lm.server", "--model", str(folder), "--port", str(port)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    transport = httpx.AsyncHTTPTransport(retries=8)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=300.0, transport=transport) as client:

        async def ask(text: str, tokens: int) -> int:
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": tokens, "temperature": 1.0}
            done = (await client.post("/v1/chat/completions", json=body)).raise_for_status()
            return int(done.json()["usage"]["completion_tokens"])

        try:
            return await measure(ask)
        finally:
            process.terminate()
            await process.wait()


SIDES = {"engine": measure_tier, "mlx_lm.server": measure_server}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.gpu_bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--bits", type=int, default=4, choices=(4, 8, 16))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write_model(Path(name), args.tokenizer, args.bits)
        print("| | " + " | ".join([*(f"first, {n:,}" for n in PROMPTS), *(f"tokens/s, {n}" for n in CLIENTS)]) + " |")
        print("|---" * (1 + len(PROMPTS) + len(CLIENTS)) + "|")
        for side in args.sides:
            print(f"| {side} | " + " | ".join(asyncio.run(SIDES[side](Path(name)))) + " |", flush=True)


if __name__ == "__main__":
    main()
