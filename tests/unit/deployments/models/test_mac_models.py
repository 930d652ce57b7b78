"""The table of models for Apple silicon: what holds for every row, and what each entry must say."""

from __future__ import annotations

import importlib.util
import re

import pytest

from deployments.models.mac_models import MODELS, ROWS, MacModel
from deployments.models.sources import parse_source

GIB = 1 << 30


def test_more_memory_never_means_a_smaller_model() -> None:
    """Law: for fast and standard the weights grow with the memory, over Macs of 8 to 512 GB."""
    for column in (0, 1):
        sizes = [models[column].weight_mb for _, models in sorted(ROWS, key=lambda row: row[0])]
        assert sizes == sorted(sizes)
    assert [floor_gib for floor_gib, _ in ROWS] == sorted((floor_gib for floor_gib, _ in ROWS), reverse=True)


@pytest.mark.parametrize(("floor_gib", "models"), ROWS)
def test_three_models_fit_together_into_half_the_memory(floor_gib: int, models: tuple[MacModel, ...]) -> None:
    """Law: no model is held twice because two tiers name it, and the three leave half of the memory alone."""
    assert len({model.source for model in models}) == 3
    assert sum(model.weight_mb for model in models) * 1e6 <= max(floor_gib, 8) * GIB / 2


@pytest.mark.parametrize(("floor_gib", "models"), ROWS)
def test_long_context_is_long(floor_gib: int, models: tuple[MacModel, ...]) -> None:
    """Law: longctx holds at least as much as every other tier of the row."""
    assert models[2].context_tokens == max(model.context_tokens for model in models)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.repository)
def test_an_entry_says_what_the_model_is(model: MacModel) -> None:
    """Law: the source is valid and pinned to a commit or the main branch, the calls are in a form that mlx-lm reads,
    and the licence is an open one."""
    source = parse_source(model.source)
    assert source.kind == "hf"
    assert source.revision == "main" or re.fullmatch(r"[0-9a-f]{40}", source.revision or "")
    pytest.importorskip("mlx_lm")
    assert importlib.util.find_spec(f"mlx_lm.tool_parsers.{model.tools}") is not None
    assert model.cache in ("plain", "hybrid")
    assert model.license in ("Apache-2.0", "MIT")
