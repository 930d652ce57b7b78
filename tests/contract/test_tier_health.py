"""Many faults in a row: what the breaker, its probes and the retry budget make of them, and what the upstream feels.

The limits are those that are shipped, with their times scaled down to a tenth. Where the retry budget itself is tested,
its minute is a whole one.
"""

import concurrent.futures
import time
from typing import Any

import httpx
import pytest

from tests.support import plays, scripts
from tests.support.http_asking import Outcome, ask, report_of, user
from tests.support.serving import Deploy, Server, until
from tests.support.upstream import Upstream

MODEL = "some/model"
FAILURES_MAX, FLOOR, SHARE_PERCENT = 5, 10, 20
OPEN_S = 1.0
SCALED: dict[str, Any] = {
    "tier_health": {"open_s": OPEN_S, "open_max_s": 3.0, "rate_window_s": 6.0},
    "retry_budget": {"window_s": 6.0},
}


def run(deploy: Deploy, upstream: Upstream, name: str, *, retries_max: int, **limits: Any) -> Server:
    """`premium` on the upstream, and `backup`, which always answers; `alone` has nobody behind it."""
    hosted = scripts.hosted(upstream, MODEL)
    tiers = {"premium": hosted, "backup": scripts.tier("backup"), "alone": hosted}
    timeouts = scripts.QUICK | {"connect_s": 5.0, "first_token_s": 5.0}
    limits = {"tier_health": {}, "retry_budget": {}} | limits
    return deploy(scripts.graph(tiers, ["premium", "backup"], retries=retries_max, timeouts=timeouts, **limits), name)


@pytest.fixture(scope="module")
def server(deploy, upstream):
    return run(deploy, upstream, "health", retries_max=0, **SCALED)


def hi(server: Server, *, stream: bool = False) -> Outcome:
    return ask(server, user("hi"), stream=stream)


def states(server: Server) -> tuple[str, str, str]:
    """The tier as `/ready` and `/v1/models` show it, and its breaker."""
    ready = server.get("/ready").json()["tiers"]["premium"]
    listed = {model["id"]: model["state"] for model in server.get("/v1/models").json()["data"]}
    return ready["state"], listed["premium"], ready["breaker"]


def heal(server: Server, upstream: Upstream) -> None:
    """The upstream is well again, and so is the tier as soon as a probe has shown it."""
    upstream.plays(MODEL, plays.good())
    until(lambda: hi(server).header("Tier") == "premium", "a probe closes the breaker")


def fail_until_open(server: Server, upstream: Upstream, *, stream: bool = False) -> list[Outcome]:
    """Requests to a tier that always fails, until one isn't even tried on it."""
    heal(server, upstream)
    upstream.plays(MODEL, plays.status(500))
    outcomes = []
    while not outcomes or outcomes[-1].header("Retries") != "0":
        outcomes.append(hi(server, stream=stream))
        assert len(outcomes) < 20
    return outcomes


def test_five_failures_in_a_row_open_the_breaker_and_a_probe_closes_it(server, upstream, stream):
    """The sixth request goes straight to the next tier; both status pages say `degraded`; a good probe ends it."""
    heal(server, upstream)
    before = len(upstream.log) + 1  # one call to see that it is well
    *failed, spared = fail_until_open(server, upstream, stream=stream)

    assert len(failed) == len(upstream.log) - before == FAILURES_MAX
    assert [o.trail["Retries"] for o in failed] == ["1"] * FAILURES_MAX
    assert spared.status == 200
    assert spared.text.startswith("Hello from backup")
    trail = {"Tier": "backup", "Escalated-From": "premium", "Escalation-Reason": "server_error"}
    assert spared.trail == trail | {"Retries": "0", "Attempts": "1"}

    until(lambda: states(server)[:2] == ("degraded", "degraded"), "the tier is shown as degraded")
    heal(server, upstream)
    until(lambda: states(server) == ("ready", "ready", "closed"), "the tier is shown as ready")


def test_while_half_open_one_request_is_the_probe(server, upstream):
    """Eight requests while one finds out whether the tier is well: none of them calls it, and none waits."""
    fail_until_open(server, upstream)
    upstream.plays(MODEL, plays.slow(4.0))
    before = len(upstream.log)
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        probe = pool.submit(hi, server)

        def is_probing() -> bool:
            nonlocal probe
            probe = pool.submit(hi, server) if probe.done() else probe
            return len(upstream.log) > before

        until(is_probing, "the probe is on its way")
        others = list(pool.map(lambda _: hi(server), range(8)))

    assert {outcome.header("Tier") for outcome in others} == {"backup"}
    assert probe.result().header("Tier") == "premium"
    assert len(upstream.log) == before + 1


