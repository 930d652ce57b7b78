"""The `reliability:` section of the configuration.

Unknown keys are rejected by name (see `deployments.config.load`), and a key that is accepted has an effect. Keys whose
behaviour this version doesn't have are refused too, by `NOT_BUILT`, and never ignored: a person who sets
`loop_detection.enabled` must not believe in a guard that isn't there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from reliability.loops import LoopConfig
from reliability.tools import PLACEHOLDERS, CheckConfig
from reliability.types import Reason

__all__ = [
    "NOT_BUILT",
    "CloudFallback",
    "EscalationConfig",
    "ReliabilityConfig",
    "TokenBudgetConfig",
    "ToolValidationConfig",
]

# Sections and keys of the full design whose behaviour isn't in this version yet: path -> what they would do.
NOT_BUILT = {
    "loop_detection.window_size": "the session window, for clients that send no history",
    "circuit_breaker": "the auxiliary judge",
    "memory_pressure": "memory pressure",
    "token_budget.enabled": "token budgets over sessions and hours",
    "token_budget.per_session": "token budgets over sessions",
    "token_budget.per_hour": "token budgets over hours",
    "token_budget.policy": "token budgets over sessions and hours",
}


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
    """Tokens that one answer may have: the cap, and the default of a request that names none."""

    max_output_tokens: int = Field(default=16384, ge=1, le=10_000_000)


class ReliabilityConfig(Section):
    """The whole section."""

    loop_detection: LoopConfig = LoopConfig()
    tool_validation: ToolValidationConfig = ToolValidationConfig()
    escalation: EscalationConfig = EscalationConfig()
    token_budget: TokenBudgetConfig = TokenBudgetConfig()
