"""The effects of the keys of tiers, chain, state and server."""

import asyncio
import copy
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from starlette.requests import Request

from deployments.api.body import Bodies
from deployments.api.exchange import _insert_silences
from deployments.api.openai_chat import parse_chat
from deployments.app.keep_awake import KeepAwake
from deployments.config.app_config import AppConfig, load
from deployments.config.config_errors import ConfigError
from deployments.config.tier_config import Timeouts
from deployments.config.tier_cost import cloud_tiers, cost_usd, price_of
from deployments.errors import ApiError
from deployments.graph.handle import HandleTier
from deployments.graph.replica import make_tier
from deployments.graph.scale_to_zero import extend_timeouts, find_cold
from deployments.models.calibrations import find_calibration
from deployments.request.policy import chain_for, chain_of, limits_of
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.types import Fault, Hold, TierState, TierStatus, Usage
from tests.support.small_config import BASE, REQUEST, config_of, options_of, run, status_of, with_broken_fast, with_tier
from tests.support.upstream import Upstream


def enabled() -> None:
    assert chain_for(config_of("reliability.escalation.enabled", False), BASE["tiers"], "auto") == ("fast",)
    assert chain_for(config_of(), BASE["tiers"], "auto") == ("fast", "standard")


def chain() -> None:
    assert chain_for(config_of("reliability.escalation.chain", ["standard"]), BASE["tiers"], "auto") == ("standard",)


def start_at() -> None:
    config = config_of("reliability.escalation.start_at", [{"tier": "standard", "messages_min": 1}])
    assert chain_of(config, BASE["tiers"], "auto", REQUEST) == ("standard",)
    assert chain_of(config_of(), BASE["tiers"], "auto", REQUEST) == ("fast", "standard")


def max_retries_before_escalate() -> None:
    for retries in (0, 2):
        one = run(with_broken_fast({"status": 500}, "reliability.escalation.max_retries_before_escalate", retries))
        assert [a.tier for a in one.attempts] == ["fast"] * (retries + 1) + ["standard"]


def continuations_max() -> None:
    """How often a text that broke off before the client is gone on with."""
    for seams in (0, 1):
        config = with_broken_fast({"cut": True}, "reliability.escalation.continuations_max", seams, first="half ")
        one = run(config, hold=Hold.TOOL_CALLS)
        assert [a.seam is not None for a in one.attempts][1:2] == [True][:seams]


def confidence_min() -> None:
    """How likely a call has to be right."""
    for least in (0.0, 0.6):
        assert limits_of(config_of("reliability.escalation.confidence.min", least)).confidence_min == least


def calibrations() -> None:
    """What tells of the calls of weights that the package doesn't know."""
    digest = "ab" * 32
    config = config_of("reliability.escalation.confidence.calibrations", {digest: {"right": {"base": 2.0}}})
    status = TierStatus(name="fast", kind="mlx", state=TierState.READY, sha256=digest)
    found = [
        find_calibration(status, one.reliability.escalation.confidence.calibrations) for one in (config_of(), config)
    ]
    assert [one is not None for one in found] == [False, True]


def context() -> None:
    """Whether a prompt that no tier can hold is shortened before it is refused."""
    limits = [limits_of(config_of("reliability.context", policy)) for policy in ("refuse", "shorten")]
    assert [each.shorten for each in limits] == [False, True]


def escalate_on() -> None:
    stays = run(with_broken_fast({"status": 401}, "reliability.escalation.escalate_on", ["timeout"]))
    moves = run(with_broken_fast({"status": 401}, "reliability.escalation.escalate_on", ["server_error"]))
    assert (stays.tier, moves.tier) == ("fast", "standard")
    assert stays.refusal is not None


def cloud_provider() -> None:
    with pytest.raises(ConfigError, match=r"cloud_fallback\.provider"):
        config_of("reliability.escalation.cloud_fallback.provider", "other")


def cloud_model() -> None:
    assert status_of(config_of("reliability.escalation.cloud_fallback.model", "a/b"), "premium").model == "a/b"


def cloud_key_env() -> None:
    config = config_of("reliability.escalation.cloud_fallback.api_key_env", "NO_SUCH_KEY")
    assert status_of(config, "premium").reason == "NO_SUCH_KEY is not set"


def max_output_tokens() -> None:
    cap = config_of("reliability.token_budget.max_output_tokens", 7).reliability.token_budget.max_output_tokens
    body = b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}'
    assert parse_chat(body, {}, request_id="r", tokens_max=cap, timeout_s=1).request.max_tokens == 7


