"""A small admission, and calls that ask for it."""

from typing import Any

from reliability.admission.admit import AdmissionConfig, AdmissionState, admit, settle
from reliability.admission.breaker import BreakerConfig
from reliability.admission.budget import BudgetConfig, Limit
from reliability.admission.ledger import Bounds
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.admission.retry_budget import RetryBudgetLimits
from reliability.rolling import SECOND_NS
from reliability.types import Usage, Verdict

S = SECOND_NS
CONFIG = AdmissionConfig(
    breaker=BreakerConfig(failures_max=2, rate_percent=None, open_ns=S, open_max_ns=8 * S, permit_ns=60 * S),
    budget=BudgetConfig(
        session=Limit(tokens_max=2000),
        hour=Limit(tokens_max=5000),
        output_tokens_default=50,
        reservation_ns=30 * S,
        bounds=Bounds(session_ttl_ns=300 * S, sessions_max=5, reservations_max=8),
    ),
    retries=RetryBudgetLimits(floor=2, share_percent=50),
)


def ask(tier: str = "fast", session: str = "s", **more: Any) -> AdmissionRequest:
    """A call of 100 tokens, unless told otherwise."""
    return AdmissionRequest(**{"tier": tier, "key": "k", "session": session, "prompt_tokens": 50, **more})


def granted(state: AdmissionState, now_ns: int = 0, **more: Any) -> tuple[AdmissionState, Grant]:
    state, grant = admit(state, CONFIG, ask(**more), now_ns)
    assert isinstance(grant, Grant)
    return state, grant


def barred(state: AdmissionState, now_ns: int = 0, config: AdmissionConfig = CONFIG, **more: Any) -> Rejection:
    """Ask where it must be rejected."""
    _, answer = admit(state, config, ask(**more), now_ns)
    assert isinstance(answer, Rejection)
    return answer


def failed(state: AdmissionState, tier: str, times: int, now_ns: int = 0) -> AdmissionState:
    for _ in range(times):
        state, grant = granted(state, now_ns, tier=tier)
        state, _ = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), now_ns)
    return state
