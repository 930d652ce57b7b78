"""The configuration: every mistake is one line that names the key, and every accepted key has an effect."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel
from ray.serve.schema import ServeDeploySchema
from starlette.requests import Request

from deployments.app import build
from deployments.config import (
    AppConfig,
    ConfigError,
    HostedTierConfig,
    MlxTierConfig,
    ScriptedTierConfig,
    load,
    patch,
)
from deployments.config_file import read_file
from deployments.drive import Run, drive
from deployments.plan import chain_for, expected_of, limits_of
from deployments.ports import Ports
from deployments.router import _body
from deployments.state.actor import SessionState
from deployments.telemetry import MonotonicClock
from deployments.tiers.hosted import HostedTier
from deployments.tiers.mlx import MlxTier
from deployments.tiers.replica import make_tier
from deployments.tiers.scripted import ScriptedTier
from deployments.wire.chat import parse_chat
from deployments.wire.errors import ApiError
from deployments.wire.stream import paced
from reliability.config import NOT_BUILT
from reliability.gate import Hold
from reliability.tools import build_toolbox
from reliability.types import ChatRequest, Fault, Flaw
from tests import upstream as plays
from tests.upstream import Upstream

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
    """The base configuration with one key changed."""
    raw = copy.deepcopy(BASE)
    if path:
        *sections, key = path.split(".")
        here = raw
        for section in sections:
            here = here.setdefault(section, {})
        here[key] = value
    return load(raw)


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("bogus", 1, "bogus: unknown key; allowed here: reliability, server, state, tiers"),
        ("tiers.fast.bogus", 1, "tiers.fast.bogus: unknown key; allowed here: context_tokens, kind, max_replicas"),
        (
            "tiers.m.bogus",
            1,
            "tiers.m.bogus: unknown key; allowed here: context_tokens, kind, max_replicas, max_running",
        ),
        ("tiers.fast.timeouts.bogus", 1, "tiers.fast.timeouts.bogus: unknown key; allowed here: connect_s"),
        ("reliability.bogus", 1, "reliability.bogus: unknown key; allowed here: escalation, loop_detection"),
        ("reliability.escalation.bogus", 1, "reliability.escalation.bogus: unknown key; allowed here: chain"),
        ("server.timeouts.bogus", 1, "server.timeouts.bogus: unknown key; allowed here: connect_s"),
        ("tiers.fast.kind", "cloud", "tiers.fast: Input tag 'cloud'"),
        ("tiers.Fast", {"kind": "mlx"}, "tiers.Fast"),
        ("tiers.auto", {"kind": "mlx"}, "tiers.auto: the name is taken"),
        ("tiers", {}, "tiers: "),
        ("tiers.x", {"kind": "hosted"}, "tiers.x: a hosted tier needs base_url and model, or a preset"),
        ("tiers.m.min_replicas", 5, "tiers.m: min_replicas (5) is over max_replicas (1)"),
        (
            "reliability.escalation.chain",
            ["fast", "best"],
            "there is no tier 'best'; tiers: fast, standard, m, premium",
        ),
        ("reliability.escalation.chain", ["fast", "fast"], "chain names a tier twice: fast"),
        ("reliability.escalation.chain", [], "reliability.escalation.chain: "),
        ("reliability.escalation.escalate_on", ["boredom"], "reliability.escalation.escalate_on.0: "),
        ("server.timeouts", {"first_token_s": 700, "total_s": 600}, "first_token_s (700) is over total_s (600)"),
        ("server.aliases", {"gpt": "best"}, "server.aliases.gpt: there is no tier 'best'"),
        ("server.body_bytes_max", "ten", "server.body_bytes_max: "),
        ("reliability.token_budget.max_output_tokens", 0, "reliability.token_budget.max_output_tokens: "),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(path, value, line):
    """What can't be used is refused in one line, with the key's path as it stands in the file."""
    with pytest.raises(ConfigError) as caught:
        config_of(path, value)

    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", NOT_BUILT)
def test_what_is_not_built_is_refused_not_ignored(path):
    """A key of the full design that this version doesn't have yet is refused by its name."""
    with pytest.raises(ConfigError, match=rf"reliability\.{path}: not built yet"):
        config_of(f"reliability.{path}", {} if "." not in path else 1)


