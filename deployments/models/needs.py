"""How many bytes one replica of a tier takes, from what is known before it is loaded: weights (on disk, else by the
catalogue), KV_TOKENS tokens of cache (on a GPU, the context that an agent needs, with attention's scores), and what the
prefill, Python and its libraries take.

mlx-lm's model of the config.json, without weights, is measured by a process (`tiers/mlx/cache_size.py`), 2 to 3 s, and
the figure kept. It is a plan; `tiers.NAME.replica_bytes` replaces it. None: not known, so nothing is reserved, and the
tier's own check before it loads remains.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from deployments import __version__
from deployments.config.app_config import AppConfig
from deployments.config.tier_config import HostedTierConfig, MlxTierConfig, TierBase
from deployments.memory.plan import MemoryPlan, TierNeed, settings_of
from deployments.memory.room import AGENT_TOKENS
from deployments.memory.sensors.computing import Computing, find_computing
from deployments.models.artifact import BESIDE_WEIGHTS_BYTES, Artifact, find_on_disk
from deployments.models.cache_folder import default_cache_dir, measure_once
from deployments.models.catalog import CONTEXT_TOKENS, choose_here, mac_model_of, weight_bytes_of
from deployments.models.sources import parse_source
from deployments.models.weights import estimate_scores, read_object, versions

_LOG = logging.getLogger(__name__)

_KV_TOKENS = 8192
_STEP_TOKENS = 512  # of a prompt, read at once
_MEASURING_MAX_S = 60.0


def plan_of(config: AppConfig) -> MemoryPlan | None:
    """Make the plan of an application; None where memory pressure is switched off."""
    if (settings := settings_of(config.reliability.memory_pressure)) is None:
        return None
    return MemoryPlan(settings=settings, needs=tier_needs(config))


def tier_needs(config: AppConfig) -> tuple[TierNeed, ...]:
    """List the needs of all tiers. Earlier tiers of the chain grow first: they answer most requests."""
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
    """Plan the bytes of one replica on this machine; None: not known. Fetches nothing; a model whose cache was never
    measured costs a process of 2 to 3 s."""
    if tier.replica_bytes is not None or not isinstance(tier, MlxTierConfig):
        return tier.replica_bytes or 0
    if tier.memory_bytes is not None and _computes_on_gpu():  # it is wired, so nothing else may have it
        return tier.memory_bytes
    return _estimate_model_bytes(name, tier.model, tier.context_tokens)


def _estimate_model_bytes(role: str, model: str, context_tokens: int | None) -> int | None:
    choice = choose_here(role, model)
    if choice.unfit:  # nothing is ever loaded
        return 0
    source = choice.source
    try:
        artifact = find_on_disk(parse_source(source))
    except (ValueError, OSError):
        return None
    if artifact is not None:
        return artifact.needed_bytes + _kv_bytes(artifact, context_tokens)
    weight_bytes = weight_bytes_of(source)
    if weight_bytes is None:
        return None
    return weight_bytes + BESIDE_WEIGHTS_BYTES + _estimate_gpu_bytes(source, context_tokens)


def _computes_on_gpu() -> bool:
    return find_computing() is not Computing.CPU


def _kv_bytes(artifact: Artifact, context_tokens: int | None) -> int:
    """Compute the bytes of the usual tokens of cache, or of the whole context where that is smaller; 0: unknown."""
    config = read_object(artifact.path / "config.json")
    if config is None:
        return 0
    usual_tokens = AGENT_TOKENS if _computes_on_gpu() else _KV_TOKENS
    tokens = min(n for n in (usual_tokens, context_tokens, artifact.context_tokens) if n)
    scores_bytes = _count_scores_bytes(config, tokens) if _computes_on_gpu() else 0
    measured = None
    if isinstance(config.get("model_type"), str) and "mlx-lm" in versions():
        facts = [config, tokens, versions(), __version__, find_computing()]
        measured = measure_once(default_cache_dir() / "cache-sizes", facts, partial(_measure_bytes, config, tokens))
    if measured is None:
        _LOG.warning("%s: mlx-lm can't build it to measure its cache, which isn't counted", artifact.source)
    return (measured or 0) + scores_bytes


def _estimate_gpu_bytes(source: str, context_tokens: int | None) -> int:
    """Estimate the cache and the scores of a model that isn't here yet, where the catalogue knows its shape."""
    model = mac_model_of(source)
    if model is None or not _computes_on_gpu():
        return 0
    tokens = min(n for n in (AGENT_TOKENS, context_tokens, CONTEXT_TOKENS) if n)
    shape = {"num_attention_heads": model.heads, "head_dim": model.head_dim}
    return tokens * model.token_bytes + model.state_bytes + _count_scores_bytes(shape, tokens)


def _count_scores_bytes(config: Mapping[str, Any], tokens: int) -> int:
    fixed_bytes, token_bytes = estimate_scores(config, _STEP_TOKENS, forced=True)
    return fixed_bytes + tokens * token_bytes


def _measure_bytes(config: Mapping[str, Any], tokens: int) -> int | None:
    """Measure what so many tokens take, in some seconds; None where that can't be measured."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "deployments.tiers.mlx.cache_size", str(tokens)],
            input=json.dumps(config),
            capture_output=True,
            text=True,
            timeout=_MEASURING_MAX_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=True,
        )
        return int(done.stdout.split()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        _LOG.info("measuring a cache failed: %s", getattr(error, "stderr", None) or error)
        return None
