"""The breaker: only failures open, only time leaves OPEN, only a probe's success closes."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reliability.admission import breaker as breakers
from reliability.admission.breaker import Breaker, BreakerConfig, BreakerRejection, Cause, Permit, Phase, admit, settle
from reliability.types import Verdict

CONFIG = BreakerConfig(
    failures_max=3, rate_percent=50, rate_calls_min=6, rate_window_ns=1000, open_ns=100, open_max_ns=1600, calm_ns=500,
    retry_after_max_ns=700, permit_ns=300,
)  # fmt: skip


def permit_of(breaker: Breaker, config: BreakerConfig, now_ns: int) -> tuple[Breaker, Permit]:
    """Admit where it must succeed."""
    breaker, permit = admit(breaker, config, now_ns)
    assert isinstance(permit, Permit)
    return breaker, permit


def after(breaker: Breaker, config: BreakerConfig, now_ns: int, *verdicts: Verdict) -> Breaker:
    """The breaker after these calls, one after another."""
    for verdict in verdicts:
        breaker, permit = permit_of(breaker, config, now_ns)
        breaker, _ = settle(breaker, config, permit, verdict, now_ns)
    return breaker


def opened(config: BreakerConfig = CONFIG, now_ns: int = 0) -> Breaker:
    """A breaker that has just opened."""
    return after(Breaker(), config, now_ns, *[Verdict.FAILURE] * 3)


class BreakerMachine(RuleBasedStateMachine):
    """Any calls, settles, cancels and waits, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now_ns = 0
        self.open: list[Permit] = []
        self.gone: list[Permit] = []

    @rule(wait_ns=st.sampled_from([0, 1, 10, 99, 100, 101, 250, 400, 2000]))
    def wait(self, wait_ns: int) -> None:
        self.now_ns += wait_ns

    @rule(hold_ns=st.sampled_from([None, 0, 50, 300, 10_000]))
    def ask(self, hold_ns: int | None) -> None:
        """Only time leaves OPEN; probes are bounded; a refusal changes nothing."""
        before, phase = self.breaker, breakers.phase_at(self.breaker, self.now_ns)
        self.breaker, answer = admit(before, CONFIG, self.now_ns, hold_ns)
        if isinstance(answer, BreakerRejection):
            assert self.breaker is before
            assert phase is not Phase.CLOSED or before.isolated
            assert answer.retry_after_ns is None or answer.retry_after_ns > 0
            return
        assert phase is not Phase.OPEN
        assert not before.isolated
        assert self.breaker.phase is phase
        assert answer.probe is (phase is Phase.HALF_OPEN)
        assert self.now_ns <= answer.expires_ns <= self.now_ns + CONFIG.permit_ns
        self.open.append(answer)

    @rule(data=st.data(), verdict=st.sampled_from(list(Verdict)), rest_ns=st.sampled_from([0, -5, 50, 900]))
    def give_back(self, data: st.DataObject, verdict: Verdict, rest_ns: int) -> None:
        """Only a live permit of this generation counts; IGNORED changes nothing; success never opens."""
        if not self.open:
            return
        permit = data.draw(st.sampled_from(self.open))
        self.open.remove(permit)
        self.gone.append(permit)
        before = self.breaker
        live = permit.generation == before.generation and permit.expires_ns > self.now_ns
        self.breaker, change = settle(before, CONFIG, permit, verdict, self.now_ns, rest_ns)
        rest = {n: e for n, e in before.permits.items() if n != permit.number}
        if not live or verdict is Verdict.IGNORED:
            assert self.breaker == (replace(before, permits=rest) if permit.generation == before.generation else before)
            assert change is None
        elif verdict is Verdict.SUCCESS:
            assert self.breaker.phase is not Phase.OPEN
            assert self.breaker.phase is before.phase or permit.probe
        else:
            assert self.breaker.phase is not Phase.CLOSED or before.phase is Phase.CLOSED
            assert before.phase is not Phase.HALF_OPEN or self.breaker.phase is Phase.OPEN
        assert (change is not None) is (self.breaker.phase is not before.phase)

    @rule(data=st.data(), verdict=st.sampled_from(list(Verdict)))
    def give_back_twice(self, data: st.DataObject, verdict: Verdict) -> None:
        """A second settle changes nothing."""
        if self.gone:
            permit = data.draw(st.sampled_from(self.gone))
            assert settle(self.breaker, CONFIG, permit, verdict, self.now_ns) == (self.breaker, None)

    @rule()
    def close_by_hand(self) -> None:
        """Closed at once and without a past, whatever it was; who was on his way says nothing any more."""
        before = self.breaker
        self.breaker = breakers.close(before, self.now_ns)
        assert self.breaker.phase is Phase.CLOSED
        assert self.breaker is before or (self.breaker.openings, self.breaker.permits) == (0, {})
        assert self.breaker.isolated == before.isolated
        assert breakers.close(self.breaker, self.now_ns) is self.breaker

    @rule()
    def hold_off(self) -> None:
        """While it is held off by hand nothing runs."""
        held = replace(self.breaker, isolated=True)
        _, answer = admit(held, CONFIG, self.now_ns)
        assert answer == BreakerRejection(Cause.ISOLATED, None)

    @invariant()
    def probes_are_bounded(self) -> None:
        """Half-open, one probe is out, and no more: none hangs for longer than the open time."""
        if self.breaker.phase is Phase.HALF_OPEN:
            live = [e for e in self.breaker.permits.values() if e > self.now_ns]
            assert len(live) <= 1

    @invariant()
    def open_time_is_bounded(self) -> None:
        """No opening lasts longer than its maximum."""
        if self.breaker.phase is Phase.OPEN:
            span = self.breaker.until_ns - self.breaker.since_ns
            assert 0 < span <= max(CONFIG.open_max_ns, CONFIG.retry_after_max_ns)


