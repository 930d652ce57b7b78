"""Every accepted configuration key has an effect: a table of proofs, and a test that it is complete."""

import functools
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import HostedTierConfig, MlxTierConfig, ScriptedTierConfig
from reliability.types import Flaw
from tests.unit.deployments.effects import access, answers, engine, evaluation, graph, memory, state, telemetry

KEPT = ("reports_max", "sessions_max", "session_ttl_s", "incidents_max", "incidents_days", "journal_bytes_max")

EFFECTS: dict[str, Callable[[], None]] = {
    "reliability.loop_detection.enabled": answers.loop_key("enabled", False, 2, Flaw.LOOP, None),
    "reliability.loop_detection.duplicate_threshold": answers.loop_key("duplicate_threshold", 4, 2, Flaw.LOOP, None),
    "reliability.loop_detection.break_threshold": answers.loop_key(
        "break_threshold", 3, 2, Flaw.LOOP, Flaw.CIRCUIT_BREAK
    ),
    "reliability.loop_detection.similarity_threshold": answers.text_loop(
        "similarity_threshold", 1.0, answers.ALIKE, Flaw.LOOP, None
    ),
    "reliability.loop_detection.near_threshold": answers.near_threshold,
    "reliability.loop_detection.max_period": answers.max_period,
    "reliability.loop_detection.pollers": answers.loop_key("pollers", ["f"], 2, Flaw.LOOP, None),
    "reliability.loop_detection.poller_duplicate_threshold": answers.pollers(
        "poller_duplicate_threshold", 3, 2, Flaw.LOOP
    ),
    "reliability.loop_detection.poller_break_threshold": answers.pollers(
        "poller_break_threshold", 3, 2, Flaw.CIRCUIT_BREAK
    ),
    "reliability.loop_detection.ignored_arguments": answers.ignored_arguments,
    "reliability.tool_validation.enabled": answers.switch("reliability.tool_validation.enabled", False, answers.WRONG),
    "reliability.tool_validation.validate_schema": answers.switch(
        "reliability.tool_validation.validate_schema", False, answers.WRONG
    ),
    "reliability.tool_validation.validate_tool_names": answers.switch(
        "reliability.tool_validation.validate_tool_names", False, answers.UNKNOWN
    ),
    "reliability.tool_validation.validate_json": answers.switch(
        "reliability.tool_validation.validate_json", False, {"name": "f", "arguments": "{"}
    ),
    "reliability.tool_validation.placeholders": answers.switch(
        "reliability.tool_validation.placeholders", [], answers.PLACEHOLDER
    ),
    "reliability.tool_validation.max_retries": answers.reasks("reliability.tool_validation.max_retries", 1, 2),
    "reliability.tool_validation.retry_with_correction": answers.retry_with_correction,
    **{f"tiers.{k}.retry_strategy": answers.retry_strategy for k in ("mlx", "hosted", "scripted")},
    **{f"tiers.{k}.tools": answers.deferred_tools for k in ("mlx", "scripted")},
    "reliability.escalation.enabled": graph.enabled,
    "reliability.escalation.chain": graph.chain,
    "reliability.escalation.start_at": graph.start_at,
    "reliability.escalation.max_retries_before_escalate": graph.max_retries,
    "reliability.escalation.continuations_max": graph.continuations_max,
    "reliability.escalation.confidence.min": graph.confidence_min,
    "reliability.escalation.confidence.calibrations": graph.calibrations,
    "reliability.context": graph.context,
    "reliability.escalation.escalate_on": graph.escalate_on,
    "reliability.escalation.cloud_fallback.provider": graph.cloud_provider,
    "reliability.escalation.cloud_fallback.model": graph.cloud_model,
    "reliability.escalation.cloud_fallback.api_key_env": graph.cloud_key_env,
    "reliability.token_budget.max_output_tokens": graph.max_output_tokens,
    "reliability.loop_detection.window_size": state.window_size,
    **{f"reliability.{key}": proof for key, proof in state.ADMISSION.items()},
    "reliability.circuit_breaker.enabled": state.judge_enabled,
    "reliability.circuit_breaker.consecutive_threshold": state.judge_thresholds,
    "reliability.circuit_breaker.failure_threshold": state.judge_thresholds,
    "reliability.circuit_breaker.judge_tier": state.judge_tier,
    "reliability.circuit_breaker.timeout_s": state.judge_timeout,
    "reliability.streaming.hold": state.hold,
    "reliability.incidents.keep_text": state.keep_text,
    **{f"state.{key}": state.journal_bounds for key in KEPT},
    "state.responses_bytes_max": state.response_bounds,
    "state.responses_ttl_s": state.response_bounds,
    **{f"evaluate.{key}": proof for key, proof in evaluation.EVALUATE.items()},
    "telemetry.traces": telemetry.traces,
    "state.path": state.state_path,
    **{f"reliability.memory_pressure.{key}": proof for key, proof in memory.MEMORY.items()},
    **{f"tiers.{k}.asleep": graph.asleep for k in ("mlx", "hosted", "scripted")},
    **{f"tiers.{k}.idle_s": graph.idle_s for k in ("mlx", "hosted", "scripted")},
    **{f"tiers.{k}.wake_s": graph.wake_s for k in ("mlx", "hosted", "scripted")},
    **{f"tiers.{k}.replica_bytes": memory.replica_bytes for k in ("mlx", "hosted", "scripted")},
    "server.aliases": graph.aliases,
    "server.api_keys_file": access.api_keys_file,
    "server.api_keys_env": access.api_keys_env,
    "server.allow_open": access.allow_open,
    "server.body_bytes_max": graph.body_bytes_max,
    "server.body_s": graph.body_s,
    "server.cors_origins": access.cors_origins,
    "server.keep_awake": graph.keep_awake,
    "server.keepalive_s": graph.keepalive_s,
    "server.attempts_max": graph.attempts_max,
    "server.deadline_s": graph.deadline_s,
    "server.router_replicas": graph.router_options,
    "server.max_ongoing_requests": graph.router_options,
    "tiers.mlx.model": graph.mlx_model,
    "tiers.mlx.adapter": engine.adapter,
    "tiers.mlx.temperature": graph.mlx_temperature,
    "tiers.mlx.max_running": graph.mlx_slots,
    "tiers.mlx.max_waiting": graph.mlx_slots,
    "tiers.mlx.memory_bytes": engine.memory_bytes,
    "tiers.mlx.prompt_cache_bytes": engine.prompt_cache_bytes,
    "tiers.mlx.prompt_cache_disk_bytes": engine.prompt_cache_disk_bytes,
    "tiers.mlx.prompt_cache_shared": engine.prompt_cache_shared,
    "tiers.mlx.max_reasoning_tokens": engine.max_reasoning_tokens,
    "tiers.mlx.blas_threads": engine.blas_threads,
    "tiers.hosted.preset": graph.hosted_request,
    "tiers.hosted.base_url": graph.hosted_request,
    "tiers.hosted.model": graph.hosted_request,
    "tiers.hosted.api_key_env": graph.hosted_request,
    "tiers.hosted.headers": graph.hosted_request,
    "tiers.hosted.continues": graph.hosted_continues,
    "tiers.hosted.usd_per_mtok_prompt": graph.hosted_price,
    "tiers.hosted.usd_per_mtok_completion": graph.hosted_price,
    "tiers.hosted.cloud": graph.cloud("premium", False),
    "tiers.scripted.cloud": graph.cloud("fast", True),
    "tiers.scripted.script": graph.scripted_script,
    "tiers.scripted.seed": graph.scripted_seed,
    **{f"tiers.{k}.kind": graph.kind for k in ("mlx", "hosted", "scripted")},
    **{f"tiers.{k}.context_tokens": graph.context_tokens(k) for k in ("mlx", "hosted", "scripted")},
    **{
        f"tiers.{k}.{key}": graph.replicas
        for k in ("mlx", "hosted", "scripted")
        for key in ("min_replicas", "max_replicas")
    },
    **{
        f"tiers.{k}.timeouts.{key}": graph.timeouts("tier", key)
        for k in ("mlx", "hosted", "scripted")
        for key in ("connect_s", "first_token_s", "idle_s", "total_s")
    },
    **{
        f"server.timeouts.{key}": graph.timeouts("server", key)
        for key in ("connect_s", "first_token_s", "idle_s", "total_s")
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
    tiers = {f"tiers.{graph.kind}.{leaf}" for graph.kind, model in kinds.items() for leaf in leaves(model)}
    return (set(leaves(AppConfig)) - {"tiers"}) | tiers


def test_the_walk_covers_every_key():
    """A key that is added without a proof of its effect fails here."""
    assert set(EFFECTS) == all_keys()


@functools.cache
def prove(effect: Callable[[], None]) -> None:
    """Run a proof once, also where it is that of several keys."""
    effect()


@pytest.mark.parametrize("path", sorted(EFFECTS))
def test_every_key_has_an_effect(path):
    """Changing the key changes what the server does."""
    prove(EFFECTS[path])
