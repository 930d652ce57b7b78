"""SessionState by hand: budgets hold under any interleaving, a step is done once, and what is lost is charged."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.state.records import Query, StateStep, TurnItem
from reliability.admission.admit import AdmissionConfig
from reliability.admission.breaker import BreakerConfig, Phase
from reliability.admission.events import Charge, Order, Progress
from reliability.admission.request import Grant, RejectedBy
from reliability.loops import Turn
from reliability.types import Verdict
from tests.support.incarnations import LIMITS, ROOM, Driver, HandClock, ask, done, life, limits, settled, tight

TOKENS = 1000
WORDS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.just("settle"), st.integers(0, 2), st.sampled_from([0, 40, 100, None])),
        st.tuples(st.just("resend"), st.integers(0, 2), st.integers(0, 2)),
        st.tuples(st.just("die"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=30)
@given(WORDS)
def test_a_hard_stop_holds_under_every_interleaving(words: list[tuple[str, int, int]]) -> None:
    """Whatever three Routers ask, settle and send again, and however often the actor dies: spent and reserved never
    exceed the budget, and spent is what was settled."""
    with TemporaryDirectory(dir=ROOM) as room:
        actor = life(Path(room))
        drivers = [Driver(actor, f"c{n}", tight(TOKENS)) for n in range(3)]
        held: dict[int, list[Grant]] = {0: [], 1: [], 2: []}
        last: dict[int, list[Grant]] = {0: [], 1: [], 2: []}  # of the last step: a resend takes them back
        spent = 0
        for word, who, count in words:
            driver = drivers[who]
            if word == "ask":
                last[who] = driver.granted(*[ask()] * count)
                held[who] += last[who]
            elif word == "settle" and held[who]:
                grant = held[who].pop(0)
                driver.put(settled(grant, count))
                spent += grant.tokens if count is None else count
                last[who] = []
            elif word == "resend" and driver.number:
                held[who] = [grant for grant in held[who] if grant not in last[who]]
                answers = driver.step(requests=(ask(),) * count, attempt=1 + max(0, getattr(driver, "tries", 0)))
                driver.tries = getattr(driver, "tries", 0) + 1  # type: ignore[attr-defined]
                last[who] = [a.decision for a in answers if isinstance(a.decision, Grant)]
                held[who] += last[who]
            elif word == "die":
                actor = life(Path(room))
                for each in drivers:
                    each.actor._journal.close()
                    each.actor = actor
            books = drivers[0].actor.budget("k", "s")
            assert books["spent_tokens"] == spent
            assert books["reserved_tokens"] == sum(grant.tokens for grants in held.values() for grant in grants)
            assert books["spent_tokens"] + books["reserved_tokens"] <= TOKENS
        drivers[0].actor._journal.close()


@pytest.mark.parametrize("meanwhile", ["ask", "charge", "nothing", "operator", "death"])
@pytest.mark.parametrize(
    ("used", "local", "charged"), [(None, True, 50), (None, False, 82), (70, True, 70), (70, False, 100)]
)
def test_a_lost_grant_is_charged_what_it_used_and_leaves_an_incident(tmp_path, meanwhile, used, local, charged):
    """A grant that nobody settles is closed by whatever comes next at what it was last known to have used (its prompt,
    where that is nothing; in the cloud a little more), with one incident that says whose it was; a settle that comes
    too late adds nothing but what was used beyond, and no second one does."""
    clock = HandClock()
    driver = Driver(life(tmp_path, clock=clock))
    (grant,) = driver.granted(ask("cloud", session="lost", local=local))
    if used is not None:
        driver.put(Progress(grant_id=grant.id, tokens=used))
    assert driver.actor.budget("k", "lost")["spent_tokens"] == (used or 0)
    clock.wait(31)
    if meanwhile == "death":
        driver.actor = life(tmp_path, clock=clock)
        clock.wait(31)
    if meanwhile == "operator":
        driver.actor.order(Order("fast", "restore"))
    items = (Charge(key="k", session="t", tokens=1),) if meanwhile == "charge" else ()
    driver.step(items, (ask(session="t"),) if meanwhile == "ask" else ())
    driver.put(settled(grant, 1))

    assert driver.actor.budget("k", "lost")["spent_tokens"] == charged
    assert driver.actor.stats()["grants"] == (meanwhile == "ask")
    (incident,) = driver.actor.browse(Query(kind="grant_expired"))
    assert (incident["tier"], incident["session"], incident["key"]) == ("cloud", "lost", "k")
    assert incident["evidence"] == {"tokens": charged}
    driver.put(settled(grant, 300))
    assert driver.actor.budget("k", "lost")["spent_tokens"] == charged


def test_the_timer_closes_without_any_step(tmp_path):
    """A beat, which does no work, closes what has expired within the tidying time."""
    clock = HandClock()
    driver = Driver(life(tmp_path, clock=clock))
    driver.granted(ask())
    clock.wait(31)
    driver.actor.step(StateStep(client="c", number=9, config=LIMITS.digest))

    stats = driver.actor.stats()
    assert (stats["grants"], stats["reserved_tokens"]) == (0, 0)


def test_idle_sessions_leave_and_make_room(tmp_path):
    """A session that was idle for its time leaves the actor, and the next life doesn't know it either."""
    clock = HandClock()
    driver = Driver(life(tmp_path, clock=clock))
    for session in "abc":
        driver.put(settled(driver.granted(ask(session=session))[0]))
    assert driver.actor.stats()["sessions"] == 3
    clock.wait(301)
    driver.put(Charge(key="k", session="d", tokens=1))

    assert driver.actor.stats()["sessions"] == 1
    assert life(tmp_path, clock=clock).stats()["sessions"] == 1


