"""The `reliability:` section of the configuration.

What a key means stands in the docstring below it, once: docs/configuration.md is written from here (`make docs`).
"""

from __future__ import annotations

import re
from dataclasses import fields
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from reliability.admission.request import MemoryRules, Policy
from reliability.confidence import ModelCalibration
from reliability.loops import JudgeConfig, LoopConfig
from reliability.rolling import SECOND_NS
from reliability.tools import PLACEHOLDERS, CheckConfig
from reliability.types import Hold, Reason

KEY_CHARS_MIN = 20


def _refuse_key(name: str) -> str:
    """Refuse a key in the place of a variable's name, which every client may be told."""
    if len(name) >= KEY_CHARS_MIN and re.search("[a-z]", name) and re.search("[0-9]", name):
        raise ValueError("this is a key: the name of the variable that holds it is needed")
    return name


VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_refuse_key)]


class Section(BaseModel):
    """A part of the configuration: immutable, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class EscalateOn(StrEnum):
    """What may send a request to the next tier of the chain. The values are those of `Reason`."""

    TOOL_VALIDATION_FAILURE = Reason.TOOL_VALIDATION_FAILURE.value
    LOOP_DETECTED = Reason.LOOP_DETECTED.value
    TIMEOUT = Reason.TIMEOUT.value
    SERVER_ERROR = Reason.SERVER_ERROR.value


class CloudFallback(Section):
    """The cloud model of hosted tiers with a preset that name none themselves."""

    provider: Literal["openrouter"] = "openrouter"
    """whose preset this is for"""
    model: str = Field(default="anthropic/claude-sonnet-4-6", min_length=1)
    """the model's name there"""
    api_key_env: VariableName = "OPENROUTER_API_KEY"
    """the environment variable that holds the key"""


class StartRule(Section):
    """Which requests to `auto` start further behind in the chain: those that have as much of everything that is named,
    or more."""

    tier: str = Field(min_length=1)
    """where they start, a tier of the chain"""
    tools_min: int | None = Field(default=None, ge=0)
    """declared tools"""
    messages_min: int | None = Field(default=None, ge=0)
    """messages of the conversation"""
    prompt_bytes_min: int | None = Field(default=None, ge=0)
    """bytes of messages and tools together"""

    @model_validator(mode="after")
    def _names_a_feature(self) -> StartRule:
        if self.tools_min is None and self.messages_min is None and self.prompt_bytes_min is None:
            raise ValueError("start_at: a rule needs tools_min, messages_min or prompt_bytes_min")
        return self

    def fits(self, *, tools: int, messages: int, prompt_bytes: int) -> bool:
        """Tell whether a request has all of it."""
        pairs = ((self.tools_min, tools), (self.messages_min, messages), (self.prompt_bytes_min, prompt_bytes))
        return all(least is None or has >= least for least, has in pairs)


class ConfidenceConfig(Section):
    """What becomes of a valid tool call that is probably not right."""

    min: float = Field(default=0.4, ge=0, le=1)
    """how likely a call has to be right; below it the next tier is asked, and where no tier has a likelier one, the
    likeliest is delivered. 0: every valid call is delivered at once. Known for models with a calibration"""
    calibrations: dict[str, ModelCalibration] = {}
    """calibrations that `evaluate` has fitted, by the sha256 of the model's weights"""


class EscalationConfig(Section):
    """The chain of tiers, and what moves a request along it."""

    enabled: bool = True
    """false: the tier that is named answers alone"""
    chain: tuple[str, ...] = Field(default=("fast", "standard", "longctx", "premium"), min_length=1, max_length=16)
    """tiers, the cheapest first; `model: auto` starts at the first one"""
    start_at: tuple[StartRule, ...] = Field(default=(), max_length=16)
    """which requests to `auto` start further behind: the first rule that fits counts. A rule has `tier` and at least
    one of `tools_min`, `messages_min`, `prompt_bytes_min`; `mlx-stack-serve evaluate` proposes them where they pay"""
    continuations_max: int = Field(default=1, ge=0, le=8)
    """how often a stream whose text has broken off goes on with another attempt's words; 0: it ends in an error
    frame"""
    max_retries_before_escalate: int = Field(default=3, ge=0, le=10)
    """further calls to a tier after a fault that a second call may cure (a 5xx, a cut, an unreadable answer); no model,
    no key or a timeout moves on at once"""
    escalate_on: tuple[EscalateOn, ...] = tuple(EscalateOn)
    """what may send a request to the next tier of the chain"""
    confidence: ConfidenceConfig = ConfidenceConfig()
    """valid calls that may be wrong"""
    cloud_fallback: CloudFallback = CloudFallback()
    """the cloud model of hosted tiers with a preset"""

    @model_validator(mode="after")
    def _check_chain(self) -> EscalationConfig:
        repeated = sorted({name for name in self.chain if self.chain.count(name) > 1})
        if repeated:
            raise ValueError(f"chain names a tier twice: {', '.join(repeated)}")
        return self