TestBreakerMachine = BreakerMachine.TestCase


def test_who_closes_it_by_hand_forgets_its_past() -> None:
    """It stands as a new one does, but for the number of its state."""
    before = opened()
    assert breakers.close(before, 7) == Breaker(generation=before.generation + 1, since_ns=7)


def test_failures_in_a_row_open() -> None:
    """So many failures in a row open the breaker; one success between them starts the count again."""
    config = replace(CONFIG, rate_percent=None)
    two = [Verdict.FAILURE] * 2
    broken = after(Breaker(), config, 0, *two, Verdict.SUCCESS, *two)
    assert broken.phase is Phase.CLOSED
    broken, permit = permit_of(broken, config, 0)
    broken, change = settle(broken, config, permit, Verdict.FAILURE, 0)
    assert broken.phase is Phase.OPEN
    assert change == breakers.Change(Phase.CLOSED, Phase.OPEN, Cause.CONSECUTIVE)


def test_a_share_of_failures_opens() -> None:
    """Half of the calls failing opens once there are enough calls, and old failures don't count."""
    config = replace(CONFIG, failures_max=None)
    pair = [Verdict.SUCCESS, Verdict.FAILURE]
    few = after(Breaker(), config, 0, *pair, *pair)
    assert few.phase is Phase.CLOSED
    assert after(few, config, 1099, *pair).phase is Phase.OPEN
    assert after(few, config, 1100, *pair).phase is Phase.CLOSED
    assert after(few, config, 0, Verdict.SUCCESS, Verdict.SUCCESS, Verdict.FAILURE).phase is Phase.CLOSED


def test_rules_can_be_off() -> None:
    """With both rules off no failure without Retry-After opens."""
    config = replace(CONFIG, failures_max=None, rate_percent=None)
    assert after(Breaker(), config, 0, *[Verdict.FAILURE] * 50).phase is Phase.CLOSED


def test_only_time_leaves_open() -> None:
    """An open breaker refuses until its time is over, to the nanosecond, and says how long that is."""
    breaker = opened()
    same, refused = admit(breaker, CONFIG, 99)
    assert (same, refused) == (breaker, BreakerRejection(Cause.OPEN, 1))
    assert breakers.phase_at(breaker, 99) is Phase.OPEN
    assert breakers.phase_at(breaker, 100) is Phase.HALF_OPEN
    assert breaker.phase is Phase.OPEN
    assert permit_of(breaker, CONFIG, 100)[1].probe


def test_a_good_probe_closes_it() -> None:
    """And then everybody may run."""
    half, permit = permit_of(opened(), CONFIG, 100)
    closed, change = settle(half, CONFIG, permit, Verdict.SUCCESS, 100)
    assert change == breakers.Change(Phase.HALF_OPEN, Phase.CLOSED, Cause.PROBE_SUCCEEDED)
    for _ in range(5):
        closed, permit = permit_of(closed, CONFIG, 100)
        assert not permit.probe
    assert after(closed, CONFIG, 100, Verdict.FAILURE, Verdict.FAILURE).phase is Phase.CLOSED


def test_an_ignored_probe_frees_its_slot() -> None:
    """A cancelled probe neither opens nor closes, and the next request may probe."""
    half, first = permit_of(opened(), CONFIG, 100)
    _, refused = admit(half, CONFIG, 100)
    assert refused == BreakerRejection(Cause.PROBING, 300)
    half, change = settle(half, CONFIG, first, Verdict.IGNORED, 100)
    assert (half.phase, change) == (Phase.HALF_OPEN, None)
    permit_of(half, CONFIG, 100)