def test_a_breaker_that_changes_leaves_an_incident(tmp_path):
    """The settle that opens a breaker is written down with its request, session and key; so is the one that closes."""
    clock = HandClock()
    driver = Driver(life(tmp_path, clock=clock))
    grants = driver.granted(ask(), ask(), ask())
    more = {"verdict": Verdict.FAILURE, "session": "s", "key": "k"}
    driver.put(*(settled(grant, 0, request_id=f"q{n}", **more) for n, grant in enumerate(grants)))

    (incident,) = driver.actor.browse(Query(kind="breaker"))
    assert [incident[name] for name in ("tier", "request_id", "session", "key")] == ["fast", "q1", "s", "k"]
    assert incident["reason"] == "closed -> open: consecutive_failures"
    assert driver.ask(ask())[0].rejected_by is RejectedBy.OPEN
    clock.wait(2)
    (probe,) = driver.granted(ask())
    driver.put(settled(probe, 0, request_id="q9"))
    assert driver.actor.browse(Query(kind="breaker"))[0]["request_id"] == "q9"


def test_health_is_told_with_every_answer(tmp_path):
    """Each reply says how the tiers' breakers stand, and for how long; a beat's reply too."""
    clock = HandClock()
    driver = Driver(life(tmp_path, clock=clock), limits=limits(AdmissionConfig(breaker=BreakerConfig(failures_max=1))))
    (grant,) = driver.granted(ask())
    beat = StateStep(client="c", number=9, config=driver.limits.digest)
    assert not driver.actor.step(beat).health["fast"].degraded
    driver.put(settled(grant, 0, Verdict.FAILURE))
    clock.wait(1)
    health = driver.actor.step(beat).health["fast"]
    assert (health.phase, health.until_s, health.degraded) == (Phase.OPEN, 4.0, True)
    clock.wait(4)
    health = driver.actor.step(beat).health["fast"]
    assert (health.phase, health.until_s) == (Phase.HALF_OPEN, 0.0)


def test_a_tier_is_opened_and_closed_by_hand(tmp_path):
    """An open breaker that a person closes lets calls through at once, over a death, and has forgotten its failures. A
    tier that was isolated takes no call until it is restored, over a death. Each order is written down."""
    config = AdmissionConfig(breaker=BreakerConfig(failures_max=2, rate_percent=None))
    driver = Driver(life(tmp_path), limits=limits(config))
    for grant in driver.granted(ask(), ask()):
        driver.put(settled(grant, 0, Verdict.FAILURE))
    assert driver.ask(ask())[0].rejected_by is RejectedBy.OPEN
    driver.actor.order(Order("fast", "close"))
    driver.actor = life(tmp_path)
    (grant,) = driver.granted(ask())
    driver.put(settled(grant, 0, Verdict.FAILURE))
    assert len(driver.granted(ask())) == 1

    driver.actor.order(Order("fast", "isolate"))
    driver.actor.order(Order("fast", "close"))
    driver.actor = life(tmp_path)
    assert driver.ask(ask())[0].rejected_by is RejectedBy.ISOLATED
    driver.actor.order(Order("fast", "restore"))
    assert len(driver.granted(ask())) == 1
    orders = [(one["reason"], one["tier"]) for one in driver.actor.browse(Query(kind="operator"))]
    assert orders == [("restore", "fast"), ("close", "fast"), ("isolate", "fast"), ("close", "fast")]


def test_reset(tmp_path):
    """A session that is reset by hand has spent and said nothing; its open reservations and all others' books stay."""
    driver = Driver(life(tmp_path))
    mine, theirs = driver.granted(ask(prompt_tokens=1000), ask(session="t"))
    said = TurnItem(key="k", session="s", turn=Turn(text="hello"), request="q")
    driver.put(settled(mine, 1900), settled(theirs, 7), said, done())
    (held,) = driver.granted(ask())
    driver.actor.reset("k", "s")
    for _ in range(2):
        books = driver.actor.budget("k", "s")
        assert (books["spent_tokens"], books["reserved_tokens"]) == (0, 100)
        assert driver.actor.budget("k", "t")["spent_tokens"] == 7
        assert driver.actor.books("k", "s")[0] is None
        driver.actor = life(tmp_path)
    driver.put(settled(held, 1))
    assert driver.step(requests=(ask(window=True),))[0].window.answers == ()
    assert driver.actor.browse(Query(kind="operator"))[0]["session"] == "s"


def test_limits_that_are_not_those_of_the_step_are_not_taken(tmp_path):
    """A step whose limits have another digest is not done."""
    driver = Driver(life(tmp_path))
    step = StateStep(client="c", number=1, config="wanted", items=(Charge(key="k", session="s", tokens=1),))

    assert driver.actor.step(step) is None
    assert driver.actor.step(step, LIMITS) is None
    assert driver.actor.budget("k", "s")["spent_tokens"] == 0


def test_two_routers_under_different_limits(tmp_path):
    """While a new configuration is rolled out, each Router's steps are decided by its own limits, at once."""
    actor = life(tmp_path)
    poor, rich = Driver(actor, "poor", tight(200)), Driver(actor, "rich", tight(1000))
    kinds = Counter(type(d.ask(ask())[0]).__name__ + d.client for _ in range(6) for d in (poor, rich))

    assert kinds == {"Grantpoor": 1, "Rejectionpoor": 5, "Grantrich": 6}