class ToolValidationConfig(Section):
    """The checks on tool calls, and how a tier is asked again."""

    enabled: bool = True
    """false: calls pass as they came"""
    max_retries: int = Field(default=3, ge=0, le=10)
    """how often a tier is asked again after an invalid call, up to `max_retries_before_escalate`"""
    retry_with_correction: bool = True
    """false: the same prompt is sampled again, without the corrective message"""
    validate_json: bool = True
    """check that arguments are JSON"""
    validate_schema: bool = True
    """check that arguments fit the tool's schema"""
    validate_tool_names: bool = True
    """check that the tool was declared"""
    placeholders: tuple[str, ...] = PLACEHOLDERS
    """texts that only stand in for a value and count as missing where no such text belongs: `<...>` for any brackets, a
    space for any joint of words, `_` for one in an identifier, `*` for anything, and `{name}`, `{type}` and
    `{description}` for the argument's own; without brackets only in required arguments"""

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
    """Tokens, prompt and answer together, that may be spent."""

    enabled: bool = True
    """false: session and hour are counted and never limited"""
    per_session: int | None = Field(default=500_000, ge=0, le=10**12)
    """tokens of one session; null: no limit"""
    per_hour: int | None = Field(default=2_000_000, ge=0, le=10**12)
    """tokens of the whole server in a rolling hour; null: no limit"""
    max_output_tokens: int = Field(default=16384, ge=1, le=10_000_000)
    """the cap on one answer, and its default; holds where `enabled` is false, too"""
    policy: Policy = Policy.WARN_AND_CONTINUE
    """at the limit: `warn_and_continue`, `escalate` (the session goes on at the head of the chain, the cheapest tier)
    or `hard_stop` (400 for a session, 429 for an hour)"""


class TierHealthConfig(Section):
    """When a tier is left alone (its breaker opens), and for how long. Failures of one API key alone don't count while
    another's calls succeed."""

    failures_max: int | None = Field(default=5, ge=1, le=10_000)
    """failures in a row until a tier is left alone; null: never"""
    rate_percent: int | None = Field(default=50, ge=1, le=100)
    """or this share of failures in the window; null: never"""
    rate_calls_min: int = Field(default=20, ge=1, le=10_000)
    """calls in the window before the share counts"""
    rate_window_s: float = Field(default=60.0, ge=1, le=3600)
    """the window"""
    open_s: float = Field(default=5.0, gt=0, le=3600)
    """how long a tier is left alone the first time; it doubles each time"""
    open_max_s: float = Field(default=10.0, gt=0, le=86400)
    """and how long at most (`open_s` where that is more): a tier that is back is found by the first request after this
    time"""
    retry_after_max_s: float = Field(default=600.0, ge=0, le=86400)
    """how long a tier's own Retry-After is heeded; 0: not at all"""

    @model_validator(mode="after")
    def _check_open_times(self) -> TierHealthConfig:
        if self.open_s > self.open_max_s and "open_max_s" in self.model_fields_set:
            raise ValueError(f"open_s ({self.open_s:g}) is over open_max_s ({self.open_max_s:g})")
        return self


class RetryBudgetConfig(Section):
    """Calls to a tier that has just failed their request, over all requests: they don't storm a dying tier. An API key
    has at most half of what the other keys leave."""

    share_percent: int = Field(default=20, ge=0, le=1000)
    """such calls, as a share of the first calls"""
    floor: int = Field(default=10, ge=0, le=100_000)
    """and so many in any case"""
    window_s: float = Field(default=60.0, ge=1, le=3600)
    """the window of both"""


class StreamingConfig(Section):
    """What a stream may send before the answer is whole."""

    hold: Hold = Hold.TOOL_CALLS
    """what a stream holds back until it is judged: `tool_calls` (text passes at once, unless the conversation repeats
    itself already) or `all`"""


