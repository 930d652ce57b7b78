"""How long the pages of the control room take over a full journal: in a browser, and to the last byte.

    python -m loadtests.room_bench --pages

A journal of 100,000 requests and 100,000 incidents of a month is made, and the server started on it as `make serve`
starts it. Each page is then fetched by a plain client (to its last byte), and opened in headless Chromium where there
is one: from the click to the load event, scripts and style sheets included; those come from its cache after the first
page, as they do for a person. The middle of the times counts, and the slowest is told.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from deployments.config.app_config import StateConfig
from deployments.state.journal import open_journal
from loadtests.running import run_server, short_folder

ROWS = 100_000
STEP_S = 25.0  # so many requests fill a month
TIMES = 9
LIMIT_MS = 200.0
TIERS = ("fast", "standard")
PAGES = {
    "Now": "/",
    "Requests": "/ui/requests",
    "Requests, mended": "/ui/requests?mark=mended",
    "Requests, of a session that has none": "/ui/requests?session=nobody",
    "one request": "/ui/requests/by-id/r99000",
    "Sessions": "/ui/sessions",
    "one session": "/ui/sessions/agent-7?key=",
    "Incidents": "/ui/incidents",
    "Incidents, a rare kind of a tier": "/ui/incidents?kind=usage&tier=fast",
    "Incidents, of a session, a month": "/ui/incidents?span=month&session=agent-7",
    "figures of a month's incidents": "/ui/incidents/counts?span=month",
    "figures of a month's incidents of one tier": "/ui/incidents/counts?span=month&tier=fast",
    "Tiers": "/ui/tiers",
    "Memory": "/ui/memory",
}
USAGE = {"prompt_tokens": 900, "completion_tokens": 40, "total_tokens": 940}
USAGE |= {"prompt_tokens_details": {"cached_tokens": 600}, "completion_tokens_details": {"reasoning_tokens": 0}}
ATTEMPT = {"tier": "fast", "ran": True, "fault": None, "flaw": None, "detail": None, "native_calls": 1}
ATTEMPT |= {"cancelled": False, "at_ms": 2, "elapsed_ms": 600, "ttft_ms": 100, "usage": USAGE, "estimated": False}
ATTEMPT |= {"granted": True, "cost_usd": None}
REPORT = {"key": "", "outcome": "answered", "tier": "fast", "escalated_from": None, "escalation_reason": None}
REPORT |= {"retries": 0, "loop": None, "repairs": [], "notes": [], "total_ms": 610.0, "overhead_ms": 10.0}
REPORT |= {"cost_usd": None, "budget": [], "memory_pressure": "normal", "state_silent": False, "judge": None}
REPORT |= {"attempts": [ATTEMPT]}
AWAY = {"tier": "standard", "escalated_from": "fast", "escalation_reason": "server_error", "retries": 1}
AWAY |= {"attempts": [ATTEMPT | {"fault": "server_error", "ttft_ms": None}, ATTEMPT | {"tier": "standard"}]}
KINDS = ("repair", "escalation", "fault", "flaw", "loop", "budget")


def fill_journal(path: Path, step_s: float = STEP_S) -> None:
    """Fill a journal as busy agents do: each request with an incident, every fifth mended, every ninth escalated."""
    journal, _ = open_journal(path, "me", StateConfig())
    now_s = time.time()
    for begin in range(0, ROWS, 1000):
        with journal.step():
            for number in range(begin, begin + 1000):
                at_s = now_s - (ROWS - number) * step_s
                journal.write_report("", make_report(number), at_s)
                journal.write_incident(make_incident(number, at_s))
    print(f"{ROWS} requests and {ROWS} incidents over {ROWS * step_s / 86_400:.0f} days", flush=True)
    journal.close()


def make_report(number: int) -> dict[str, Any]:
    """Make the report of one request."""
    changes = AWAY if number % 9 == 0 else {"repairs": ["literal"]} if number % 5 == 0 else {}
    return REPORT | {"request_id": f"r{number}", "session": f"agent-{number % 400}"} | changes


def make_incident(number: int, at_s: float) -> dict[str, Any]:
    """Make what went wrong in it."""
    kind = "usage" if number % 5000 == 0 else KINDS[number % len(KINDS)]
    record = {"at": at_s, "kind": kind, "reason": "tool_call_invalid", "tier": TIERS[number % 2], "attempt": 0}
    record |= {"session": f"agent-{number % 400}", "request_id": f"r{number}", "key": ""}
    return record | {"evidence": {"paths": ["/0/arguments/city"], "count": 1, "delivered": True, "quote": "x" * 200}}


def measure_loads(step_s: float) -> None:
    """Measure each page, and say which is over the limit."""
    with short_folder() as folder:
        (folder / "state").mkdir(mode=0o700)
        fill_journal(folder / "state" / "ledger.sqlite", step_s)
        tiers = {name: {"kind": "scripted", "script": [{"answer": "Hello."}]} for name in TIERS}
        args = {"tiers": tiers, "reliability": {"escalation": {"chain": list(TIERS)}}}
        with run_server(args, folder) as server, ExitStack() as stack:
            client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60.0, follow_redirects=True))
            client.headers["accept"] = "text/html"
            load = stack.enter_context(open_browser(server.url))
            for name, path in PAGES.items():
                fetched = [time_fetch(client, path) for _ in range(TIMES)]
                loaded = [load(path) for _ in range(TIMES)] if load and not path.startswith("/ui/incidents/") else []
                print(describe(name, fetched, loaded), flush=True)


def time_fetch(client: httpx.Client, path: str) -> float:
    """Time one page to its last byte, in milliseconds."""
    began_s = time.perf_counter()
    client.get(path).raise_for_status()
    return (time.perf_counter() - began_s) * 1000


@contextmanager
def open_browser(url: str) -> Iterator[Callable[[str], float] | None]:
    """Open headless Chromium: the result opens a page and says how long it took; None where there is no Chromium."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        print("no Chromium on this machine: to the last byte only")
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page()

        def load(path: str) -> float:
            page.goto(url + path, wait_until="load")
            page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
            return float(page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))

        load("/")
        yield load
        browser.close()


def describe(name: str, fetched: list[float], loaded: list[float]) -> str:
    """Describe one page's times."""
    words = [
        f"{kind} {statistics.median(times):.0f} ms (at most {max(times):.0f})"
        for kind, times in (("last byte", fetched), ("loaded", loaded))
        if times
    ]
    over = any(times and statistics.median(times) > LIMIT_MS for times in (fetched, loaded))
    return f"{name}: {', '.join(words)}{f'  OVER {LIMIT_MS:.0f} ms' if over else ''}"
