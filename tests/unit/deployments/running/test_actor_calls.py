"""What a request that is canceled takes along, on a real Ray."""

import ast
import asyncio
from typing import Any

import pytest

from deployments.running.actor_calls import call_actor
from tests.support.repository import ROOT

HEARD_S = 20.0  # less than Ray's 30 seconds for a number that never comes


class Counter:
    """A synchronous actor, as the state's."""

    def __init__(self) -> None:
        self._calls = 0

    def count(self, *_: Any) -> int:
        self._calls += 1
        return self._calls


class Caller:
    """An asynchronous actor that calls another one for each request, as a Router replica. `ready`: what must be there
    before the call is sent, in a list, since Ray would wait for it itself."""

    async def request(self, counter: Any, ready: list[Any]) -> int:
        return int(await call_actor(counter.count.remote, *ready))


@pytest.mark.ray
def test_a_request_that_is_canceled_cancels_no_call_of_an_actor(serve_port):
    """A call whose request is canceled before it is sent is done all the same, and those behind it are heard."""
    import ray

    @ray.remote(num_cpus=0)
    class Gate:
        def __init__(self) -> None:
            self._open = asyncio.Event()

        async def open(self) -> None:
            self._open.set()

        async def wait(self) -> None:
            await self._open.wait()

    gate = Gate.remote()
    counter, caller = (ray.remote(num_cpus=0)(kind).remote() for kind in (Counter, Caller))
    assert ray.get(caller.request.remote(counter, [])) == 1

    left = caller.request.remote(counter, [gate.wait.remote()])
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(left, timeout=1)
    ray.cancel(left)
    with pytest.raises(ray.exceptions.RayError):
        ray.get(left, timeout=HEARD_S)
    ray.get(gate.open.remote())

    assert ray.get(caller.request.remote(counter, []), timeout=HEARD_S) == 3


# Calls of a tier or the Router belong to their request, and go with it.
OF_A_REQUEST = {"graph/handle.py", "running/driver.py"}


def test_every_call_of_an_actor_is_the_process_s_own():
    """Nothing but a call of a Serve deployment is sent by `remote` itself."""
    sources = ROOT / "deployments"
    sending = {
        str(path.relative_to(sources))
        for path in sources.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        if (called := ast.unparse(node.func)).endswith(".remote") and called != "ray.remote"
    }

    assert sending <= OF_A_REQUEST
