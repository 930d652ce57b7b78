"""The whole typed configuration: the `args` of `serve_config.yaml`, and the relations between its keys.

`load(raw)` is the one way in. It turns every mistake into one `ConfigError` whose message names the key and, for an
unknown key, the allowed ones: a person reads one line, not a stack.

The `user_config` of a deployment is a patch to that deployment's part of these args, applied live (no restart): for a
tier its own entry under `tiers`, for the Router the sections `reliability` and `server`. `patch` merges and checks it
by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from reliability.config import ReliabilityConfig
from reliability.tools import RETRY_STRATEGY, Rung

__all__ = [
    "ROUTER",
    "AppConfig",
    "ConfigError",
    "HostedTierConfig",
    "MlxTierConfig",
    "RouterConfig",
    "ScriptedTierConfig",
    "Section",
    "ServerConfig",
    "StateConfig",
    "TierBase",
    "TierConfig",
    "Timeouts",
    "check_names",
    "load",
    "patch",
]

TIER_NAME = r"^[a-z][a-z0-9_-]{0,31}$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"
# Scheme, host and port in lower case, as browsers send them; no `*` and no `null`, which any page can be.
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._-]+(:[0-9]{1,5})?|[a-z][a-z0-9+.-]*://\[[0-9a-f:.]+\](:[0-9]{1,5})?")
# The name of the ingress deployment.
ROUTER = "Router"
RESERVED_NAMES = frozenset({"auto"})


class ConfigError(ValueError):
    """The configuration can't be used. The message is one line that names the key."""


