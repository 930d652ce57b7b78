"""The larger models of `auto`, really: `make nightly`, after `mlx-stack-serve pull`. Each takes gigabytes and minutes.

What is held to here can't be held to on a tiny model: that a converted file speaks, that its tokens are those of
Qwen2's own tokenizer, and that it calls tools.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from deployments.models.artifact import find_on_disk, resolve
from deployments.models.sources import CODER_LARGE, CODER_SMALL, parse_source
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.tools import build_toolbox, extract_calls
from reliability.types import FinishReason, TierState
from tests.support.tier_asking import WEATHER_TOOL, answer, ask, calls_of, text_of

pytestmark = pytest.mark.nightly

PATIENCE_S = 1800.0
# As Qwen2's own tokenizer has them.
KNOWN_TOKENS = {"Hello world!": [9707, 1879, 0], "<|im_start|>user\n": [151644, 872, 198], "2024": [17, 15, 17, 19]}


@pytest.fixture(scope="module", params=[CODER_SMALL, CODER_LARGE], ids=["0.5B", "1.5B"])
def tier(request: pytest.FixtureRequest) -> Iterator[MlxTier]:
    source = parse_source(request.param)
    assert find_on_disk(source) is not None, f"run `mlx-stack-serve pull {request.param!r}` first"
    made = MlxTier(name="nightly", model=request.param)
    status = asyncio.run(made.wait_for_load(PATIENCE_S))
    assert status.state is TierState.READY, status
    assert status.sha256 == source.sha256
    yield made
    asyncio.run(made.close())


def said(tier: MlxTier, text: str, **fields: Any) -> list[Any]:
    return asyncio.run(answer(tier, ask(text, **{"temperature": 0.0, "timeout_s": PATIENCE_S, **fields})))


def test_it_is_what_its_maker_made(tier: MlxTier) -> None:
    """Law: the folder holds the maker's file, with its context, its ends and its tokens."""
    loaded = tier._engine.phase.loaded
    assert loaded is not None
    assert loaded.artifact.path == resolve(parse_source(loaded.artifact.source)).path
    assert loaded.context_tokens == 32_768
    assert set(loaded.tokenizer.eos_token_ids) == {151_643, 151_645}
    for text, tokens in KNOWN_TOKENS.items():
        assert loaded.tokenizer.encode(text, add_special_tokens=False) == tokens


def test_it_writes_code_and_stops(tier: MlxTier) -> None:
    """Law: a simple function comes out whole, and the answer ends by itself."""
    events = said(tier, "Write a Python function add(a, b). Only the code, no explanation.", max_tokens=120)
    assert events[-1].reason is FinishReason.STOP
    code = text_of(events).replace("```python", "").replace("```", "")
    names: dict[str, Any] = {}
    exec(compile(code, "answer", "exec"), names)
    assert names["add"](2, 3) == 5


def test_it_calls_a_tool_of_its_own_will(tier: MlxTier) -> None:
    """Law: with `tool_choice: auto` it writes a call, native or as text, that the reader of calls understands."""
    events = said(tier, "What is the weather in Paris?", tools=(WEATHER_TOOL,), max_tokens=96)
    box = build_toolbox([WEATHER_TOOL])
    native = [(name, json.loads(arguments)) for _, name, arguments in calls_of(events)]
    written = [(call.name, call.arguments) for call in extract_calls(text_of(events), box).calls]
    assert (native or written) == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("several", [None, True])
def test_a_demanded_call_ends(tier: MlxTier, several: bool | None) -> None:
    """Law: under `tool_choice: required` it comes to an end: after one call, or, where several are asked for, after
    different ones."""
    asked = {"tools": (WEATHER_TOOL,), "tool_choice": "required", "parallel_tool_calls": several, "max_tokens": 300}
    events = said(tier, "What is the weather in Paris and in Rome?", **asked)
    cities = [json.loads(arguments)["city"] for _, _, arguments in calls_of(events)]
    assert events[-1].reason is FinishReason.TOOL_CALLS
    assert len(cities) == len(set(cities)) >= 1
    assert several or len(cities) == 1
