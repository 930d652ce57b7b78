"""What the configuration says about one request: its chain and its limits. Pure; the Router and the doctor share it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from deployments.config import RouterConfig
from deployments.wire.errors import ApiError
from reliability.answer import Expected, expect
from reliability.escalation import Limits
from reliability.tools import Rung, ToolBox
from reliability.types import ChatRequest, Reason

__all__ = ["chain_for", "expected_of", "limits_of", "unknown_model"]


def chain_for(config: RouterConfig, tiers: Collection[str], model: str) -> tuple[str, ...]:
    """The tiers that may answer `model`, in order: from the one it names to the end of the chain.

    A tier outside of the chain answers alone, and so does every tier where `escalation.enabled` is false.

    Raises:
        ApiError: `model_not_found`.
    """
    escalation = config.reliability.escalation
    name = config.server.aliases.get(model, model)
    if name == "auto":
        name = escalation.chain[0]
    if name not in tiers:
        raise unknown_model(config, tiers, model)
    if not escalation.enabled or name not in escalation.chain:
        return (name,)
    return escalation.chain[escalation.chain.index(name) :]


def unknown_model(config: RouterConfig, tiers: Collection[str], model: str) -> ApiError:
    """The error that lists what there is instead."""
    names = ", ".join(("auto", *tiers, *config.server.aliases))
    return ApiError("model_not_found", f"there is no model {model!r}; models: {names}", param="model")


def limits_of(config: RouterConfig, strategies: Mapping[str, tuple[Rung, ...]] = MappingProxyType({})) -> Limits:
    """What bounds the walk along the chain. `strategies` are the retry strategies of the tiers."""
    escalation, validation = config.reliability.escalation, config.reliability.tool_validation
    if not validation.retry_with_correction:
        strategies = {tier: _without_correction(rungs) for tier, rungs in strategies.items()}
    return Limits(
        retries_max=escalation.max_retries_before_escalate,
        reasks_max=min(validation.max_retries, escalation.max_retries_before_escalate),
        attempts_max=config.server.attempts_max,
        escalate_on=frozenset(Reason(reason.value) for reason in escalation.escalate_on),
        strategies=strategies,
    )


def _without_correction(rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    return tuple(rung for rung in rungs if rung is not Rung.CORRECT) or (Rung.RESAMPLE,)


def expected_of(config: RouterConfig, request: ChatRequest, toolbox: ToolBox) -> Expected:
    """What the request asks of every answer, under the configured checks."""
    loops = config.reliability.loop_detection
    return expect(
        request.messages,
        toolbox,
        id_seed=request.request_id,
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        checks=config.reliability.tool_validation.checks,
        loops=loops if loops.enabled else None,
    )
