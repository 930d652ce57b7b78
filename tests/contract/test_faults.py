"""Processes that die: a tier's replica, a Router replica, the state actor."""

import concurrent.futures
import os
import signal
import threading

import psutil
import pytest

from tests.support import scripts
from tests.support.serving import Deploy, Server, until

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def server(deploy_on_ray: Deploy) -> Server:
    return deploy_on_ray(scripts.args(scripts.TWO), "faults")


def processes(name: str) -> list[psutil.Process]:
    """This session's own Ray processes whose title holds `name`."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if name in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


def kill_one(name: str) -> int:
    victims = until(lambda: processes(name), f"a process {name}")
    os.kill(victims[0].pid, signal.SIGKILL)
    return int(victims[0].pid)


def say(server: Server, text: str, *, stream: bool = False) -> str:
    response = server.post({"messages": [{"role": "user", "content": text}], "stream": stream})
    assert response.status_code == 200, response.text
    return str(response.headers["x-mlx-stack-tier"])


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_killed_replica_is_replaced_by_the_next_tier(server, stream):
    """Kill -9 of `fast`: each following request has one good answer, and soon `fast` gives it again."""
    until(lambda: say(server, "hi") == "fast", "fast answers")
    kill_one("ServeReplica:faults:fast")

    assert say(server, "hi", stream=stream) in ("standard", "fast")
    until(lambda: say(server, "hi") == "fast", "fast answers again")


def test_a_replica_that_dies_under_a_request_costs_no_answer(server):
    """Requests that are running on `fast` when it dies are answered by another replica or tier."""
    until(lambda: say(server, "hi") == "fast", "fast answers")
    started = threading.Barrier(5)

    def ask() -> str:
        started.wait()
        return say(server, "wait")

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask) for _ in range(4)]
        started.wait()
        kill_one("ServeReplica:faults:fast")
        tiers = [answer.result(timeout=60) for answer in answers]

    assert set(tiers) <= {"fast", "standard"}
    until(lambda: say(server, "hi") == "fast", "fast answers again")


def test_a_dead_state_actor_costs_no_answer(server):
    """The state actor is off the request's path: with it dead requests are answered, and it comes back."""
    kill_one("SessionState")

    assert say(server, "hi") == "fast"
    until(lambda: server.get("/v1/reliability/requests/none").status_code == 404, "the state actor is back")


def test_a_killed_router_comes_back(server):
    """The ingress is one replica here; Serve starts it again, and requests are answered."""
    dead = kill_one("ServeReplica:faults:Router")

    until(lambda: server.get("/health").status_code == 200, "a Router answers")
    assert dead not in {p.pid for p in processes("ServeReplica:faults:Router")}
    assert say(server, "hi") == "fast"
