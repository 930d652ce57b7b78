"""What `model: auto` means: the model for a tier's role on this machine.

`choose` is a pure function of role, platform, machine and memory, so that every row can be checked
on any machine. On Apple silicon the rows are 4-bit conversions of the Qwen3 family of the community
on the hub. The Qwen3 generation is taken on purpose: all its layers keep a plain attention cache,
which mlx-lm batches and trims exactly, and its 2507 instruct models call tools and write no
reasoning. Each row's three models fit together into about half of the smallest memory that it is
for; tiers that name the same model hold it twice, since each tier is a process of its own.

The rows follow the branch `main`, so a repository's owner can change what they mean: pin a commit in the
configuration where that matters. The sizes and context lengths are estimates from parameter counts and model
cards; nothing here was downloaded to measure them. Everywhere else the model is SmolLM2, which is pinned and
needs no hub.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from typing import Literal

import psutil

from deployments.models.sources import DEFAULT_SOURCE

__all__ = ["ROLES", "Choice", "Role", "choose", "choose_here", "weight_bytes_of"]

Role = Literal["fast", "standard", "longctx"]
ROLES: tuple[Role, ...] = ("fast", "standard", "longctx")


@dataclass(frozen=True, slots=True)
class Choice:
    """A model source, and why it was taken, in words for a person."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class _Model:
    repository: str
    weight_mb: int
    context_tokens: int

    @property
    def source(self) -> str:
        return f"hf:mlx-community/{self.repository}@main"


_TINY = _Model("Qwen3-0.6B-4bit", 350, 40_960)
_SMALL = _Model("Qwen3-1.7B-4bit", 980, 40_960)
_LIGHT = _Model("Qwen3-4B-Instruct-2507-4bit", 2_300, 262_144)
_MIDDLE = _Model("Qwen3-8B-4bit", 4_700, 40_960)
_LARGE = _Model("Qwen3-30B-A3B-Instruct-2507-4bit", 17_200, 262_144)

# From this much memory on: fast, standard, longctx.
_ROWS: tuple[tuple[int, tuple[_Model, _Model, _Model]], ...] = (
    (96, (_LIGHT, _LARGE, _LARGE)),
    (48, (_LIGHT, _LARGE, _LIGHT)),
    (24, (_SMALL, _MIDDLE, _LIGHT)),
    (12, (_SMALL, _LIGHT, _LIGHT)),
    (0, (_TINY, _SMALL, _TINY)),
)
_GIB = 1 << 30
# SmolLM2-135M, as it is converted: float32 on Linux, the wider of its two forms.
DEFAULT_WEIGHT_BYTES = 538_000_000


def choose_here(role: str, model: str) -> Choice:
    """Choose the source that `model` means for the tier `role` on this machine, and say why."""
    if model != "auto":
        return Choice(model, "as configured")
    return choose(role, sys.platform, platform.machine(), psutil.virtual_memory().total)


def choose(role: str, system: str, machine: str, memory_bytes: int) -> Choice:
    """Choose the model for `role`. `system` is `sys.platform`, `machine` is `platform.machine()`.

    A role that isn't one of `ROLES` is treated as standard: tiers may have names of their own.
    """
    if system != "darwin" or machine != "arm64":
        return Choice(DEFAULT_SOURCE, f"{system} on {machine} has no Metal: a small model that needs no hub")
    models = next(models for floor_gib, models in _ROWS if memory_bytes >= floor_gib * _GIB)
    known = role if role in ROLES else "standard"
    model = dict(zip(ROLES, models, strict=True))[known]
    why = (
        f"{known} on Apple silicon with {memory_bytes // _GIB} GiB: "
        f"about {model.weight_mb / 1000:.1f} GB of weights, {model.context_tokens} tokens of context; "
        "@main is not pinned"
    )
    return Choice(model.source, why)


def weight_bytes_of(source: str) -> int | None:
    """Estimate how many bytes of weights a source of this catalogue has; None for any other."""
    known = {model.source: model.weight_mb * 1_000_000 for _, models in _ROWS for model in models}
    return known.get(source, DEFAULT_WEIGHT_BYTES if source == DEFAULT_SOURCE else None)
