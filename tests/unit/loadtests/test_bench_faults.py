"""The benchmark's faults: what the upstream scripts, what the hop makes of it, and what both sides with a spare get."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtests.bench.client import Load, Outcome, drive
from loadtests.bench.hop import Caller, Front
from loadtests.bench.measure import Scenario
from loadtests.bench.sides import MODEL, build_apps, build_litellm_config
from loadtests.bench.upstream import FAULT_EVERY, SPARE, start_upstream


@contextlib.asynccontextmanager
async def run_upstream() -> AsyncIterator[str]:
    """Run the upstream on a real socket; give its base URL."""
    server = await start_upstream(0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def outcome_of(manner: str, requests: int, **more: Any) -> Outcome:
    async def go() -> Outcome:
        async with run_upstream() as url:
            body = Scenario(manner).body() | more
            return await drive(Load(url=url, body=body, clients=1, seconds=0, least=requests))

    return asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True])
def test_always_faulty_turns_all_away_but_the_spare(stream):
    """Each request of the first model meets one fault, each of the spare none: its price is seen in the median."""
    first, spare = (outcome_of("always-faulty", 4, stream=stream, model=model) for model in (MODEL, SPARE))

    assert (len(first.total_ms), first.faults) == (0, {"429": 4})
    assert (len(spare.total_ms), spare.faults) == (4, {})


def test_faulty_is_one_fault_in_ten():
    """The share that the bar of upstream calls is about."""
    outcome = outcome_of("faulty", 2 * FAULT_EVERY)

    assert outcome.faults == {"503": 2}


class Handle:
    """A handle of Serve's for a deployment in this process."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.stream = self

    def options(self, **_: Any) -> Handle:
        return self

    def remote(self, body: bytes) -> AsyncIterator[Any]:
        return self._caller.stream(body)


async def through_the_hop(manner: str, stream: bool) -> httpx.Response:
    async with run_upstream() as url:
        caller = Caller(f"{url}/v1")
        app = Front(Handle(caller)).__serve_build_asgi_app__()
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://hop") as client:
            answer = await client.post("/v1/chat/completions", json=Scenario(manner, stream=stream).body())
        assert caller._client is not None
        await caller._client.close()
        return answer


@pytest.mark.parametrize("stream", [False, True])
def test_the_hop_passes_a_fault_on(stream):
    """A fault of the upstream isn't a fast good answer of the hop."""
    answer = asyncio.run(through_the_hop("always-faulty", stream))

    assert answer.status_code == 429


@pytest.mark.parametrize(("stream", "end"), [(False, b'"completion_tokens": 64'), (True, b"data: [DONE]\n\n")])
def test_the_hop_passes_an_answer_on(stream, end):
    """All of it, its first piece too."""
    answer = asyncio.run(through_the_hop("at-once", stream))

    assert answer.status_code == 200
    assert answer.content.count(b"word0 ") == 1
    assert end in answer.content


def test_both_who_fall_back_have_the_same_spare():
    """The same models at the same upstream, and the same way from the first to the second."""
    upstream = "http://127.0.0.1:1/v1"
    theirs = build_litellm_config(upstream)
    ours = next(app for app in build_apps(upstream, Path()) if app["name"] == "on")["args"]

    assert {m["model_name"]: m["litellm_params"]["model"] for m in theirs["model_list"]} == {
        name: f"openai/{tier['model']}" for name, tier in ours["tiers"].items()
    }
    assert {m["litellm_params"]["api_base"] for m in theirs["model_list"]} == {upstream}
    assert ours["reliability"]["escalation"]["chain"] == [MODEL, SPARE]
    assert theirs["router_settings"]["fallbacks"] == [{MODEL: [SPARE]}]
