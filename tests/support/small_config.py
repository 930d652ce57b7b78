"""A small configuration with one key changed, and what the server does with it."""

import asyncio
import copy
from typing import Any

from deployments.app import build
from deployments.app.router_parts import _find_deferring
from deployments.config.app_config import AppConfig, load
from deployments.graph.replica import make_tier
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.policy import build_expected, chain_for, limits_of
from deployments.request.run_record import Run
from reliability.tools import build_toolbox
from reliability.types import ChatRequest, Hold

BASE: dict[str, Any] = {
    "tiers": {
        "fast": {"kind": "scripted", "script": [{"answer": "from fast"}]},
        "standard": {"kind": "scripted", "script": [{"answer": "from standard"}]},
        "m": {"kind": "mlx", "model": "path:nowhere"},
        "premium": {"kind": "hosted", "preset": "openrouter"},
    },
    "reliability": {"escalation": {"chain": ["fast", "standard"]}},
}


def config_of(path: str = "", value: Any = None) -> AppConfig:
    raw = copy.deepcopy(BASE)
    if path:
        _put(raw, path, value)
    return load(raw)


def _put(raw: dict[str, Any], path: str, value: Any) -> None:
    *sections, key = path.split(".")
    for section in sections:
        raw = raw.setdefault(section, {})
    raw[key] = value


def with_tier(name: str, **keys: Any) -> AppConfig:
    """The base configuration with keys of a tier changed; a `kind` makes it another tier."""
    return config_of(f"tiers.{name}", keys if "kind" in keys else BASE["tiers"][name] | keys)


REQUEST = ChatRequest(
    request_id="r", session_id="s", messages=({"role": "user", "content": "hi"},), max_tokens=200, timeout_s=30.0
)


def run(
    config: AppConfig, model: str = "auto", deadline_s: float = 30.0, request: ChatRequest = REQUEST, **more: Any
) -> Run:
    """Drive one request through the configured scripted tiers."""

    async def go() -> Run:
        names = chain_for(config, config.tiers, model)
        cloud = config.reliability.escalation.cloud_fallback
        tiers = {name: make_tier(name, config.tiers[name], cloud) for name in names}
        clock = MonotonicClock()
        deadline_ns = clock.now_ns() + int(deadline_s * 1e9)
        toolbox = build_toolbox(request.tools)
        deferring = _find_deferring(config.tiers)
        strategies = {name: config.tiers[name].retry_strategy for name in names}
        expected, limits = build_expected(config, request, toolbox), limits_of(config, strategies)
        known = {"chain": names, "limits": limits, "deadline_ns": deadline_ns, "hold": Hold.ALL}
        one = Run(request=request, expected=expected, **known | more)
        timeouts = {name: config.tiers[name].timeouts or config.server.timeouts for name in names}
        ports = Ports(tiers=tiers, timeouts=timeouts, clock=clock, jitter=lambda: 0.0, deferring=deferring)
        async for _ in drive(one, ports):
            pass
        return one

    return asyncio.run(go())


def broken(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "scripted", "script": [{"answer": list(steps)}]}


def with_broken_fast(step: dict[str, Any], path: str, value: Any, *, first: str = "") -> AppConfig:
    """`first`: what it says before it breaks."""
    raw = copy.deepcopy(BASE)
    raw["tiers"]["fast"] = broken(*([{"text": first}] if first else []), step)
    _put(raw, path, value)
    return load(raw)


def status_of(config: AppConfig, tier: str) -> Any:
    async def go() -> Any:
        made = make_tier(tier, config.tiers[tier], config.reliability.escalation.cloud_fallback)
        try:
            return await made.status()
        finally:
            await made.close()

    return asyncio.run(go())


def options_of(config: AppConfig, deployment: str) -> Any:
    """The Serve deployment that `build` makes of a tier, or of the Router."""
    root = build(config.model_dump(mode="json", exclude_unset=True))
    found = {root._bound_deployment.name: root._bound_deployment}
    _, tiers = root._bound_deployment.init_args
    found |= {app._bound_deployment.name: app._bound_deployment for app in tiers.values()}
    return found[deployment]
