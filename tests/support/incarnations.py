"""Lives of the state actor for tests: on a folder, under limits, on a clock that the test moves."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.config.app_config import StateConfig
from deployments.state.actor import SessionState
from deployments.state.records import Item, ReportItem, SettlementItem, StateLimits, StateStep, StepAnswer, StepRequest
from reliability.admission.admit import AdmissionConfig, AdmissionState
from reliability.admission.breaker import BreakerConfig
from reliability.admission.budget import BudgetConfig, Limit
from reliability.admission.events import Settlement
from reliability.admission.ledger import Bounds as BooksBounds
from reliability.admission.request import AdmissionRequest, Grant
from reliability.admission.retry_budget import RetryBudgetLimits
from reliability.loops import LoopConfig
from reliability.types import Usage, Verdict

S = 1_000_000_000
OLD_FOLDERS = Path(__file__).parent / "fixtures" / "folders.tar.xz"
ROOM = "/dev/shm" if Path("/dev/shm").is_dir() else None  # where many lives are short: files, but no disk
CONFIG = AdmissionConfig(
    breaker=BreakerConfig(failures_max=2, rate_percent=None, open_ns=S, open_max_ns=8 * S, permit_ns=900 * S),
    budget=BudgetConfig(
        session=Limit(tokens_max=2000),
        hour=Limit(tokens_max=6000),
        output_tokens_default=50,
        reservation_ns=30 * S,
        bounds=BooksBounds(session_ttl_ns=300 * S, sessions_max=5, reservations_max=12),
    ),
    retries=RetryBudgetLimits(floor=1000),
)


class HandClock:
    """A monotonic clock that a hand moves."""

    _now_ns = 0

    def now_ns(self) -> int:
        return self._now_ns

    def wait(self, seconds: float) -> None:
        self._now_ns += int(seconds * S)


def limits(config: AdmissionConfig = CONFIG, loops: LoopConfig | None = None, name: str = "") -> StateLimits:
    """Limits with the digest that is their content."""
    loops = loops or LoopConfig()
    return StateLimits(digest=name or str(hash((repr(config), repr(loops)))), admission=config, loops=loops)


LIMITS = limits(name="limits")


def tight(tokens: int, **more: Any) -> StateLimits:
    """Limits under which one session has so many tokens, and nothing else is short."""
    budget = BudgetConfig(session=Limit(tokens_max=tokens), output_tokens_default=50, **more)
    return limits(AdmissionConfig(budget=budget, retries=RetryBudgetLimits(floor=10**9)))


def life(folder: Path, clock: HandClock | None = None, **more: Any) -> SessionState:
    """A life of the actor that stays."""
    made = {"bounds": StateConfig()} | more
    return SessionState(folder=str(folder), idle_exit_s=None, clock_ns=clock.now_ns if clock else None, **made)


def unpack(name: str, to: Path) -> Path:
    """A folder as version 0.1.0 has left it; see `tests/unit/deployments/state/test_journal.py`."""
    shutil.unpack_archive(OLD_FOLDERS, to, filter="data")
    return to / name


def killed(folder: Path, to: Path) -> Path:
    """The files as they are at this moment, somewhere else: what a kill leaves."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    for shm in to.glob("*-shm"):  # shared memory of the dead; SQLite makes it anew
        shm.unlink()
    return to


def state_of(actor: SessionState) -> AdmissionState:
    """What the actor holds, without the name of its life."""
    return replace(actor._state, epoch="")


def ask(tier: str = "fast", session: str = "s", key: str = "k", **more: Any) -> StepRequest:
    """A call that reserves 100 tokens, unless told otherwise."""
    window = more.pop("window", False)
    made = {"prompt_tokens": 50} | more
    return StepRequest(admission=AdmissionRequest(tier=tier, key=key, session=session, **made), window=window)


def settled(
    grant: Grant | str,
    tokens: int | None = 10,
    verdict: Verdict = Verdict.SUCCESS,
    retry_after_ns: int = 0,
    **more: Any,
) -> SettlementItem:
    """A grant goes back with so many tokens used."""
    usage = None if tokens is None else Usage(prompt_tokens=tokens)
    settlement = Settlement(grant if isinstance(grant, str) else grant.id, verdict, usage, retry_after_ns)
    return SettlementItem(settlement=settlement, **more)


def done(request_id: str = "r", session: str = "s", key: str = "k", tokens: int = 10, incidents: int = 0) -> ReportItem:
    """A request that has ended, with its report and so many incidents."""
    usage = {"prompt_tokens": tokens, "completion_tokens": 1}
    report = {"request_id": request_id, "session": session, "attempts": [{"usage": usage}, {"usage": None}]}
    one = {"at": 1.8e9, "kind": "flaw", "tier": "fast", "session": session, "key": key, "request_id": request_id}
    return ReportItem(key=key, session=session, report=report, incidents=(one,) * incidents)


class Driver:
    """A Router replica by hand: numbers its steps, and brings its limits where they aren't known."""

    def __init__(self, actor: SessionState, client: str = "c", limits: StateLimits = LIMITS) -> None:
        self.actor, self.client, self.limits, self.number = actor, client, limits, 0

    def step(
        self, items: tuple[Item, ...] = (), requests: tuple[StepRequest, ...] = (), attempt: int = 0
    ) -> tuple[StepAnswer, ...]:
        """The next step, or one more attempt of the last."""
        self.number += attempt == 0
        named = {"client": self.client, "number": self.number, "config": self.limits.digest}
        step = StateStep(**named, items=items, requests=requests, attempt=attempt)
        reply = self.actor.step(step) or self.actor.step(step, self.limits)
        assert reply is not None
        return reply.answers

    def put(self, *items: Item) -> None:
        self.step(items=items)

    def ask(self, *requests: StepRequest) -> list[Any]:
        """The decisions on these requests."""
        return [answer.decision for answer in self.step(requests=requests)]

    def granted(self, *requests: StepRequest) -> list[Grant]:
        return [decision for decision in self.ask(*requests) if isinstance(decision, Grant)]