def test_a_lost_probe_frees_its_slot() -> None:
    """A probe that is never settled gives its slot back when it expires, and its late result is void."""
    half, lost = permit_of(opened(), CONFIG, 100)
    assert isinstance(admit(half, CONFIG, 399)[1], BreakerRejection)
    half, _ = permit_of(half, CONFIG, 400)
    assert settle(half, CONFIG, lost, Verdict.SUCCESS, 400) == (half, None)


@given(st.integers(1, 100))
def test_open_time_grows_up_to_a_bound(failures: int) -> None:
    """Every failed probe doubles the open time, up to the maximum, however often it fails."""
    breaker = opened()
    for count in range(1, failures):
        now_ns = breaker.until_ns
        breaker = after(breaker, CONFIG, now_ns, Verdict.FAILURE)
        assert breaker.until_ns - now_ns == min(100 * 2**count, 1600)


def test_open_time_decays_when_healthy() -> None:
    """Each calm period spent closed takes one opening back."""
    breaker = opened()
    for _ in range(3):
        breaker = after(breaker, CONFIG, breaker.until_ns, Verdict.FAILURE)
    closed_ns = breaker.until_ns
    closed = after(breaker, CONFIG, closed_ns, Verdict.SUCCESS)
    for calm, span_ns in ((0, 1600), (1, 800), (2, 400), (3, 200), (4, 100), (50, 100)):
        now_ns = closed_ns + 500 * calm
        again = after(closed, CONFIG, now_ns, *[Verdict.FAILURE] * 3)
        assert again.until_ns - now_ns == span_ns


@pytest.mark.parametrize(("asked_ns", "span_ns"), [(50, 50), (700, 700), (10_000, 700), (0, None), (-9, None)])
def test_retry_after_is_honoured(asked_ns: int, span_ns: int | None) -> None:
    """One failure with the tier's Retry-After opens for that time, bounded, and counts as no opening."""
    breaker, permit = permit_of(Breaker(), CONFIG, 10)
    breaker, change = settle(breaker, CONFIG, permit, Verdict.FAILURE, 10, asked_ns)
    if span_ns is None:
        assert (breaker.phase, change) == (Phase.CLOSED, None)
        return
    assert (breaker.until_ns, breaker.openings) == (10 + span_ns, 0)
    assert change.cause is Cause.RETRY_AFTER
    breaker, permit = permit_of(Breaker(), off := replace(CONFIG, retry_after_max_ns=0), 0)
    assert settle(breaker, off, permit, Verdict.FAILURE, 0, asked_ns)[0].phase is Phase.CLOSED


def test_retry_after_lengthens_an_opening() -> None:
    """Where the rules open anyway, the longer of both times counts."""
    breaker = opened()
    breaker, probe = permit_of(breaker, CONFIG, 100)
    assert settle(breaker, CONFIG, probe, Verdict.FAILURE, 100, 600)[0].until_ns == 700
    assert settle(breaker, CONFIG, probe, Verdict.FAILURE, 100, 5)[0].until_ns == 300


@given(st.lists(st.sampled_from(list(Verdict)), max_size=40), st.integers(0, 5000))
def test_a_healthy_tier_is_closed_soon(verdicts: list[Verdict], wait_ns: int) -> None:
    """Law: whatever was before, and without any traffic since, a tier that answers well is closed after its open time
    and one call, which isn't refused."""
    breaker, now_ns = Breaker(), 0
    for verdict in verdicts:
        breaker, answer = admit(breaker, CONFIG, now_ns)
        if isinstance(answer, Permit):
            breaker, _ = settle(breaker, CONFIG, answer, verdict, now_ns)
        now_ns += wait_ns
    now_ns += CONFIG.open_max_ns
    assert after(breaker, CONFIG, now_ns, Verdict.SUCCESS).phase is Phase.CLOSED


def test_outstanding_permits_are_bounded() -> None:
    """However many calls are never settled, only so many permits are remembered: the newest."""
    breaker, first = permit_of(Breaker(), CONFIG, 0)
    for _ in range(breakers._PERMITS_MAX):
        breaker, last = permit_of(breaker, CONFIG, 0)
    assert len(breaker.permits) == breakers._PERMITS_MAX
    assert first.number not in breaker.permits
    assert last.number in breaker.permits
    assert len(permit_of(breaker, CONFIG, 300)[0].permits) == 1
