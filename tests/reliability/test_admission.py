"""Admission: a whole grant or nothing, closed once, and written down without loss."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reliability import admission, replay
from reliability.admission import (
    Admission,
    AdmissionConfig,
    Ask,
    Bar,
    Barred,
    Grant,
    Settled,
    admit,
    expire,
    isolate,
    phase_of,
    reset_session,
    restore,
    settle,
    sweep,
    with_epoch,
)
from reliability.breaker import BreakerConfig, Phase
from reliability.budget import Bounds, BudgetConfig, Limit, Policy
from reliability.ledger import used
from reliability.pressure import Level
from reliability.retry_budget import RetryBudgetConfig
from reliability.rolling import SECOND_NS
from reliability.types import Usage, Verdict

S = SECOND_NS
CONFIG = AdmissionConfig(
    breaker=BreakerConfig(failures_max=2, rate_percent=None, open_ns=S, open_max_ns=8 * S, permit_ns=60 * S),
    breakers={"frail": BreakerConfig(failures_max=1, open_ns=S, permit_ns=10 * S)},
    budget=BudgetConfig(
        session=Limit(tokens_max=2000),
        hour=Limit(tokens_max=5000),
        output_tokens_default=50,
        reservation_ns=30 * S,
        bounds=Bounds(session_ttl_ns=300 * S, sessions_max=5, reservations_max=8),
    ),
    retries=RetryBudgetConfig(floor=2, share_percent=50),
)


def ask(tier: str = "fast", session: str = "s", **more: Any) -> Ask:
    """A call of 100 tokens, unless told otherwise."""
    return Ask(**{"tier": tier, "key": "k", "session": session, "prompt_tokens": 50, **more})


def granted(state: Admission, now_ns: int = 0, **more: Any) -> tuple[Admission, Grant]:
    """Admit where it must succeed."""
    state, grant = admit(state, CONFIG, ask(**more), now_ns)
    assert isinstance(grant, Grant)
    return state, grant


def failed(state: Admission, tier: str, times: int, now_ns: int = 0) -> Admission:
    """The state after so many failures of a tier."""
    for _ in range(times):
        state, grant = granted(state, now_ns, tier=tier)
        state, _ = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), now_ns)
    return state


class AdmissionMachine(RuleBasedStateMachine):
    """Any asks, settles, losses, waits, operators and restarts, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Admission(epoch="a")
        self.now_ns = 10**18
        self.open: dict[str, Grant] = {}
        self.ids: set[str] = set()
        self.tokens = 0
        self.journal: list[tuple[int, replay.Event]] = []
        self.snapshot = self.state

    def happen(self, event: replay.Event) -> Any:
        """One event, written down and applied."""
        plain = json.loads(json.dumps(replay.event_to_plain(event)))
        assert replay.event_from_plain(plain) == event
        self.journal.append((self.now_ns, event))
        self.state, answer = replay.reduce(self.state, CONFIG, event, self.now_ns)
        return answer

    @rule(wait_ns=st.sampled_from([0, 1, S // 2, S, 9 * S, 31 * S, 4000 * S, -5 * S]))
    def wait(self, wait_ns: int) -> None:
        self.now_ns += wait_ns
        for each in self.happen(replay.Expire()):
            assert each.known
            assert each.expired
            self.tokens += each.tokens
            assert each.tokens == self.open.pop(each.id).tokens

    @rule(
        tier=st.sampled_from(["fast", "frail", "cloud"]),
        session=st.sampled_from("abcdefg"),
        extra=st.booleans(),
        hold_ns=st.sampled_from([None, S, 100 * S]),
        level=st.sampled_from(list(Level)),
        prompt=st.sampled_from([0, 50, 900, 9000]),
    )
    def request(self, tier: str, session: str, extra: bool, hold_ns: int | None, level: Level, prompt: int) -> None:
        """One bar leaves everything else untouched; a grant carries all its parts under one new name."""
        self.wait(0)
        before = self.state
        answer = self.happen(
            replay.Admit(ask(tier, session, extra=extra, hold_ns=hold_ns, level=level, prompt_tokens=prompt))
        )
        if isinstance(answer, Barred):
            assert self.state is before
            return
        assert answer.id not in self.ids
        assert self.state.breakers[tier].permits
        self.ids.add(answer.id)
        self.open[answer.id] = answer

    @rule(data=st.data(), verdict=st.sampled_from(list(Verdict)), usage=st.sampled_from([None, 0, 10, 10**6]))
    def give_back(self, data: st.DataObject, verdict: Verdict, usage: int | None) -> None:
        """A grant is closed once; a second settle changes nothing."""
        if not self.open:
            return
        grant_id = data.draw(st.sampled_from(sorted(self.open)))
        held = self.open.pop(grant_id)
        used = None if usage is None else Usage(prompt_tokens=usage)
        answer = self.happen(replay.Settle(grant_id, verdict, used, retry_after_ns=S))
        assert answer.known
        assert answer.tokens == (held.tokens if used is None or answer.expired else usage)
        self.tokens += answer.tokens
        after = self.state
        assert self.happen(replay.Settle(grant_id, verdict, used)) == Settled(grant_id, known=False)
        assert self.state is after

    @rule(tier=st.sampled_from(["fast", "frail"]), out=st.booleans())
    def operate(self, tier: str, out: bool) -> None:
        self.happen(replay.Isolate(tier) if out else replay.Restore(tier))

    @rule(session=st.sampled_from("abcdefg"), tokens=st.sampled_from([0, 10, 10**6]))
    def charge(self, session: str, tokens: int) -> None:
        """What ran without a grant is spent, and no breaker and no retry budget hears of it."""
        self.wait(0)
        before = self.state
        self.happen(replay.Charge("k", session, tokens))
        assert (self.state.breakers, self.state.retries, self.state.grants) == (
            before.breakers,
            before.retries,
            before.grants,
        )
        now_ns = self.state.now_ns
        assert used(self.state.budget.hour, now_ns) == used(before.budget.hour, now_ns) + tokens

    @rule()
    def tidy(self) -> None:
        """Idle sessions leave, and a replay knows it: the room that they leave is used by what follows."""
        self.happen(replay.Sweep())

    @rule()
    def begin(self) -> None:
        """A new life that is written down: what it grants has the same names in every replay."""
        self.happen(replay.Begin(self.state.epoch + "b"))

    @rule(session=st.sampled_from("abc"))
    def forgive(self, session: str) -> None:
        self.happen(replay.Reset("k", session))

    @rule()
    def save(self) -> None:
        """A state survives being written down as JSON."""
        self.snapshot = replay.from_plain(json.loads(json.dumps(replay.to_plain(self.state))))
        self.journal = []
        assert self.snapshot == self.state

    @rule()
    def crash(self) -> None:
        """A snapshot and the events since give the very state that was lost; a new life gives new names."""
        assert replay.replay(self.snapshot, CONFIG, self.journal) == self.state
        self.state = with_epoch(self.state, self.state.epoch + "b")
        self.save()

    @invariant()
    def granted_is_settled_or_open(self) -> None:
        """Permits, reservations and grants are open together and closed together."""
        assert {name for name, _ in self.state.grants.items()} == set(self.open)
        assert {name for name, _ in self.state.budget.open.items()} == set(self.open)
        assert self.state.budget.hour.reserved == sum(grant.tokens for grant in self.open.values())
        for tier, breaker in self.state.breakers.items():
            held = {g.id for g in self.open.values() if g.tier == tier}
            assert len(breaker.permits) <= len(held)


TestAdmissionMachine = AdmissionMachine.TestCase


def test_a_bar_leaks_nothing() -> None:
    """When the budget or the retry budget denies a probe, its slot is still free for the next request."""
    state = failed(Admission(), "fast", 2)
    for wrong in ({"prompt_tokens": 10_000}, {"extra": True}):
        config = replace(CONFIG, retries=RetryBudgetConfig(floor=0, share_percent=0))
        same, barred = admit(state, config, ask(**wrong), S)
        assert isinstance(barred, Barred)
        assert same is state
    assert granted(state, S)[1].probe


@pytest.mark.parametrize(
    ("more", "bar"),
    [
        ({"tier": "open"}, Bar.OPEN),
        ({"tier": "probing"}, Bar.PROBING),
        ({"tier": "out"}, Bar.ISOLATED),
        ({"prompt_tokens": 1951}, Bar.BUDGET),
        ({"extra": True}, Bar.RETRY_BUDGET),
        ({"level": Level.CRITICAL, "prompt_tokens": 4000}, Bar.MEMORY_PRESSURE),
    ],
)
def test_every_bar_has_its_name(more: dict[str, Any], bar: Bar) -> None:
    """What keeps a call off is named, with a time where waiting helps."""
    state = isolate(failed(failed(Admission(), "probing", 2), "open", 2, S), "out")
    state, _ = granted(state, S, tier="probing")
    for _ in range(5):
        state, answer = admit(state, CONFIG, ask("other", "t", extra=True), S)
    _, answer = admit(state, CONFIG, ask(**more), S)
    assert isinstance(answer, Barred)
    assert answer.bar is bar
    assert answer.detail
    assert (answer.retry_after_s is None) is (bar in (Bar.ISOLATED, Bar.BUDGET))
    assert (answer.policy is Policy.HARD_STOP) is bool(answer.windows) is (bar is Bar.BUDGET)


def test_waits_are_in_seconds() -> None:
    """An open breaker's time reaches the answer in seconds."""
    _, answer = admit(failed(Admission(), "fast", 2), CONFIG, ask(), S // 2)
    assert isinstance(answer, Barred)
    assert answer.retry_after_s == 0.5


def test_settling_reports_the_breaker() -> None:
    """The settle that opens a breaker says so, and only that one."""
    state, grant = granted(Admission(), tier="frail")
    state, other = granted(state, tier="frail")
    state, settled = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0)
    assert settled.change is not None
    assert settled.change.after is Phase.OPEN
    assert phase_of(state, "frail", 0) is Phase.OPEN
    assert phase_of(state, "frail", S) is Phase.HALF_OPEN
    assert phase_of(state, "stranger", 0) is Phase.CLOSED
    assert settle(state, CONFIG, other.id, Verdict.FAILURE, Usage(), 0)[1].change is None


def test_retry_after_reaches_the_breaker() -> None:
    """A failure with the tier's own Retry-After bars it for that time."""
    state, grant = granted(Admission())
    state, _ = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0, retry_after_ns=7 * S)
    _, answer = admit(state, CONFIG, ask(), 0)
    assert isinstance(answer, Barred)
    assert (answer.bar, answer.retry_after_s) == (Bar.OPEN, 7)


def test_an_expired_grant_counts_as_ignored_and_spent() -> None:
    """A grant that is never settled costs what it reserved and says nothing of its tier."""
    state, grant = granted(Admission(), tier="frail")
    assert grant.expires_ns == 10 * S
    late, answer = settle(state, CONFIG, grant.id, Verdict.FAILURE, Usage(), 10 * S)
    assert (answer.expired, answer.tokens, answer.change) == (True, 100, None)
    closed, answers = expire(state, CONFIG, 10 * S)
    assert answers == (answer,)
    assert expire(late, CONFIG, 10 * S)[0] == closed
    assert phase_of(closed, "frail", 10 * S) is Phase.CLOSED
    assert expire(closed, CONFIG, 10 * S) == (closed, ())


def test_lost_grants_open_no_breaker() -> None:
    """However many grants are never settled, none counts as a failure, though its permit would still live."""
    state = Admission()
    for session in "abc":
        state, _ = granted(state, session=session)
    state, answers = expire(state, CONFIG, 30 * S)
    assert len(answers) == 3
    assert phase_of(state, "fast", 30 * S) is Phase.CLOSED
    assert state.breakers["fast"].consecutive == 0


def test_lives_share_no_names() -> None:
    """Two lives that start from the same snapshot give different names, however their epochs are spelled."""
    names = []
    for epoch in ("1", "11"):
        state = Admission(epoch=epoch)
        for _ in range(12):
            state, grant = granted(state)
            names.append(grant.id)
            state, _ = settle(state, CONFIG, grant.id, Verdict.SUCCESS, Usage(), 0)
    assert len(set(names)) == 24


def test_the_grant_carries_the_cap_and_warnings() -> None:
    """The grant says what may be generated, that it is less than named, and which windows are nearly full."""
    config = replace(CONFIG, budget=replace(CONFIG.budget, output_tokens_max=60))
    _, grant = admit(Admission(), config, ask(prompt_tokens=1600, output_tokens=80), 0)
    assert isinstance(grant, Grant)
    assert (grant.output_cap, grant.capped, grant.tokens) == (60, True, 1660)
    assert [load.percent for load in grant.warnings] == [83]


def test_escalation_leaves_the_cheap_tier() -> None:
    """Under `escalate` a session beyond its budget goes on with the cheap tier only."""
    limit = Limit(tokens_max=10, policy=Policy.ESCALATE)
    config = replace(CONFIG, budget=replace(CONFIG.budget, session=limit))
    dear = admit(Admission(), config, ask(), 0)[1]
    assert isinstance(dear, Barred)
    assert dear.policy is Policy.ESCALATE
    assert isinstance(admit(Admission(), config, ask(cheap=True), 0)[1], Grant)


def test_tiers_are_bounded() -> None:
    """A stream of invented tier names doesn't grow the state beyond its bound, by asking or by hand."""
    state = Admission()
    for n in range(admission.TIERS_MAX):
        state = isolate(state, f"t{n}")
    assert isolate(state, "one more") is state
    assert restore(state, "one more") is state
    _, answer = admit(state, CONFIG, ask("one more"), 0)
    assert isinstance(answer, Barred)
    assert answer.bar is Bar.FULL
    assert isinstance(admit(restore(state, "t1"), CONFIG, ask("t1"), 0)[1], Grant)


def test_a_full_house_is_named() -> None:
    """Where no further reservation is remembered, the bar says so and gives a short time."""
    state = Admission()
    for n in range(8):
        state, _ = granted(state, session=str(n % 4))
    _, answer = admit(state, CONFIG, ask(session="1"), 0)
    assert isinstance(answer, Barred)
    assert (answer.bar, answer.retry_after_s) == (Bar.FULL, 5)


def test_grants_of_an_older_life_can_be_settled() -> None:
    """After a restart the drivers that survived still settle what they were granted."""
    state, grant = granted(Admission(epoch="1"))
    state = with_epoch(state, "11")
    state, newer = granted(state)
    assert newer.id != grant.id
    state, answer = settle(state, CONFIG, grant.id, Verdict.SUCCESS, Usage(prompt_tokens=7), 1)
    assert (answer.known, answer.tokens) == (True, 7)


def test_hands_reach_the_books() -> None:
    """Resetting a session frees its budget, and a sweep forgets the idle."""
    state, grant = granted(Admission(), prompt_tokens=1900)
    state, _ = settle(state, CONFIG, grant.id, Verdict.SUCCESS, None, 0)
    assert isinstance(admit(state, CONFIG, ask(), 0)[1], Barred)
    assert isinstance(admit(reset_session(state, "k", "s"), CONFIG, ask(), 0)[1], Grant)
    assert sweep(state, CONFIG, 300 * S).budget.sessions.count == 0
    assert sweep(state, CONFIG, 299 * S) is state


def test_a_grant_without_its_record_changes_nothing() -> None:
    """A reservation that is open under no grant is closed without touching any breaker."""
    state, grant = granted(Admission())
    broken = replace(state, grants=state.grants.drop(grant.id))
    after, answer = settle(broken, CONFIG, grant.id, Verdict.FAILURE, Usage(), 0)
    assert not answer.known
    assert after.breakers == broken.breakers


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3000)), max_size=30))
def test_older_states_stay_valid(calls: list[tuple[str, int]]) -> None:
    """A reducer never changes the state that it was given."""
    state = Admission()
    versions = []
    for session, tokens in calls:
        versions.append((state, replay.to_plain(state)))
        state, answer = admit(state, CONFIG, ask(session=session, prompt_tokens=tokens), 0)
        if isinstance(answer, Grant) and tokens % 2:
            state, _ = settle(state, CONFIG, answer.id, Verdict.FAILURE, Usage(prompt_tokens=tokens), 0)
    for version, plain in versions:
        assert replay.to_plain(version) == plain


def test_a_fallback_is_neither_first_nor_extra():
    """It runs where no extra call is left, and buys none: the share is one of requests."""
    config = AdmissionConfig(retries=RetryBudgetConfig(share_percent=100, floor=0))
    call = Ask(tier="t", key="k", session="s", prompt_tokens=1, output_tokens=1)
    state = Admission()
    for _ in range(5):
        state, answer = admission.admit(state, config, replace(call, fallback=True), S)
        assert isinstance(answer, Grant)
    _, answer = admission.admit(state, config, replace(call, extra=True), S)

    assert isinstance(answer, Barred)
    assert answer.bar is Bar.RETRY_BUDGET
