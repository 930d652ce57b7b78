"""The whole typed configuration: the `args` of `serve_config.yaml`, and the relations between its keys.

What a key means stands in the docstring below it, once: docs/configuration.md and docs/serve_config.schema.json are
written from here (`make docs`).
The `user_config` of a deployment is a patch to its part of these args, applied live: `patch` merges and checks it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from deployments.config.config_errors import ConfigError, first_mistake
from deployments.config.tier_config import TierConfig, Timeouts
from reliability.config import ReliabilityConfig, Section, VariableName

_TIER_NAME = r"^[a-z][a-z0-9_-]{0,31}$"
# Scheme, host and port in lower case, as browsers send them; no `*` and no `null`, which any page can be.
_ORIGIN = re.compile(
    r"[a-z][a-z0-9+.-]*://[a-z0-9._-]+(:[0-9]{1,5})?|[a-z][a-z0-9+.-]*://\[[0-9a-f:.]+\](:[0-9]{1,5})?"
)
ROUTER = "Router"  # the name of the ingress deployment


class StateConfig(Section):
    """What the state actor keeps, where and for how long: budgets, breakers, sessions, reports, incidents."""

    path: str | None = Field(default=None, min_length=1)
    """the folder of the journal; not set: the application's own in the user's state directory. Two servers on one
    machine need one each"""
    reports_max: int = Field(default=100_000, ge=1, le=1_000_000)
    """reports of finished requests that are kept, for as many days as incidents are"""
    sessions_max: int = Field(default=10_000, ge=1, le=10_000_000)
    """sessions that are remembered"""
    session_ttl_s: float = Field(default=86_400.0, ge=1, le=10**8)
    """an idle session is forgotten after this, and its budget with it"""
    incidents_max: int = Field(default=100_000, ge=1, le=10_000_000)
    """incidents that are kept"""
    incidents_days: float = Field(default=30.0, gt=0, le=3650)
    """and for how many days"""
    journal_bytes_max: int = Field(default=268_435_456, ge=1_048_576, le=10**12)
    """the size of the journal's file; over it, the API key whose reports and incidents are largest loses its oldest"""
    responses_bytes_max: int = Field(default=67_108_864, ge=0, le=10**12)
    """what responses of `/v1/responses` take that are kept to go on from, compressed: prompts and answers, in the
    journal; over it, the API key that stores most loses its oldest; 0: none is kept"""
    responses_ttl_s: float = Field(default=86_400.0, ge=1, le=10**8)
    """and for how many seconds each"""


class ServerConfig(Section):
    """The HTTP side: names, bounds of a request, who may ask."""

    aliases: dict[str, str] = Field(default_factory=dict, max_length=256)
    """model names that clients send, or patterns of them, to tiers or `auto`: `gpt-4o: standard`, `claude-haiku*:
    fast`. Names of Claude and GPT that stand in none of them are `auto`"""
    body_bytes_max: int = Field(default=10_485_760, ge=1024, le=268_435_456)
    """a larger body is a 413"""
    body_s: float = Field(default=30.0, gt=0, le=3600)
    """a body may take this long, and a second more for each 32 KiB of it; a slower one is a 408"""
    keepalive_s: float = Field(default=10.0, gt=0, le=300)
    """silence in a stream before a comment is sent"""
    timeouts: Timeouts = Timeouts()
    """the timeouts of tiers that have none of their own"""
    attempts_max: int = Field(default=8, ge=1, le=64)
    """calls to tiers for one request"""
    router_replicas: int = Field(default=1, ge=1, le=64)
    """replicas of the Router"""
    deadline_s: float = Field(default=900.0, gt=0, le=86400)
    """one request, over all its attempts"""
    max_ongoing_requests: int = Field(default=256, ge=1, le=100_000)
    """requests that one replica of the Router has at once"""
    api_keys_file: str | None = Field(
        default=None, min_length=1, description='a YAML file of API keys: docs/operations.md, "API keys"'
    )
    api_keys_env: VariableName = "MLX_STACK_API_KEYS"
    """the environment variable that holds API keys: `NAME:KEY,NAME:KEY:admin,NAME:KEY:local-only`"""
    allow_open: bool = Field(default=False, strict=True)
    """without API keys, listen on other interfaces than loopback all the same"""
    keep_awake: Literal["requests", "always", "never"] = "requests"
    """when a Mac on mains power is kept from idle sleep: while requests run and five minutes longer, always, or
    never"""
    cors_origins: tuple[str, ...] = Field(default=(), max_length=64)
    """web pages that may ask, besides this machine's own: `[https://app.example.com]`"""

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                words = "as a browser names it is needed: https://app.example.com, with a port where it isn't the usual"
                raise ValueError(f"an origin {words}, and nothing after it (got {origin[:100]!r})")
        return origins


