"""`GET /v1/models`, `GET /ready`, and the counts of a prompt's tokens: what the tiers say without answering.

A model has the fields of both OpenAI's and Anthropic's lists. The tier at which a request would start counts its
prompt; one that can't leaves an estimate. No tier is woken for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from deployments.api.access import Caller
from deployments.running.status_messages import can_answer
from deployments.state.records import Health
from deployments.telemetry import log_error
from reliability.admission.breaker import Phase
from reliability.answer.estimate import prompt_bytes, tokens_about
from reliability.types import ChatRequest, TierState, TierStatus

if TYPE_CHECKING:
    from deployments.graph.handle import HandleTier

_OF_STATUS = (
    *("model", "source", "revision", "sha256", "quantization", "adapter"),
    *("batched_as_alone", "warning", "mlx_peak_bytes"),
)
_ADMINS_ONLY = ("memory", "refused_user_config")


def readiness(
    statuses: Sequence[TierStatus],
    chain: Sequence[str],
    refused_patch: str | None,
    health: Mapping[str, Health],
    *,
    state_actor: str,
    memory: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Report ready where at least one tier of the chain is (`can_answer`); each tier with its state and reason. A tier
    whose breaker is open or that is isolated is `degraded`; one whose breaker is half open takes a probe, so it counts
    as ready. `refused_patch`: why the Router keeps its older configuration. `memory`: of the nodes, None: isn't
    watched."""
    states = {s.name: s.state for s in statuses if not is_held_off(health.get(s.name))}
    return {
        "ready": can_answer(states[name] for name in chain if name in states),
        "chain": list(chain),
        "refused_user_config": refused_patch,
        "state_actor": state_actor,
        "memory": memory,
        "tiers": {s.name: _describe_state(s, health.get(s.name)) for s in statuses},
    }


def filter_for(body: Mapping[str, Any], caller: Caller | None) -> dict[str, Any]:
    """Return as much of `readiness` as the caller may see: a stranger whether the server is ready, a key the tiers too,
    an admin all."""
    if caller is None:
        return {"ready": body["ready"]}
    return {name: value for name, value in body.items() if caller.admin or name not in _ADMINS_ONLY}


def is_held_off(health: Health | None) -> bool:
    """Tell whether a tier takes no requests now, since its breaker is open or somebody has isolated it."""
    return health is not None and (health.isolated or health.phase is Phase.OPEN)


def _describe_state(status: TierStatus, health: Health | None) -> dict[str, Any]:
    known: dict[str, Any] = {"state": status.state.value, "reason": status.reason or None, "breaker": "closed"}
    if status.warning:
        known["warning"] = status.warning
    if health is None or not health.degraded:
        return known
    word = "isolated by hand" if health.isolated else f"its breaker is {health.phase.value.replace('_', ' ')}"
    if health.until_s:
        word += f" for {health.until_s:.1f} s more"
    state = "degraded" if status.state is TierState.READY else status.state.value
    reason = "; ".join(filter(None, (status.reason, word)))
    breaker = "isolated" if health.isolated else health.phase.value
    return known | {"state": state, "reason": reason, "breaker": breaker}


def model_list(
    statuses: Sequence[TierStatus],
    aliases: Mapping[str, str],
    chain: Sequence[str],
    created_s: int,
    health: Mapping[str, Health],
) -> list[dict[str, Any]]:
    """List one entry a tier, then `auto` and the aliases without patterns, each with the tier that it starts at."""
    entries = [_make_entry(s.name, s, created_s, health.get(s.name)) for s in statuses]
    by_name = {s.name: s for s in statuses}
    named = {alias: target for alias, target in aliases.items() if "*" not in alias}
    for alias, target in {"auto": "auto", **named}.items():
        starts_at = chain[0] if target == "auto" else target
        entry = _make_entry(alias, by_name[starts_at], created_s, health.get(starts_at))
        entries.append(entry | {"starts_at": starts_at})
    return entries


def make_page(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make the answer that lists them all. It is OpenAI's page and Anthropic's at once: they share `data`."""
    ids = [entry["id"] for entry in entries]
    return {
        "object": "list",
        "data": entries,
        "has_more": False,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }


def _make_entry(model_id: str, status: TierStatus, created_s: int, health: Health | None) -> dict[str, Any]:
    known = _describe_state(status, health)
    return {
        "id": model_id,
        "object": "model",
        "created": created_s,
        # The same by Anthropic's names.
        "type": "model",
        "display_name": model_id,
        "created_at": datetime.fromtimestamp(created_s, UTC).isoformat(),
        "max_input_tokens": status.context_tokens,
        "lifecycle": "active",
        "owned_by": "mlx-stack-serve",
        "kind": status.kind,
        "state": known["state"],
        "reason": known["reason"],
        "context_length": status.context_tokens,
        "versions": dict(status.versions) or None,
        **{name: getattr(status, name) for name in _OF_STATUS},
    }


_COUNT_S = 10.0


async def count_prompt(tier: HandleTier, request: ChatRequest) -> dict[str, Any]:
    """Count the prompt, or estimate it. `exact` says which."""
    counted: int | None = None
    try:
        async with asyncio.timeout(_COUNT_S):
            counted = await tier.count_tokens(request)
    except Exception as error:
        log_error("count_failed", error, tier=tier.name, request_id=request.request_id)
    tokens = counted or tokens_about(prompt_bytes(request.messages, request.tools))
    return {"input_tokens": tokens, "mlx_stack": {"tier": tier.name, "exact": counted is not None}}
