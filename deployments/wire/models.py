"""`GET /v1/models` and `GET /ready`: what the tiers say of themselves, in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reliability.types import TierState, TierStatus

__all__ = ["model_list", "readiness"]


def readiness(statuses: Sequence[TierStatus], chain: Sequence[str], refused_patch: str | None) -> dict[str, Any]:
    """Ready where at least one tier of the chain is; each tier with its state and reason.

    `refused_patch` says why the Router goes on with its older configuration after a wrong `user_config`.
    """
    ready = {s.name for s in statuses if s.state is TierState.READY}
    return {
        "ready": any(name in ready for name in chain),
        "chain": list(chain),
        "refused_user_config": refused_patch,
        "tiers": {s.name: {"state": s.state.value, "reason": s.reason or None} for s in statuses},
    }


def model_list(
    statuses: Sequence[TierStatus], aliases: Mapping[str, str], chain: Sequence[str], created_s: int
) -> list[dict[str, Any]]:
    """One entry a tier, then `auto` and the aliases, each with the tier that it starts at."""
    entries = [_entry(s.name, s, created_s) for s in statuses]
    by_name = {s.name: s for s in statuses}
    for alias, target in {"auto": "auto", **aliases}.items():
        starts_at = chain[0] if target == "auto" else target
        entries.append(_entry(alias, by_name[starts_at], created_s) | {"starts_at": starts_at})
    return entries


def _entry(model_id: str, status: TierStatus, created_s: int) -> dict[str, Any]:
    return {
        "id": model_id,
        "object": "model",
        "created": created_s,
        "owned_by": "mlx-stack-serve",
        "kind": status.kind,
        "state": status.state.value,
        "reason": status.reason or None,
        "context_length": status.context_tokens,
        "model": status.model,
        "source": status.source,
        "revision": status.revision,
        "quantization": status.quantization,
    }
