"""forge's own evaluation, its scenarios without state, by its own runner and client: `bare`, where forge does nothing,
and `reforged`, where it repairs, retries and enforces as its own library does. A run is right where it completed and
forge's validator says so."""

from __future__ import annotations

import time
from typing import Any

import httpx
from forge.clients.openai_compat import OpenAICompatClient
from forge.context.strategies import TieredCompact
from kept_rows import REQUEST_S, Asked, Given, Row, run_cases
from tests.eval.ablation import ABLATION_PRESETS
from tests.eval.eval_runner import EvalConfig, run_scenario
from tests.eval.scenarios import ALL_SCENARIOS

ABLATIONS = ("bare", "reforged")
BUDGET_TOKENS = 16_384
TEMPERATURE = 0.7


class SeededClient(OpenAICompatClient):
    """forge's client, with a seed in each request, so that a run can be repeated."""

    def __init__(self, seed: int, **fields: Any) -> None:
        super().__init__(**fields)
        self.seed = seed

    def _build_body(self, *args: Any, **fields: Any) -> dict[str, Any]:
        return super()._build_body(*args, **fields) | {"seed": self.seed}


async def run_one(asked: Asked, _: Any, case: tuple[Any, str]) -> Row:
    """Run a scenario once.

    Raises:
        httpx.TransportError: the server doesn't answer: forge notes that as the scenario's result.
    """
    scenario, ablation = case
    client = SeededClient(
        asked.seed, model=asked.given.model, base_url=asked.given.url, temperature=TEMPERATURE, timeout=REQUEST_S
    )
    config = EvalConfig(
        budget_override=BUDGET_TOKENS, strategy_overrides={"compaction": TieredCompact(keep_recent=2)}, stream_retries=0
    )
    began_s = time.monotonic()
    result = await run_scenario(client, scenario, config, ablation=ABLATION_PRESETS[ablation])
    await client.aclose()
    error = getattr(httpx, result.error_type or "", None)
    if isinstance(error, type) and issubclass(error, httpx.TransportError):
        raise error(result.error_message)
    asked.tokens_in, asked.tokens_out = result.input_tokens, result.output_tokens
    asked.answers += [str(message.content)[:4000] for message in result.messages or ()]
    ideal = scenario.ideal_iterations or len(scenario.workflow.required_steps) + 1
    return {
        "kind": ablation,
        "right": bool(result.completed and result.correct),
        "completed": result.completed,
        "calls": result.iterations_used,
        "wasted": max(0, result.iterations_used - ideal) if result.completed else None,
        "wrong": f"{result.error_type}: {result.error_message}"[:500] if result.error_type else "",
        "seconds": time.monotonic() - began_s,
    }


def main() -> None:
    """Run the scenarios without state, each in both ablations."""
    given = Given.parse()
    stateless = [one for one in ALL_SCENARIOS if one.build_workflow is None][: given.cases]
    run_cases(given, [(f"{one.name}/{kind}", (one, kind)) for one in stateless for kind in ABLATIONS], run_one)


if __name__ == "__main__":
    main()
