"""A LoRA adapter beside a model, and the digests by which both are known: on a real model of a few kilobytes."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from deployments.models.adapter import adapter_at
from deployments.models.provenance import versions, weights_sha256
from deployments.models.sources import ModelUnavailable
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import TierState, TierStatus
from tests.tiers import tiny_model as tiny
from tests.tiers.asking import answer, ask, text_of

PATIENCE_S = 120.0
RANK = 4
PARAMETERS = {"rank": RANK, "scale": 20.0, "dropout": 0.0}
LORA = {"fine_tune_type": "lora", "num_layers": tiny.LAYERS, "lora_parameters": PARAMETERS}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_folder(tmp_path_factory.mktemp("adapter") / "tiny")


def write_adapter(folder: Path, *, strength: float, hidden: int = tiny.HIDDEN) -> Path:
    """Both projections that mlx-lm adapts in a layer, as its training names them."""
    folder.mkdir()
    dice, tensors = np.random.default_rng(1), {}
    keys = ["self_attn.q_proj", "self_attn.v_proj"]
    for layer in range(tiny.LAYERS):
        for key, out in zip(keys, (tiny.HIDDEN, tiny.KV_HEADS * tiny.HEAD_DIM), strict=True):
            at = f"model.layers.{layer}.{key}"
            tensors[f"{at}.lora_a"] = dice.normal(0, 1, (hidden, RANK)).astype(np.float32)
            tensors[f"{at}.lora_b"] = (strength * dice.normal(0, 1, (RANK, out))).astype(np.float32)
    save_file(tensors, str(folder / "adapters.safetensors"))
    said = LORA | {"lora_parameters": PARAMETERS | {"keys": keys}}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    return folder


def told(model: Path, adapter: Path | None) -> tuple[TierStatus, str]:
    """What a tier says of itself, and its greedy answer."""

    async def run() -> tuple[TierStatus, str]:
        tier = MlxTier(name="t", model=f"path:{model}", adapter=str(adapter) if adapter else None)
        try:
            status = await tier.settled(PATIENCE_S)
            if status.state is not TierState.READY:
                return status, ""
            return status, text_of(await answer(tier, ask("Hello.", temperature=0.0, max_tokens=24)))
        finally:
            await tier.close()

    return asyncio.run(run())


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


def test_the_digest_of_several_files_is_that_of_their_listing(tmp_path: Path) -> None:
    """Law: one file is its own sha256; several are `sha256sum *.safetensors | sha256sum`; a hub's link is its blob."""
    (tmp_path / "a.safetensors").write_bytes(b"a")
    assert weights_sha256(tmp_path) == hashlib.sha256(b"a").hexdigest()
    blob = tmp_path / ("b" * 64)
    blob.write_bytes(b"never read")
    (tmp_path / "b.safetensors").symlink_to(blob)
    listing = f"{hashlib.sha256(b'a').hexdigest()}  a.safetensors\n{'b' * 64}  b.safetensors\n"
    assert weights_sha256(tmp_path) == hashlib.sha256(listing.encode()).hexdigest()


def test_the_versions_are_those_of_the_packages() -> None:
    """Law: what the status says is what is imported."""
    import mlx.core as mx
    import mlx_lm

    said: dict[str, Any] = versions()
    assert said == {"mlx": mx.__version__, "mlx-lm": mlx_lm.__version__}