class Section(BaseModel):
    """A part of the configuration: immutable, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Timeouts(Section):
    """How long each phase of one attempt may last, in seconds.

    `connect_s`: until a replica has taken the request. `first_token_s`: from there to the first piece of the answer
    (prefill included). `idle_s`: silence between two pieces. `total_s`: the whole attempt.
    """

    connect_s: float = Field(default=3.0, gt=0, le=3600)
    first_token_s: float = Field(default=120.0, gt=0, le=3600)
    idle_s: float = Field(default=60.0, gt=0, le=3600)
    total_s: float = Field(default=600.0, gt=0, le=86400)

    @model_validator(mode="after")
    def _phases_fit_the_whole(self) -> Timeouts:
        for key in ("connect_s", "first_token_s", "idle_s"):
            if getattr(self, key) > self.total_s:
                raise ValueError(f"{key} ({getattr(self, key):g}) is over total_s ({self.total_s:g})")
        return self


class TierBase(Section):
    """What every tier kind has. `timeouts` None means the server's; replicas are those of its Serve deployment.

    `retry_strategy`: how the tier is asked again after an invalid tool call, one rung per re-ask. A weak model copies
    the failed attempt that it is shown, so `resample` may serve it better than `correct`.

    `replica_bytes`: the memory that one replica needs. None: for `mlx` what its model needs, else nothing.

    With `min_replicas: 0` the tier sleeps when it has had no request for `idle_s`. `asleep` says what becomes of the
    request that finds it so (and wakes it): see `deployments/sleeping.py`. It waits at most `wake_s`.
    """

    timeouts: Timeouts | None = None
    context_tokens: int | None = Field(default=None, ge=16, le=100_000_000)
    retry_strategy: tuple[Rung, ...] = Field(default=RETRY_STRATEGY, min_length=1, max_length=8)
    min_replicas: int = Field(default=1, ge=0, le=64)
    max_replicas: int = Field(default=1, ge=1, le=64)
    replica_bytes: int | None = Field(default=None, ge=0)
    asleep: Literal["wait", "next"] | None = None
    idle_s: float = Field(default=300.0, ge=15, le=604_800)
    wake_s: float = Field(default=120.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _min_replicas_fit(self) -> TierBase:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) is over max_replicas ({self.max_replicas})")
        return self


class MlxTierConfig(TierBase):
    """A local model in the replica's own process. `model` is a source (see `tiers/artifacts.py`) or `auto`; `adapter` a
    folder with a LoRA adapter for it, as mlx-lm's training writes it; `draft_model` the source of a smaller model with
    the same tokens, which guesses `draft_tokens` ahead.

    `memory_bytes` is what one replica may use: weights, one step, the running requests at their longest, and prompts
    kept for reuse, of which `prompt_cache_bytes` bounds the last. After `max_reasoning_tokens` of thinking the model is
    made to answer. `blas_threads`: threads of matrix products on a CPU.
    """

    kind: Literal["mlx"]
    model: str = Field(default="auto", min_length=1)
    adapter: str | None = Field(default=None, min_length=1)
    draft_model: str | None = Field(default=None, min_length=1)
    draft_tokens: int = Field(default=4, ge=1, le=32)
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_running: int = Field(default=8, ge=1, le=256)
    max_waiting: int = Field(default=16, ge=0, le=4096)
    memory_bytes: int | None = Field(default=None, ge=1 << 20, le=1 << 44)
    prompt_cache_bytes: int | None = Field(default=None, ge=0, le=1 << 44)
    max_reasoning_tokens: int | None = Field(default=8192, ge=1, le=10_000_000)
    blas_threads: int | None = Field(default=None, ge=1, le=256)

    def sources(self, name: str) -> tuple[tuple[str, str], ...]:
        """What it loads, each with the role that it has in the tier `name`."""
        draft = () if self.draft_model is None else ((f"{name} (draft)", self.draft_model),)
        return (name, self.model), *draft


class HostedTierConfig(TierBase):
    """Any OpenAI-compatible URL. `preset` fills what OpenRouter needs; keys set here win over it.

    `cloud`: whether requests leave this machine; None means: unless the URL is on loopback. The prices are US dollars
    per million tokens, both or neither; None is unknown (see `deployments/cost.py`).
    """

    kind: Literal["hosted"]
    preset: Literal["openrouter"] | None = None
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    model: str | None = Field(default=None, min_length=1)
    api_key_env: str | None = Field(default=None, pattern=ENV_NAME)
    headers: dict[str, str] = Field(default_factory=dict)
    cloud: bool | None = None
    usd_per_mtok_prompt: float | None = Field(default=None, ge=0, le=1_000_000)
    usd_per_mtok_completion: float | None = Field(default=None, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _knows_where_and_what(self) -> HostedTierConfig:
        if self.preset is None and (self.base_url is None or self.model is None):
            raise ValueError("a hosted tier needs base_url and model, or a preset (openrouter)")
        return self

    @model_validator(mode="after")
    def _has_both_prices_or_none(self) -> HostedTierConfig:
        if (self.usd_per_mtok_prompt is None) != (self.usd_per_mtok_completion is None):
            raise ValueError("usd_per_mtok_prompt and usd_per_mtok_completion are set together, or neither is")
        return self


class ScriptedTierConfig(TierBase):
    """Deterministic answers and faults: a file, or what could stand in it (see `tiers/scripted.py`). `cloud`: the tier
    plays one that is not on this machine."""

    kind: Literal["scripted"]
    script: str | list[dict[str, Any]] | dict[str, Any]
    seed: int = 0
    cloud: bool = False


TierConfig = Annotated[MlxTierConfig | HostedTierConfig | ScriptedTierConfig, Field(discriminator="kind")]


class StateConfig(Section):
    """What the state actor keeps, and where: `path` is the folder of its journal, by default in the user's state
    directory, a folder for each app."""

    path: str | None = Field(default=None, min_length=1)
    reports_max: int = Field(default=1000, ge=1, le=1_000_000)
    sessions_max: int = Field(default=10_000, ge=1, le=10_000_000)
    session_ttl_s: float = Field(default=86_400.0, ge=1, le=10**8)
    incidents_max: int = Field(default=100_000, ge=1, le=10_000_000)
    incidents_days: float = Field(default=30.0, gt=0, le=3650)
    journal_bytes_max: int = Field(default=268_435_456, ge=1_048_576, le=10**12)


class ServerConfig(Section):
    """The HTTP edge. `aliases` maps model names that clients send to tiers (or to `auto`); `deadline_s` bounds a whole
    request, over all of its attempts, and `body_s` the time that its body takes (`wire/body.py`). For the API keys see
    `api_keys.py`, for `allow_open` `access.py`; `cors_origins` are the web pages that may ask (`edge.py`)."""

    aliases: dict[str, str] = Field(default_factory=dict)
    body_bytes_max: int = Field(default=10_485_760, ge=1024, le=268_435_456)
    body_s: float = Field(default=30.0, gt=0, le=3600)
    keepalive_s: float = Field(default=10.0, gt=0, le=300)
    timeouts: Timeouts = Timeouts()
    attempts_max: int = Field(default=8, ge=1, le=64)
    router_replicas: int = Field(default=1, ge=1, le=64)
    deadline_s: float = Field(default=900.0, gt=0, le=86400)
    max_ongoing_requests: int = Field(default=256, ge=1, le=100_000)
    api_keys_file: str | None = Field(default=None, min_length=1)
    api_keys_env: str = Field(default="MLX_STACK_API_KEYS", pattern=ENV_NAME)
    allow_open: bool = Field(default=False, strict=True)
    cors_origins: tuple[str, ...] = Field(default=(), max_length=64)

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not ORIGIN.fullmatch(origin):
                words = "as a browser names it is needed: https://app.example.com, with a port where it isn't the usual"
                raise ValueError(f"an origin {words}, and nothing after it (got {origin[:100]!r})")
        return origins


class RouterConfig(Section):
    """The Router's part of the configuration: what its `user_config` may patch."""

    reliability: ReliabilityConfig = ReliabilityConfig()
    server: ServerConfig = ServerConfig()


