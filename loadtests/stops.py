"""`make stops`: stop the server in many ways under load; nothing may be left, and the next start must find its port.

    python -m loadtests.stops --stops 10 --ways term group ctrl-c kill

Each stop: a server as `mlx-stack-serve serve` starts it, on the same port and in the same folder as the one
before, in a terminal of its own (a pty). Streams run, some of which end in time and some of which don't; then it is
stopped. Within ten seconds there must be no process of the run, nobody on the port, no socket file in its folder, and
its run folder must be gone. Each stream must have ended in words: with [DONE], or with an error frame.

    term     SIGTERM to the process that was started        kill     SIGKILL to it
    group    SIGTERM to its process group                   all      SIGKILL to its process group
    ctrl-c   Ctrl-C in its terminal                         driver   SIGKILL to its driver
    hup      its terminal is closed                         session_leader   SIGKILL to its session leader
    twice    Ctrl-C, and again after a second               start    SIGTERM while it starts

Who is left is found however it has lost its parent (`loadtests/terminal.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from deployments.config.free_port import free_port
from loadtests.running import build_serve_config, handle_end_signals, short_folder, wait_until_up
from loadtests.table import put, stamp
from loadtests.terminal import Terminal, terminal

WAYS = ("term", "group", "ctrl-c", "kill", "hup", "session_leader", "driver", "all", "twice", "start")
MAIN = ("term", "group", "ctrl-c", "kill")
# After these nobody is left who could tell the clients.
WORDLESS = frozenset({"session_leader", "driver", "twice", "start"})
GONE_S = 10.0
QUIET_S = 30.0  # how long to look on, to say how long it took
STREAMS = 6
WORDS = [f"word{n} " for n in range(60)]


def build_script(count: int, delay_s: float) -> list[dict[str, Any]]:
    """Build the script of a tier that says so many words, one each `delay_s`."""
    return [{"answer": "".join(WORDS[:count]), "token_delay_s": delay_s}]


def build_config(port: int, folder: Path) -> dict[str, Any]:
    """Build a configuration of two tiers: one that ends within the time for ending, and one that doesn't."""
    tiers = {
        "short": {"kind": "scripted", "script": build_script(30, 0.1)},
        "long": {"kind": "scripted", "script": build_script(60, 0.5)},
    }
    args = {
        "tiers": tiers,
        "reliability": {"escalation": {"chain": list(tiers)}, "token_budget": {"per_session": None, "per_hour": None}},
        "state": {"path": str(folder / "state")},
    }
    app = {"name": "stops", "route_prefix": "/", "import_path": "deployments.app:build", "args": args}
    return build_serve_config(port, app)


@dataclass
class Streams:
    """Clients that read streams until these end. `ends` says of each how it ended: done, error, refused or cut."""

    url: str
    tiers: Sequence[str] = ("short", "long")
    ends: list[str] = field(default_factory=list)
    begun: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, count: int) -> None:
        """Begin, and wait until each has its first bytes."""
        for number in range(count):
            tier = self.tiers[number % len(self.tiers)]
            self._threads.append(threading.Thread(target=self._read, args=(tier, number), daemon=True))
            self._threads[-1].start()
        deadline = time.monotonic() + 30
        while self.begun < count and time.monotonic() < deadline:
            time.sleep(0.01)

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self._threads:
            thread.join(QUIET_S)

    def _read(self, tier: str, number: int) -> None:
        body = {"model": tier, "stream": True, "messages": [{"role": "user", "content": f"{number}"}]}
        last = ""
        try:
            with httpx.stream("POST", f"{self.url}/v1/chat/completions", json=body, timeout=60) as response:
                for line in response.iter_lines():
                    if line.startswith("data: "):
                        self.begun += not last
                        last = line.removeprefix("data: ")
                if response.status_code != 200:
                    self.begun += 1
                    last = "refused"
        except httpx.TransportError:
            last = "cut"
        self.ends.append(_classify_end(last))


def _classify_end(last: str) -> str:
    if last in ("refused", "cut"):
        return last
    if last == "[DONE]":
        return "done"
    with contextlib.suppress(ValueError):
        return "error" if "error" in json.loads(last) else "cut"
    return "cut"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One stop. `port_s`, `gone_s`: until nobody was on the port, until nothing was left; None: not in `QUIET_S`."""

    way: str
    code: int | None
    ready_s: float
    port_s: float | None
    gone_s: float | None
    ends: list[str]
    left: list[str]

    @property
    def wrong(self) -> list[str]:
        """What isn't as it must be."""
        found = [f"left: {name}" for name in self.left]
        if self.gone_s is None or self.gone_s > GONE_S:
            found.append(f"not gone within {GONE_S:g} s ({self.gone_s})")
        if self.way not in WORDLESS and "cut" in self.ends:
            found.append(f"{self.ends.count('cut')} streams just stopped")
        return found


def stop(way: str, running: Terminal) -> None:
    """Stop the program in this way."""
    if way == "ctrl-c":
        running.type(b"\x03")
    elif way == "twice":
        running.type(b"\x03")
        time.sleep(1.0)
        running.type(b"\x03")
    elif way == "hup":
        running.close()
    elif way in ("group", "all"):
        os.killpg(running.pid, signal.SIGTERM if way == "group" else signal.SIGKILL)
    elif way in ("session_leader", "driver"):
        mark = f"deployments.running.{way}"
        for process in running.find_living():
            with contextlib.suppress(psutil.Error):
                if mark in process.cmdline():
                    process.kill()
    else:
        os.kill(running.pid, signal.SIGKILL if way == "kill" else signal.SIGTERM)


