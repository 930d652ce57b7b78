"""What is known of a model once it is loaded, on a real one of a few kilobytes."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from deployments.models.gguf import convert
from deployments.tiers.mlx.loading import _upcast
from tests.support import tiny_model as tiny
from tests.support.engine_rig import load_folder
from tests.support.random_models import build_model
from tests.support.tiny_adapter import write_adapter


def test_all_that_is_loaded_counts_as_memory(folder: Path, tmp_path: Path) -> None:
    """Law: the bytes of the adapter are added to the model's own."""
    alone = load_folder(folder).artifact.weight_bytes
    adapter = write_adapter(tmp_path / "lora", strength=1.0)
    adapter_bytes = (adapter / "adapters.safetensors").stat().st_size
    adapted = load_folder(folder, adapter_dir=str(adapter))

    assert alone == (folder / "model.safetensors").stat().st_size
    assert adapted.artifact.weight_bytes == alone + adapter_bytes


@pytest.mark.parametrize("short", ["bfloat16", "float16"])
def test_weights_of_16_bits_are_held_in_32(tmp_path: Path, short: str) -> None:
    """Law: without Metal weights of a short type become float32, by the same numbers; memory is counted so."""
    from mlx.utils import tree_flatten

    folder = tiny.write_folder(tmp_path / "m")
    file = folder / "model.safetensors"
    held: Any = mx.load(str(file))
    mx.eval(held)
    mx.save_safetensors(str(file), {name: one.astype(getattr(mx, short)) for name, one in held.items()})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": short}))
    got = load_folder(folder)

    assert {one.dtype for _, one in tree_flatten(got.model.parameters())} == {mx.float32}
    weights = dict(tree_flatten(got.model.parameters()))
    for name, one in held.items():
        assert mx.array_equal(weights[name], one.astype(getattr(mx, short)).astype(mx.float32)).item()
    assert got.artifact.weight_bytes == 2 * file.stat().st_size
    assert got.artifact.quantization == f"{short}, held as float32"


@pytest.mark.parametrize(("asked", "given"), [(None, tiny.CONTEXT), (20, 20), (10**6, tiny.CONTEXT)])
def test_the_smaller_context_counts(folder: Path, asked: int | None, given: int) -> None:
    """Law: the configured length bounds the model's own, and never the other way round."""
    assert load_folder(folder, context_tokens=asked).context_tokens == given


def test_a_context_that_the_configuration_leaves_out_is_mlx_lms(tmp_path: Path) -> None:
    """Law: an architecture whose context length mlx-lm knows offers that, and one that it doesn't know 4,096 tokens."""
    for name, arch, extra, given in (("q", "qwen2", tiny.biases(), 32768), ("l", "llama", {}, 4096)):
        folder = tmp_path / name
        folder.mkdir()
        tiny.write_gguf(folder / "tiny.gguf", arch=arch, extra=extra)
        convert(folder / "tiny.gguf", folder)
        config = json.loads((folder / "config.json").read_text())
        del config["max_position_embeddings"]
        (folder / "config.json").write_text(json.dumps(config))

        assert load_folder(folder).context_tokens == given


def test_quantized_weights_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    """Law: nothing is unpacked that its maker has packed, and the log says that it is slow here."""
    import mlx.nn as nn

    model = build_model("biases")
    nn.quantize(model.model.layers[1].self_attn, group_size=32)
    model.set_dtype(mx.bfloat16)
    _upcast(model)

    assert model.model.norm.weight.dtype == mx.bfloat16
    assert "quantized weights are slow" in caplog.text
