"""A LoRA adapter beside a model: on a real model of a few kilobytes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from deployments.models.adapter import adapter_at
from deployments.models.sources import ModelUnavailable
from deployments.models.weights import weights_sha256
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import TierState, TierStatus
from tests.support import tiny_model as tiny
from tests.support.tier_asking import answer, ask, text_of, usage_of
from tests.support.tiny_adapter import LORA, write_adapter

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_folder(tmp_path_factory.mktemp("adapter") / "tiny")


def told(model: Path, adapter: Path | None) -> tuple[TierStatus, str]:

    async def run() -> tuple[TierStatus, str]:
        tier = MlxTier(name="t", model=f"path:{model}", adapter=str(adapter) if adapter else None)
        try:
            status = await tier.wait_for_load(PATIENCE_S)
            if status.state is not TierState.READY:
                return status, ""
            return status, text_of(await answer(tier, ask("Hello.", temperature=0.0, max_tokens=24)))
        finally:
            await tier.close()

    return asyncio.run(run())


def test_prompts_are_stored_for_one_scale_of_an_adapter(model: Path, tmp_path: Path) -> None:
    """Law: the settings of an adapter are a part of the model: what was computed under others isn't found."""
    folder = write_adapter(tmp_path / "scaled", strength=1.0)

    async def run() -> int | None:
        disk = {"prompt_cache_disk_bytes": 1 << 30, "cache_dir": tmp_path / "c"}
        tier = MlxTier(name="t", model=f"path:{model}", adapter=str(folder), **disk)
        try:
            await tier.wait_for_load(PATIENCE_S)
            return usage_of(await answer(tier, ask("Hello. " * 20, temperature=0.0, max_tokens=4))).cached_tokens
        finally:
            await tier.close()

    assert asyncio.run(run()) == 0
    assert asyncio.run(run()) != 0
    said = json.loads((folder / "adapter_config.json").read_text())
    said["lora_parameters"]["scale"] = 0.5
    (folder / "adapter_config.json").write_text(json.dumps(said))
    assert asyncio.run(run()) == 0


def test_an_adapter_changes_the_answer_and_an_empty_one_does_not(model: Path, tmp_path: Path) -> None:
    """Law: the adapter's weights are in the answer; those that add nothing change nothing; both stand in the status
    with their digest, and count as memory."""
    strong, idle = write_adapter(tmp_path / "strong", strength=1.0), write_adapter(tmp_path / "idle", strength=0.0)
    plain_status, plain = told(model, None)
    strong_status, changed = told(model, strong)
    _, same = told(model, idle)

    assert same == plain
    assert changed != plain
    digest = hashlib.sha256((strong / "adapters.safetensors").read_bytes()).hexdigest()
    assert strong_status.adapter == f"strong (sha256 {digest})"
    assert plain_status.adapter is None
    assert strong_status.sha256 == plain_status.sha256 == weights_sha256(model)
    assert adapter_at(str(strong)).extra_bytes == (strong / "adapters.safetensors").stat().st_size


def test_an_adapter_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    """Law: weights that don't fit make the tier unavailable, and it says so."""
    status, _ = told(model, write_adapter(tmp_path / "wide", strength=1.0, hidden=tiny.HIDDEN + 1))

    assert status.state is TierState.UNAVAILABLE
    assert status.reason.startswith("adapter wide doesn't fit this model")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "there is no such folder"),
        ("", "its adapter_config.json can't be read"),
        ("[]", "its adapter_config.json is no object"),
        ('{"fine_tune_type": "magic"}', "fine_tune_type is 'magic'"),
        ("{}", "lacks num_layers or one of"),
        (json.dumps(LORA | {"lora_parameters": {"rank": 4, "scale": 1.0}}), "lacks .* lora_parameters.dropout"),
        (json.dumps(LORA), "it has no adapters.safetensors"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, said: str | None, words: str) -> None:
    """Law: each thing that an adapter lacks has its own words, and none of this machine's folders in them."""
    folder = tmp_path / "lora"
    if said is not None:
        folder.mkdir()
        (folder / "adapter_config.json").write_text(said)
    with pytest.raises(ModelUnavailable, match=words) as caught:
        adapter_at(str(folder))
    assert str(tmp_path) not in str(caught.value)
