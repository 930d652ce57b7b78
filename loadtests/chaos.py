"""`make chaos`: steady load while replicas, actors and the upstream are killed, and then three accounts are compared.

    python -m loadtests.chaos --seed 3 --seconds 150

The graph, on two Ray nodes: two Router replicas, tier `fast` (hosted, on the scripted upstream) and tier `standard`
(scripted, always well, two replicas, one on each node, as of the Router), which begins with what `fast` says. 16
clients ask one after another, each in a session of its own, every second one streamed, and like every OpenAI client
they try again, twice, where the connection breaks or the answer is an error, and wait as long as `Retry-After` says.
Beside them a few clients read streams of seconds from tier `told` (scripted, two replicas, one on each node): some of
these are always in the middle of their text when somebody dies. Every few seconds there is a victim: a Router, a
replica of a tier, the state actor, a memory monitor, the second node with all that runs on it, the upstream. Each comes
once, in an order that the seed shuffles, before one comes again. The last two come back after two seconds. A victim is
killed only once the stand-ins of the one before are there: while the only replica that is left of each tier starts
again nobody could answer.

What is compared at the end, when all is quiet:

    streams    none ended in an error frame: another replica of its tier, or the next tier, lived, and went on with the
               text. That of a Router that was killed breaks off, which is no frame
    clients    no request was lost: tier `standard` could have answered every one of them. Each answer is the complete
               text that its tier says
    ledger     each session's ledger comes to hold what its reports list, and what its clients saw of the answers
               that have none, but for the last words of a Router that died (`UNCOUNTED_MAX`); no call is open, and
               nothing is in it beyond that but what tries without a report may have read and written; a try that
               nobody took has cost nothing
    reports    each answer has one, which names the tier and at least the tokens that the client saw
    incidents  each answer that didn't come from the head of the chain has one that says why

A Router that is killed takes along what it had answered and not yet handed over: then a client may have an answer that
no report lists, as many for each such kill as there are clients. What it cost is in the ledger all the same.

It exits with 1 where one of these doesn't hold, and where the time was long enough for every kind of victim and one
wasn't killed.
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
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from deployments.config.free_port import free_port
from loadtests.bench.upstream import WORDS
from loadtests.chaos_accounts import (
    ATTEMPTS_MAX,
    HEAD,
    TOKENS_MAX,
    TOLD,
    TOLD_WORD_S,
    TOLD_WORDS,
    Accounts,
    ServerRecords,
    compare_session,
)
from loadtests.running import Running, handle_end_signals, run_server, run_upstream, short_folder

CLIENTS = 16
LISTENERS = 4
TRIES = 3
PAUSE_S = 0.05
EVERY_S = (3.0, 8.0)
AWAY_S = 2.0
ALL_S = 150.0  # in this time each victim has come
DEADLINE_S = 20.0
QUIET_S = 60.0  # grants live some seconds longer than their request's deadline
ACTORS = ("SessionState", "MemoryPressure")
VICTIMS = ("Router", "fast", "standard", TOLD, *ACTORS, "node", "upstream")
REPLICAS = {":load:Router": 2, ":load:fast": 1, ":load:standard": 2, ":load:told": 2}
TEXTS = {
    HEAD: "".join(WORDS),
    "standard": "".join(WORDS) + "and all is well.",
    TOLD: " ".join(f"w{number}" for number in range(TOLD_WORDS)),
}


async def run_client(number: int, url: str, seed: int, until: float, seen: Accounts) -> None:
    """Ask until the time is over; the last ones are the listeners."""
    told = number >= CLIENTS
    session, dice = f"chaos-{seed}-{number}", random.Random(f"{seed}-{number}")
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        count = 0
        while time.monotonic() < until:
            count += 1
            await ask(http, url, session, f"{session}-{count}", seen, stream=told or number % 2 == 1, told=told)
            await asyncio.sleep(dice.random() * PAUSE_S)


async def ask(
    http: httpx.AsyncClient, url: str, session: str, name: str, seen: Accounts, *, stream: bool, told: bool
) -> None:
    """Send one request, and try again as clients do."""
    last, wait_s, body = "", 0.0, build_body(name, stream=stream) | ({"model": TOLD} if told else {})
    for attempt in range(TRIES):
        if attempt:
            seen.retried += 1
            await asyncio.sleep(wait_s or 0.5 * 2**attempt)
        request_id = f"{name}-{attempt}"
        seen.tried.setdefault(session, []).append(request_id)
        headers = {"x-request-id": request_id, "x-mlx-stack-session": session}
        try:
            response = await http.post(f"{url}/v1/chat/completions", json=body, headers=headers)
            seen.note_stream(name, response.text)
            tier, tokens = read_stream(response.text) if stream else read_whole(response)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            seen.tried[session].remove(request_id)  # nobody took it
            last, wait_s = type(error).__name__, 0.0
            continue
        except (httpx.TransportError, LookupError, ValueError) as error:
            last, wait_s = f"{type(error).__name__} {error}", 0.0
            continue
        if response.status_code == 200:
            seen.answered += 1
            seen.tiers[tier] += 1
            seen.tokens[session] += tokens
            seen.answers[request_id] = (tier, tokens)
            return
        last, wait_s = f"{response.status_code} {response.text[:200]}", float(response.headers.get("retry-after", 0))
    seen.lost.append(f"{name}: {last}")


def build_body(name: str, *, stream: bool) -> dict[str, object]:
    """Build the body of a request."""
    body = {"model": "auto", "messages": [{"role": "user", "content": name}], "max_tokens": TOKENS_MAX}
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if stream else {})


def read_whole(response: httpx.Response) -> tuple[str, int]:
    """Return tier and tokens of an answer; of an error nothing.

    Raises:
        LookupError: it isn't what its tier says.
    """
    if response.status_code != 200:
        return "", 0
    body = response.json()
    return check_text(response.headers["x-mlx-stack-tier"], body["choices"]), body["usage"]["total_tokens"]


def check_text(tier: str, choices: list[dict[str, Any]]) -> str:
    """Return the tier, if these choices of an answer, or of all chunks of one, are its complete text.

    Raises:
        LookupError: they aren't.
    """
    text = "".join((choice.get("message") or choice["delta"]).get("content") or "" for choice in choices)
    if text.strip() != TEXTS[tier].strip() or choices[-1]["finish_reason"] != "stop":
        raise LookupError(f"this is not what {tier} says: {text[-200:]!r}")
    return tier


def read_stream(text: str) -> tuple[str, int]:
    """Return tier and tokens of a stream, by its last chunks; of an error with a status nothing.

    Raises:
        LookupError: it has no proper end, or doesn't say who has answered and how much.
    """
    if text.startswith("{"):
        return "", 0
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    if lines[-1:] != ["[DONE]"]:
        raise LookupError(f"a stream without an end: {text[-200:]}")
    chunks = [json.loads(line) for line in lines[:-1]]
    report: dict[str, Any] = next((chunk["mlx_stack"] for chunk in reversed(chunks) if "mlx_stack" in chunk), {})
    usage: dict[str, Any] = next((chunk["usage"] for chunk in reversed(chunks) if chunk.get("usage")), {})
    tier = check_text(report["tier"], [choice for chunk in chunks for choice in chunk["choices"]])
    return tier, usage["total_tokens"]


async def kill_victims(server: Running, upstream: Upstream, dice: random.Random, until: float, seen: Accounts) -> None:
    """Kill one after another."""
    deck: list[str] = []
    while True:
        await wait_for_replicas(server, until)
        wait_s = dice.uniform(*EVERY_S)
        if time.monotonic() + wait_s > until:
            return
        await asyncio.sleep(wait_s)
        deck = deck or dice.sample(VICTIMS, len(VICTIMS))
        victim = deck.pop()
        killed = await kill_victim(victim, server, upstream, dice)
        (seen.killed if killed else seen.missed)[victim] += 1
        print(f"{'killed' if killed else 'not there:'} {victim}", flush=True)


async def wait_for_replicas(server: Running, until: float) -> None:
    """Wait until there are as many replicas as there should be, or the time is over."""
    while time.monotonic() < until:
        found = [len(await asyncio.to_thread(server.processes, mark)) for mark in REPLICAS]
        if found == list(REPLICAS.values()):
            return
        await asyncio.sleep(0.5)


async def kill_victim(victim: str, server: Running, upstream: Upstream, dice: random.Random) -> bool:
    """Kill the victim; return False where it isn't there."""
    if victim == "upstream":
        await upstream.fall()
    elif victim == "node":
        os.kill(server.pid, signal.SIGUSR1)
    else:
        mark = victim if victim in ACTORS else f":load:{victim}"
        found = await asyncio.to_thread(server.processes, mark)
        try:
            dice.choice(sorted(found, key=lambda p: p.pid)).kill()
        except (IndexError, psutil.NoSuchProcess):
            return False  # an actor on its way back
    return True


