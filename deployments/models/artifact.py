"""The folders on disk that mlx-lm loads: a model, how a source comes to be one, and a LoRA adapter beside it.

`resolve` returns a complete folder, by the hub's own cache (`hub.py`) or by converting a GGUF file once
(`conversion.py`), or raises `ModelUnavailable` with the reason and the way out. It blocks as long as a download takes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.models import cache_folder as store
from deployments.models import conversion, hub
from deployments.models.cache_folder import Say, quiet
from deployments.models.sources import ModelSource, ModelUnavailable
from deployments.models.weights import (
    file_sha256,
    find_held_dtype,
    find_stored_dtype,
    grow_to_held,
    read_number,
    read_object,
)

_KINDS = ("lora", "dora", "full")
_PARAMETERS = {"rank", "scale", "dropout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A usable adapter. `label` is fit for clients; `extra_bytes` is what it adds to the model."""

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
    if not path.is_dir():
        raise ModelUnavailable(f"adapter {path.name}: there is no such folder")
    config = read_object(path / "adapter_config.json")
    if config is None:
        raise ModelUnavailable(f"adapter {path.name}: its adapter_config.json can't be read, or is no object")
    weights, kind = path / "adapters.safetensors", _check_kind(config, path.name)
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


# Next to the weights: a short conversation's cache, the prefill's intermediate values, Python and its libraries.
BESIDE_WEIGHTS_BYTES = 400 << 20
# The context length has other names at GPT-2 and GPT-J, Kimi Linear, DBRX and OpenELM.
_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "model_max_length", "max_seq_len", "max_context_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A complete mlx-lm model folder and where it came from. `sha256`: of the GGUF file that it was converted from.
    `weight_bytes`: in memory (`weights.py`)."""

    path: Path
    source: str
    revision: str | None
    sha256: str | None
    weight_bytes: int
    quantization: str | None
    context_tokens: int | None

    @property
    def needed_bytes(self) -> int:
        """The memory that must be available before the model is loaded."""
        return self.weight_bytes + BESIDE_WEIGHTS_BYTES


def resolve(source: ModelSource, *, cache_dir: Path | None = None, say: Say = quiet) -> Artifact:
    """Return the model folder of `source`, prepared if need be. Blocks; raises only `ModelUnavailable`."""
    try:
        cache_dir = cache_dir or store.default_cache_dir()
        if source.is_gguf:
            folder = conversion.prepare_model(source, cache_dir, say=say)
            return _describe_converted(folder, source)
        if source.kind == "path":
            return _describe(_find_folder(source), source)
        folder = hub.fetch_snapshot(source, cache_dir, say=say)
        return _describe(folder, source, revision=folder.name)  # the commit, which is what `main` means today
    except OSError as error:  # a full disk, a folder that can't be written
        raise ModelUnavailable(f"{source.label}: {error.strerror or error}", again=True) from error


def find_on_disk(source: ModelSource, *, cache_dir: Path | None = None) -> Artifact | None:
    """Find the model folder of `source` where it is here already, else None. Fetches nothing."""
    if source.is_gguf:
        folder = conversion.locate_model(source, cache_dir or store.default_cache_dir())
        return _describe_converted(folder, source) if folder.is_dir() else None
    try:
        if source.kind == "path":
            return _describe(_find_folder(source), source)
        snapshot = hub.find_complete(source)
        return None if snapshot is None else _describe(snapshot, source, revision=snapshot.name)
    except ModelUnavailable:
        return None


def _find_folder(source: ModelSource) -> Path:
    folder = Path(os.path.expanduser(source.name))  # `~` of nobody stays as it is
    if not folder.is_dir():
        raise ModelUnavailable(f"{source.label}: there is no such folder")
    return folder


def _describe_converted(folder: Path, source: ModelSource) -> Artifact:
    sha256 = json.loads((folder / "artifact.json").read_text(encoding="utf-8"))["sha256"]
    return _describe(folder, source, revision=source.revision, sha256=sha256)


def _describe(folder: Path, source: ModelSource, *, revision: str | None = None, sha256: str | None = None) -> Artifact:
    weights = list(folder.glob("*.safetensors"))
    config = read_object(folder / "config.json")
    if config is None:
        raise ModelUnavailable(f"{source.label}: its config.json can't be read, so it is no mlx-lm model folder")
    if not weights:
        raise ModelUnavailable(f"{source.label}: no *.safetensors in it, so it is no mlx-lm model folder")
    return Artifact(
        path=folder,
        source=source.text,
        revision=revision,
        sha256=sha256,
        weight_bytes=grow_to_held(sum(file.stat().st_size for file in weights), config),
        quantization=_describe_quantization(config, folder),
        context_tokens=read_number(config, *_CONTEXT_NAMES) or None,
    )


def _describe_quantization(config: Mapping[str, Any], folder: Path) -> str | None:
    quantization = config.get("quantization")
    if isinstance(quantization, Mapping):
        return f"{quantization.get('bits')}-bit, group {quantization.get('group_size')}"
    stored, held = find_stored_dtype(config), find_held_dtype(config)
    facts = folder / "artifact.json"
    if facts.exists():
        return f"{stored} (from {json.loads(facts.read_text(encoding='utf-8'))['converted_from']})"
    return stored if held == stored else f"{stored}, held as {held}"
