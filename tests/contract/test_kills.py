"""Kill -9, one after another, under the load of 32 clients: a tier's replica, a Router replica, the state actor, all
replicas of a tier. Each tier's server is an HTTP double with a log, so what was really given out is known.

    fast (2 replicas) ──▶ standard      behind two Router replicas

What must hold: no request is lost that some tier could answer; an answer that had begun never ends as if it were whole;
and at the end the ledger says what the log says, but for a call whose reader died: that one is charged its prompt and
what was handed over of its words (`test_kill_books` has longer answers, and bounds what may be missing).
"""

import asyncio
import contextlib
import os
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
import pytest

from tests.support import scripts
from tests.support.client_load import (
    ANSWER,
    COST,
    PATIENT,
    PROMPT_TOKENS,
    How,
    Ledger,
    Outcome,
    ask,
    kill_state,
    of_session,
    openai_client,
    paced,
    processes,
    state_pid,
)
from tests.support.plays import Seen
from tests.support.serving import Server, until

pytestmark = pytest.mark.ray

APP = "kills"
CLIENTS = 32
ANSWERS_BETWEEN = 2 * CLIENTS  # good answers between two kills: the load goes on while things mend
REQUESTS_MAX = 2_000
LOAD_S = 150.0
DEADLINE_S = 10.0
TIERS = ("fast", "standard")
OPENAI_RETRIES = 2  # the openai client's own default


@pytest.fixture(scope="module")
def server(deploy_on_ray, upstream):
    for name in TIERS:
        upstream.plays(name, paced())
    more = {"fast": {"min_replicas": 2, "max_replicas": 2}, "standard": {}}
    tiers = {name: scripts.hosted(upstream, name, **more[name]) for name in TIERS}
    budget = {"per_session": None, "per_hour": None}
    # A grant whose Router died is closed when its request's deadline has passed, and a little later.
    server, timeouts = {"router_replicas": 2, "deadline_s": DEADLINE_S}, PATIENT | {"connect_s": 2.0}
    limits: dict[str, Any] = {"token_budget": budget, "tier_health": {}, "retry_budget": {}}
    return deploy_on_ray(scripts.graph(tiers, timeouts=timeouts, server=server, **limits), APP)


@dataclass
class Load:
    """32 clients that ask until they are told to stop, each in a session of its own kind of request."""

    server: Server
    session: str
    stream: bool
    outcomes: list[Outcome] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    began_s: float = field(default_factory=time.monotonic)

    @property
    def good(self) -> int:
        return sum(1 for each in self.outcomes if each.how is How.ANSWERED)

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with openai_client(self.server, retries=OPENAI_RETRIES) as client:
            await asyncio.gather(*(self._client(client) for _ in range(CLIENTS)))

    async def _client(self, client: Any) -> None:
        while not self.over.is_set() and len(self.outcomes) < REQUESTS_MAX:
            if time.monotonic() - self.began_s > LOAD_S:
                return
            self.outcomes.append(await ask(client, self.session, stream=self.stream))


def replicas(deployment: str) -> list[psutil.Process]:
    return [p for p in processes(f"ServeReplica:{APP}:{deployment}") if p.status() != psutil.STATUS_ZOMBIE]


def kill_replicas(deployment: str, count: int) -> None:
    until(lambda: len(replicas(deployment)) >= count, f"{count} replicas of {deployment}")
    for victim in replicas(deployment)[:count]:
        os.kill(victim.pid, signal.SIGKILL)


KILLS: list[tuple[str, Callable[[], Any]]] = [
    ("a replica of fast", lambda: kill_replicas("fast", 1)),
    ("a Router replica", lambda: kill_replicas("Router", 1)),
    ("the state actor", lambda: kill_state(APP)),
    ("all replicas of fast", lambda: kill_replicas("fast", 2)),
]


def kill_all_under(load: Load) -> None:
    """One after another; each comes when the load has got many good answers since the last one."""
    for what, kill in KILLS:
        before = load.good
        until(lambda: load.good >= before + ANSWERS_BETWEEN, f"answers before killing {what}", wait_s=LOAD_S)  # noqa: B023
        kill()
    before = load.good
    until(lambda: load.good >= before + ANSWERS_BETWEEN, "answers after the last kill", wait_s=LOAD_S)


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_kills_under_load_lose_no_request_and_no_token(server, upstream, stream):
    """See the module."""
    until(lambda: len(replicas("fast")) == 2 and len(replicas("Router")) == 2, "all replicas are up")
    load, expired_before = Load(server, f"load-{stream}", stream), len(expired(server))
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(load.run)
        try:
            kill_all_under(load)
        finally:
            load.over.set()
        running.result(timeout=120)

    assert_nobody_was_lost(load)
    assert_the_ledger_agrees(server, of_session(upstream.log, load.session), load, expired_before)