def kind() -> None:
    cloud = config_of().reliability.escalation.cloud_fallback
    kinds = {"fast": ScriptedTier, "m": MlxTier, "premium": HostedTier}
    made = {name: make_tier(name, config_of().tiers[name], cloud) for name in kinds}
    assert all(isinstance(made[name], kinds[name]) for name in kinds)
    asyncio.run(made["m"].close())


def context_tokens(kind: str) -> Callable[[], None]:
    name = {"scripted": "fast", "mlx": "m", "hosted": "premium"}[kind]

    def check() -> None:
        assert status_of(config_of(f"tiers.{name}.context_tokens", 99), name).context_tokens == 99

    return check


def replicas() -> None:
    scale = options_of(with_tier("fast", min_replicas=2, max_replicas=3), "fast")._deployment_config.autoscaling_config
    assert (scale.min_replicas, scale.max_replicas) == (2, 3)
    assert options_of(config_of(), "fast")._deployment_config.num_replicas == 1


def asleep() -> None:
    """`wait` and `next`, each against what it would be unset."""
    for way, others in (("next", False), ("wait", True)):
        tiers = with_tier("fast", min_replicas=0, asleep=way).tiers
        sleepers = {name: tier for name, tier in tiers.items() if not tier.min_replicas}
        assert find_cold(
            ["fast", "standard"], sleepers, {"fast": Sleeping()}, dict.fromkeys(BASE["tiers"], others).__getitem__
        ) == {"fast": way}


class Sleeping(HandleTier):
    """A tier without a replica."""

    def __init__(self) -> None:
        self.known, self._at = TierStatus(name="fast", kind="scripted", state=TierState.ASLEEP), ("", "nowhere")


def wake_s() -> None:
    tiers = with_tier("fast", min_replicas=0, wake_s=77).tiers
    times = extend_timeouts({"fast": "wait"}, tiers, {"fast": Timeouts()})
    assert times["fast"].connect_s == 77


def idle_s() -> None:
    """All of it passes before Serve lets the last replica go: its window, and its delay."""
    for seconds in (15, 300):
        scale = options_of(
            with_tier("fast", min_replicas=0, idle_s=seconds), "fast"
        )._deployment_config.autoscaling_config
        assert scale.look_back_period_s + scale.downscale_to_zero_delay_s == seconds


def mlx_model() -> None:
    assert status_of(config_of("tiers.m.model", "path:elsewhere"), "m").model == "path:elsewhere"


def mlx_temperature() -> None:
    tier = make_tier(
        "m", config_of("tiers.m.temperature", 0.25).tiers["m"], config_of().reliability.escalation.cloud_fallback
    )
    assert isinstance(tier, MlxTier)
    assert tier._begin_jobs.keywords["temperature"] == 0.25
    asyncio.run(tier.close())


def mlx_slots() -> None:
    few, more = with_tier("m", max_running=1, max_waiting=0), with_tier("m", max_running=2, max_waiting=5)
    assert options_of(more, "m").max_ongoing_requests - options_of(few, "m").max_ongoing_requests == 6


def hosted_request() -> None:
    """base_url, model, api_key_env, headers and preset, as the upstream sees them."""
    with Upstream() as upstream:
        keys = {
            "base_url": upstream.base_url,
            "model": "x/y",
            "api_key_env": "MLX_STACK_TEST_KEY",
            "headers": {"X-A": "b"},
        }
        for preset in ({}, {"preset": "openrouter"}):
            assert run(with_tier("fast", kind="hosted", **keys, **preset)).finish is not None
            seen = upstream.log[-1]
            assert seen.body["model"] == "x/y"
            assert seen.headers["x-a"] == "b"
            assert seen.headers["authorization"].startswith("Bearer ")
            assert ("x-title" in seen.headers) == bool(preset)


def hosted_continues() -> None:
    """How the upstream is asked for the rest of an answer: what that does is shown in test_continuing.py."""
    for how in ("prefill", "anchor"):
        config = config_of("tiers.premium.continues", how)
        tier = make_tier("premium", config.tiers["premium"], config.reliability.escalation.cloud_fallback)
        assert isinstance(tier, HostedTier)
        assert tier.continues == how


def hosted_price() -> None:
    config = with_tier("premium", usd_per_mtok_prompt=2.0, usd_per_mtok_completion=7.0)
    price = price_of(config.tiers["premium"], config.reliability.escalation.cloud_fallback)
    assert cost_usd(Usage(prompt_tokens=1_000_000), price) == 2.0
    assert cost_usd(Usage(completion_tokens=1_000_000), price) == 7.0