class EvaluateConfig(Section):
    """What `mlx-stack-serve evaluate` holds a tier against. The server itself doesn't read it."""

    tasks_passed_min: float = Field(default=0.6, ge=0, le=1)
    """share of whole tasks that are passed, at least"""
    calls_right_min: float = Field(default=0.8, ge=0, le=1)
    """share of right tool calls, at least"""
    first_token_s_max: float = Field(default=10.0, gt=0)
    """seconds until the first token, at most"""
    tokens_s_min: float = Field(default=5.0, ge=0)
    """tokens a second once it writes, at least"""
    prompt_tokens: int = Field(default=1024, ge=16, le=1_000_000)
    """the prompt's length at which the two speeds are held against it"""


class TelemetryConfig(Section):
    """What is sent to others about the requests: nothing, unless it is asked for."""

    traces: bool = Field(default=False, strict=True)
    """each request's spans go to an OTLP collector, over HTTP: where, and how, say OpenTelemetry's own variables,
    `OTEL_EXPORTER_OTLP_ENDPOINT` first (not set: `http://localhost:4318`). Needs `pip install
    'mlx-stack-serve[otel]'`"""


class RouterConfig(Section):
    """The Router's part of the configuration: what its `user_config` may patch."""

    reliability: ReliabilityConfig = ReliabilityConfig()
    """what is checked, bounded, retried"""
    server: ServerConfig = ServerConfig()
    """the HTTP side"""


class AppConfig(RouterConfig):
    """All of `args`."""

    tiers: dict[Annotated[str, Field(pattern=_TIER_NAME)], TierConfig] = Field(min_length=1, max_length=16)
    """the tiers by name, one to 16; `auto` is no name for one"""
    state: StateConfig = StateConfig()
    """what is kept, and where"""
    telemetry: TelemetryConfig = TelemetryConfig()
    """what is sent to others"""
    evaluate: EvaluateConfig = EvaluateConfig()
    """when a tier is good enough"""

    @model_validator(mode="after")
    def _names_exist(self) -> AppConfig:
        check_names(self, tuple(self.tiers))
        return self


def check_names(config: RouterConfig, tiers: tuple[str, ...]) -> None:
    """Raise ValueError where the chain or an alias names a tier that doesn't exist."""
    known = ", ".join(tiers)
    if "auto" in tiers:
        raise ValueError("tiers.auto: the name is taken by the server; choose another")
    for name in config.reliability.escalation.chain:
        if name not in tiers:
            raise ValueError(f"reliability.escalation.chain: there is no tier {name!r}; tiers: {known}")
    for rule in config.reliability.escalation.start_at:
        if rule.tier not in config.reliability.escalation.chain:
            raise ValueError(f"reliability.escalation.start_at: {rule.tier!r} is no tier of the chain")
    judge = config.reliability.circuit_breaker.judge_tier
    if judge is not None and judge not in tiers:
        raise ValueError(f"reliability.circuit_breaker.judge_tier: there is no tier {judge!r}; tiers: {known}")
    for alias, name in config.server.aliases.items():
        if name not in (*tiers, "auto"):
            raise ValueError(f"server.aliases.{alias}: there is no tier {name!r}; tiers: {known}, auto")


_SectionT = TypeVar("_SectionT", bound=BaseModel)


def load(raw: object) -> AppConfig:
    """Check the raw `args` and return the typed configuration. Raises ConfigError: one line that names the key."""
    if not isinstance(raw, Mapping):
        raise ConfigError("args: a mapping with the keys tiers, reliability, state, server is needed")
    return _validate(AppConfig, raw)


def patch(config: _SectionT, change: Mapping[str, Any]) -> _SectionT:
    """Return `config` with `change` merged in by key, checked anew. Raises ConfigError: as `load`."""
    merged = _merge(config.model_dump(mode="json", exclude_unset=True), change)
    return _validate(type(config), merged)


def _merge(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in change.items():
        old = out.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        out[key] = _merge(old, value) if both else value  # type: ignore[arg-type]
    return out


def _validate(model: type[_SectionT], raw: Mapping[str, Any]) -> _SectionT:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(first_mistake(model, error)) from None
