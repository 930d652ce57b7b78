"""What the control room costs the requests: their times with no page open, and with three.

    python -m loadtests.room_bench --rounds 40 --requests 40

One server as `make serve` starts it, with a scripted tier. Short rounds without and with three open pages take turns,
since the machine has other things to do too; each page is what a browser is to the server: a stream of `/ui/events`
that another process reads as it comes. A client asks one request after the other; what counts is the middle of the
rounds' own ratios of their median times.

With `--history` a journal of 100,000 requests and as many incidents is made, and the questions that the pages ask of it
are timed.

Figures stand in README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from deployments.state.history import History, RequestQuery, SessionQuery, Span
from deployments.state.journal import Bounds
from deployments.state.records import Query
from deployments.state.recovery import open_journal
from loadtests.running import run_server, short_folder

PAGES = 3
SETTLE_S = 0.7  # the first looks of a page are over
ROWS = 100_000
BODY = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
TIER = {"kind": "scripted", "script": [{"answer": "Hello from here."}]}
USAGE = {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940}
ATTEMPT = {"tier": "fast", "ran": True, "fault": None, "flaw": None, "detail": None, "cancelled": False, "at_ms": 2}
ATTEMPT |= {"elapsed_ms": 600, "ttft_ms": 100, "usage": USAGE, "estimated": False, "granted": True, "cost_usd": None}


def read_pages(url: str, orders: Any) -> None:
    """In a process of its own, as browsers are: read so many pages as it is told to, until it is told to end."""

    async def read() -> None:
        async with httpx.AsyncClient(timeout=60.0) as client, client.stream("GET", f"{url}/ui/events") as stream:
            async for _ in stream.aiter_raw():
                pass

    async def obey() -> None:
        while (count := await asyncio.to_thread(orders.recv)) is not None:
            pages = [asyncio.create_task(read()) for _ in range(count)]
            await asyncio.sleep(SETTLE_S)
            orders.send(len(pages))
            await asyncio.to_thread(orders.recv)
            for page in pages:
                page.cancel()
            await asyncio.gather(*pages, return_exceptions=True)
            orders.send(0)

    asyncio.run(obey())


def ask_many(client: httpx.Client, count: int) -> float:
    """Ask so many requests; return the median time in milliseconds."""
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        client.post("/v1/chat/completions", json=BODY).raise_for_status()
        times.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(times)


def measure_pages(url: str, rounds: int, count: int) -> None:
    """Measure closed and open rounds in turns."""
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    browsers = spawning.Process(target=read_pages, args=(url, there))
    browsers.start()
    times: dict[int, list[float]] = {0: [], PAGES: []}
    ratios = []
    with httpx.Client(base_url=url, timeout=60.0) as client:
        ask_many(client, 4 * count)
        for number in range(rounds):
            both = {}
            for pages in (0, PAGES) if number % 2 else (PAGES, 0):
                here.send(pages)
                here.recv()
                both[pages] = ask_many(client, count)
                here.send("close")
                here.recv()
                times[pages].append(both[pages])
            ratios.append(both[PAGES] / both[0])
    here.send(None)
    browsers.join()
    closed, opened = (statistics.median(times[pages]) for pages in (0, PAGES))
    spread = statistics.quantiles(ratios, n=4)
    print(
        f"closed {closed:.2f} ms, {PAGES} pages open {opened:.2f} ms: the middle of {rounds} rounds of {count} requests"
    )
    print(
        f"open to closed, round by round: {100 * spread[1] - 100:+.1f} %, half of them from "
        f"{100 * spread[0] - 100:+.1f} to {100 * spread[2] - 100:+.1f} %"
    )


def fill(path: Path) -> None:
    """Fill a journal as busy agents do in a month."""
    journal, _ = open_journal(path, "me", Bounds())
    now_s = time.time()
    for begin in range(0, ROWS, 1000):
        with journal.step():
            for n in range(begin, begin + 1000):
                at_s = now_s - (ROWS - n) * 25.0
                session, pad = f"agent-{n % 400}", "x" * 600
                report = {"request_id": f"r{n}", "session": session, "outcome": "answered", "tier": "fast", "pad": pad}
                journal.write_report("", report | {"attempts": [ATTEMPT], "cost_usd": None}, at_s)
                record = {"at": at_s, "kind": "usage" if n % 5000 == 0 else "loop", "tier": "fast", "session": session}
                journal.write_incident(record | {"request_id": f"r{n}", "key": "", "evidence": {}, "pad": pad})
    journal.close()


def time_best(what: str, work: Callable[[], Any]) -> None:
    """Print the best of five times."""
    times = []
    for _ in range(5):
        began_s = time.perf_counter()
        work()
        times.append((time.perf_counter() - began_s) * 1000)
    print(f"{what}: {min(times):.1f} ms")


def measure_history() -> None:
    """Time the questions of the pages on a full journal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.sqlite"
        fill(path)
        history, now_s = History(path), time.time()
        time_best("newest 50 requests", lambda: history.ask(RequestQuery()))
        time_best("of a session that has none", lambda: history.ask(RequestQuery(session="nobody")))
        time_best("newest 50 incidents", lambda: history.ask(Query()))
        time_best("of a rare kind", lambda: history.ask(Query(kind="usage")))
        month = Span(since_s=now_s - 30 * 86_400, until_s=now_s, piece_s=86_400)
        time_best("incidents of a month by kind and day", lambda: history.count_incidents(month))
        time_best("the sums of a day", lambda: history.summarize(Span(since_s=now_s - 86_400, until_s=now_s)))
        time_best("newest 50 sessions", lambda: history.ask(SessionQuery()))
        history.close()


def main() -> None:
    """Measure as asked on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--history", action="store_true", help="time the questions of the pages instead")
    asked = parser.parse_args()
    if asked.history:
        measure_history()
        return
    args = {"tiers": {"fast": TIER}, "reliability": {"escalation": {"chain": ["fast"]}}}
    with short_folder() as folder, run_server(args, folder) as server:
        measure_pages(server.url, asked.rounds, asked.requests)


if __name__ == "__main__":
    main()
