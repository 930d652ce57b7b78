"""`make chaos`: steady load while replicas, actors and the upstream are killed, and then three accounts are compared.

    python -m loadtests.chaos --seed 3 --seconds 120

The graph, on two Ray nodes: two Router replicas, tier `fast` (hosted, on the scripted upstream) and tier `standard`
(scripted, always well, two replicas, so that there is one on each node). 16 clients ask one after another, each in a
session of its own, and like every OpenAI client they try again, twice, where the connection breaks or the answer is an
error, and wait as long as `Retry-After` says. Every few seconds the seed picks a victim:
a Router, a replica of a tier, the state actor, the second node with all that runs on it, the upstream. The last two
come back after two seconds.

What is compared at the end, when all is quiet:

    clients    no request was lost: tier `standard` could have answered every one of them
    ledger     each session's books come to hold at least the tokens that its clients saw, and no call is open
    reports    each answer has one, which names the tier and at least the tokens that the client saw
    incidents  each answer that didn't come from the head of the chain has one that says why

A Router that is killed takes along what it had answered and not yet handed over: then a client may have an answer that
no report tells of, as many for each such kill as there are clients. What it cost is in the books all the same.

It exits with 1 where one of these doesn't hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from deployments.front import free_port
from loadtests.running import Running, ends_cleanly, process, serving, until_up

CLIENTS = 16
TRIES = 3
PAUSE_S = 0.05
EVERY_S = (4.0, 10.0)
AWAY_S = 2.0
DEADLINE_S = 20.0
QUIET_S = 60.0  # grants live some seconds longer than their request's deadline
HEAD = "fast"
UNREPORTED = "no report"
VICTIMS = ("Router", "fast", "standard", "SessionState", "node", "upstream")


@dataclass
class Accounts:
    """What the clients saw. `lost`: the last answer of requests that never got a good one."""

    answered: int = 0
    retried: int = 0
    lost: list[str] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)
    answers: dict[str, tuple[str, int]] = field(default_factory=dict)  # tier and tokens, by request id
    killed: Counter[str] = field(default_factory=Counter)
    unreported: int = 0
    tiers: Counter[str] = field(default_factory=Counter)


async def client(number: int, url: str, seed: int, until: float, seen: Accounts) -> None:
    """Ask until the time is over."""
    session, dice = f"chaos-{seed}-{number}", random.Random(f"{seed}-{number}")
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        count = 0
        while time.monotonic() < until:
            count += 1
            await ask(http, url, session, f"{session}-{count}", seen)
            await asyncio.sleep(dice.random() * PAUSE_S)


async def ask(http: httpx.AsyncClient, url: str, session: str, name: str, seen: Accounts) -> None:
    """One request, tried again as clients do."""
    body = {"model": "auto", "messages": [{"role": "user", "content": name}], "max_tokens": 128}
    last, wait_s = "", 0.0
    for attempt in range(TRIES):
        if attempt:
            seen.retried += 1
            await asyncio.sleep(wait_s or 0.5 * 2**attempt)
        try:
            request_id = f"{name}-{attempt}"
            headers = {"x-request-id": request_id, "x-mlx-stack-session": session}
            response = await http.post(f"{url}/v1/chat/completions", json=body, headers=headers)
        except httpx.TransportError as error:
            last, wait_s = type(error).__name__, 0.0
            continue
        if response.status_code == 200:
            tier, tokens = response.headers["x-mlx-stack-tier"], response.json()["usage"]["total_tokens"]
            seen.answered += 1
            seen.tiers[tier] += 1
            seen.tokens[session] += tokens
            seen.answers[request_id] = (tier, tokens)
            return
        last, wait_s = f"{response.status_code} {response.text[:200]}", float(response.headers.get("retry-after", 0))
    seen.lost.append(f"{name}: {last}")


async def kill(server: Running, upstream: Upstream, dice: random.Random, until: float, seen: Accounts) -> None:
    """Kill one after another."""
    while True:
        wait_s = dice.uniform(*EVERY_S)
        if time.monotonic() + wait_s > until:
            return
        await asyncio.sleep(wait_s)
        victim = dice.choice(VICTIMS)
        if victim == "upstream":
            await upstream.fall()
        elif victim == "node":
            os.kill(server.pid, signal.SIGUSR1)
        else:
            mark = "SessionState" if victim == "SessionState" else f":load:{victim}"
            found = await asyncio.to_thread(server.processes, mark)
            if not found:
                continue  # it is on its way back from its last death
            with contextlib.suppress(psutil.NoSuchProcess):
                dice.choice(sorted(found, key=lambda p: p.pid)).kill()
        seen.killed[victim] += 1
        print(f"killed {victim}", flush=True)


class Upstream:
    """The scripted upstream on a port of its own, which may fall and comes back."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        """Start it."""
        command = [sys.executable, "-m", "loadtests.bench.upstream", str(self.port)]
        self._running.enter_context(process(command, self._folder))
        until_up(f"http://127.0.0.1:{self.port}/calls")

    async def fall(self) -> None:
        """Kill it, and start it again after a while."""
        self.stop()
        await asyncio.sleep(AWAY_S)
        await asyncio.to_thread(self.start)

    def stop(self) -> None:
        """End it."""
        self._running.close()


async def run(server: Running, upstream: Upstream, seed: int, seconds: float) -> tuple[Accounts, list[str]]:
    """The load, the kills, and what doesn't agree afterwards."""
    seen, until = Accounts(), time.monotonic() + seconds
    clients = [client(n, server.url, seed, until, seen) for n in range(CLIENTS)]
    await asyncio.gather(*clients, kill(server, upstream, random.Random(seed), until, seen))
    wrong = [f"lost: {words}" for words in seen.lost]
    async with httpx.AsyncClient(timeout=30, trust_env=False, base_url=server.url) as http:
        quiet_at = time.monotonic() + QUIET_S
        for session, tokens in sorted(seen.tokens.items()):
            books = await settled(http, session, tokens, quiet_at)
            if books is None or books["open_calls"]:
                wrong.append(f"books of {session} aren't closed: {books}")
            elif books["spent_tokens"] < tokens:
                wrong.append(f"{session} saw {tokens} tokens, its books hold {books['spent_tokens']}")
        wrong += await reported(http, seen)
    return seen, wrong


