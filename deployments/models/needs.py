"""How many bytes one replica of a tier takes, from what is known before it is loaded.

    weights        the model's files, where they are on disk; what the catalogue says of `auto` where they aren't
    KV             KV_TOKENS tokens of cache, by the model's own shape: what all requests of a replica hold together in
                   common use. A full context of a long-context model would be tens of GB and is hardly ever there.
    beside         intermediate values of the prefill, Python and its libraries

It is a plan and not a measurement; `tiers.NAME.replica_bytes` replaces it. None is "not known": a model that isn't on
disk and isn't in the catalogue. Nothing is reserved for it then, and the tier's own check before it loads remains.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deployments.config import AppConfig
from deployments.config_tiers import HostedTierConfig, MlxTierConfig, TierBase
from deployments.memory.plan import MemoryPlan, TierNeed, settings_of
from deployments.models.artifact import BESIDE_WEIGHTS_BYTES, Artifact, find_on_disk
from deployments.models.catalog import choose_here, weight_bytes_of
from deployments.models.precision import find_held_dtype
from deployments.models.sources import parse_source

__all__ = ["KV_TOKENS", "kv_bytes", "plan_of", "replica_bytes", "tier_needs"]

KV_TOKENS = 8192


def plan_of(config: AppConfig) -> MemoryPlan | None:
    """Make the plan of an application; None where memory pressure is switched off."""
    settings = settings_of(config.reliability.memory_pressure)
    return None if settings is None else MemoryPlan(settings=settings, needs=tier_needs(config))


def tier_needs(config: AppConfig) -> tuple[TierNeed, ...]:
    """List the needs of all tiers. Tiers that come earlier in the chain grow first: they answer
    most requests."""
    chain = config.reliability.escalation.chain
    return tuple(
        TierNeed(
            name=name,
            replica_bytes=replica_bytes(name, tier),
            replicas_min=tier.min_replicas,
            replicas_max=tier.max_replicas,
            priority=len(chain) - chain.index(name) if name in chain else 0,
            local=not isinstance(tier, HostedTierConfig),
        )
        for name, tier in config.tiers.items()
    )


def replica_bytes(name: str, tier: TierBase) -> int | None:
    """Estimate the bytes of one replica on this machine; None: not known. Reads small files only,
    fetches nothing."""
    if tier.replica_bytes is not None or not isinstance(tier, MlxTierConfig):
        return tier.replica_bytes or 0
    return _estimate_model_bytes(name, tier.model, tier.context_tokens)


def _estimate_model_bytes(role: str, model: str, context_tokens: int | None) -> int | None:
    source = choose_here(role, model).source
    try:
        artifact = find_on_disk(parse_source(source))
    except (ValueError, OSError):
        return None
    if artifact is not None:
        return artifact.needed_bytes + kv_bytes(artifact, context_tokens)
    weight_bytes = weight_bytes_of(source)
    return None if weight_bytes is None else weight_bytes + BESIDE_WEIGHTS_BYTES


def kv_bytes(artifact: Artifact, context_tokens: int | None) -> int:
    """Compute the bytes of KV_TOKENS tokens of cache, or of the whole context where that is
    smaller; 0 for an unknown shape."""
    try:
        config = json.loads((Path(artifact.path) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    shape = config.get("text_config") if isinstance(config.get("text_config"), Mapping) else config
    tokens = min(n for n in (KV_TOKENS, context_tokens, artifact.context_tokens) if n)
    return tokens * _count_token_bytes(shape, 4 if find_held_dtype(config) == "float32" else 2)


def _count_token_bytes(shape: Mapping[str, Any], width: int) -> int:
    layers, heads = _read_count(shape, "num_hidden_layers"), _read_count(shape, "num_attention_heads")
    if not heads:
        return 0
    kv_heads = _read_count(shape, "num_key_value_heads") or heads
    head_dim = _read_count(shape, "head_dim") or _read_count(shape, "hidden_size") // heads
    return 2 * layers * kv_heads * head_dim * width


def _read_count(shape: Mapping[str, Any], name: str) -> int:
    """Read a number of something; 0 for whatever is none."""
    value = shape.get(name)
    return value if type(value) is int and value > 0 else 0
