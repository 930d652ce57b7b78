"""A source that is a folder: what it is described by, and what is said of one that is no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.models.artifact import resolve
from deployments.models.sources import ModelUnavailable, parse_source
from tests.support import tiny_model as tiny


class TestPath:
    def test_a_folder_is_described(self, tmp_path: Path) -> None:
        """Law: size, precision and context length are those of the folder."""
        folder = tiny.write_folder(tmp_path / "m")
        artifact = resolve(parse_source(f"path:{folder}"))
        assert artifact.weight_bytes == (folder / "model.safetensors").stat().st_size
        assert (artifact.context_tokens, artifact.quantization) == (tiny.CONTEXT, "float32")

    def test_what_is_no_model_is_said(self, tmp_path: Path) -> None:
        """Law: a missing folder and a folder without a model are unavailable, and no client reads the full
        path."""
        for folder in (tmp_path / "missing", tmp_path):
            with pytest.raises(ModelUnavailable) as caught:
                resolve(parse_source(f"path:{folder}"))
            assert str(tmp_path.parent) not in str(caught.value)
            assert not caught.value.again
