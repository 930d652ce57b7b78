"""A source that is a folder: what it is described by, and what is said of one that is no model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.models.adapter import adapter_at
from deployments.models.artifact import find_on_disk, resolve
from deployments.models.sources import ModelUnavailable, parse_source
from tests.support import tiny_model as tiny


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