async def settled(http: httpx.AsyncClient, session: str, tokens: int, quiet_at: float) -> dict[str, int] | None:
    """The session's books once no call is open and so many tokens are booked, or as they are when patience ends: what
    was answered while the state actor was away is booked when it is back."""
    books = None
    while time.monotonic() < quiet_at:
        with contextlib.suppress(httpx.TransportError):
            response = await http.get(f"/v1/reliability/sessions/{session}")
            books = response.json() if response.status_code == 200 else None
            if books is not None and not books["open_calls"] and books["spent_tokens"] >= tokens:
                return books
        await asyncio.sleep(0.2)
    return books


async def reported(http: httpx.AsyncClient, seen: Accounts) -> list[str]:
    """Where the reports and the incidents say otherwise than the clients."""
    at_once = asyncio.Semaphore(CLIENTS)

    async def one(request_id: str) -> str | None:
        async with at_once:
            return await told_otherwise(http, request_id, *seen.answers[request_id])

    wrong = [words for words in await asyncio.gather(*map(one, seen.answers)) if words]
    seen.unreported = wrong.count(UNREPORTED)
    may_be = CLIENTS * (seen.killed["Router"] + seen.killed["node"])
    wrong = [words for words in wrong if words != UNREPORTED]
    if seen.unreported > may_be:
        wrong.append(f"{seen.unreported} answers have no report, at most {may_be} may have none")
    return wrong


async def told_otherwise(http: httpx.AsyncClient, request_id: str, tier: str, tokens: int) -> str | None:
    """What is wrong with the report and the incidents of one answered request."""
    response = await http.get(f"/v1/reliability/requests/{request_id}")
    if response.status_code == 404:
        return UNREPORTED
    report = response.raise_for_status().json()
    spent = sum(attempt["usage"]["total_tokens"] for attempt in report["attempts"] if attempt["usage"])
    if report["outcome"] != "answered" or report["tier"] != tier or spent < tokens:
        return f"{request_id}: the client saw {tokens} tokens of {tier}, its report says {report}"
    if tier == HEAD:
        return None
    query = {"request_id": request_id, "kind": "escalation"}
    incidents = (await http.get("/v1/reliability/incidents", params=query)).raise_for_status().json()["data"]
    return None if incidents else f"{request_id}: {tier} answered, and no incident says why"


def graph(port: int) -> dict[str, object]:
    """The server's `args`."""
    base = f"http://127.0.0.1:{port}/v1"
    return {
        "tiers": {
            HEAD: {"kind": "hosted", "base_url": base, "model": "at-once", "cloud": False},
            "standard": {
                "kind": "scripted",
                "script": [{"answer": "All is well, and the tests pass."}],
                "min_replicas": 2,
                "max_replicas": 2,
            },
        },
        "reliability": {
            "escalation": {"chain": [HEAD, "standard"]},
            "token_budget": {"per_session": None, "per_hour": None},
            "retry_budget": {"share_percent": 1000},
            "loop_detection": {"enabled": False},  # by script, all answers are the same
        },
        # A killed Router settles nothing: its grants are closed, at what was reserved, when the deadline has passed.
        "server": {"router_replicas": 2, "max_ongoing_requests": 1024, "deadline_s": DEADLINE_S},
    }


def main() -> int:
    """Run one seed."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0)
    given = parser.parse_args()
    ends_cleanly()
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as name:
        upstream = Upstream(Path(name))
        upstream.start()
        try:
            with serving(graph(upstream.port), Path(name), nodes=2) as server:
                seen, wrong = asyncio.run(run(server, upstream, given.seed, given.seconds))
        finally:
            upstream.stop()
    told = {
        "seed": given.seed,
        "answered": seen.answered,
        "tried again": seen.retried,
        "lost": len(seen.lost),
        "without a report": seen.unreported,
        "tiers": seen.tiers,
        "killed": seen.killed,
        "wrong": wrong,
    }
    print(json.dumps(told, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