@pytest.mark.parametrize("raw", [None, [], "tiers"])
def test_args_that_are_no_mapping(raw):
    """A file that has lost its indentation is told so."""
    with pytest.raises(ConfigError, match="args"):
        load(raw)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "is not YAML"),
        ("[]", "applications: a list is needed"),
        ("applications: []", "exactly one with import_path deployments.app:build"),
        ("applicatoins: []\napplications: []", "applicatoins: unknown key"),
        ("applications: [{import_path: 'deployments.app:build', nmae: x}]", "applications.0.nmae: unknown key"),
        (
            "applications: [{import_path: 'deployments.app:build', args: {tiers: {fast: {kind: mlx}}, "
            "reliability: {escalation: {chain: [fast]}}}, deployments: [{name: slow}]}]",
            "deployments.0.name: there is no deployment 'slow'; deployments: Router, fast",
        ),
        (
            "applications: [{import_path: 'deployments.app:build', args: {tiers: {fast: {kind: mlx}}, "
            "reliability: {escalation: {chain: [fast]}}}, deployments: [{name: fast, user_config: {modle: x}}]}]",
            "deployments.0.user_config: modle: unknown key",
        ),
        (
            "applications: [{import_path: 'deployments.app:build', args: {tiers: {fast: {kind: mlx}}, "
            "reliability: {escalation: {chain: [fast]}}}, deployments: [{name: fast, num_replica: 2}]}]",
            "applications.0.deployments.0.num_replica: unknown key",
        ),
    ],
)
def test_a_file_is_checked_whole(tmp_path, text, line):
    """Also the parts that Ray Serve accepts without a word: misspelt keys, deployments that don't exist."""
    path = tmp_path / "serve_config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_file(path)

    assert line in str(caught.value)


def test_a_missing_file_is_said_so(tmp_path):
    """A wrong path isn't a stack trace."""
    with pytest.raises(ConfigError, match="can't be read"):
        read_file(tmp_path / "none.yaml")


def test_the_shipped_file_is_good():
    """`serve_config.yaml` passes our check and Ray Serve's, and its chain is the user's."""
    from pathlib import Path

    import yaml

    path = Path(__file__).parents[1] / "serve_config.yaml"
    config = read_file(path)
    ServeDeploySchema.model_validate(yaml.safe_load(path.read_text()))

    assert config.args.reliability.escalation.chain == ("fast", "standard", "longctx", "premium")
    assert (config.host, config.port) == ("127.0.0.1", 8000)


def test_a_patch_keeps_what_it_does_not_name():
    """`user_config` merges by key, and the result is checked like the whole."""
    config = config_of("server.aliases", {"a": "fast"})
    patched = patch(config, {"server": {"keepalive_s": 3}})

    assert patched.server.aliases == {"a": "fast"}
    assert patched.server.keepalive_s == 3
    with pytest.raises(ConfigError, match=r"server\.keepalive_s"):
        patch(config, {"server": {"keepalive_s": -1}})


# -- every key has an effect ---------------------------------------------------------------------------------------

REQUEST = ChatRequest(
    request_id="r",
    session_id="s",
    messages=({"role": "user", "content": "hi"},),
    max_tokens=200,
    timeout_s=30.0,
)


