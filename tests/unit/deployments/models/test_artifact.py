"""A source that is a folder: what it is described by, and what is said of one that is no model."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from deployments.models.artifact import adapter_at, find_on_disk, resolve
from deployments.models.sources import ModelUnavailable, parse_source
from deployments.models.weights import weights_sha256
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import Event, TierState, TierStatus
from tests.support import tiny_model as tiny
from tests.support.tier_asking import answer, ask, text_of, usage_of
from tests.support.tiny_adapter import LORA, write_adapter


class TestPath:
    def test_a_folder_is_described(self, tmp_path: Path) -> None:
        """Law: size, precision and context length are those of the folder."""
        folder = tiny.write_folder(tmp_path / "m")
        artifact = resolve(parse_source(f"path:{folder}"))
        assert artifact.weight_bytes == (folder / "model.safetensors").stat().st_size
        assert (artifact.context_tokens, artifact.quantization) == (tiny.CONTEXT, "float32")

    @pytest.mark.parametrize(
        "config",
        [
            {"max_position_embeddings": 77, "n_positions": 5},
            {"n_positions": 77},
            {"model_max_length": 77},
            {"max_seq_len": 77, "max_position_embeddings": None},
            {"max_context_length": 77},
            {"text_config": {"max_position_embeddings": 77}},
        ],
    )
    def test_a_context_length_has_several_names(self, tmp_path: Path, config: dict[str, object]) -> None:
        """Law: the context length is found by each name that mlx-lm's architectures have for it."""
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "model.safetensors").touch()
        assert resolve(parse_source(f"path:{tmp_path}")).context_tokens == 77

    def test_what_is_no_model_is_said(self, tmp_path: Path) -> None:
        """Law: a missing folder and a folder without a model are unavailable, and no client reads the full path."""
        for folder in (tmp_path / "missing", tmp_path):
            with pytest.raises(ModelUnavailable) as caught:
                resolve(parse_source(f"path:{folder}"))
            assert str(tmp_path.parent) not in str(caught.value)
            assert not caught.value.again

    @pytest.mark.parametrize("config", ["[]", "null", "3", '"x"', "{", "[" * 5000])
    def test_a_config_of_nonsense_is_no_model(self, tmp_path: Path, config: str) -> None:
        """Law: a config.json that is no object makes the folder unavailable, and is no error to who only looks."""
        (tmp_path / "config.json").write_text(config)
        (tmp_path / "model.safetensors").touch()
        source = parse_source(f"path:{tmp_path}")
        with pytest.raises(ModelUnavailable, match=r"its config\.json can't be read"):
            resolve(source)
        assert find_on_disk(source) is None


def test_a_home_that_is_not_known_is_no_such_folder() -> None:
    """Law: a path may begin with the home of an unknown user: the tier is unavailable with that reason."""
    with pytest.raises(ModelUnavailable, match="there is no such folder"):
        resolve(parse_source("path:~nobody-of-that-name/model"))
    with pytest.raises(ModelUnavailable, match="there is no such folder"):
        adapter_at("~nobody-of-that-name/adapter")


PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_folder(tmp_path_factory.mktemp("adapter") / "tiny")


async def told(
    model: Path, adapter: Path | None, text: str = "Hello.", **options: Any
) -> tuple[TierStatus, list[Event]]:
    tier = MlxTier(name="t", model=f"path:{model}", adapter=str(adapter) if adapter else None, **options)
    try:
        status = await tier.wait_for_load(PATIENCE_S)
        return status, await answer(tier, ask(text, temperature=0.0, max_tokens=24))
    finally:
        await tier.close()


async def test_prompts_are_stored_for_one_scale_of_an_adapter(model: Path, tmp_path: Path) -> None:
    """Law: the settings of an adapter are a part of the model: what was computed under others isn't found."""
    folder = write_adapter(tmp_path / "scaled", strength=1.0)

    async def count_cached() -> int:
        disk = {"prompt_cache_disk_bytes": 1 << 30, "cache_dir": tmp_path / "c"}
        return usage_of((await told(model, folder, "Hello. " * 20, **disk))[1]).cached_tokens

    assert await count_cached() == 0
    assert await count_cached() != 0
    said = json.loads((folder / "adapter_config.json").read_text())
    said["lora_parameters"]["scale"] = 0.5
    (folder / "adapter_config.json").write_text(json.dumps(said))
    assert await count_cached() == 0


async def test_an_adapter_changes_the_answer_and_an_empty_one_does_not(model: Path, tmp_path: Path) -> None:
    """Law: the adapter's weights are in the answer; those that add nothing change nothing; both stand in the status
    with their digest, and count as memory."""
    strong, idle = write_adapter(tmp_path / "strong", strength=1.0), write_adapter(tmp_path / "idle", strength=0.0)
    plain_status, plain = await told(model, None)
    strong_status, changed = await told(model, strong)
    _, same = await told(model, idle)

    assert text_of(same) == text_of(plain) != text_of(changed)
    digest = hashlib.sha256((strong / "adapters.safetensors").read_bytes()).hexdigest()
    assert strong_status.adapter == f"strong (sha256 {digest})"
    assert plain_status.adapter is None
    assert strong_status.sha256 == plain_status.sha256 == weights_sha256(model)
    assert adapter_at(str(strong)).extra_bytes == (strong / "adapters.safetensors").stat().st_size


async def test_an_adapter_of_another_model_is_refused(model: Path, tmp_path: Path) -> None:
    """Law: weights that don't fit make the tier unavailable, and it says so."""
    status, _ = await told(model, write_adapter(tmp_path / "wide", strength=1.0, hidden=tiny.HIDDEN + 1))

    assert status.state is TierState.UNAVAILABLE
    assert status.reason.startswith("adapter wide doesn't fit this model")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "there is no such folder"),
        ("", "its adapter_config.json can't be read"),
        ("[]", "or is no object"),
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
