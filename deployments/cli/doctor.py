"""`mlx-stack-serve doctor`: can this installation do what its configuration says? No server is needed.

It looks at platform, packages, memory, models and keys, then forces a fault through every edge of the chain, with
scripted tiers. With `--ask` each hosted tier gets one request of `TOKENS` tokens, which may cost money: does its
upstream continue a last message of the model's own? That message counts from eleven, in words of no fresh answer.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from deployments.cli.service_command import describe_service
from deployments.config.app_config import AppConfig
from deployments.config.tier_config import HostedTierConfig, MlxTierConfig, TierBase, Timeouts
from deployments.graph.replica import make_tier
from deployments.graph.scale_to_zero import let_auto_sleep
from deployments.memory.plan import MemoryPlan, MonitorSettings
from deployments.memory.room import AGENT_TOKENS, find_usable
from deployments.memory.sensors.computing import Computing, find_computing, has_nvidia_gpu
from deployments.models.artifact import find_on_disk
from deployments.models.catalog import choose_here
from deployments.models.needs import plan_of, tier_needs
from deployments.models.presence import look
from deployments.models.sources import parse_source
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock, Ports, Tier
from deployments.request.policy import build_expected, limits_of
from deployments.request.run_record import Run
from deployments.tiers.hosted.continuing import Continues
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.mlx.cpu.step import explain_missing
from deployments.tiers.mlx.loading import check_calls_on_disk
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.config import CloudFallback
from reliability.tools import ToolBox
from reliability.types import ChatRequest, Failed, Fault, Text, TierState

# Long enough for a healthy scripted tier on a busy machine, short enough for a person who waits.
HANG_S = 1.0
FAULTS: dict[str, dict[str, Any]] = {
    "a 500": {"status": 500},
    "a hang": {"silence": True},
    "a cut connection": {"cut": True},
    "no model": {"unavailable": "forced by doctor"},
}
TOKENS = 16
WAIT_S = 60.0
COUNT = "Count from one to twenty, in words, separated by commas."
BEGUN = "I begin where it gets interesting: eleven, twelve, thirteen"
_NEXT = re.compile(r"\W*(fourteen|14)\b", re.IGNORECASE)
_REFUSED = frozenset({400, 422})  # the statuses of a request that the upstream doesn't take as it is
PACKAGES = ("ray", "starlette", "aiohttp", "pydantic", "mlx-lm", "mlx")
GIB = 1024**3
_CUDA_MISSING = (
    "install the extra `cuda`, then `pip install --force-reinstall --no-deps mlx-cuda-13`, since MLX's package for a "
    "CPU has a library of the same name"
)
# Ray with its dashboard, for the whole server.
_RAY_BYTES = 1 * GIB


@dataclass(frozen=True, slots=True)
class _Finding:
    """One line of the report. `level`: ok, warn (works, but less than configured) or fail."""

    level: str
    what: str
    words: str


def _check_edges(config: AppConfig, dead: Mapping[str, str] = MappingProxyType({})) -> Iterator[_Finding]:
    """Force each fault through each edge of the chain. An edge that leads to a tier in `dead` is a warning."""
    escalation = config.reliability.escalation
    if not escalation.enabled:
        yield _Finding("warn", "chain", "escalation.enabled is false: no tier stands in for another")
        return
    for head, after in pairwise(escalation.chain):
        findings = [asyncio.run(_check_edge(config, head, after, words, fault)) for words, fault in FAULTS.items()]
        if after in dead and all(finding.level == "ok" for finding in findings):
            yield _Finding("warn", findings[0].what, f"works, but leads nowhere today: {after} is {dead[after]}")
        else:
            yield from findings


async def _check_edge(config: AppConfig, head: str, after: str, words: str, fault: Mapping[str, Any]) -> _Finding:
    tiers: dict[str, Tier] = {
        head: ScriptedTier(name=head, script=[{"answer": [dict(fault)]}]),
        after: ScriptedTier(name=after, script=[{"answer": [{"text": f"this is {after}"}]}]),
    }
    request, clock = _make_request("Are you there?"), MonotonicClock()
    expected, deadline_ns = build_expected(config, request, ToolBox()), clock.now_ns() + int(60e9)
    limits = limits_of(config)
    run = Run(request=request, expected=expected, chain=(head, after), limits=limits, deadline_ns=deadline_ns)
    timeouts = Timeouts(connect_s=HANG_S, first_token_s=HANG_S, idle_s=HANG_S, total_s=HANG_S)
    ports = Ports(tiers=tiers, timeouts=dict.fromkeys(tiers, timeouts), clock=clock, jitter=lambda: 0.0)
    async for _ in drive(run, ports):
        pass
    for tier in tiers.values():
        await tier.close()
    what = f"edge {head} -> {after}"
    if run.finish is not None and run.tier == after:
        return _Finding("ok", what, f"{words} on {head}: {after} answers")
    why = run.refusal.message if run.refusal else "no answer"
    allowed = ", ".join(config.reliability.escalation.escalate_on) or "nothing"
    return _Finding("fail", what, f"{words} on {head} ends the request ({why}); escalate_on: {allowed}")


def _make_request(words: str, begun: str = "") -> ChatRequest:
    return ChatRequest(
        request_id=f"doctor-{os.getpid()}",
        session_id="doctor",
        messages=({"role": "user", "content": words},),
        max_tokens=TOKENS,
        timeout_s=WAIT_S,
        begun=begun,
    )


def _check_prefill(config: AppConfig, *, ask: bool) -> Iterator[_Finding]:
    """Say how each hosted tier is asked for the rest of an answer; with `ask`, whether its upstream is fit for that."""
    cloud = config.reliability.escalation.cloud_fallback
    for name, tier in _list_hosted(config).items():
        key, how = f"tiers.{name}.continues", _make(name, tier, cloud).continues
        level, words = "ok", f" (no request was sent; `doctor --ask` sends one of {TOKENS} tokens)"
        if ask:
            trying = _make(name, tier.model_copy(update={"continues": "prefill"}), cloud)
            level, said = asyncio.run(_try(trying, key, how))
            words = f": {said}"
        yield _Finding(level, key, f"{how}{'' if tier.continues else ', since nothing is set'}{words}")


def _list_hosted(config: AppConfig) -> dict[str, HostedTierConfig]:
    return {name: tier for name, tier in config.tiers.items() if isinstance(tier, HostedTierConfig)}


def _make(name: str, config: HostedTierConfig, cloud: CloudFallback) -> HostedTier:
    tier = make_tier(name, config, cloud)
    assert isinstance(tier, HostedTier)
    return tier


async def _try(tier: HostedTier, key: str, how: Continues) -> tuple[str, str]:
    """Ask the tier to count on, and return a level and words."""
    try:
        status = await tier.status()
        if status.state is not TierState.READY:
            return "warn", f"can't be tried: {status.reason}"
        text, failed = await _ask(tier)
    finally:
        await tier.close()
    if failed is not None and failed.fault is not Fault.SEAM and failed.status not in _REFUSED:
        return "warn", f"can't be told: {failed.message}"
    if failed is None and _NEXT.match(text):
        words = "the upstream honours a prefill"
        return "ok", words if how == "prefill" else f"{words}: `{key}: prefill` would go on to the letter"
    if failed is not None and failed.fault is not Fault.SEAM:
        habit = f"the upstream refuses a prefill ({failed.status}: {failed.message})"
    elif text or failed is not None:
        habit = "the upstream begins anew instead of going on behind a prefill"
    else:
        habit = "the upstream says nothing behind a prefill"
    if how == "prefill":
        return "fail", f"{habit}: set `{key}: anchor`"
    return "ok", f"{habit}, so an anchor is right"


async def _ask(tier: HostedTier) -> tuple[str, Failed | None]:
    text, failed = "", None
    async with aclosing(tier.stream(_make_request(COUNT, BEGUN))) as answer:
        async for events in answer:
            for event in events:
                if isinstance(event, Text):
                    text += event.text
                elif isinstance(event, Failed):
                    failed = event
    return text, failed


def doctor(config: AppConfig, path: Path, *, ask: bool = False) -> int:
    """Print every finding about the configuration at `path`; return 1 where one failed. `ask`: ask hosted tiers."""
    levels: Counter[str] = Counter()
    for finding in _check_all(let_auto_sleep(config), path, ask=ask):
        print(f"{finding.level:>4}  {finding.what}: {finding.words}", flush=True)  # noqa: T201
        levels[finding.level] += 1
    print(f"\n{levels['ok']} ok, {levels['warn']} warnings, {levels['fail']} failed", flush=True)  # noqa: T201
    return 1 if levels["fail"] else 0


def _check_all(config: AppConfig, path: Path, *, ask: bool) -> Iterator[_Finding]:
    yield _check_platform()
    yield from _check_computing()
    level, words = describe_service(path)
    yield _Finding(level, "service", words)
    yield from (_check_package(name) for name in PACKAGES)
    yield from _check_models(config)
    hosted = {name: asyncio.run(_check_tier(name, tier, config)) for name, tier in _list_hosted(config).items()}
    yield from hosted.values()
    yield from _check_prefill(config, ask=ask)
    dead = {name: finding.words for name, finding in hosted.items() if finding.level != "ok"}
    yield from _check_edges(config, dead)


def _check_platform() -> _Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    words = f"{platform.system()} {platform.machine()}, Python {version}"
    good = (3, 11) <= sys.version_info[:2] < (3, 15)
    return _Finding("ok" if good else "fail", "platform", words if good else f"{words}: 3.11 to 3.14 is needed")


def _check_computing() -> Iterator[_Finding]:
    """Check what MLX computes on, that no GPU stands idle beside it, and on a CPU the extension."""
    computing = find_computing()
    if computing is not Computing.CPU:
        yield _Finding("ok", "computing", {"metal": "Metal", "cuda": "CUDA"}[computing])
        return
    if has_nvidia_gpu():
        yield _Finding("warn", "computing", f"the CPU, beside an NVIDIA GPU: {_CUDA_MISSING}")
    else:
        yield _Finding("ok", "computing", "the CPU")
    if why := explain_missing():
        yield _Finding("warn", "CPU extension", f"not used, so models are slow: {why}")
    else:
        yield _Finding("ok", "CPU extension", "computes Llama-like models in float32")


def _check_package(name: str) -> _Finding:
    try:
        return _Finding("ok", f"package {name}", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        # Without mlx the hosted and scripted tiers still answer.
        return _Finding("warn" if name.startswith("mlx") else "fail", f"package {name}", "missing: run `make serve`")


def _check_models(config: AppConfig) -> Iterator[_Finding]:
    """Check what each mlx tier would load, whether it is on disk, and whether all of them fit this machine's memory."""
    needed = _RAY_BYTES
    for name, tier in config.tiers.items():
        if not isinstance(tier, MlxTierConfig):
            continue
        finding, weight_bytes = _check_model(name, tier.model)
        yield finding
        needed += weight_bytes * tier.min_replicas
    total = psutil.virtual_memory().total
    words = f"{needed / GIB:.1f} GiB needed for Ray and the weights, {total / GIB:.1f} GiB in this machine"
    yield _check_working_set(config) or _Finding("ok" if needed < 0.8 * total else "fail", "memory", words)


