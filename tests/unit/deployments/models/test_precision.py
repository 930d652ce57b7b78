"""In which precision weights are held."""

from __future__ import annotations

import platform
import sys
from typing import Any

import pytest

from deployments.models.precision import find_held_dtype, find_stored_dtype, grow_to_held

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
def test_short_floats_are_long_ones_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, system: str, config: dict[str, Any], held: str | None
) -> None:
    """Law: only where nothing computes the short ones fast, and nothing that is packed is unpacked."""
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")

    assert find_held_dtype(config) == held
    assert grow_to_held(100, config) == (100 if held == find_stored_dtype(config) else 200)