class AppConfig(RouterConfig):
    """All of `args`."""

    tiers: dict[Annotated[str, Field(pattern=TIER_NAME)], TierConfig] = Field(min_length=1, max_length=16)
    state: StateConfig = StateConfig()

    @model_validator(mode="after")
    def _names_exist(self) -> AppConfig:
        check_names(self, tuple(self.tiers))
        return self


def check_names(config: RouterConfig, tiers: tuple[str, ...]) -> None:
    """Raise ValueError where the chain or an alias names a tier that doesn't exist."""
    known = ", ".join(tiers)
    for name in tiers:
        if name in RESERVED_NAMES:
            raise ValueError(f"tiers.{name}: the name is taken by the server; choose another")
    for name in config.reliability.escalation.chain:
        if name not in tiers:
            raise ValueError(f"reliability.escalation.chain: there is no tier {name!r}; tiers: {known}")
    judge = config.reliability.circuit_breaker.judge_tier
    if judge is not None and judge not in tiers:
        raise ValueError(f"reliability.circuit_breaker.judge_tier: there is no tier {judge!r}; tiers: {known}")
    for alias, name in config.server.aliases.items():
        if name not in (*tiers, "auto"):
            raise ValueError(f"server.aliases.{alias}: there is no tier {name!r}; tiers: {known}, auto")


SectionT = TypeVar("SectionT", bound=BaseModel)


def load(raw: object) -> AppConfig:
    """Check the raw `args` and return the typed configuration.

    Raises:
        ConfigError: one line that names the key, and the allowed ones for an unknown key.
    """
    if not isinstance(raw, Mapping):
        raise ConfigError("args: a mapping with the keys tiers, reliability, state, server is needed")
    return _validated(AppConfig, raw)


def patch(config: SectionT, change: Mapping[str, Any]) -> SectionT:
    """Return `config` with `change` merged in (mappings by key, other values replaced), checked anew.

    Raises:
        ConfigError: as `load`.
    """
    merged = _merged(config.model_dump(mode="json", exclude_unset=True), change)
    return _validated(type(config), merged)


def _merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(base)
    for key, value in change.items():
        old = out.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        out[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return out


def _validated(model: type[SectionT], raw: Mapping[str, Any]) -> SectionT:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(_one_line(model, error)) from None


def _one_line(model: type[BaseModel], error: ValidationError) -> str:
    """Say the first mistake, an unknown key before all others (it explains a missing one), and how many there are."""
    mistakes = error.errors(include_url=False, include_context=False, include_input=False)
    first = next((m for m in mistakes if m["type"] == "extra_forbidden"), mistakes[0])
    path = _path_of(first["loc"])
    if first["type"] == "extra_forbidden":
        allowed = ", ".join(_allowed_keys(model, first["loc"][:-1]))
        line = f"{path}: unknown key; allowed here: {allowed}"
    else:
        words = first["msg"].removeprefix("Value error, ")
        line = f"{path}: {words}" if path and not words.startswith(f"{path}") else words
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return line + more


KINDS: dict[str, type[BaseModel]] = {
    "mlx": MlxTierConfig,
    "hosted": HostedTierConfig,
    "scripted": ScriptedTierConfig,
}


def _path_of(loc: tuple[int | str, ...]) -> str:
    """The path as it stands in the file: without the tag that pydantic puts in for the kind of a tier."""
    parts = [str(part) for i, part in enumerate(loc) if not (part in KINDS and i == 2 and loc[0] == "tiers")]
    return ".".join(parts)


def _allowed_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys of the section at `loc`."""
    here: Any = model
    for i, part in enumerate(loc):
        if part in KINDS and i == 2:
            here = KINDS[str(part)]
        elif isinstance(here, type) and issubclass(here, BaseModel) and part in here.model_fields:
            here = _section_in(here.model_fields[str(part)].annotation)
    return sorted(here.model_fields) if isinstance(here, type) and issubclass(here, BaseModel) else []


def _section_in(annotation: Any) -> Any:
    """The section class inside an annotation such as `Timeouts | None`."""
    choices = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in choices if isinstance(c, type) and issubclass(c, BaseModel)), annotation)
