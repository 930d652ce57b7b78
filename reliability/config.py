"""The `reliability:` section of the configuration.

Unknown keys are rejected by name (see `deployments.config.load`), and a key that is accepted has an effect.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reliability.admission import MemoryRules
from reliability.budget import Policy
from reliability.gate import Hold
from reliability.loops import JudgeConfig, LoopConfig
from reliability.rolling import SECOND_NS
from reliability.tools import PLACEHOLDERS, CheckConfig
from reliability.types import Reason

__all__ = [
    "CloudFallback",
    "EscalationConfig",
    "IncidentsConfig",
    "MemoryPressureConfig",
    "ReliabilityConfig",
    "RetryBudgetConfig",
    "StreamingConfig",
    "TierHealthConfig",
    "TokenBudgetConfig",
    "ToolValidationConfig",
]


class Section(BaseModel):
    """A part of the configuration: immutable, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EscalateOn(StrEnum):
    """What may send a request to the next tier of the chain. The values are those of `Reason`."""

    TOOL_VALIDATION_FAILURE = Reason.TOOL_VALIDATION_FAILURE.value
    LOOP_DETECTED = Reason.LOOP_DETECTED.value
    TIMEOUT = Reason.TIMEOUT.value
    SERVER_ERROR = Reason.SERVER_ERROR.value


class CloudFallback(Section):
    """Which cloud model a hosted tier with `preset: <provider>` uses where it names none itself."""

    provider: Literal["openrouter"] = "openrouter"
    model: str = Field(default="anthropic/claude-sonnet-4-6", min_length=1)
    api_key_env: str = Field(default="OPENROUTER_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")


class EscalationConfig(Section):
    """The chain and what moves a request along it.

    `max_retries_before_escalate` bounds the retries on one tier after a fault that a second call may cure (a 5xx, an
    unreadable answer). Faults that a second call would only meet again (no model, no key, a timeout) move on at once.
    """

    enabled: bool = True
    chain: tuple[str, ...] = Field(default=("fast", "standard", "longctx", "premium"), min_length=1, max_length=16)
    max_retries_before_escalate: int = Field(default=3, ge=0, le=10)
    escalate_on: tuple[EscalateOn, ...] = tuple(EscalateOn)
    cloud_fallback: CloudFallback = CloudFallback()

    @model_validator(mode="after")
    def _chain_names_each_tier_once(self) -> EscalationConfig:
        repeated = sorted({name for name in self.chain if self.chain.count(name) > 1})
        if repeated:
            raise ValueError(f"chain names a tier twice: {', '.join(repeated)}")
        return self


class ToolValidationConfig(Section):
    """The checks on tool calls, and how a tier is asked again.

    `max_retries` bounds the re-asks on one tier. `retry_with_correction` false leaves the corrective message out: the
    same prompt is sampled again. The three `validate_` keys switch one check off each.
    """

    enabled: bool = True
    max_retries: int = Field(default=3, ge=0, le=10)
    retry_with_correction: bool = True
    validate_json: bool = True
    validate_schema: bool = True
    validate_tool_names: bool = True
    placeholders: tuple[str, ...] = PLACEHOLDERS

    @property
    def checks(self) -> CheckConfig | None:
        """What `reliability.tools` is asked to check; None where validation is off."""
        if not self.enabled:
            return None
        return CheckConfig(
            validate_json=self.validate_json,
            validate_schema=self.validate_schema,
            validate_tool_names=self.validate_tool_names,
            placeholders=self.placeholders,
        )


class TokenBudgetConfig(Section):
    """Tokens, prompt and answer together, that may be spent. None: counted, never refused.

    `max_output_tokens` is the cap on one answer and the default of a request that names none. It holds also where
    `enabled` is false, which lifts the limits of session and hour. `escalate` lets a session that is over its budget go
    on at the head of the chain, the cheapest tier.
    """

    enabled: bool = True
    per_session: int | None = Field(default=500_000, ge=0, le=10**12)
    per_hour: int | None = Field(default=2_000_000, ge=0, le=10**12)
    max_output_tokens: int = Field(default=16384, ge=1, le=10_000_000)
    policy: Policy = Policy.WARN_AND_CONTINUE


