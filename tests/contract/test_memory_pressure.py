"""Memory pressure as a client feels it: a scripted sensor is the knob, everything behind it is real."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import scripts
from tests.support.plays import good
from tests.support.serving import Deploy, Server, until
from tests.support.upstream import Upstream

pytestmark = pytest.mark.ray

LONG = "word " * 400
SHORT = "hi"
HEADER = "x-mlx-stack-memory-pressure"


@dataclass
class Rig:
    """A server, its knob, and the cloud behind it."""

    server: Server
    knob: Path
    cloud: Upstream

    def turn(self, level: str) -> None:
        """Set the level, and wait until an answer shows it."""
        self.knob.write_text(level)
        shown = {"warn": "warning", "critical": "critical"}.get(level)
        until(lambda: self.say(SHORT).headers.get(HEADER) == shown, f"the header says {shown}")

    def say(self, text: str, *, stream: bool = False) -> httpx.Response:
        return self.server.post({"messages": [{"role": "user", "content": text}], "stream": stream})

    def incidents(self) -> list[dict[str, Any]]:
        return list(self.server.get("/v1/reliability/incidents?kind=memory").json()["data"])


@pytest.fixture(scope="module")
def cloud() -> Iterator[Upstream]:
    with Upstream() as upstream:
        upstream.plays("big/model", good("Hello from above."))
        yield upstream


@pytest.fixture(scope="module")
def rig(deploy_on_ray: Deploy, cloud: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """One local tier and one in the cloud. What is complex here is a prompt of 300 tokens."""
    knob = tmp_path_factory.mktemp("memory") / "knob"
    knob.write_text("normal")
    premium = {"kind": "hosted", "base_url": cloud.base_url, "model": "big/model", "cloud": True}
    pressure = {
        "sensor": f"scripted:{knob}",
        "sustained_s": 2.0,
        "complex_prompt_tokens": 300,
        "critical_prompt_tokens": 300,
        "poll_s": 0.1,
        "calm_s": 0.5,
        "stale_s": 5.0,
    }
    args = {
        "tiers": {"fast": scripts.tier("fast"), "premium": premium},
        "reliability": {
            "escalation": {"chain": ["fast", "premium"]},
            "memory_pressure": pressure,
            **scripts.UNBOUNDED,
        },
        "server": {"timeouts": scripts.QUICK},
    }
    return Rig(deploy_on_ray(args, "pressure"), knob, cloud)


def test_from_normal_to_critical_and_back(rig):
    """The header says it on every answer; once pressure has lasted, and at once at critical, a complex request goes to
    the cloud, and says why; simple ones stay; each change of the level is one incident; afterwards all is as before."""
    rig.turn("normal")
    before = len(rig.incidents())
    assert rig.say(LONG).headers["x-mlx-stack-tier"] == "fast"

    rig.turn("warn")
    moved = until(lambda: (r := rig.say(LONG)).headers["x-mlx-stack-tier"] == "premium" and r, "it has lasted")
    assert moved.headers["x-mlx-stack-escalation-reason"] == "memory_pressure"
    assert moved.headers["x-mlx-stack-escalated-from"] == "fast"
    assert rig.say(SHORT).headers["x-mlx-stack-tier"] == "fast"
    report = rig.server.get(f"/v1/reliability/requests/{moved.headers['x-request-id']}").json()
    assert "sustained: prompt tokens >= 300" in report["attempts"][0]["detail"]

    rig.turn("critical")
    assert rig.say(LONG).headers["x-mlx-stack-tier"] == "premium"
    assert rig.say(SHORT, stream=True).headers[HEADER] == "critical"
    assert rig.server.get("/ready").json()["memory"]["level"] == "critical"

    rig.turn("normal")
    assert rig.say(LONG).headers["x-mlx-stack-tier"] == "fast"
    told = until(lambda: len(i := rig.incidents()) >= before + 4 and i, "each change has its incident")
    newest = list(reversed([incident["reason"] for incident in told[: len(told) - before]]))
    # Down it goes by one level at a time.
    assert newest == ["normal -> warn", "warn -> critical", "critical -> warn", "warn -> normal"]
    assert all("held" in incident["evidence"] for incident in told)


@pytest.mark.parametrize("stream", [False, True])
def test_a_private_request_that_no_tier_may_take_is_a_503_with_a_time(rig, stream):
    """At critical a big prompt isn't computed here, and this one may not leave: 503, Retry-After, and both reasons."""
    rig.turn("critical")
    body = {"messages": [{"role": "user", "content": LONG}], "stream": stream}
    refused = rig.server.post(body, headers={"X-MLX-Stack-Local-Only": "true"})
    rig.turn("normal")

    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "memory_pressure"
    assert int(refused.headers["retry-after"]) >= 1
    assert "local-only" in refused.json()["error"]["message"]
