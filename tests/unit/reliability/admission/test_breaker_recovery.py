"""How soon a breaker finds a tier that is back, and what the probes of an outage cost."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.breaker import Breaker, BreakerConfig, Permit, admit, settle
from reliability.rolling import SECOND_NS
from reliability.types import Verdict
from tests.unit.reliability.admission.test_breaker import after, permit_of

FOUND_WITHIN_NS = 15 * SECOND_NS


@given(
    outages_s=st.lists(st.tuples(st.integers(0, 7200), st.integers(1, 600)), min_size=1, max_size=5),
    every_ms=st.integers(10, 5000),
)
def test_a_tier_that_is_back_is_found_within_15_seconds(outages_s: list[tuple[int, int]], every_ms: int) -> None:
    """Law: by default, a tier that returns after an outage of any length answers a request within 15 seconds, where
    one comes at least every 5 seconds, whatever outages came before. The outage costs, beyond the failures that open
    the breaker and one shorter open time, at most one probe every 10 seconds."""
    config, breaker, now_ns = BreakerConfig(rate_percent=None), Breaker(), 0
    for away_s, back_s in outages_s:
        back_ns, failed = now_ns + away_s * SECOND_NS, 0
        end_ns, found_ns = back_ns + max(back_s, 15) * SECOND_NS, None
        while now_ns < end_ns and found_ns is None:
            breaker, answer = admit(breaker, config, now_ns)
            if isinstance(answer, Permit):
                verdict = Verdict.FAILURE if now_ns < back_ns else Verdict.SUCCESS
                failed += verdict is Verdict.FAILURE
                breaker, _ = settle(breaker, config, answer, verdict, now_ns)
                found_ns = now_ns if verdict is Verdict.SUCCESS else None
            now_ns += every_ms * 1_000_000 if isinstance(answer, Permit) else skip_to(breaker, now_ns, every_ms)
        assert found_ns is not None
        assert found_ns - back_ns <= FOUND_WITHIN_NS
        assert failed <= 5 + 2 + away_s // 10
        now_ns = max(now_ns, end_ns)


@given(away_s=st.integers(1, 600), hangs_s=st.integers(0, 120), every_ms=st.integers(100, 4000))
def test_a_probe_that_hangs_delays_nothing(away_s: int, hangs_s: int, every_ms: int) -> None:
    """Law: the same where each probe hangs until it fails: another one runs beside it, and the open time counts from
    its beginning. What ends late changes nothing."""
    config, breaker, now_ns = BreakerConfig(rate_percent=None), Breaker(), 0
    back_ns, running = away_s * SECOND_NS, list[tuple[int, Permit]]()
    while now_ns <= back_ns + FOUND_WITHIN_NS:
        for ends_ns, permit in [one for one in running if one[0] <= now_ns]:
            breaker, _ = settle(breaker, config, permit, Verdict.FAILURE, ends_ns)
            running.remove((ends_ns, permit))
        breaker, answer = admit(breaker, config, now_ns)
        if isinstance(answer, Permit) and now_ns >= back_ns:
            return
        if isinstance(answer, Permit):
            running.append((now_ns + hangs_s * SECOND_NS, answer))
        now_ns += every_ms * 1_000_000
    raise AssertionError(f"not found {FOUND_WITHIN_NS // SECOND_NS} seconds after it was back: {breaker}")


def skip_to(breaker: Breaker, now_ns: int, every_ms: int) -> int:
    """How long until the first of the requests, one every `every_ms`, that the breaker lets run."""
    every_ns = every_ms * 1_000_000
    return -(-(breaker.until_ns - now_ns) // every_ns) * every_ns


def test_the_tier_s_own_retry_after_may_be_longer() -> None:
    """Law: the maximum shortens no time that the tier asked for itself."""
    config = BreakerConfig()
    breaker = after(Breaker(), config, 0, *[Verdict.FAILURE] * 5)
    breaker, probe = permit_of(breaker, config, breaker.until_ns)
    breaker, _ = settle(breaker, config, probe, Verdict.FAILURE, 5 * SECOND_NS, 60 * SECOND_NS)
    assert breaker.until_ns == 65 * SECOND_NS