class Upstream:
    """The scripted upstream on a port of its own, which may fall and comes back."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        """Start it."""
        self._running.enter_context(run_upstream(self._folder, self.port))

    async def fall(self) -> None:
        """Kill it, and start it again after a while."""
        self.stop()
        await asyncio.sleep(AWAY_S)
        await asyncio.to_thread(self.start)

    def stop(self) -> None:
        """End it."""
        self._running.close()


async def run(server: Running, upstream: Upstream, seed: int, seconds: float) -> tuple[Accounts, list[str]]:
    """Run the load and the kills, and find what doesn't agree afterwards."""
    seen, until = Accounts(), time.monotonic() + seconds
    clients = [run_client(n, server.url, seed, until, seen) for n in range(CLIENTS + LISTENERS)]
    await asyncio.gather(*clients, kill_victims(server, upstream, random.Random(seed), until, seen))
    wrong = [f"lost: {words}" for words in seen.lost] + [f"an error frame: {words}" for words in seen.frames]
    if seen.killed.keys() & {TOLD, "node"} and not seen.continued:
        wrong.append("replicas died under streams, and none was gone on with")
    wrong += [f"{victim} was not killed" for victim in VICTIMS if seconds >= ALL_S and not seen.killed[victim]]
    wrong += [] if seen.killed else ["nothing was killed"]
    if seen.killed.keys() & {"fast", "upstream"} and len(seen.tiers) < 2:
        wrong.append("the head of the chain was away, and nobody else has answered")
    async with httpx.AsyncClient(timeout=30, trust_env=False, base_url=server.url) as http:
        quiet_at = time.monotonic() + QUIET_S
        found = ServerRecords(http, quiet_at)
        sessions = sorted(session for session, tried in seen.tried.items() if tried)
        for differences in await asyncio.gather(*(compare_session(found, session, seen) for session in sessions)):
            wrong += differences
    may_be = (CLIENTS + LISTENERS) * (seen.killed["Router"] + seen.killed["node"])
    if seen.unreported > may_be:
        wrong.append(f"{seen.unreported} answers have no report, at most {may_be} may have none")
    return seen, wrong


