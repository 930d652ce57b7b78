"""Kill -9 of one of two replicas that hold a model, while they decode: on real Ray, with the real model. `make test`
kills the only one, in `e2e/test_default_server`."""

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from deployments.models.sources import DEFAULT_SOURCE
from tests.support import scripts
from tests.support.client_load import processes
from tests.support.serving import Server, until

pytestmark = [pytest.mark.ray, pytest.mark.model, pytest.mark.nightly]

LOAD_S = 300.0
PATIENT = {"connect_s": 30.0, "first_token_s": 120.0, "idle_s": 120.0, "total_s": 300.0}
LONG = {"messages": [{"role": "user", "content": "Tell me a long story about a fox."}], "temperature": 0}
STORIES = 4


def tell_story(server: Server, number: int, begun: threading.Semaphore | None = None) -> tuple[str, dict[str, Any]]:
    """The text of one long stream and its report; `begun` is told at its third frame."""
    body = LONG | {"stream": True, "max_tokens": 300}
    text, last, frames = "", {}, 0
    headers = {"X-MLX-Stack-Session": f"story-{number}"}
    url = f"{server.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=LOAD_S, headers=headers) as response:
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            last, frames = json.loads(line[6:]), frames + 1
            text += "".join(choice["delta"].get("content") or "" for choice in last.get("choices") or ())
            if frames == 3 and begun is not None:
                begun.release()
    return text, last


def has_begun(server: Server, number: int) -> bool:
    body = LONG | {"max_tokens": 1}
    headers = {"X-MLX-Stack-Session": f"story-{number}"}
    return server.post(body, headers=headers).status_code == 200


def test_a_killed_replica_breaks_no_stream(deploy_on_ray):
    """Law: with another replica of the model every stream goes on, to the letter as if nothing had happened."""
    model = {"kind": "mlx", "model": DEFAULT_SOURCE, "max_running": STORIES, "context_tokens": 1024}
    tiers = {"fast": model | {"min_replicas": 2, "max_replicas": 2}}
    server = deploy_on_ray(scripts.graph(tiers, timeouts=PATIENT, server={"deadline_s": 600.0}), "goeson")
    until(lambda: server.get("/ready").json()["ready"], "the model is loaded", LOAD_S)
    until(lambda: len(processes("ServeReplica:goeson:fast")) == 2, "both replicas run", LOAD_S)
    for number in range(STORIES + 1):  # whichever replica a session is on
        until(lambda number=number: has_begun(server, number), "its replica answers", LOAD_S)
    unbroken, _ = tell_story(server, 0)
    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(STORIES) as pool:
        streams = [pool.submit(tell_story, server, number, begun) for number in range(1, STORIES + 1)]
        for _ in streams:
            assert begun.acquire(timeout=LOAD_S)
        os.kill(processes("ServeReplica:goeson:fast")[0].pid, signal.SIGKILL)
        told = [one.result(LOAD_S) for one in streams]

    for text, last in told:
        assert text == unbroken, last["mlx_stack"]["attempts"]
    assert any(last["mlx_stack"]["continued"] for _, last in told)