def assert_nobody_was_lost(load: Load) -> None:
    hows = Counter(each.how for each in load.outcomes)
    shown = f"{dict(hows)}, {Counter((each.how, each.code) for each in load.outcomes if each.how is not How.ANSWERED)}"
    retried = sum(each.retries for each in load.outcomes)

    assert hows[How.TRUNCATED] == 0, shown
    assert {each.text for each in load.outcomes if each.how is How.ANSWERED} == {ANSWER}
    # A refusal is a request that is lost: there was always a tier that could answer.
    assert hows[How.REFUSED] == 0, shown
    if load.stream:
        # Only what ran on a process when it died: its answer had begun, and one process holds at most all clients.
        assert {each.code for each in load.outcomes if each.how is How.FRAME} <= {"stream_broken"}, shown
        assert hows[How.FRAME] + hows[How.BROKEN] <= len(KILLS) * CLIENTS, shown
    else:
        assert hows[How.FRAME] == hows[How.BROKEN] == 0, shown
    # Only the death of a Router is seen by clients at all; each had at most one request on it.
    assert retried <= OPENAI_RETRIES * CLIENTS, f"{retried} retries; {shown}"


def assert_the_ledger_agrees(server: Server, log: list[Seen], load: Load, expired_before: int) -> None:
    """Spent is what the log says. At least: each answer that a client has, whole, and of every other call its prompt.
    Of those the upstream may have ended some, into the socket of a replica that was dead by then, or for a Router that
    was. At most: all of it, and what answers that were cut had been estimated at."""
    ledger = Ledger(server, load.session)
    answered = sum(1 for each in load.outcomes if each.how is How.ANSWERED)

    def read_books() -> tuple[dict[str, Any], int, int] | None:
        """What ran while the actor was away reserves nothing: it is there once it is there."""
        books = ledger.settled()
        late = len(expired(server)) - expired_before
        # A Router that dies may have handed over an answer and not yet said so: its grant expires, at its prompt.
        least = answered * COST + (len(log) - answered) * PROMPT_TOKENS - late * (COST - PROMPT_TOKENS)
        return (books, late, least) if books and books["spent_tokens"] >= least else None

    books, late, least = until(read_books, "every grant is settled or expired, and all is booked", wait_s=90.0)
    whole = sum(1 for seen in log if seen.ended)
    cut = len(log) - whole
    most = (len(log) + late) * COST
    reported = books["prompt_tokens"] + books["completion_tokens"]
    figures = (
        f"spent {books['spent_tokens']}; log: {whole} whole and {cut} cut, so {least} to {most}; reports: {reported}; "
        f"{late} grants expired; {len(load.outcomes)} requests in {time.monotonic() - load.began_s:.0f} s"
    )
    print(figures)

    assert books["spent_tokens"] <= most, figures
    assert reported <= books["spent_tokens"] <= reported + late * PROMPT_TOKENS, figures


def expired(server: Server) -> list[dict[str, Any]]:
    url = f"{server.url}/v1/reliability/incidents?kind=grant_expired&limit=500"
    return list(httpx.get(url, timeout=30.0).json()["data"])


def test_every_process_that_died_is_back(server, state_folder):
    """After all of it: two replicas of `fast`, two Routers and a state actor, and no tier is held off. The one ledger
    has steps of more than one Router."""
    until(lambda: len(replicas("fast")) == len(replicas("Router")) == 2, "all replicas are back")

    assert state_pid(APP)
    until(lambda: {t["breaker"] for t in tiers(server)} == {"closed"}, "no breaker is open")
    with contextlib.closing(sqlite3.connect(f"file:{state_folder / APP / 'ledger.sqlite'}?mode=ro", uri=True)) as db:
        assert db.execute("SELECT count(*) FROM steps").fetchone()[0] >= 2


def tiers(server: Server) -> list[dict[str, Any]]:
    # A breaker closes by a call that goes well, so there must be one.
    server.post({"messages": [{"role": "user", "content": "hi"}]})
    return list(server.get("/v1/reliability/tiers").json()["data"])
