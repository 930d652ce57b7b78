"""Several API keys at one breaker: what fails for one key alone closes the tier to no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.breaker import _WELL_MAX, Breaker, BreakerConfig, Permit, Phase, admit, settle
from reliability.rolling import SECOND_NS
from reliability.types import Verdict

CONFIG = BreakerConfig()
KEYS = st.sampled_from("abc")
VERDICTS = st.sampled_from(list(Verdict))
WAITS = st.integers(0, 2 * SECOND_NS)


def called(breaker: Breaker, now_ns: int, key: str, verdict: Verdict) -> Breaker:
    """The breaker after one call, which it must let run."""
    breaker, permit = admit(breaker, CONFIG, now_ns, None, key)
    assert isinstance(permit, Permit)
    return settle(breaker, CONFIG, permit, verdict, now_ns)[0]


def failed(breaker: Breaker, now_ns: int, keys: str) -> tuple[Breaker, int]:
    """The breaker after failures of these keys, and how many it took to open it."""
    for count, key in enumerate(keys, 1):
        breaker = called(breaker, now_ns, key, Verdict.FAILURE)
        if breaker.phase is Phase.OPEN:
            return breaker, count
    return breaker, 0


@given(st.lists(st.tuples(st.sampled_from("aaaab"), WAITS), max_size=120))
def test_a_key_that_only_fails_closes_the_tier_to_no_other(calls: list[tuple[str, int]]) -> None:
    """Law: while another key's calls succeed, each within the window of the one before, none of them is rejected."""
    breaker, now_ns, well_ns = called(Breaker(), 0, "b", Verdict.SUCCESS), 0, 0
    for key, wait_ns in calls:
        now_ns += wait_ns
        if key == "b" or now_ns - well_ns >= CONFIG.rate_window_ns:
            now_ns = min(now_ns, well_ns + CONFIG.rate_window_ns - 1)
            breaker, well_ns = called(breaker, now_ns, "b", Verdict.SUCCESS), now_ns
        if key == "a":
            breaker = called(breaker, now_ns, "a", Verdict.FAILURE)
        assert breaker.phase is Phase.CLOSED


@given(st.lists(st.tuples(KEYS, WAITS), max_size=20), st.lists(KEYS, min_size=5, max_size=5))
def test_an_outage_opens_after_as_many_failures_as_before(before: list[tuple[str, int]], keys: list[str]) -> None:
    """Law: where all calls of several keys fail, the fifth opens; as long as only one key has called, the first one of
    another."""
    breaker, now_ns = Breaker(), 0
    for key, wait_ns in before:
        now_ns += wait_ns
        breaker = called(breaker, now_ns, key, Verdict.SUCCESS)
    asked = "".join(keys)
    missing = next(key for key in "abc" if key not in asked[:1])
    _, count = failed(breaker, now_ns, asked + missing)
    other_is_well = any(key != asked[0] for key, _ in breaker.well)
    assert count == (6 if len(set(asked)) == 1 and other_is_well else 5)


@given(st.lists(st.tuples(VERDICTS, WAITS), max_size=60), st.sampled_from(["", "a"]))
def test_with_one_key_nothing_is_put_off(calls: list[tuple[Verdict, int]], key: str) -> None:
    """Law: with one key, or without keys, the fifth failure in a row opens."""
    breaker, now_ns, in_a_row = Breaker(), 0, 0
    for verdict, wait_ns in calls:
        now_ns += wait_ns
        breaker = called(breaker, now_ns, key, verdict)
        in_a_row = {Verdict.FAILURE: in_a_row + 1, Verdict.SUCCESS: 0, Verdict.IGNORED: in_a_row}[verdict]
        if breaker.phase is Phase.OPEN:
            assert in_a_row >= 5 or breaker.generation == 1
            return
        assert in_a_row < 5


def test_a_key_fails_alone_no_longer_than_the_window() -> None:
    """Law: another key's success counts for the window of the rate, no longer; nor does it where that key fails."""
    well = called(Breaker(), 0, "b", Verdict.SUCCESS)
    late = CONFIG.rate_window_ns
    assert failed(well, late - 1, "a" * 9)[1] == 0
    assert failed(well, late, "a" * 9)[1] == 5
    assert failed(well, 1, "aaaaaaab")[1] == 8
    assert failed(called(well, 1, "c", Verdict.SUCCESS), 2, "aaaab")[1] == 5


def test_the_memory_of_keys_is_bounded() -> None:
    """Law: however many keys call, a breaker remembers a few."""
    breaker = Breaker()
    for number in range(500):
        breaker = called(breaker, number, f"key {number}", Verdict.SUCCESS)
    assert len(breaker.well) == _WELL_MAX
    breaker, _ = failed(breaker, 500, "abc")
    assert len(breaker.failing) == 2
    assert called(breaker, 501, "a", Verdict.SUCCESS).failing == ()
