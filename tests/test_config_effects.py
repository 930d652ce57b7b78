"""Every accepted configuration key has an effect: a table of proofs, and a test that it is complete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from deployments.config import (
    AppConfig,
    HostedTierConfig,
    MlxTierConfig,
    ScriptedTierConfig,
)
from reliability.config import NOT_BUILT
from reliability.types import Flaw
from tests.effects.answers import (
    ALIKE,
    PLACEHOLDER,
    UNKNOWN,
    WRONG,
    ignored_arguments,
    loop_key,
    max_period,
    near_threshold,
    pollers,
    reasks,
    retry_strategy,
    retry_with_correction,
    switch,
    text_loop,
)
from tests.effects.graph import (
    aliases,
    attempts_max,
    body_bytes_max,
    chain,
    cloud_key_env,
    cloud_model,
    cloud_provider,
    context_tokens,
    deadline_s,
    enabled,
    escalate_on,
    hosted_request,
    keepalive_s,
    kind,
    max_output_tokens,
    max_retries,
    mlx_model,
    mlx_slots,
    mlx_temperature,
    replicas,
    router_options,
    scripted_script,
    scripted_seed,
    state_bounds,
    timeouts,
)

EFFECTS: dict[str, Callable[[], None]] = {
    "reliability.loop_detection.enabled": loop_key("enabled", False, 2, Flaw.LOOP, None),
    "reliability.loop_detection.duplicate_threshold": loop_key("duplicate_threshold", 4, 2, Flaw.LOOP, None),
    "reliability.loop_detection.break_threshold": loop_key("break_threshold", 3, 2, Flaw.LOOP, Flaw.CIRCUIT_BREAK),
    "reliability.loop_detection.similarity_threshold": text_loop("similarity_threshold", 1.0, ALIKE, Flaw.LOOP, None),
    "reliability.loop_detection.near_threshold": near_threshold,
    "reliability.loop_detection.max_period": max_period,
    "reliability.loop_detection.pollers": loop_key("pollers", ["f"], 2, Flaw.LOOP, None),
    "reliability.loop_detection.poller_duplicate_threshold": pollers("poller_duplicate_threshold", 3, 2, Flaw.LOOP),
    "reliability.loop_detection.poller_break_threshold": pollers("poller_break_threshold", 3, 2, Flaw.CIRCUIT_BREAK),
    "reliability.loop_detection.ignored_arguments": ignored_arguments,
    "reliability.tool_validation.enabled": switch("reliability.tool_validation.enabled", False, WRONG),
    "reliability.tool_validation.validate_schema": switch("reliability.tool_validation.validate_schema", False, WRONG),
    "reliability.tool_validation.validate_tool_names": switch(
        "reliability.tool_validation.validate_tool_names", False, UNKNOWN
    ),
    "reliability.tool_validation.validate_json": switch(
        "reliability.tool_validation.validate_json", False, {"name": "f", "arguments": "{"}
    ),
    "reliability.tool_validation.placeholders": switch("reliability.tool_validation.placeholders", [], PLACEHOLDER),
    "reliability.tool_validation.max_retries": reasks("reliability.tool_validation.max_retries", 1, 2),
    "reliability.tool_validation.retry_with_correction": retry_with_correction,
    **{f"tiers.{k}.retry_strategy": retry_strategy for k in ("mlx", "hosted", "scripted")},
    "reliability.escalation.enabled": enabled,
    "reliability.escalation.chain": chain,
    "reliability.escalation.max_retries_before_escalate": max_retries,
    "reliability.escalation.escalate_on": escalate_on,
    "reliability.escalation.cloud_fallback.provider": cloud_provider,
    "reliability.escalation.cloud_fallback.model": cloud_model,
    "reliability.escalation.cloud_fallback.api_key_env": cloud_key_env,
    "reliability.token_budget.max_output_tokens": max_output_tokens,
    "state.reports_max": state_bounds,
    "state.sessions_max": state_bounds,
    "server.aliases": aliases,
    "server.body_bytes_max": body_bytes_max,
    "server.keepalive_s": keepalive_s,
    "server.attempts_max": attempts_max,
    "server.deadline_s": deadline_s,
    "server.router_replicas": router_options,
    "server.max_ongoing_requests": router_options,
    "tiers.mlx.model": mlx_model,
    "tiers.mlx.temperature": mlx_temperature,
    "tiers.mlx.max_running": mlx_slots,
    "tiers.mlx.max_waiting": mlx_slots,
    "tiers.hosted.preset": hosted_request,
    "tiers.hosted.base_url": hosted_request,
    "tiers.hosted.model": hosted_request,
    "tiers.hosted.api_key_env": hosted_request,
    "tiers.hosted.headers": hosted_request,
    "tiers.scripted.script": scripted_script,
    "tiers.scripted.seed": scripted_seed,
    **{f"tiers.{k}.kind": kind for k in ("mlx", "hosted", "scripted")},
    **{f"tiers.{k}.context_tokens": context_tokens(k) for k in ("mlx", "hosted", "scripted")},
    **{f"tiers.{k}.{key}": replicas for k in ("mlx", "hosted", "scripted") for key in ("min_replicas", "max_replicas")},
    **{
        f"tiers.{k}.timeouts.{key}": timeouts("tier", key)
        for k in ("mlx", "hosted", "scripted")
        for key in ("connect_s", "first_token_s", "idle_s", "total_s")
    },
    **{
        f"server.timeouts.{key}": timeouts("server", key) for key in ("connect_s", "first_token_s", "idle_s", "total_s")
    },
}


def leaves(model: type[BaseModel], at: str = "") -> list[str]:
    """The paths of all keys of a section, those of its own sections included."""
    out: list[str] = []
    for key, field in model.model_fields.items():
        section = next((c for c in choices(field.annotation) if isinstance(c, type) and issubclass(c, BaseModel)), None)
        out += leaves(section, f"{at}{key}.") if section and key != "tiers" else [f"{at}{key}"]
    return out


def choices(annotation: Any) -> tuple[Any, ...]:
    union = get_origin(annotation) in (Union, type(int | str))
    return (annotation, *get_args(annotation)) if union else (annotation,)


def all_keys() -> set[str]:
    kinds = {"mlx": MlxTierConfig, "hosted": HostedTierConfig, "scripted": ScriptedTierConfig}
    tiers = {f"tiers.{kind}.{leaf}" for kind, model in kinds.items() for leaf in leaves(model)}
    not_built = {f"reliability.{path}" for path in NOT_BUILT}
    return (set(leaves(AppConfig)) - {"tiers"} - not_built) | tiers


def test_the_walk_covers_every_key():
    """A key that is added without a proof of its effect fails here."""
    assert set(EFFECTS) == all_keys()


@pytest.mark.parametrize("path", sorted(EFFECTS))
def test_every_key_has_an_effect(path):
    """Changing the key changes what the server does."""
    EFFECTS[path]()
