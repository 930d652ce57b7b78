"""What admission is asked, and what it answers.

One type on the whole way: `drive`, the link to the state actor, the rules of this package, the journal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from reliability.admission.breaker import Change
from reliability.memory.pressure import Level
from reliability.rolling import SECOND_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """One call that wants to run. `prompt_tokens` is an upper estimate; `output_tokens` None: none is named. `extra`:
    the tier has just failed this request. `fallback`: another call that isn't the request's first. `cheap`: the tier is
    the one for sessions under `escalate`. `local`: it costs no money. `parent`: the session that this one helps."""

    tier: str
    key: str
    session: str
    prompt_tokens: int
    output_tokens: int | None = None
    tools: int = 0
    extra: bool = False
    fallback: bool = False
    cheap: bool = False
    local: bool = True
    level: Level = Level.UNKNOWN
    sustained_ns: int = 0
    hold_ns: int | None = None
    parent: str = ""

    @property
    def payer(self) -> str:
        """The session whose budget the call spends: a helper spends its parent's."""
        return self.parent or self.session


class BudgetWindow(StrEnum):
    """What tokens are counted by."""

    SESSION = "session"
    HOUR = "hour"
    KEY_HOUR = "key_hour"


class Policy(StrEnum):
    """What happens at the limit of a window."""

    WARN_AND_CONTINUE = "warn_and_continue"
    ESCALATE = "escalate"
    HARD_STOP = "hard_stop"


@dataclass(frozen=True, slots=True)
class Load:
    """How full a limited window is, in tokens and in percent. A limit of 0 is full. `reserved`: held by open calls."""

    window: BudgetWindow
    tokens: int
    tokens_max: int
    percent: int
    reserved: int = field(default=0, compare=False)


class RejectedBy(StrEnum):
    """Why a call may not run."""

    MEMORY_PRESSURE = "memory_pressure"
    OPEN = "open"
    PROBING = "probing"
    ISOLATED = "isolated"
    BUDGET = "budget"
    RETRY_BUDGET = "retry_budget"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Grant:
    """The call may run until `expires_ns`, cost `tokens`, and generate `output_cap` of them. It is settled
    once, by its id."""

    id: str
    tier: str
    probe: bool
    tokens: int
    output_cap: int
    expires_ns: int
    warnings: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class Rejection:
    """The call may not run. `retry_after_s` None: waiting doesn't help. `policy`, `windows`, `requested_tokens`: only
    where the token budget rejects."""

    tier: str
    rejected_by: RejectedBy
    detail: str
    retry_after_s: float | None
    policy: Policy | None = None
    windows: tuple[Load, ...] = ()
    requested_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ClosedGrant:
    """What closing a grant did. `tokens`: charged. With `known` False it was not open, and nothing changed."""

    id: str
    known: bool
    tier: str = ""
    expired: bool = False
    tokens: int = 0
    change: Change | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRules:
    """What a node short of memory doesn't take. None turns a rule off."""

    sustained_ns: int = 60 * SECOND_NS
    complex_prompt_tokens: int | None = 8_000
    complex_output_tokens: int | None = 4_000
    complex_tools: int | None = 16
    critical_prompt_tokens: int | None = 4_000
    retry_after_s: int = 10


def memory_rule(rules: MemoryRules, request: AdmissionRequest) -> str:
    """Return the rule by which memory pressure keeps this call off its tier; empty: none does."""
    if not request.local or request.level not in (Level.WARN, Level.CRITICAL):
        return ""
    if request.level is Level.CRITICAL and _reaches(request.prompt_tokens, rules.critical_prompt_tokens):
        return f"critical: prompt_tokens >= {rules.critical_prompt_tokens}"
    if request.sustained_ns < rules.sustained_ns:
        return ""
    for name, value, limit in (
        ("prompt_tokens", request.prompt_tokens, rules.complex_prompt_tokens),
        ("output_tokens", request.output_tokens or 0, rules.complex_output_tokens),
        ("tools", request.tools, rules.complex_tools),
    ):
        if _reaches(value, limit):
            return f"sustained: {name} >= {limit}"
    return ""


def _reaches(value: int, limit: int | None) -> bool:
    return limit is not None and value >= limit
