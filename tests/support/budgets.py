"""A small budget, and calls on it."""

from reliability.admission.budget import BudgetConfig, Limit, reserve, settle
from reliability.admission.ledger import Bounds, Budget
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.rolling import SECOND_NS

S = SECOND_NS
HOUR_S = 3600
BOUNDS = Bounds(session_ttl_ns=2 * HOUR_S * S, sessions_max=4, keys_max=2, reservations_max=6)
CONFIG = BudgetConfig(
    session=Limit(tokens_max=1000),
    hour=Limit(tokens_max=1500),
    key_hours=dict.fromkeys("kl", Limit(tokens_max=1200)),
    output_tokens_default=50,
    output_tokens_max=200,
    reservation_ns=60 * S,
    bounds=BOUNDS,
)
FREE = BudgetConfig(output_tokens_default=50)


def ask(
    prompt: int = 50, output: int | None = None, *, session: str = "s", key: str = "k", cheap: bool = False
) -> AdmissionRequest:
    """A call of 100 tokens, unless told otherwise."""
    return AdmissionRequest(
        tier="fast", key=key, session=session, prompt_tokens=prompt, output_tokens=output, cheap=cheap
    )


def refused(budget: Budget, config: BudgetConfig, request: AdmissionRequest, now_ns: int = 0) -> Rejection:
    """The answer to a call that must be rejected."""
    _, answer = reserve(budget, config, "refused", request, now_ns)
    assert isinstance(answer, Rejection)
    return answer


def admitted(budget: Budget, config: BudgetConfig, request: AdmissionRequest, now_ns: int = 0) -> Grant:
    """The answer to a call that must be admitted."""
    _, answer = reserve(budget, config, "admitted", request, now_ns)
    assert isinstance(answer, Grant)
    return answer


def spent(budget: Budget, config: BudgetConfig, tokens: int, now_ns: int, **who: str) -> Budget:
    wanted = AdmissionRequest(**{"tier": "fast", "key": "k", "session": "s", **who}, prompt_tokens=tokens - 50)
    budget, answer = reserve(budget, config, "spend", wanted, now_ns)
    assert isinstance(answer, Grant)
    return settle(budget, config, "spend", tokens, now_ns)[0]