class TierHealthConfig(Section):
    """When a tier is left alone (its breaker opens), and for how long. None turns a rule off.

    `failures_max` failures in a row open, and so does a share of `rate_percent` over at least `rate_calls_min` calls in
    `rate_window_s`. The open time doubles with every opening in a row, from `open_s` to `open_max_s`. A tier that says
    when to come back is left alone until then, for `retry_after_max_s` at most (0: its word isn't heeded).
    """

    failures_max: int | None = Field(default=5, ge=1, le=10_000)
    rate_percent: int | None = Field(default=50, ge=1, le=100)
    rate_calls_min: int = Field(default=20, ge=1, le=10_000)
    rate_window_s: float = Field(default=60.0, ge=1, le=3600)
    open_s: float = Field(default=5.0, gt=0, le=3600)
    open_max_s: float = Field(default=300.0, gt=0, le=86400)
    retry_after_max_s: float = Field(default=600.0, ge=0, le=86400)

    @model_validator(mode="after")
    def _open_times_fit(self) -> TierHealthConfig:
        if self.open_s > self.open_max_s:
            raise ValueError(f"open_s ({self.open_s:g}) is over open_max_s ({self.open_max_s:g})")
        return self


class RetryBudgetConfig(Section):
    """Calls to a tier beyond the first that their request makes to it, over all requests: a floor, and a share of the
    first calls."""

    share_percent: int = Field(default=20, ge=0, le=1000)
    floor: int = Field(default=10, ge=0, le=100_000)
    window_s: float = Field(default=60.0, ge=1, le=3600)


class StreamingConfig(Section):
    """What a stream holds back until it is judged: `tool_calls` (text passes at once) or `all`."""

    hold: Hold = Hold.TOOL_CALLS


class IncidentsConfig(Section):
    """`keep_text`: incidents show what models wrote. Otherwise only kinds, places and numbers."""

    keep_text: bool = False


class MemoryPressureConfig(Section):
    """How memory pressure is sensed, and what a node under pressure doesn't take.

    `sensor`: `auto`, or `scripted:PATH` (see `deployments/memory/scripted.py`). `budget_bytes`: what all replicas of
    one node may hold together; None: `budget_share` of its memory. `poll_s`: between two readings; `calm_s`: without a
    reason for it a level is left after this long, one level at a time; `stale_s`: a reading counts this long.
    `lease_s`: the bytes of a replica that was killed come back after this long.

    The rules: once pressure has lasted `sustained_s`, a request that reaches one of the `complex_` limits is not given
    to a tier on that node; at critical one that reaches `critical_prompt_tokens` isn't, at once. None turns a rule off.
    """

    enabled: bool = True
    sensor: str = Field(default="auto", pattern=r"^(auto|scripted:.+)$")
    sustained_s: float = Field(default=60.0, ge=0, le=86400)
    complex_prompt_tokens: int | None = Field(default=8000, ge=1)
    complex_output_tokens: int | None = Field(default=4000, ge=1)
    complex_tools: int | None = Field(default=16, ge=1)
    critical_prompt_tokens: int | None = Field(default=4000, ge=1)
    retry_after_s: int = Field(default=10, ge=1, le=3600)
    budget_bytes: int | None = Field(default=None, ge=0)
    budget_share: float = Field(default=0.75, gt=0, le=1)
    poll_s: float = Field(default=1.0, ge=0.05, le=60)
    calm_s: float = Field(default=10.0, ge=0.05, le=300)
    stale_s: float = Field(default=15.0, ge=0.2, le=300)
    lease_s: float = Field(default=10.0, ge=0.5, le=300)

    @model_validator(mode="after")
    def _readings_outlive_the_poll(self) -> MemoryPressureConfig:
        if self.stale_s < 2 * self.poll_s:
            raise ValueError(f"stale_s ({self.stale_s:g}) is under twice poll_s ({self.poll_s:g})")
        return self

    @property
    def rules(self) -> MemoryRules:
        """What `reliability.admission` bars by."""
        return MemoryRules(
            sustained_ns=int(self.sustained_s * SECOND_NS),
            complex_prompt_tokens=self.complex_prompt_tokens,
            complex_output_tokens=self.complex_output_tokens,
            complex_tools=self.complex_tools,
            critical_prompt_tokens=self.critical_prompt_tokens,
            retry_after_s=self.retry_after_s,
        )


class ReliabilityConfig(Section):
    """The whole section. `circuit_breaker` is the auxiliary judge; the tiers' breakers are `tier_health`."""

    loop_detection: LoopConfig = LoopConfig()
    tool_validation: ToolValidationConfig = ToolValidationConfig()
    escalation: EscalationConfig = EscalationConfig()
    token_budget: TokenBudgetConfig = TokenBudgetConfig()
    circuit_breaker: JudgeConfig = JudgeConfig()
    tier_health: TierHealthConfig = TierHealthConfig()
    retry_budget: RetryBudgetConfig = RetryBudgetConfig()
    streaming: StreamingConfig = StreamingConfig()
    incidents: IncidentsConfig = IncidentsConfig()
    memory_pressure: MemoryPressureConfig = MemoryPressureConfig()