def run(config: AppConfig, model: str = "auto", deadline_s: float = 30.0, request: ChatRequest = REQUEST) -> Run:
    """Drive one request through the configured scripted tiers."""

    async def go() -> Run:
        names = chain_for(config, config.tiers, model)
        cloud = config.reliability.escalation.cloud_fallback
        tiers = {name: make_tier(name, config.tiers[name], cloud) for name in names}
        clock = MonotonicClock()
        deadline_ns = clock.now_ns() + int(deadline_s * 1e9)
        toolbox = build_toolbox(request.tools)
        strategies = {name: config.tiers[name].retry_strategy for name in names}
        one = Run(
            request=request,
            expected=expected_of(config, request, toolbox),
            chain=names,
            limits=limits_of(config, strategies),
            deadline_ns=deadline_ns,
            hold=Hold.ALL,
        )
        timeouts = {name: config.tiers[name].timeouts or config.server.timeouts for name in names}
        async for _ in drive(one, Ports(tiers=tiers, timeouts=timeouts, clock=clock, jitter=lambda: 0.0)):
            pass
        return one

    return asyncio.run(go())


def broken(step: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "scripted", "script": [{"answer": [step]}]}


def with_broken_fast(step: dict[str, Any], path: str, value: Any) -> AppConfig:
    raw = copy.deepcopy(BASE)
    raw["tiers"]["fast"] = broken(step)
    *sections, key = path.split(".")
    here = raw
    for section in sections:
        here = here.setdefault(section, {})
    here[key] = value
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


def enabled() -> None:
    assert chain_for(config_of("reliability.escalation.enabled", False), BASE["tiers"], "auto") == ("fast",)
    assert chain_for(config_of(), BASE["tiers"], "auto") == ("fast", "standard")


def chain() -> None:
    assert chain_for(config_of("reliability.escalation.chain", ["standard"]), BASE["tiers"], "auto") == ("standard",)


def max_retries() -> None:
    for retries in (0, 2):
        one = run(with_broken_fast({"status": 500}, "reliability.escalation.max_retries_before_escalate", retries))
        assert [a.tier for a in one.attempts] == ["fast"] * (retries + 1) + ["standard"]


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


TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}},
}
WITH_TOOL = replace(REQUEST, tools=(TOOL,))


def flaw_of(path: str, value: Any, call: dict[str, Any], messages: tuple[Any, ...] = REQUEST.messages) -> Flaw | None:
    """The flaw of an answer with one call, under the base configuration with one key changed."""
    config = with_broken_fast({"tool_call": call}, path, value)
    return run(config, request=replace(WITH_TOOL, messages=messages)).attempts[0].flaw


def switch(path: str, off: Any, call: dict[str, Any]) -> Callable[[], None]:
    """A check that is on by default finds the call; switched off it doesn't."""

    def check() -> None:
        assert flaw_of("server.keepalive_s", 5, call) is Flaw.TOOL_CALL_INVALID
        assert flaw_of(path, off, call) is None

    return check


def lapped(laps: int, results: list[str] | None = None) -> tuple[Any, ...]:
    """A history in which `f` was called `laps` times with the same result."""
    out: list[Any] = list(REQUEST.messages)
    for lap in range(laps):
        call = {"name": "f", "arguments": '{"a": "x"}'}
        out.append({"role": "assistant", "tool_calls": [{"id": f"l{lap}", "type": "function", "function": call}]})
        out.append({"role": "tool", "tool_call_id": f"l{lap}", "content": results[lap] if results else "same"})
    return tuple(out)


SAME = {"name": "f", "arguments": {"a": "x"}}


def loop_key(key: str, value: Any, laps: int, before: Flaw | None, after: Flaw | None) -> Callable[[], None]:
    """With `laps` laps in the history the next one is `before` by default, and `after` with the key changed."""

    def check() -> None:
        assert flaw_of("server.keepalive_s", 5, SAME, lapped(laps)) is before
        assert flaw_of(f"reliability.loop_detection.{key}", value, SAME, lapped(laps)) is after

    return check


def text_loop(key: str, value: Any, texts: list[str], before: Flaw | None, after: Flaw | None) -> Callable[[], None]:
    """The same for texts that are alike."""

    def flaw(path: str, setting: Any) -> Flaw | None:
        history = tuple({"role": "assistant", "content": text} for text in texts[:-1])
        config = with_broken_fast({"text": texts[-1]}, path, setting)
        return run(config, request=replace(REQUEST, messages=(*REQUEST.messages, *history))).attempts[0].flaw

    def check() -> None:
        assert flaw("server.keepalive_s", 5) is before
        assert flaw(f"reliability.loop_detection.{key}", value) is after

    return check