def find_sockets(folder: Path) -> list[str]:
    """Find the socket files below a folder."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_socket()]


def stop_once(way: str, port: int, folder: Path) -> Outcome:
    """Start, load, stop, and look at what is left."""
    path = folder / "serve.yaml"
    path.write_text(yaml.safe_dump(build_config(port, folder)), encoding="utf-8")
    env = {**os.environ, "RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    command = [sys.executable, "-m", "deployments", "serve", str(path)]
    url, began_s = f"http://127.0.0.1:{port}", time.monotonic()
    with terminal(command, env) as running:
        streams = Streams(url)
        if way == "start":
            # In the middle of Ray's own start: some of it listens, and the driver hasn't heard of it yet.
            while not any("sockets/dash_" in name for name in find_sockets(folder)) and time.monotonic() < began_s + 60:
                time.sleep(0.05)
        else:
            try:
                wait_until_up(f"{url}/ready", running.pid)
                while "Ctrl-C stops it" not in running.text and time.monotonic() < began_s + 300:
                    time.sleep(0.05)
                streams.start(STREAMS)
            except TimeoutError as error:
                raise TimeoutError(f"{error}; the terminal:\n{running.text}") from None
        ready_s = time.monotonic() - began_s
        running.look()
        stop(way, running)
        outcome = watch_end(way, running, port, folder, streams, ready_s)
        if outcome.wrong:
            print(running.text, file=sys.stderr)
        return outcome


def watch_end(way: str, running: Terminal, port: int, folder: Path, streams: Streams, ready_s: float) -> Outcome:
    """Look on until nothing is left of a program that was stopped."""
    stopped_s, port_s, gone_s = time.monotonic(), None, None
    while gone_s is None and time.monotonic() < stopped_s + QUIET_S:
        ended = running.has_ended()
        if port_s is None and _is_port_free(port):
            port_s = time.monotonic() - stopped_s
        if ended and port_s is not None and not running.find_living() and not _find_files(folder):
            gone_s = time.monotonic() - stopped_s
        time.sleep(0.1)
    left = [] if gone_s else [*map(_describe, running.find_living()), *_find_files(folder)]
    streams.join()
    return Outcome(
        way=way, code=running.code, ready_s=ready_s, port_s=port_s, gone_s=gone_s, ends=sorted(streams.ends), left=left
    )


def _find_files(folder: Path) -> list[str]:
    return find_sockets(folder) + [f"runs/{path.name}" for path in (folder / "runs").glob("*")]


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())[:80]}"
    return str(process.pid)


def build_table(outcomes: Sequence[Outcome]) -> list[str]:
    """Build a row for each way."""
    lines = [
        "| way | stops | nothing left | port free, s (median, worst) | all gone, s (median, worst) "
        "| streams: whole / error frame / refused / just stopped | exit codes |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in dict.fromkeys(outcome.way for outcome in outcomes):
        those = [outcome for outcome in outcomes if outcome.way == way]
        ends = [end for outcome in those for end in outcome.ends]
        counts = " / ".join(str(ends.count(kind)) for kind in ("done", "error", "refused", "cut"))
        codes = ", ".join(str(code) for code in sorted({str(outcome.code) for outcome in those}))
        good = sum(not outcome.wrong for outcome in those)
        port, gone = ([getattr(o, key) for o in those] for key in ("port_s", "gone_s"))
        lines.append(
            f"| {way} | {len(those)} | {good} | {_format_times(port)} | {_format_times(gone)} | {counts} | {codes} |"
        )
    return lines


def _format_times(seconds: Sequence[float | None]) -> str:
    known = [value for value in seconds if value is not None]
    if len(known) < len(seconds) or not known:
        return "never"
    return f"{statistics.median(known):.1f}, {max(known):.1f}"


def main() -> int:
    """Stop, again and again."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.stops", description=__doc__.partition("\n")[0])
    parser.add_argument("--stops", type=int, default=10, help="of each way")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=MAIN)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--into", type=Path, help="add the outcomes to this file, and tell of all that are in it")
    given = parser.parse_args()
    handle_end_signals()
    outcomes: list[Outcome] = []
    if given.into and given.into.exists():
        outcomes = [Outcome(**row) for row in json.loads(given.into.read_text())]
    wrong = []
    with short_folder() as folder:
        port = given.port or free_port()
        for number in range(given.stops):
            for way in given.ways:
                outcome = stop_once(way, port, folder)
                outcomes.append(outcome)
                wrong += [f"{way} {number + 1}: {words}" for words in outcome.wrong]
                print(json.dumps(vars(outcome)), flush=True)
                if given.into:
                    given.into.write_text(json.dumps([vars(o) for o in outcomes]))
    lines = build_table(outcomes)
    print("\n".join([*lines, *wrong]))
    if len(outcomes) >= 40:
        put("stops", "\n".join([stamp("python -m loadtests.stops"), "", *lines]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