class IncidentsConfig(Section):
    """What an incident may show."""

    keep_text: bool = False
    """incidents show what models wrote, too; otherwise kinds, places and numbers"""


class MemoryPressureConfig(Section):
    """How memory pressure is sensed on each machine, and what a machine under pressure doesn't take."""

    enabled: bool = True
    """false: nobody looks at memory, nothing is leased or capped"""
    sensor: str = Field(default="auto", pattern=r"^(auto|scripted:.+)$")
    """`auto`: the machine; `scripted:PATH`: a file says the level (`deployments/memory/sensors/scripted.py`)"""
    sustained_s: float = Field(default=60.0, ge=0, le=86400)
    """pressure for this long keeps complex requests off the node's tiers"""
    complex_prompt_tokens: int | None = Field(default=8000, ge=1)
    """a request is complex from this prompt on; null: no such rule"""
    complex_output_tokens: int | None = Field(default=4000, ge=1)
    """a request is complex from this requested output on; null: no such rule"""
    complex_tools: int | None = Field(default=16, ge=1)
    """a request is complex from this many tools on; null: no such rule"""
    critical_prompt_tokens: int | None = Field(default=4000, ge=1)
    """at critical, prompts from here on aren't given to the node, at once; null: no such rule"""
    retry_after_s: int = Field(default=10, ge=1, le=3600)
    """seconds that a request which no tier takes is told to wait"""
    budget_bytes: int | None = Field(default=None, ge=0)
    """what all replicas of a node may hold together; not set: `budget_share`"""
    budget_share: float = Field(default=0.75, gt=0, le=1)
    """of the node's memory (or its container's), where no bytes are given; on a Mac, where neither is set, the budget
    is what Metal recommends, or `iogpu.wired_limit_mb`"""
    poll_s: float = Field(default=1.0, ge=0.05, le=60)
    """seconds between two readings"""
    calm_s: float = Field(default=10.0, ge=0.05, le=300)
    """without a reason for it a level is left after this long, one level at a time"""
    stale_s: float = Field(default=15.0, ge=0.2, le=300)
    """a reading counts this long, then the level is unknown and nothing grows; at least twice `poll_s`"""
    lease_s: float = Field(default=10.0, ge=0.5, le=300)
    """the bytes of a replica that was killed come back after this long"""

    @model_validator(mode="after")
    def _check_stale_s(self) -> MemoryPressureConfig:
        if self.stale_s < 2 * self.poll_s:
            raise ValueError(f"stale_s ({self.stale_s:g}) is under twice poll_s ({self.poll_s:g})")
        return self

    @property
    def rules(self) -> MemoryRules:
        """What `reliability.admission.admit` rejects by."""
        keys = {field.name for field in fields(MemoryRules)} - {"sustained_ns"}
        return MemoryRules(sustained_ns=int(self.sustained_s * SECOND_NS), **self.model_dump(include=keys))


class ReliabilityConfig(Section):
    """What makes weak models reliable: each part can be switched off by itself."""

    loop_detection: LoopConfig = LoopConfig()
    """agents that go round in circles"""
    tool_validation: ToolValidationConfig = ToolValidationConfig()
    """checks on tool calls"""
    escalation: EscalationConfig = EscalationConfig()
    """the chain of tiers"""
    token_budget: TokenBudgetConfig = TokenBudgetConfig()
    """tokens that may be spent"""
    circuit_breaker: JudgeConfig = JudgeConfig()
    """the auxiliary judge; the tiers' breakers are `tier_health`"""
    tier_health: TierHealthConfig = TierHealthConfig()
    """when a tier is left alone"""
    retry_budget: RetryBudgetConfig = RetryBudgetConfig()
    """second calls to a tier"""
    context: Literal["refuse", "shorten"] = "refuse"
    """what happens to a prompt that no tier can hold: `refuse` it, or `shorten` it, which replaces the oldest results
    of tools with stubs, down to half of the largest context, and says so"""
    streaming: StreamingConfig = StreamingConfig()
    """what a stream holds back"""
    incidents: IncidentsConfig = IncidentsConfig()
    """what an incident may show"""
    memory_pressure: MemoryPressureConfig = MemoryPressureConfig()
    """machines that are short of memory"""