def near_threshold() -> None:
    results = [
        f"{words} and then the very same long line of output follows again" for words in ("a b", "c d", "e f", "g h")
    ]
    history = lapped(4, results)
    assert flaw_of("reliability.loop_detection.near_threshold", 0.5, SAME, history) is Flaw.CIRCUIT_BREAK
    assert flaw_of("reliability.loop_detection.near_threshold", 1.0, SAME, history) is None


def max_period() -> None:
    history = list(REQUEST.messages)
    for lap in range(4):
        call = {"name": "f", "arguments": f'{{"a": "{"xy"[lap % 2]}"}}'}
        history.append({"role": "assistant", "tool_calls": [{"id": f"l{lap}", "type": "function", "function": call}]})
        history.append({"role": "tool", "tool_call_id": f"l{lap}", "content": "same"})
    assert flaw_of("reliability.loop_detection.max_period", 2, SAME, tuple(history)) is Flaw.LOOP
    assert flaw_of("reliability.loop_detection.max_period", 1, SAME, tuple(history)) is None


def pollers(key: str, value: Any, laps: int, after: Flaw | None) -> Callable[[], None]:
    def check() -> None:
        raw = copy.deepcopy(BASE)
        raw["tiers"]["fast"] = broken({"tool_call": SAME})
        raw["reliability"]["loop_detection"] = {"pollers": ["f"]}
        request = replace(WITH_TOOL, messages=lapped(laps))
        before = run(load(raw), request=request).attempts[0].flaw
        raw["reliability"]["loop_detection"][key] = value
        assert before is None
        assert run(load(raw), request=request).attempts[0].flaw is after

    return check


def ignored_arguments() -> None:
    history = list(REQUEST.messages)
    for lap in range(2):
        call = {"name": "f", "arguments": f'{{"a": "x", "note": "{lap}"}}'}
        history.append({"role": "assistant", "tool_calls": [{"id": f"l{lap}", "type": "function", "function": call}]})
        history.append({"role": "tool", "tool_call_id": f"l{lap}", "content": "same"})
    call = {"name": "f", "arguments": {"a": "x", "note": "2"}}
    assert flaw_of("reliability.loop_detection.ignored_arguments", ["note"], call, tuple(history)) is Flaw.LOOP
    assert flaw_of("reliability.loop_detection.ignored_arguments", [], call, tuple(history)) is None


BAD_CALL = {"tool_call": {"name": "f", "arguments": "{"}}


def reasks(path: str, value: Any, expected: int) -> Callable[[], None]:
    def check() -> None:
        one = run(with_broken_fast(BAD_CALL, path, value), request=WITH_TOOL)
        assert sum(a.tier == "fast" for a in one.attempts) == expected

    return check


def corrections(config: AppConfig) -> list[bool]:
    """Whether each call to `fast` was shown a correction, as a hosted tier's upstream sees it."""
    with Upstream() as upstream:
        upstream.plays("m", plays.tools(("f", "{")))
        raw = config.model_dump(mode="json", exclude_unset=True)
        own = raw["tiers"]["fast"].get("retry_strategy")
        raw["tiers"]["fast"] = {"kind": "hosted", "base_url": upstream.base_url, "model": "m"}
        raw["tiers"]["fast"] |= {"retry_strategy": own} if own else {}
        run(load(raw), request=WITH_TOOL)
        return [len(seen.body["messages"]) > 1 for seen in upstream.log]


def retry_with_correction() -> None:
    assert corrections(config_of()) == [False, True, False, False]
    assert not any(corrections(config_of("reliability.tool_validation.retry_with_correction", False)))