def build_args(port: int) -> dict[str, object]:
    """Build the server's `args`."""
    base = f"http://127.0.0.1:{port}/v1"
    return {
        "tiers": {
            HEAD: {"kind": "hosted", "base_url": base, "model": "at-once", "cloud": False},
            "standard": {
                "kind": "scripted",
                "script": [{"answer": TEXTS["standard"]}],
                "min_replicas": 2,
                "max_replicas": 2,
            },
            TOLD: {
                "kind": "scripted",
                "script": [{"token_delay_s": TOLD_WORD_S, "answer": TEXTS[TOLD]}],
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
        # A killed Router settles nothing: its grants are closed at what it last reported, after the deadline.
        "server": {
            "router_replicas": 2,
            "max_ongoing_requests": 1024,
            "deadline_s": DEADLINE_S,
            "attempts_max": ATTEMPTS_MAX,
        },
    }


def main() -> int:
    """Run one seed."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=150.0)
    given = parser.parse_args()
    handle_end_signals()
    with short_folder() as folder:
        upstream = Upstream(folder)
        upstream.start()
        try:
            with run_server(
                build_args(upstream.port), folder, nodes=2, one_a_node=("Router", "standard", TOLD)
            ) as server:
                seen, wrong = asyncio.run(run(server, upstream, given.seed, given.seconds))
        finally:
            upstream.stop()
    summary = {
        "seed": given.seed,
        "answered": seen.answered,
        "tried again": seen.retried,
        "gone on with": seen.continued,
        "error frames": len(seen.frames),
        "lost": len(seen.lost),
        "without a report": seen.unreported,
        "tiers": seen.tiers,
        "killed": seen.killed,
        "not there": seen.missed,
        "wrong": wrong,
    }
    print(json.dumps(summary, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
