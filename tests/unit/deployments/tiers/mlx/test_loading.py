"""What is known of a model once it is loaded, on a real one of a few kilobytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deployments.models.sources import parse_source
from deployments.tiers.mlx.loading import Loaded, load
from tests.support import tiny_model as tiny
from tests.support.tiny_adapter import write_adapter


def loaded(folder: Path, **options: Any) -> Loaded:
    source = parse_source(f"path:{folder}")
    return load(source, **({"cache_dir": None, "context_tokens": None, "say": lambda _: None} | options))


def test_all_that_is_loaded_counts_as_memory(folder: Path, tmp_path: Path) -> None:
    """Law: the bytes of the adapter are added to the model's own."""
    alone = loaded(folder).artifact.weight_bytes
    adapter = write_adapter(tmp_path / "lora", strength=1.0)
    adapter_bytes = (adapter / "adapters.safetensors").stat().st_size
    adapted = loaded(folder, adapter_dir=str(adapter))

    assert alone == (folder / "model.safetensors").stat().st_size
    assert adapted.artifact.weight_bytes == alone + adapter_bytes


@pytest.mark.parametrize(("asked", "given"), [(None, tiny.CONTEXT), (20, 20), (10**6, tiny.CONTEXT)])
def test_the_smaller_context_counts(folder: Path, asked: int | None, given: int) -> None:
    """Law: the configured length bounds the model's own, and never the other way round."""
    assert loaded(folder, context_tokens=asked).context_tokens == given
