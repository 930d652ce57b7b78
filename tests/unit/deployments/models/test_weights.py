"""In which precision weights are held."""

import hashlib
import platform
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from deployments.models.weights import find_held_dtype, find_stored_dtype, grow_to_held, versions, weights_sha256

SHORT: dict[str, Any] = {"torch_dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("system", "config", "held"),
    [
        ("linux", SHORT, "float32"),
        ("linux", {"dtype": "float16"}, "float32"),
        ("linux", {"text_config": {"torch_dtype": "bfloat16"}}, "float32"),
        ("linux", {"torch_dtype": "float32"}, "float32"),
        ("linux", SHORT | {"quantization": {"bits": 4}}, "bfloat16"),
        ("linux", SHORT | {"quantization_config": {"bits": 4}}, "bfloat16"),
        ("darwin", SHORT, "bfloat16"),
        ("linux", {}, None),
        ("linux", {"torch_dtype": 3, "text_config": []}, None),
    ],
)
def test_short_floats_are_long_ones_on_a_cpu(monkeypatch, system, config, held):
    """Law: only where nothing computes the short ones fast, and nothing that is packed is unpacked."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")

    assert find_held_dtype(config) == held
    assert grow_to_held(100, config) == (100 if held == find_stored_dtype(config) else 200)


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
    import mlx_lm

    said: dict[str, Any] = versions()
    assert said == {"mlx": mx.__version__, "mlx-lm": mlx_lm.__version__}