def test_a_flapping_tier_costs_no_answer_and_is_not_stormed(server, upstream):
    """Down and up twice: each request is answered, and a tier that is down gets its failures and its probes."""
    for _ in range(2):
        heal(server, upstream)
        upstream.plays(MODEL, plays.status(503))
        before, started = len(upstream.log), time.monotonic()
        outcomes = [hi(server, stream=bool(i % 2)) for i in range(30)]
        probes_max = (time.monotonic() - started) / OPEN_S + 1
        assert [o.status for o in outcomes] == [200] * 30
        assert {o.header("Tier") for o in outcomes} == {"backup"}
        assert FAILURES_MAX <= len(upstream.log) - before <= FAILURES_MAX + probes_max


def test_a_tier_that_says_when_to_come_back_is_left_alone_until_then(server, upstream):
    """`Retry-After` opens the breaker at once and for that time: one call, none within it, and then it is asked."""
    heal(server, upstream)
    upstream.plays(MODEL, plays.status(429, headers={"Retry-After": "1"}), plays.good())
    before, started = len(upstream.log), time.monotonic()
    tiers = [hi(server).header("Tier")]
    while tiers[-1] != "premium":
        tiers.append(hi(server).header("Tier"))
        assert time.monotonic() - started < 30.0

    assert time.monotonic() - started >= 1.0
    assert len(upstream.log) == before + 2
    assert set(tiers[:-1]) == {"backup"}


def test_a_breaker_is_closed_by_hand(server, upstream):
    """A tier that wants to be left alone for ten minutes: who asks for it is told so, with the time and the way out;
    once a person has closed the breaker the very next request is answered by it, and the act is an incident."""
    upstream.plays(MODEL, plays.status(429, headers={"Retry-After": "600"}), plays.good())
    first, rejection = (ask(server, user("hi"), model="alone", stream=False) for _ in range(2))
    closed = httpx.post(f"{server.url}/v1/reliability/tiers/alone/close", timeout=30.0)
    after = ask(server, user("hi"), model="alone", stream=False)

    assert (first.status, first.code) == (429, "overloaded")
    assert (rejection.status, rejection.code) == (503, "no_tier_available")
    assert "x-should-retry" not in rejection.headers
    assert 500 < int(rejection.headers["retry-after"]) <= 600
    assert "tier alone has failed and is left alone for 10 min more" in rejection.error["message"]
    assert "POST /v1/reliability/tiers/alone/close" in rejection.error["message"]
    assert closed.json() == {"tier": "alone", "closed": True}
    assert (after.status, after.header("Tier")) == (200, "alone")
    found = server.get("/v1/reliability/incidents?kind=operator&tier=alone").json()["data"]
    assert found[0]["reason"] == "close"


def test_extra_calls_stay_within_the_retry_budget(deploy, upstream):
    """A tier that always fails, and no breaker to help: 60 requests, most of them at once, make at most the floor and a
    fifth of extra calls, each call is told, and everybody is answered by the tier behind it."""
    never = {"failures_max": None, "rate_percent": None}
    server = run(deploy, upstream, "storm", retries_max=3, tier_health=never)
    upstream.plays(MODEL, plays.status(500))
    before = len(upstream.log)
    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        outcomes = list(pool.map(lambda i: hi(server, stream=bool(i % 2)), range(60)))

    ran = [[a for a in report_of(server, outcome)["attempts"] if a["ran"]] for outcome in outcomes]
    # Second calls to one tier; that a request goes on to the next one is bounded by the chain.
    extra = sum(len(attempts) - len({attempt["tier"] for attempt in attempts}) for attempts in ran)
    # On a busy machine the state may answer too late; then a tier that costs nothing is called without a grant.
    ungranted = sum(not attempt["granted"] for attempts in ran for attempt in attempts)
    assert FLOOR <= extra <= FLOOR + 60 * SHARE_PERCENT // 100 + ungranted
    assert [int(outcome.trail["Retries"]) for outcome in outcomes] == [len(attempts) - 1 for attempts in ran]
    assert len(upstream.log) - before == sum(a["tier"] == "premium" for attempts in ran for a in attempts)
    assert all(outcome.text.startswith("Hello from backup") for outcome in outcomes)