def retry_strategy() -> None:
    assert corrections(config_of("tiers.fast.retry_strategy", ["resample", "correct"])) == [False, False, True, True]


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
    raw = copy.deepcopy(BASE)
    raw["tiers"]["fast"] |= {"min_replicas": 2, "max_replicas": 3}
    scale = options_of(load(raw), "fast")._deployment_config.autoscaling_config
    assert (scale.min_replicas, scale.max_replicas) == (2, 3)
    assert options_of(config_of(), "fast")._deployment_config.num_replicas == 1


def mlx_model() -> None:
    assert status_of(config_of("tiers.m.model", "path:elsewhere"), "m").model == "path:elsewhere"


def mlx_temperature() -> None:
    tier = make_tier(
        "m", config_of("tiers.m.temperature", 0.25).tiers["m"], config_of().reliability.escalation.cloud_fallback
    )
    assert isinstance(tier, MlxTier)
    assert tier._temperature == 0.25
    asyncio.run(tier.close())


def mlx_slots() -> None:
    raw = copy.deepcopy(BASE)
    few, more = (
        options_of(load(raw | {"tiers": raw["tiers"] | {"m": raw["tiers"]["m"] | change}}), "m").max_ongoing_requests
        for change in ({"max_running": 1, "max_waiting": 0}, {"max_running": 2, "max_waiting": 5})
    )
    assert more - few == 6


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
            raw = copy.deepcopy(BASE)
            raw["tiers"]["fast"] = {"kind": "hosted", **keys, **preset}
            assert run(load(raw)).finish is not None
            seen = upstream.log[-1]
            assert seen.body["model"] == "x/y"
            assert seen.headers["x-a"] == "b"
            assert seen.headers["authorization"].startswith("Bearer ")
            assert ("x-title" in seen.headers) == bool(preset)


def scripted_script() -> None:
    assert run(config_of("tiers.fast.script", [{"answer": [{"unavailable": "x"}]}])).tier == "standard"


def scripted_seed() -> None:
    def texts(seed: int) -> list[str]:
        rules = [{"weight": 1, "answer": word} for word in ("one", "two", "three", "four")]
        raw = copy.deepcopy(BASE)
        raw["tiers"]["fast"] = {"kind": "scripted", "script": rules, "seed": seed}
        return answers(load(raw), 12)

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


def state_bounds() -> None:
    state = config_of("state", {"reports_max": 1, "sessions_max": 1}).state
    actor = SessionState(**state.model_dump())
    for name in ("a", "b"):
        actor.record({"request_id": name, "session": name, "attempts": []})
    assert (actor.report("a"), actor.session("a")) == (None, None)
    assert actor.report("b") is not None
    assert actor.session("b") is not None


def aliases() -> None:
    config = config_of("server.aliases", {"gpt": "standard"})
    assert chain_for(config, config.tiers, "gpt") == ("standard",)
    with pytest.raises(ApiError):
        chain_for(config_of(), config.tiers, "gpt")


def body_bytes_max() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"x" * 2000, "more_body": False}

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    with pytest.raises(ApiError, match=r"over 1024 bytes"):
        asyncio.run(_body(request, config_of("server.body_bytes_max", 1024).server.body_bytes_max))


def keepalive_s() -> None:
    async def silent():
        await asyncio.get_running_loop().create_future()
        yield b""

    async def first() -> Any:
        batches = paced(silent(), config_of("server.keepalive_s", 0.01).server.keepalive_s)
        try:
            return await anext(batches)
        finally:
            await batches.aclose()

    assert asyncio.run(asyncio.wait_for(first(), 5)) is None


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


WORDS = "the quick brown fox jumps over the lazy dog again and again until the day is done and nobody is left to see it"
ALIKE = [WORDS, WORDS, WORDS.replace("nobody", "somebody")]
UNKNOWN = {"name": "nobody", "arguments": {}}
WRONG = {"name": "f", "arguments": {"a": 5}}
PLACEHOLDER = {"name": "f", "arguments": {"a": "<your_text>"}}

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
