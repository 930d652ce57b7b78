"""The server ends and is started again, its state actor too: the journal is all that is left, and it is enough."""

import time
from pathlib import Path
from typing import Any

import httpx

from tests.support import scripts
from tests.support.client_load import COST, PATIENT, Ledger, scripted
from tests.support.near_server import run_near
from tests.support.serving import Server, until

APP = "restart"
FIT = 3
BROKEN = {"when": {"last_user": "break", "tier": "fast"}, "answer": {"status": 500}}


def args(folder: Path) -> dict[str, Any]:
    tiers = {name: scripts.scripted(BROKEN, scripted(0.0)) for name in ("fast", "standard", "spare")}
    budget = {"policy": "hard_stop", "per_session": FIT * COST, "per_hour": None}
    health = {"failures_max": 1, "open_s": 600.0, "open_max_s": 600.0}
    graph = scripts.graph(tiers, retries=0, timeouts=PATIENT, token_budget=budget, tier_health=health)
    return graph | {"state": {"path": str(folder)}}


def say(server: Server, session: str, text: str, *, stream: bool) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 14, "stream": stream}
    return server.post(body, headers={"x-mlx-stack-session": session})


def seen(server: Server, request_id: str) -> dict[str, Any]:
    """All that the server shows of what it remembers."""
    tiers = server.get("/v1/reliability/tiers").json()["data"]
    return {
        "sessions": [Ledger(server, f"kept-{stream}").now() for stream in (False, True)],
        "report": server.get(f"/v1/reliability/requests/{request_id}").json(),
        "incidents": server.get("/v1/reliability/incidents?limit=500").json(),
        "tiers": {tier["name"]: (tier["breaker"], tier["isolated"], tier["degraded"]) for tier in tiers},
    }


def test_a_restart_forgets_nothing(tmp_path):
    """Spent tokens, reports, incidents, an open breaker and an operator's hold are after a restart what they were
    before, and they still hold: no session gets its budget a second time."""
    with run_near(args(tmp_path), APP) as server:
        broken = say(server, "kept-False", "break", stream=False)
        for stream in (False, True):
            for _ in range(FIT - 1):
                assert say(server, f"kept-{stream}", "hi", stream=stream).status_code == 200
        assert httpx.post(f"{server.url}/v1/reliability/tiers/spare/isolate", timeout=30.0).status_code == 200
        request_id = broken.headers["x-request-id"]
        until(lambda: seen(server, request_id)["tiers"]["spare"][1], "the hold is shown")
        before, then = seen(server, request_id), time.monotonic()

    with run_near(args(tmp_path), APP) as server:
        until(lambda: seen(server, request_id)["tiers"]["spare"][1], "the state is back")
        after = seen(server, request_id)

        assert broken.headers["x-mlx-stack-tier"] == "standard"
        assert before["tiers"]["fast"] == ("open", False, True)
        assert {each["kind"] for each in before["incidents"]["data"]} >= {"breaker", "operator"}
        assert after == before, f"after {time.monotonic() - then:.1f} s"
        assert [each["spent_tokens"] for each in after["sessions"]] == [FIT * COST, (FIT - 1) * COST]
        for stream in (False, True):
            answers = [say(server, f"kept-{stream}", "hi", stream=stream) for _ in range(2)]
            spent_before = after["sessions"][stream]["spent_tokens"]
            fits = (FIT * COST - spent_before) // COST
            assert [each.status_code for each in answers] == [200] * fits + [400] * (2 - fits)
            assert all(each.headers["x-mlx-stack-tier"] == "standard" for each in answers[:fits])
