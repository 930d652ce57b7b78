"""What the control room costs the requests: their times with no page open, and with three.

    python -m loadtests.room_bench --rounds 80 --requests 120

About four minutes on a machine that does nothing else. One server as `make serve` starts it, with a scripted tier.
Short rounds without and with three open pages take turns, since the machine has other things to do too; each page is
what a browser is to the server: a stream of `/ui/events` that another process reads as it comes. A client asks one
request after the other; what counts is the middle of the rounds' own ratios of their median times, with the interval
that holds it in 95 of 100 such measurements. The ratio of the mean times is told beside it: the work of a page comes
twice a second, and a median doesn't see what few requests pay for.

With `--pages` a journal of 100,000 requests and as many incidents is made, and the pages over it are opened
(`room_pages.py`); with `--history` the questions alone that they ask of it are timed.

Figures stand in README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from deployments.state.history import History, RequestQuery, SessionQuery, TimeSpan
from deployments.state.records import Query
from loadtests.room_pages import STEP_S, fill_journal, measure_loads
from loadtests.running import ROOT, run_server, short_folder

PAGES = 3
SETTLE_S = 0.7  # the first looks of a page are over
BODY = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]}
TIER = {"kind": "scripted", "script": [{"answer": "Hello from here."}]}


BROWSERS = "import sys; from loadtests.room_bench import read_pages; read_pages(sys.argv[1])"


def read_pages(url: str) -> None:
    """In a process of its own, as browsers are: read as many pages as the next line of standard input says, answer with
    a line once they are open, and close them at the line after; until there are no more lines."""

    async def read() -> None:
        async with httpx.AsyncClient(timeout=60.0) as client, client.stream("GET", f"{url}/ui/events") as stream:
            async for _ in stream.aiter_raw():
                pass

    async def obey() -> None:
        while count := await asyncio.to_thread(sys.stdin.readline):
            pages = [asyncio.create_task(read()) for _ in range(int(count))]
            await asyncio.sleep(SETTLE_S)
            print("open", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            for page in pages:
                page.cancel()
            await asyncio.gather(*pages, return_exceptions=True)
            print("closed", flush=True)

    asyncio.run(obey())


def ask_many(client: httpx.Client, count: int) -> tuple[float, float]:
    """Ask so many requests; return the median and the mean time in milliseconds."""
    times = []
    for _ in range(count):
        began_s = time.perf_counter()
        client.post("/v1/chat/completions", json=BODY).raise_for_status()
        times.append((time.perf_counter() - began_s) * 1000)
    return statistics.median(times), statistics.fmean(times)


def order(browsers: subprocess.Popen[str], line: str) -> None:
    """Send a line, and wait for the answer."""
    if browsers.stdin is None or browsers.stdout is None:
        raise AssertionError("the browsers are started with pipes")
    print(line, file=browsers.stdin, flush=True)
    if not browsers.stdout.readline():
        raise RuntimeError("the browsers have ended")


def measure_pages(url: str, rounds: int, count: int) -> None:
    """Measure closed and open rounds in turns."""
    times: dict[int, list[tuple[float, float]]] = {0: [], PAGES: []}
    command = [sys.executable, "-c", BROWSERS, url]
    with (
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as browsers,
        httpx.Client(base_url=url, timeout=60.0) as client,
    ):
        ask_many(client, 4 * count)
        for number in range(rounds):
            for pages in (0, PAGES) if number % 2 else (PAGES, 0):
                order(browsers, str(pages))
                times[pages].append(ask_many(client, count))
                order(browsers, "close")
    for at, name in enumerate(("p50", "mean")):
        print(compare(name, [one[at] for one in times[0]], [one[at] for one in times[PAGES]], count))


def compare(name: str, closed: list[float], opened: list[float], count: int) -> str:
    """Compare round by round: the middle of the ratios, the interval that holds it, and their spread."""
    ratios = sorted(100 * open_ms / closed_ms - 100 for open_ms, closed_ms in zip(opened, closed, strict=True))
    low, middle, high = statistics.quantiles(ratios, n=4)
    # Of the ranks around the middle, as many as a coin that is thrown for each round leaves out in 5 of 100 cases.
    off = 0.98 * len(ratios) ** 0.5
    first, last = max(0, int(len(ratios) / 2 - off)), min(len(ratios) - 1, int(len(ratios) / 2 + off))
    return (
        f"{name} of a round: closed {statistics.median(closed):.2f} ms, {PAGES} pages open "
        f"{statistics.median(opened):.2f} ms, the middle of {len(ratios)} rounds of {count} requests each\n"
        f"    open to closed, round by round: {middle:+.1f} % (95 %: {ratios[first]:+.1f} to {ratios[last]:+.1f}), "
        f"half of the rounds from {low:+.1f} to {high:+.1f} %"
    )


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
        fill_journal(path)
        history, now_s = History(path), time.time()
        time_best("newest 50 requests", lambda: history.ask(RequestQuery()))
        time_best("of a session that has none", lambda: history.ask(RequestQuery(session="nobody")))
        time_best("newest 50 incidents", lambda: history.ask(Query()))
        time_best("of a rare kind", lambda: history.ask(Query(kind="usage")))
        month = TimeSpan(since_s=now_s - 30 * 86_400, until_s=now_s, piece_s=86_400)
        time_best("incidents of a month by kind and day", lambda: history.count_incidents(month))
        time_best("the sums of a day", lambda: history.summarize(TimeSpan(since_s=now_s - 86_400, until_s=now_s)))
        time_best("newest 50 sessions", lambda: history.ask(SessionQuery()))
        history.close()


def main() -> None:
    """Measure as asked on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--history", action="store_true", help="time the questions of the pages instead")
    parser.add_argument("--pages", action="store_true", help="time the pages over a full journal instead")
    parser.add_argument("--step", type=float, default=STEP_S, help="with --pages: seconds between two requests of it")
    asked = parser.parse_args()
    if asked.history:
        measure_history()
        return
    if asked.pages:
        measure_loads(asked.step)
        return
    args = {"tiers": {"fast": TIER}, "reliability": {"escalation": {"chain": ["fast"]}}}
    with short_folder() as folder, run_server(args, folder) as server:
        measure_pages(server.url, asked.rounds, asked.requests)


if __name__ == "__main__":
    main()
