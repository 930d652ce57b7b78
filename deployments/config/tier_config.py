"""What `tiers` in `serve_config.yaml` may say: one section a tier, by its kind.

As in `deployments/config/app_config.py`, what a key means stands in the docstring below it, and nowhere else.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from reliability.config import Section, VariableName
from reliability.escalation.decisions import RETRY_STRATEGY, RetryStep


class Timeouts(Section):
    """How long each phase of one attempt (one call to one tier) may last, in seconds."""

    connect_s: float = Field(default=3.0, gt=0, le=3600)
    """until a replica has taken the request"""
    first_token_s: float = Field(default=120.0, gt=0, le=3600)
    """from there to the first piece of the answer, prefill and hidden reasoning included (an API's comments are no
    piece); at the end of the chain it begins anew as long as an `mlx` tier reads on"""
    idle_s: float = Field(default=60.0, gt=0, le=3600)
    """silence between two pieces of the answer"""
    total_s: float = Field(default=600.0, gt=0, le=86400)
    """the whole attempt; none of the other three may be longer"""

    @model_validator(mode="after")
    def _phases_fit_the_whole(self) -> Timeouts:
        for key in ("connect_s", "first_token_s", "idle_s"):
            if getattr(self, key) > self.total_s:
                raise ValueError(f"{key} ({getattr(self, key):g}) is over total_s ({self.total_s:g})")
        return self


class TierBase(Section):
    """What a tier of every kind has. Each tier is a Ray Serve deployment of its own, with replicas of its own."""

    timeouts: Timeouts | None = None
    """the four keys of `server.timeouts`, for this tier; not set: the server's"""
    context_tokens: int | None = Field(default=None, ge=16, le=100_000_000)
    """tokens of prompt and answer together; not set: what the model says of itself. A prompt that can't fit goes to the
    next tier"""
    retry_strategy: tuple[RetryStep, ...] = Field(default=RETRY_STRATEGY, min_length=1, max_length=8)
    """how the tier is asked again after an invalid tool call, a step for each time: `correct` says what was wrong,
    `resample` asks the same again, `constrain` has an `mlx` tier decode under the tools' grammar. A weak model copies
    the failed attempt that it is shown, so `resample` may serve it better than `correct`"""
    min_replicas: int = Field(default=1, ge=0, le=64)
    """replicas of the tier, at least; 0: the model is loaded when it is asked for, which is what the tiers `standard`
    and `longctx` with `model: auto` do where nothing is set"""
    max_replicas: int = Field(default=1, ge=1, le=64)
    """replicas of the tier, at most; between the two Ray Serve scales by load"""
    replica_bytes: int | None = Field(default=None, ge=0)
    """memory of one replica: leased before it loads, asked of Ray, counted when tiers grow; not set: what the model of
    an `mlx` tier needs, else nothing"""
    asleep: Literal["wait", "next"] | None = None
    """with `min_replicas: 0`, what becomes of the request that wakes the tier: it waits for it, or goes on along the
    chain; not set: `next` where a local tier that is awake follows in the chain, else `wait`"""
    idle_s: float = Field(default=300.0, ge=15, le=604_800)
    """with `min_replicas: 0`, seconds without a request until the tier sleeps and its memory is free"""
    wake_s: float = Field(default=120.0, gt=0, le=3600)
    """with `min_replicas: 0`, the longest wait for a tier that wakes"""

    @model_validator(mode="after")
    def _min_replicas_fit(self) -> TierBase:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) is over max_replicas ({self.max_replicas})")
        return self


class DeferringTier(TierBase):
    """A tier that may defer the tools of agents."""

    tools: Literal["all", "deferred"] = "all"
    """which tool definitions a prompt has: `all`, or with `deferred` those that the session uses or names; the server
    lists the others behind a tool `load_tools`, and answers its calls itself"""


