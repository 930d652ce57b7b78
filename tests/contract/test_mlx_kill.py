"""Kill -9 of the replica that holds a model, while it decodes for several clients: on real Ray, with the real model.

    fast (mlx, SmolLM2) ──▶ standard (scripted)

What must hold: a request whose answer hadn't begun is answered by somebody; one whose answer had begun ends in an error
frame and never as if it were whole; and Serve brings the model back, which then answers as it did before.
"""

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
from tests.support.serving import Deploy, Server, until

pytestmark = [pytest.mark.ray, pytest.mark.model]

APP = "mlxkill"
REPLICA = f"ServeReplica:{APP}:fast"
LOAD_S = 300.0
PATIENT = {"connect_s": 30.0, "first_token_s": 120.0, "idle_s": 120.0, "total_s": 300.0}
LONG = {"messages": [{"role": "user", "content": "Tell me a long story about a fox."}], "temperature": 0}
SHORT = {"messages": [{"role": "user", "content": "Count from one to five."}], "temperature": 0, "max_tokens": 12}
STREAMS, WHOLES, STORIES = 3, 2, 4


@pytest.fixture(scope="module")
def server(deploy_on_ray: Deploy) -> Server:
    args = {
        "tiers": {
            "fast": {"kind": "mlx", "model": DEFAULT_SOURCE, "max_running": STREAMS + WHOLES, "context_tokens": 1024},
            "standard": scripts.tier("standard"),
        },
        "reliability": {
            "escalation": {"chain": ["fast", "standard"], "max_retries_before_escalate": 0},
            **scripts.UNBOUNDED,
        },
        "server": {"timeouts": PATIENT, "deadline_s": 600.0},
    }
    return deploy_on_ray(args, APP)


def tier_state(server: Server) -> str:
    return str(server.get("/ready").json()["tiers"]["fast"]["state"])


def told(server: Server) -> tuple[str, str]:
    """The tier that answers a short question now, and what it says."""
    response = server.post(SHORT)
    assert response.status_code == 200, response.text
    return response.headers["x-mlx-stack-tier"], response.json()["choices"][0]["message"]["content"]


def streamed(server: Server, begun: threading.Semaphore) -> list[Any]:
    """The frames of one long stream; `begun` is told at its first text."""
    frames: list[Any] = []
    url, body = f"{server.url}/v1/chat/completions", LONG | {"stream": True, "max_tokens": 600}
    with httpx.stream("POST", url, json=body, timeout=LOAD_S) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                frames.append(line[6:] if line == "data: [DONE]" else json.loads(line[6:]))
                if len(frames) == 3:
                    begun.release()
    return frames


def whole(server: Server) -> httpx.Response:
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=LONG | {"max_tokens": 600}, timeout=LOAD_S)


def test_a_killed_model_costs_no_answer_and_comes_back(server: Server) -> None:
    """See the module."""
    until(lambda: tier_state(server) == "ready", "the model is loaded", LOAD_S)
    before = told(server)
    assert before[0] == "fast"

    begun = threading.Semaphore(0)
    with ThreadPoolExecutor(STREAMS + WHOLES) as pool:
        wholes = [pool.submit(whole, server) for _ in range(WHOLES)]
        streams = [pool.submit(streamed, server, begun) for _ in range(STREAMS)]
        for _ in streams:
            assert begun.acquire(timeout=LOAD_S)
        (victim,) = processes(REPLICA)
        os.kill(victim.pid, signal.SIGKILL)
        answers = [one.result(LOAD_S) for one in wholes]
        ends = [one.result(LOAD_S) for one in streams]

    assert [(a.status_code, a.headers["x-mlx-stack-tier"]) for a in answers] == [(200, "standard")] * WHOLES
    for frames in ends:
        assert frames[-1] != "[DONE]"
        assert frames[-1]["error"]["code"] == "stream_broken"
    until(lambda: tier_state(server) == "ready", "the model is loaded again", LOAD_S)
    assert victim.pid not in {process.pid for process in processes(REPLICA)}
    assert told(server) == before


def tell_story(server: Server, number: int, begun: threading.Semaphore | None = None) -> tuple[str, dict[str, Any]]:
    """The text of one long stream and its report; `begun` is told at its third frame."""
    body = LONG | {"stream": True, "max_tokens": 300}
    text, last, frames = "", {}, 0
    headers = {"X-MLX-Stack-Session": f"story-{number}"}
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json=body, timeout=LOAD_S, headers=headers
    ) as response:
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


@pytest.mark.nightly
def test_a_killed_replica_breaks_no_stream(deploy_on_ray: Deploy) -> None:
    """Law: with another replica of the model every stream goes on, to the letter as if nothing had happened."""
    model = {"kind": "mlx", "model": DEFAULT_SOURCE, "max_running": STORIES, "context_tokens": 1024}
    args = {
        "tiers": {"fast": model | {"min_replicas": 2, "max_replicas": 2}},
        "reliability": {"escalation": {"chain": ["fast"]}, **scripts.UNBOUNDED},
        "server": {"timeouts": PATIENT, "deadline_s": 600.0},
    }
    server = deploy_on_ray(args, "goeson")
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
