"""Every accepted configuration key has an effect: a table of proofs, and a test that it is complete."""

import functools
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import HostedTierConfig, MlxTierConfig, ScriptedTierConfig
from tests.unit.deployments.effects import access, answers, engine, evaluation, graph, memory, state, telemetry

KEPT = ("reports_max", "sessions_max", "session_ttl_s", "incidents_max", "incidents_days", "journal_bytes_max")
KINDS = {"mlx": MlxTierConfig, "hosted": HostedTierConfig, "scripted": ScriptedTierConfig}
UPSTREAM = ("preset", "base_url", "model", "api_key_env", "headers")
PHASES = ("connect_s", "first_token_s", "idle_s", "total_s")
Effects = dict[str, Callable[[], None]]


def named(at: str, *effects: Callable[[], None]) -> Effects:
    """Effects that are called by their keys."""
    return {f"{at}.{effect.__name__}": effect for effect in effects}


def below(at: str, effects: Effects) -> Effects:
    """Effects of the keys of a section."""
    return {f"{at}.{key}": effect for key, effect in effects.items()}


def of_every_kind(kind: str) -> Effects:
    """The effects of the keys that tiers of each kind have."""
    at = f"tiers.{kind}"
    effects = named(at, graph.asleep, graph.idle_s, graph.wake_s, graph.kind, memory.replica_bytes)
    effects |= {f"{at}.timeouts.{key}": graph.timeouts("tier", key) for key in PHASES}
    effects |= {f"{at}.{key}": graph.replicas for key in ("min_replicas", "max_replicas")}
    return effects | named(at, answers.retry_strategy) | {f"{at}.context_tokens": graph.context_tokens(kind)}


EFFECTS: Effects = {
    **below("reliability.loop_detection", answers.LOOPS),
    "reliability.loop_detection.window_size": state.window_size,
    **below("reliability.tool_validation", answers.CHECKS),
    **named("reliability.escalation", graph.enabled, graph.chain, graph.start_at, graph.max_retries_before_escalate),
    **named("reliability.escalation", graph.continuations_max, graph.escalate_on),
    "reliability.escalation.confidence.min": graph.confidence_min,
    "reliability.escalation.confidence.calibrations": graph.calibrations,
    "reliability.escalation.cloud_fallback.provider": graph.cloud_provider,
    "reliability.escalation.cloud_fallback.model": graph.cloud_model,
    "reliability.escalation.cloud_fallback.api_key_env": graph.cloud_key_env,
    "reliability.context": graph.context,
    "reliability.token_budget.max_output_tokens": graph.max_output_tokens,
    **below("reliability", state.ADMISSION),
    "reliability.circuit_breaker.enabled": state.judge_enabled,
    "reliability.circuit_breaker.consecutive_threshold": state.judge_thresholds,
    "reliability.circuit_breaker.failure_threshold": state.judge_thresholds,
    "reliability.circuit_breaker.judge_tier": state.judge_tier,
    "reliability.circuit_breaker.timeout_s": state.judge_timeout,
    "reliability.streaming.hold": state.hold,
    "reliability.incidents.keep_text": state.keep_text,
    **below("reliability.memory_pressure", memory.MEMORY),
    **{f"state.{key}": state.journal_bounds for key in KEPT},
    "state.responses_bytes_max": state.response_bounds,
    "state.responses_ttl_s": state.response_bounds,
    "state.path": state.state_path,
    **below("evaluate", evaluation.EVALUATE),
    **named("telemetry", telemetry.traces),
    **named("server", access.api_keys_file, access.api_keys_env, access.allow_open, access.cors_origins),
    **named("server", graph.aliases, graph.body_bytes_max, graph.body_s, graph.keep_awake, graph.keepalive_s),
    **named("server", graph.attempts_max, graph.deadline_s),
    "server.router_replicas": graph.router_options,
    "server.max_ongoing_requests": graph.router_options,
    **{f"server.timeouts.{key}": graph.timeouts("server", key) for key in PHASES},
    **of_every_kind("mlx"),
    **of_every_kind("hosted"),
    **of_every_kind("scripted"),
    "tiers.mlx.tools": answers.deferred_tools,
    "tiers.scripted.tools": answers.deferred_tools,
    **named("tiers.mlx", engine.adapter, engine.memory_bytes, engine.max_reasoning_tokens, engine.blas_threads),
    **named("tiers.mlx", engine.prompt_cache_bytes, engine.prompt_cache_disk_bytes, engine.prompt_cache_shared),
    "tiers.mlx.model": graph.mlx_model,
    "tiers.mlx.temperature": graph.mlx_temperature,
    "tiers.mlx.max_running": graph.mlx_slots,
    "tiers.mlx.max_waiting": graph.mlx_slots,
    **{
        f"tiers.hosted.{key}": graph.hosted_request for key in ("preset", "base_url", "model", "api_key_env", "headers")
    },
    "tiers.hosted.continues": graph.hosted_continues,
    "tiers.hosted.usd_per_mtok_prompt": graph.hosted_price,
    "tiers.hosted.usd_per_mtok_completion": graph.hosted_price,
    "tiers.hosted.cloud": graph.cloud("premium", False),
    "tiers.scripted.cloud": graph.cloud("fast", True),
    "tiers.scripted.script": graph.scripted_script,
    "tiers.scripted.seed": graph.scripted_seed,
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
    tiers = {f"tiers.{kind}.{leaf}" for kind, model in KINDS.items() for leaf in leaves(model)}
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