class MlxTierConfig(DeferringTier):
    """A local model, run by mlx-lm in the replica's own process."""

    kind: Literal["mlx"]
    """a local model"""
    model: str = Field(default="auto", min_length=1)
    """the model's source: `hf:ORG/NAME@REVISION`, `hf:ORG/NAME@REVISION#FILE.gguf`, `path:DIR`,
    `pypi:PACKAGE==VERSION#FILE.gguf`, `parts:PACKAGE{1..N}==VERSION#FILE?sha256=HEX`, or `auto`, which picks one for
    this machine and says which and why"""
    adapter: str | None = Field(default=None, min_length=1)
    """a folder with a LoRA adapter for the model, as mlx-lm's training writes it"""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """for requests that name none; not set: the model's own"""
    max_running: int = Field(default=8, ge=1, le=256)
    """requests that decode at once"""
    max_waiting: int = Field(default=16, ge=0, le=4096)
    """requests that may wait; the next one goes to another tier"""
    memory_bytes: int | None = Field(default=None, ge=1 << 20, le=1 << 44)
    """what one replica may use: weights, one step, running requests at their longest, and prompts kept for reuse; a
    request whose longest answer could never fit is refused. Not set: the weights and a third of what is free once they
    are loaded; on a Mac what the tier needs for 32,768 tokens, and its part of what the tiers leave of the memory that
    Metal recommends"""
    prompt_cache_bytes: int | None = Field(default=None, ge=0, le=1 << 44)
    """of it, what prompts kept for reuse may hold; not set: a quarter of what the weights leave"""
    prompt_cache_disk_bytes: int | None = Field(default=None, ge=0, le=1 << 50)
    """what prompts kept for reuse may hold on this machine's disk, all models together, where a restart finds them
    again; 0: nothing goes to disk. Not set: a tenth of what is free there, 4 GiB at most"""
    prompt_cache_shared: bool = False
    """let API keys reuse each other's prompts: cached tokens then count in blocks of 256. Off: what one key sends
    speeds up, and shows in `cached_tokens` of, no other key"""
    max_reasoning_tokens: int | None = Field(default=8192, ge=1, le=10_000_000)
    """tokens of thinking after which the model is made to answer, where the request names no lower budget; null: no
    cap"""
    blas_threads: int | None = Field(default=None, ge=1, le=256)
    """threads of the matrix products on a CPU; not set: the cores, shared by the replicas of all `mlx` tiers"""


class HostedTierConfig(TierBase):
    """Any server with OpenAI's chat completions: OpenRouter, LM Studio, Ollama, vLLM, `mlx_lm.server`, LiteLLM."""

    kind: Literal["hosted"]
    """a server behind a URL"""
    preset: Literal["openrouter"] | None = None
    """fills in URL, headers, key variable and model; keys that are set beside it win"""
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    """its URL, with `/v1` where it has that; needed without a preset"""
    model: str | None = Field(default=None, min_length=1)
    """the model's name there; needed without a preset, with one `cloud_fallback.model` where not set"""
    api_key_env: VariableName | None = None
    """the environment variable that holds the key; not set: none is sent, with a preset `cloud_fallback.api_key_env`"""
    headers: dict[str, str] = Field(default_factory=dict)
    """sent with each request. Ray logs `args` once, at the start: keys belong into `api_key_env`"""
    cloud: bool | None = None
    """whether requests leave this machine: a local-only request never reaches such a tier; not set: unless the URL is
    on loopback"""
    continues: Literal["prefill", "anchor"] | None = None
    """how it is asked for the rest of an answer whose stream broke: `prefill` where it goes on behind a last message of
    the model's own (vLLM, SGLang, LM Studio), else `anchor`: it is told to, and checked. Not set: `prefill` for the
    families at OpenRouter that are known to, else `anchor`; `doctor --ask` tries it"""
    usd_per_mtok_prompt: float | None = Field(default=None, ge=0, le=1_000_000)
    """US dollars per million prompt tokens, for the estimated cost, set together with the next one; not set: unknown,
    for the preset's own model 3.0"""
    usd_per_mtok_completion: float | None = Field(default=None, ge=0, le=1_000_000)
    """US dollars per million tokens of answers; not set: unknown, for the preset's own model 15.0"""

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


class ScriptedTierConfig(DeferringTier):
    """Deterministic answers and faults from a script: for tests, load tests and trying things out."""

    kind: Literal["scripted"]
    """answers and faults from a script"""
    script: str | list[dict[str, Any]] | dict[str, Any]
    """a YAML, JSON or JSONL file, or what could stand in it: see `deployments/tiers/scripted/scripted_tier.py`"""
    seed: int = 0
    """of the script's draws"""
    cloud: bool = False
    """the tier plays one that is not on this machine"""


TierConfig = Annotated[MlxTierConfig | HostedTierConfig | ScriptedTierConfig, Field(discriminator="kind")]

KINDS: dict[str, type[TierBase]] = {"mlx": MlxTierConfig, "hosted": HostedTierConfig, "scripted": ScriptedTierConfig}
