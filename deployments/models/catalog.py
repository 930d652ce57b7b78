"""What `model: auto` means: the model for a tier's role on this machine, and when it is fetched.

The chain is three models of three sizes: the first is fetched before the server answers, the second in the background
once it answers, the third by `mlx-stack-serve pull` alone. The latter two sleep until they are asked. An NVIDIA GPU
gets the models of a Mac whose working set is as large. Everywhere else MLX computes on the CPU, in float32.
"""

from __future__ import annotations

import platform
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from deployments.memory.sensors.computing import Computing, estimate_working_set, find_computing, find_working_set
from deployments.models.sources import CODER_LARGE, CODER_SMALL, DEFAULT_SOURCE

CONTEXT_TOKENS, _LICENSE = 262_144, "Apache-2.0"  # of each of them on a GPU


class _Entry(NamedTuple):
    repository: str
    revision: str
    weight_mb: int
    tools: str
    thinks: bool
    heads: int
    head_dim: int
    token_bytes: int
    state_bytes: int

    @property
    def source(self) -> str:
        return f"hf:mlx-community/{self.repository}@{self.revision}"


_READ = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
_BY_NAME = {name: _Entry(*fields) for name, fields in _READ["gpu"].items()}
# From this many GiB of memory on: fast, standard, longctx; None where the others leave no room for one.
ROWS = tuple((int(gib), tuple(map(_BY_NAME.get, names))) for gib, names in _READ["rows"].items())
MODELS = tuple(_BY_NAME.values())


# When a model is fetched: when its tier loads it, in the background once the server answers, or by a person.
Fetch = Literal["load", "background", "pull"]
_FETCH: dict[str, Fetch] = {"fast": "load", "standard": "background", "longctx": "pull"}
ROLES = tuple(_FETCH)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model source, and why it was taken. `unfit`: why this machine can't hold it, empty where it can."""

    source: str
    why: str
    fetch: Fetch = "load"
    unfit: str = ""
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class _CpuModel:
    """A model of the chain on a CPU. `memory_gib`: the smallest machine that holds it next to the tiers before it."""

    source: str
    name: str
    weight_mb: int
    memory_gib: int
    context_tokens: int


_GIB = 1 << 30
_CPU: dict[str, _CpuModel] = {
    "fast": _CpuModel(DEFAULT_SOURCE, "SmolLM2-135M", 538, 0, 8_192),
    "standard": _CpuModel(CODER_SMALL, "Qwen2.5-Coder 0.5B", 2_521, 6, 32_768),
    "longctx": _CpuModel(CODER_LARGE, "Qwen2.5-Coder 1.5B", 7_110, 14, 32_768),
}


def choose_here(role: str, model: str) -> ModelChoice:
    """Choose the source that `model` means for the tier `role` on this machine, and say why."""
    if model != "auto":
        return ModelChoice(model, "as configured")
    gpu_bytes = find_working_set() if find_computing() is Computing.CUDA else None
    return choose(role, sys.platform, platform.machine(), psutil.virtual_memory().total, gpu_bytes)


def choose(role: str, system: str, machine: str, memory_bytes: int, gpu_bytes: int | None = None) -> ModelChoice:
    """Choose the model for `role`; any that isn't one of `ROLES` is treated as `fast`. `system`, `machine`: of `sys`
    and `platform`; `gpu_bytes`: what models may use of an NVIDIA GPU's memory, where that computes."""
    role = role if role in ROLES else "fast"
    if system == "darwin" and machine == "arm64":
        return _choose_for_gpu(role, memory_bytes, "Apple silicon")
    if gpu_bytes is not None:
        sizes = (gib * _GIB for gib in range(2 * gpu_bytes // _GIB + 1))
        equal_mac = max(size for size in sizes if estimate_working_set(size) <= gpu_bytes)
        return _choose_for_gpu(role, equal_mac, "an NVIDIA GPU, as on a Mac")
    return _choose_for_cpu(role, system, machine, memory_bytes)


def weight_bytes_of(source: str) -> int | None:
    """Estimate how many bytes of weights a source of this catalogue has; None for any other."""
    models: tuple[_Entry | _CpuModel, ...] = (*MODELS, *_CPU.values())
    return next((model.weight_mb * 1_000_000 for model in models if model.source == source), None)


def mac_model_of(source: str) -> _Entry | None:
    """Find what is known of a source of the catalogue for Apple silicon; None for any other."""
    return next((model for model in MODELS if model.source == source), None)


def _choose_for_gpu(role: str, memory_bytes: int, where: str) -> ModelChoice:
    """Choose from the largest row that the machine reaches; say why where that has no model for the role."""
    column, sizes = ROLES.index(role), [*reversed(ROWS)]
    reached = [models[column] for floor_gib, models in sizes if memory_bytes >= floor_gib * _GIB]
    floor_gib, model = next((floor, one) for floor, models in sizes if (one := models[column]))
    unfit = (
        f"{role} has a model of its own on machines of {floor_gib} GiB of memory and more, this one has "
        f"{memory_bytes / _GIB:.0f}: a GPU's part of it holds the other tiers, each with the context that an agent "
        "needs; name another `model`, or leave the tier out"
    )
    if reached[-1] is not None:
        model, unfit = reached[-1], ""
    why = (
        f"{role} on {where} with {memory_bytes // _GIB} GiB: "
        f"about {model.weight_mb / 1000:.1f} GB of weights, {CONTEXT_TOKENS} tokens of context, "
        f"{'reasons first' if model.thinks else 'no reasoning'}, {_LICENSE}; "
        f"{'@main is not pinned' if model.revision == 'main' else 'pinned'}"
    )
    return ModelChoice(model.source, why, _FETCH[role], unfit, CONTEXT_TOKENS)


def _choose_for_cpu(role: str, system: str, machine: str, memory_bytes: int) -> ModelChoice:
    model, unfit = _CPU[role], ""
    why = (
        f"{system} on {machine} has no GPU that MLX computes on: {model.name} in float32, "
        f"{model.weight_mb / 1000:.1f} GB of weights"
    )
    if memory_bytes < model.memory_gib * _GIB:
        unfit = (
            f"{model.name} is for machines of {model.memory_gib} GiB of memory and more, this one has "
            f"{memory_bytes / _GIB:.1f}; name another `model`, or leave the tier out"
        )
    return ModelChoice(model.source, why, _FETCH[role], unfit, model.context_tokens)
