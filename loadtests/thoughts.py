"""Whether a local model's thought ends within its budget: a real model under a template that opens one.

    python -m loadtests.thoughts [--model large] [--cases 50] [--budget 128]

The template says to think, and opens a `<think>` that Qwen2.5-Coder has never learned to close: its thought goes on for
as long as it is let. Each question is asked twice, greedily: with the budget, and with four times as much. What counts:
does each answer have words behind a thought of at most the budget and 64 tokens, and is a thought that ended by itself
within the budget the same where it had more.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from deployments.models.artifact import resolve
from deployments.models.sources import CODER_LARGE, CODER_SMALL, parse_source
from loadtests.running import handle_end_signals, run_server, short_folder
from tests.evals.tool_cases import records

MODELS = {"small": CODER_SMALL, "large": CODER_LARGE}
OVER_TOKENS, ANSWER_TOKENS, AT_ONCE, MORE = 64, 48, 4, 4
OPENS = "<|im_start|>assistant\n"
ORDER = (
    "Think first, within <think> and </think>, step by step and about every possibility. Then answer in one sentence."
)


class Answer(NamedTuple):
    """What came of a question. `ended`: why the thought did; None where it isn't known."""

    thought: str
    text: str
    tokens: int
    ended: str | None


def build_model(source: str, folder: Path) -> Path:
    """Build a model's folder with a template that opens a thought; its weights are linked."""
    artifact = resolve(parse_source(source))
    for file in artifact.path.iterdir():
        (folder / file.name).symlink_to(file)
    template = folder / "chat_template.jinja"
    text = template.read_text(encoding="utf-8")
    template.unlink()
    before, opener, behind = text.rpartition(repr(OPENS))
    assert opener, "the template opens no answer"
    opened = repr(OPENS + "<think>\n")
    template.write_text(f"{before}{opened}{behind}{{# </think> #}}", encoding="utf-8")
    return folder


async def ask_all(url: str, questions: list[str], budget: int) -> list[Answer]:
    """Ask the questions, a few at once."""
    gate = asyncio.Semaphore(AT_ONCE)
    async with httpx.AsyncClient(base_url=url, timeout=600.0) as client:

        async def ask(question: str) -> Answer:
            async with gate:
                return await _ask(client, question, budget)

        return await asyncio.gather(*map(ask, questions))


async def _ask(client: httpx.AsyncClient, question: str, budget: int) -> Answer:
    messages = [{"role": "system", "content": ORDER}, {"role": "user", "content": question}]
    body = {"model": "auto", "messages": messages, "thinking_budget": budget, "temperature": 0}
    answer = await client.post("/v1/chat/completions", json={**body, "max_tokens": MORE * budget + ANSWER_TOKENS})
    assert answer.is_success, answer.text
    message = answer.json()["choices"][0]["message"]
    report = await client.get(f"/v1/reliability/requests/{answer.headers['x-request-id']}")
    thinking: dict[str, Any] = report.raise_for_status().json()["attempts"][-1]["thinking"] or {}
    told = message.get("reasoning_content") or message.get("reasoning") or ""
    return Answer(told, message["content"] or "", thinking.get("tokens", 0), thinking.get("ended"))


def main() -> None:
    """Print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="large")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--budget", type=int, default=128)
    args = parser.parse_args()
    handle_end_signals()
    questions = [case["messages"][-1]["content"] for case in records("bfcl_cases", None)[: args.cases]]
    with short_folder() as folder:
        (folder / "model").mkdir()
        tier = {"kind": "mlx", "model": f"path:{build_model(MODELS[args.model], folder / 'model')}"}
        chain = {"escalation": {"chain": ["fast"]}}
        with run_server({"tiers": {"fast": tier}, "reliability": chain}, folder) as server:
            bound = asyncio.run(ask_all(server.url, questions, args.budget))
            within = sum(1 for one in bound if one.text.strip() and one.tokens <= args.budget + OVER_TOKENS)
            print(f"answered within {args.budget} + {OVER_TOKENS} tokens of thought: {within} of {len(bound)}")
            print(f"the longest thought: {max(one.tokens for one in bound)} tokens; {Counter(a.ended for a in bound)}")
            ended = {question: one for question, one in zip(questions, bound, strict=True) if one.ended == "model"}
            free = asyncio.run(ask_all(server.url, list(ended), MORE * args.budget))
    same = sum(one.thought == other.thought for one, other in zip(ended.values(), free, strict=True))
    print(f"ended by themselves: {len(ended)}; the same thought with {MORE * args.budget} tokens: {same}")


if __name__ == "__main__":
    main()
