"""Tiers that sleep, on real Ray: who is asleep is known without waking anybody, a request wakes a tier and waits for it
or goes on, and an idle tier is let go.

    hasty (asleep: next) ──▶ patient (asleep: wait) ──▶ unset (nothing said) ──▶ awake
"""

from typing import Any

import httpx
import pytest

from tests.support.client_load import processes
from tests.support.serving import Server, until

pytestmark = pytest.mark.ray

APP = "sleeping"
IDLE_S = 15
SLEEP_S = 180.0
ASLEEP = ["hasty", "patient", "unset"]
CHAIN = [*ASLEEP, "awake"]
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def server(deploy_on_ray):
    def tier(name: str, **keys: Any) -> dict[str, Any]:
        return {"kind": "scripted", "script": [{"answer": f"this is {name}"}], **keys}

    sleeps = {"min_replicas": 0, "idle_s": IDLE_S}
    args = {
        "tiers": {
            "hasty": tier("hasty", asleep="next", **sleeps),
            "patient": tier("patient", asleep="wait", **sleeps),
            "unset": tier("unset", **sleeps),
            "awake": tier("awake"),
        },
        "reliability": {"escalation": {"chain": CHAIN}},
        # A tier takes longer to wake than this: only a request that waits for it gets an answer from it.
        "server": {"timeouts": {"connect_s": 0.2}, "keepalive_s": 0.1},
    }
    return deploy_on_ray(args, APP)


def states(server: Server) -> dict[str, str]:
    body = server.get("/ready").json()
    return {name: tier["state"] for name, tier in body["tiers"].items()}


def replicas(tier: str) -> int:
    return len(processes(f"ServeReplica:{APP}:{tier}"))


def answering(server: Server, model: str) -> str:
    response = server.post(HELLO | {"model": model})
    assert response.status_code == 200, response.text
    return str(response.headers["x-mlx-stack-tier"])


def sleeps(server: Server, tier: str) -> None:
    until(lambda: states(server)[tier] == "asleep" and not replicas(tier), f"{tier} sleeps", SLEEP_S)


def test_asking_wakes_nobody(server):
    """Law: `/ready` says `asleep`, is ready all the same, and neither it nor `/v1/models` nor the watch's own rounds
    start a replica."""
    until(lambda: states(server)["awake"] == "ready", "the awake tier is up")
    for _ in range(20):
        assert states(server) == {**dict.fromkeys(ASLEEP, "asleep"), "awake": "ready"}
        assert server.get("/ready").status_code == 200
        assert {m["state"] for m in server.get("/v1/models").json()["data"]} == {"asleep", "ready"}
    assert [replicas(tier) for tier in ASLEEP] == [0, 0, 0]


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_wait_wakes_the_tier_and_waits_for_it(server, stream):
    """Law: the answer comes from the tier that was asleep, although an awake one follows; a stream is kept alive
    meanwhile."""
    sleeps(server, "patient")
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json=HELLO | {"model": "patient", "stream": stream}, timeout=120
    ) as response:
        text = response.read().decode()

    assert response.status_code == 200, text
    assert '"patient"' in text
    assert '"awake"' not in text
    assert (": keep-alive" in text) == stream
    until(lambda: states(server)["patient"] == "ready", "patient is awake")


def test_next_wakes_the_tier_and_goes_on(server):
    """Law: the request is answered by the next tier that answers, at once; the tier that it has woken answers soon."""
    sleeps(server, "hasty")
    sleeps(server, "unset")
    assert answering(server, "unset") == "awake"
    until(lambda: answering(server, "unset") == "unset", "unset is awake")
    assert answering(server, "hasty") != "hasty"
    until(lambda: answering(server, "hasty") == "hasty", "hasty is awake")


def test_an_idle_tier_sleeps_again(server):
    """Law: who was woken sleeps once idle, although its status is asked all the time."""
    for tier in ASLEEP:
        sleeps(server, tier)