def _check_working_set(config: AppConfig) -> _Finding | None:
    """Check the tiers' needs against what models may use of a GPU; None where a processor computes."""
    plan = plan_of(config) or MemoryPlan(settings=MonitorSettings(), needs=tier_needs(config))
    usable_bytes = find_usable(plan)
    if usable_bytes is None:
        return None
    needs = {need.name: need.replica_bytes for need in plan.needs if need.local and need.replica_bytes}
    words = (
        f"{sum(needs.values()) / GIB:.1f} GiB needed for the tiers' weights and {AGENT_TOKENS:,} tokens of context "
        f"each, {usable_bytes / GIB:.1f} GiB {find_computing().owner}"
    )
    left_out = [name for name, size_bytes in needs.items() if size_bytes > usable_bytes]
    if left_out:
        return _Finding("fail", "memory", f"{words}: too few for {', '.join(left_out)}; name a smaller model")
    if sum(needs.values()) > usable_bytes:
        return _Finding("warn", "memory", f"{words}: the tiers can't all be awake at the same time")
    return _Finding("ok", "memory", words)


def _check_model(name: str, model: str) -> tuple[_Finding, int]:
    """Check whether a tier's model is on disk; also return the bytes of its weights where it is."""
    what, choice = f"model of {name}", choose_here(name, model)
    chosen = f"{choice.source} ({choice.why})"
    try:
        artifact = find_on_disk(parse_source(choice.source))
    except ValueError as error:
        return _Finding("fail", what, str(error)), 0
    if artifact is None:
        words = look(name, choice).words or "not on disk yet; `make prepare` fetches it, or the tier when it starts"
        return _Finding("warn", what, f"{chosen}: {words}"), 0
    try:
        warning = check_calls_on_disk(artifact.path)
    except ImportError:
        warning = None  # the package is reported by itself
    except Exception as error:  # transformers raises what it likes on files that it can't read
        warning = f"its tokenizer can't be loaded ({type(error).__name__}: {error})"
    words = warning or f"{artifact.weight_bytes / 1e6:.0f} MB, {artifact.quantization}"
    return _Finding("warn" if warning else "ok", what, f"{chosen}: {words}"), artifact.weight_bytes


async def _check_tier(name: str, config: TierBase, app: AppConfig) -> _Finding:
    tier = make_tier(name, config, app.reliability.escalation.cloud_fallback)
    try:
        status = await tier.status()
    finally:
        await tier.close()
    if status.state is TierState.READY:
        return _Finding("ok", f"tier {name}", f"{status.model} is configured (no request was sent)")
    return _Finding("warn", f"tier {name}", f"{status.state.value}: {status.reason}")
