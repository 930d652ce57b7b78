"""A LoRA adapter beside a model: what must be there, asked before anything large is loaded. mlx-lm loads it, and
refuses one whose weights don't fit the model. `full` fine-tunes replace the weights, so they cost no more memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.models.sources import ModelUnavailable
from deployments.models.weights import file_sha256

_KINDS = ("lora", "dora", "full")
_PARAMETERS = {"rank", "scale", "dropout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A usable adapter. `label` is fit for clients; `extra_bytes` is what it adds to the model. The digests are those
    of its weights and of its configuration."""

    path: Path
    label: str
    sha256: str
    config_sha256: str
    extra_bytes: int

    @property
    def name(self) -> str:
        """The adapter as a client may read it."""
        return f"{self.label} (sha256 {self.sha256})"


def adapter_at(folder: str) -> Adapter:
    """Check the adapter in `folder`. Raises `ModelUnavailable` with what is wrong."""
    path = Path(os.path.expanduser(folder))  # `~` of nobody stays as it is
    weights = path / "adapters.safetensors"
    kind = _check_kind(_read_config(path), path.name)
    if not weights.is_file():
        raise ModelUnavailable(f"adapter {path.name}: it has no adapters.safetensors")
    try:
        sha256, size_bytes = file_sha256(weights), weights.stat().st_size
        config_sha256 = file_sha256(path / "adapter_config.json")
    except OSError as error:
        raise ModelUnavailable(f"adapter {path.name}: {error.strerror or error}") from error
    return Adapter(
        path=path,
        label=path.name,
        sha256=sha256,
        config_sha256=config_sha256,
        extra_bytes=0 if kind == "full" else size_bytes,
    )


def _read_config(path: Path) -> Mapping[str, Any]:
    if not path.is_dir():
        raise ModelUnavailable(f"adapter {path.name}: there is no such folder")
    try:
        config = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"adapter {path.name}: its adapter_config.json can't be read") from error
    if not isinstance(config, Mapping):
        raise ModelUnavailable(f"adapter {path.name}: its adapter_config.json is no object")
    return config


def _check_kind(config: Mapping[str, Any], name: str) -> str:
    kind = config.get("fine_tune_type", "lora")
    if kind not in _KINDS:
        raise ModelUnavailable(f"adapter {name}: fine_tune_type is {str(kind)[:40]!r}, not one of {', '.join(_KINDS)}")
    parameters = config.get("lora_parameters")
    complete = isinstance(parameters, Mapping) and {*parameters} >= _PARAMETERS  # mlx-lm reads them without asking
    if kind != "full" and not (complete and isinstance(config.get("num_layers"), int)):
        needed = ", ".join(f"lora_parameters.{key}" for key in sorted(_PARAMETERS))
        raise ModelUnavailable(f"adapter {name}: its adapter_config.json lacks num_layers or one of {needed}")
    return str(kind)