def cloud(tier: str, value: bool) -> Callable[[], None]:
    def check() -> None:
        for config, expected in ((config_of(), not value), (config_of(f"tiers.{tier}.cloud", value), value)):
            names = cloud_tiers(config.tiers)
            assert (tier in names) is expected

    return check


def scripted_script() -> None:
    assert run(config_of("tiers.fast.script", [{"answer": [{"unavailable": "x"}]}])).tier == "standard"


def scripted_seed() -> None:
    def texts(seed: int) -> list[str]:
        rules = [{"weight": 1, "answer": word} for word in ("one", "two", "three", "four")]
        return answers(with_tier("fast", kind="scripted", script=rules, seed=seed), 12)

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def answers(config: AppConfig, count: int) -> list[str]:
    async def go() -> list[str]:
        tier = make_tier("fast", config.tiers["fast"], config.reliability.escalation.cloud_fallback)
        out = []
        for i in range(count):
            messages = ({"role": "user", "content": f"question {i}"},)
            events = [e async for batch in tier.stream(replace(REQUEST, messages=messages)) for e in batch]
            out.append("".join(getattr(e, "text", "") for e in events))
        return out

    return asyncio.run(go())


def aliases() -> None:
    config = config_of("server.aliases", {"gpt": "standard"})
    assert chain_for(config, config.tiers, "gpt") == ("standard",)
    with pytest.raises(ApiError):
        chain_for(config_of(), config.tiers, "gpt")


def body_bytes_max() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * 2000, "more_body": False}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(ApiError, match=r"over 1,024 bytes"):
        asyncio.run(_read(request, config_of("server.body_bytes_max", 1024)))


def body_s() -> None:
    async def receive() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()  # nothing ever comes

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(ApiError, match=r"it may take 0\.01 s \(server\.body_s\)"):
        asyncio.run(asyncio.wait_for(_read(request, config_of("server.body_s", 0.01)), 5))


async def _read(request: Request, config: AppConfig) -> bytes:
    return await Bodies(1).read(
        request, bytes_max=config.server.body_bytes_max, first_s=config.server.body_s, ending=ExitStack()
    )


def keepalive_s() -> None:
    async def silent():
        await asyncio.get_running_loop().create_future()
        yield b""

    async def first() -> Any:
        batches = _insert_silences(silent(), config_of("server.keepalive_s", 0.01).server.keepalive_s)
        try:
            return await anext(batches)
        finally:
            await batches.aclose()

    assert asyncio.run(asyncio.wait_for(first(), 5)) is None


def keep_awake() -> None:
    def is_wanted(config: AppConfig) -> bool:
        return asyncio.run(KeepAwake(config.server.keep_awake, system="darwin", on_mains=lambda: False).look())

    assert not is_wanted(config_of("server.keepalive_s", 5))
    assert is_wanted(config_of("server.keep_awake", "always"))


def timeouts(at: str, key: str) -> Callable[[], None]:
    steps = {
        "connect_s": ([{"text": "late"}], {"start_delay_s": 5.0}, Fault.CONNECT_TIMEOUT),
        "first_token_s": ([{"silence": True}], {}, Fault.FIRST_TOKEN_TIMEOUT),
        "idle_s": ([{"text": "a"}, {"silence": True}], {}, Fault.IDLE_TIMEOUT),
        "total_s": ([{"text": "word " * 500, "token_delay_s": 0.02}], {}, Fault.TOTAL_TIMEOUT),
    }
    answer, rule, fault = steps[key]

    def check() -> None:
        raw = copy.deepcopy(BASE)
        raw["tiers"]["fast"] = {"kind": "scripted", "script": [{"answer": answer, **rule}]}
        limits = (
            {"connect_s": 0.2, "first_token_s": 0.2, "idle_s": 0.2, "total_s": 0.2} if key == "total_s" else {key: 0.2}
        )
        (raw["tiers"]["fast"] if at == "tier" else raw.setdefault("server", {}))["timeouts"] = limits
        assert run(load(raw)).attempts[0].fault is fault

    return check


def attempts_max() -> None:
    one = run(with_broken_fast({"status": 500}, "server.attempts_max", 1))
    assert len(one.attempts) == 1


def deadline_s() -> None:
    config = with_broken_fast({"silence": True}, "server.deadline_s", 0.2)
    assert run(config, deadline_s=config.server.deadline_s).refusal.code == "deadline"


def router_options() -> None:
    raw = copy.deepcopy(BASE) | {"server": {"router_replicas": 3, "max_ongoing_requests": 77}}
    router = options_of(load(raw), "Router")
    assert (router._deployment_config.num_replicas, router.max_ongoing_requests) == (3, 77)
