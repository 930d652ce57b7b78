"""An engine's start on a scripted Mac: a model of a few kilobytes that says it is as large as another."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from deployments.config.app_config import AppConfig
from deployments.graph.scale_to_zero import let_auto_sleep
from deployments.models.artifact import Artifact, resolve
from deployments.models.catalog import ROLES
from deployments.tiers.mlx import loading, warm_up
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.memory_budget import Layer, Layout
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.warm_up import prepare_batch
from tests.support.engine_rig import load_folder


@dataclasses.dataclass(frozen=True)
class Size:
    """Weights, what a token keeps, and the context of a model."""

    weight_bytes: int
    token_bytes: int
    context_tokens: int


def settle() -> AppConfig:
    """The server's own configuration, as it is run."""
    chain = {"reliability": {"escalation": {"chain": list(ROLES)}}}
    return let_auto_sleep(AppConfig.model_validate({"tiers": {role: {"kind": "mlx"} for role in ROLES}, **chain}))


QWEN3_8B = Size(4_620_000_000, 147_456, 40_960)


def start(folder: Path, size: Size, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Loaded:
    """Load the model, and make its batch ready, as the engine does; raises `ModelUnavailable` as it would."""
    return start_batch(folder, size, monkeypatch, **options)[0]


def start_batch(
    folder: Path, size: Size, monkeypatch: pytest.MonkeyPatch, *, memory_bytes: int | None = None, **options: Any
) -> tuple[Loaded, Scheduler]:
    """The same, with the batch."""

    def resolve_larger(*args: Any, **more: Any) -> Artifact:
        found = resolve(*args, **more)
        return dataclasses.replace(found, weight_bytes=size.weight_bytes, context_tokens=size.context_tokens)

    monkeypatch.setattr(loading, "resolve", resolve_larger)
    loaded = load_folder(folder, **options)
    batch = Scheduler(loaded.model, loaded.tokenizer, running_max=1, label="x")
    monkeypatch.setattr(warm_up, "measure_layout", lambda _: Layout((Layer(size.token_bytes),)))
    return prepare_batch(batch, loaded, memory_bytes=memory_bytes), batch
