"""`python -m loadtests.idle`: what an idle server costs, next to a bare Ray Serve app as shipped.

    ours    `mlx-stack-serve serve` with the default configuration (serve_config.yaml) and flags (serve.env)
    bare    `serve run` of the smallest app with one deployment, without any flag

Both run at the same time, each with ports and folders of its own, so that one busy machine weighs on both alike. Nobody
asks either. Once they have settled, each window reads the counters of all processes at its beginning and its end:

    CPU         user and system time, as a share of one core
    wake-ups    voluntary and involuntary context switches of every thread, per second
    memory      PSS (USS where the kernel tells no PSS), with and without the processes that hold a local model
    logs        bytes by which the files below the server's folder have grown, per day

At last each is asked once, and then again at once: the first request after idleness must be as fast as those.
The median of the windows is the figure. `--show` prints each kind of process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from deployments.config.free_port import free_port
from loadtests.running import (
    ROOT,
    build_environment,
    handle_end_signals,
    read_own_bytes,
    run_process,
    short_folder,
    wait_until_up,
)
from loadtests.table import Figure, write

MIB = 1024 * 1024
DAY_S = 86_400.0
TICKS = os.sysconf("SC_CLK_TCK")
BARS = {"CPU": 0.6, "wake-ups": 1.0, "memory without the model": 1.1}
LOG_MB_A_DAY_MAX = 10.0
FIRST_MAX = 1.5
WARM_REQUESTS = 9
# Ray's processes by what stands in their command lines; the first that fits names the kind.
KINDS = (
    ("gcs_server", "GCS"),
    ("/raylet/raylet", "raylet"),
    ("log_monitor.py", "log monitor"),
    ("dashboard/agent.py", "dashboard agent"),
    ("runtime_env/agent", "runtime env agent"),
    ("dashboard.py", "dashboard"),
    ("autoscaler/_private/monitor.py", "autoscaler monitor"),
    ("monitor.py", "autoscaler monitor"),
    ("haproxy-", "HAProxy"),
    ("/haproxy ", "HAProxy"),
    ("running.session_leader", "session leader"),
    ("running.driver", "driver"),
)
BARE_APP = """
from ray import serve

@serve.deployment
class Bare:
    async def __call__(self, request):
        return "{}"

app = Bare.bind()
"""


@dataclass(frozen=True, slots=True)
class Counted:
    """The counters of one process at one moment."""

    kind: str
    cpu_s: float
    switches: int


@dataclass(slots=True)
class Idle:
    """What was read of one side: a value for each window."""

    cpu_percent: list[float] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    model_mib: list[float] = field(default_factory=list)
    log_bytes: list[float] = field(default_factory=list)
    by_kind: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    kind_mib: dict[str, float] = field(default_factory=dict)
    first_ms: float = float("nan")
    warm_ms: list[float] = field(default_factory=list)

    @property
    def without_mib(self) -> list[float]:
        """Memory without the processes that hold a local model."""
        return [every - model for every, model in zip(self.memory_mib, self.model_mib, strict=True)]


def find_kind(command: str) -> str:
    """Name what a process is by its command line."""
    for mark, kind in KINDS:
        if mark in command:
            return kind
    if replica := re.match(r"ray::ServeReplica:[^:]*:(\w+)", command):
        return f"replica {replica[1]}"
    if actor := re.match(r"ray::(\w+)", command):
        return actor[1]
    if "multiprocessing" in command:
        return "dashboard part" if "spawn_main" in command else "resource tracker"
    return "other"


def read_processes(pid: int) -> dict[int, tuple[str, psutil.Process]]:
    """Find the process and all that descend from it, by kind."""
    found = {}
    root = psutil.Process(pid)
    for one in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            found[one.pid] = (find_kind(" ".join(one.cmdline()) + " "), one)
    return found


def count(processes: Mapping[int, tuple[str, psutil.Process]]) -> dict[int, Counted]:
    """Read the counters of each process that is still there."""
    found = {}
    for pid, (kind, one) in processes.items():
        with contextlib.suppress(psutil.Error, OSError):
            times = one.cpu_times()
            found[pid] = Counted(kind, times.user + times.system, _count_switches(pid, one))
    return found


def _count_switches(pid: int, one: psutil.Process) -> int:
    """Sum up the context switches of all threads. Where the system tells none by thread, those of the process."""
    folder = Path(f"/proc/{pid}/task")
    if not folder.is_dir():
        switches = one.num_ctx_switches()
        return int(switches.voluntary + switches.involuntary)
    total = 0
    for task in folder.iterdir():
        with contextlib.suppress(OSError):
            text = (task / "status").read_text(encoding="ascii", errors="replace")
            total += sum(map(int, re.findall(r"_ctxt_switches:\s*(\d+)", text)))
    return total


def read_shared_bytes(one: psutil.Process) -> int:
    """Read what a process holds, shared pages by their share (PSS); USS where there is no PSS."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{one.pid}/smaps_rollup").read_text(encoding="ascii", errors="replace")
        if found := re.search(r"^Pss:\s*(\d+) kB", text, re.MULTILINE):
            return int(found[1]) * 1024
    return read_own_bytes(one)


def measure_between(before: Mapping[int, Counted], after: Mapping[int, Counted], seconds: float) -> dict[str, Any]:
    """Compute shares of a core and wake-ups a second, in all and by kind. A process that began within the window counts
    from zero; of one that ended within it nothing is known."""
    kinds: dict[str, tuple[float, float]] = {}
    for pid, now in after.items():
        then = before.get(pid, Counted(now.kind, 0.0, 0))
        cpu, wakes = kinds.get(now.kind, (0.0, 0.0))
        cpu += max(0.0, now.cpu_s - then.cpu_s) / seconds * 100
        kinds[now.kind] = cpu, wakes + max(0, now.switches - then.switches) / seconds
    return {
        "cpu": sum(cpu for cpu, _ in kinds.values()),
        "wakes": sum(wakes for _, wakes in kinds.values()),
        "kinds": kinds,
    }


def read_sizes(folder: Path) -> dict[str, int]:
    """Read the size of each regular file below the folder; a database is none of the logs."""
    sizes = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and not path.is_symlink() and "state" not in path.parts:
                sizes[str(path)] = path.stat().st_size
    return sizes


def count_growth(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """Count the bytes that were written: a file that has become smaller was begun anew."""
    grown = 0
    for path, size in after.items():
        then = before.get(path, 0)
        grown += size - then if size >= then else size
    return grown


@dataclass(frozen=True, slots=True)
class Side:
    """One that is measured."""

    name: str
    pid: int
    url: str
    folder: Path
    body: Mapping[str, Any] | None


@contextlib.contextmanager
def start_ours(folder: Path) -> Iterator[Side]:
    """Start this server with its default configuration."""
    port, path = free_port(), folder / "serve.yaml"
    config = yaml.safe_load((ROOT / "serve_config.yaml").read_text(encoding="utf-8"))
    config["http_options"]["port"] = port
    config["applications"][0]["args"]["state"]["path"] = str(folder / "state")
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    # Nothing is fetched meanwhile: that would be work, and not idleness.
    env = build_environment(folder) | {"HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-P", "-m", "deployments", "serve", str(path)]
    with run_process(command, folder, env, stop=signal.SIGINT) as pid:
        url = f"http://127.0.0.1:{port}"
        wait_until_up(f"{url}/ready", pid)
        yield Side("ours", pid, f"{url}/v1/chat/completions", folder, _ask_fast())


def _ask_fast() -> dict[str, Any]:
    return {"model": "fast", "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": "Hello"}]}


@contextlib.contextmanager
def start_bare(folder: Path) -> Iterator[Side]:
    """Start a bare Ray Serve app, without any flag but those that keep it apart."""
    port, path = free_port(), folder / "serve.yaml"
    (folder / "bare_idle_app.py").write_text(BARE_APP, encoding="utf-8")
    app = {"name": "bare", "route_prefix": "/", "import_path": "bare_idle_app:app"}
    config = {"http_options": {"host": "127.0.0.1", "port": port}, "applications": [app]}
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    given = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLX_STACK_"))}
    env = given | {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(folder)}
    program = str(Path(sys.executable).with_name("serve"))
    command = [program, "run", str(path)]
    with run_process(command, folder, env, stop=signal.SIGINT) as pid:
        wait_until_up(f"http://127.0.0.1:{port}/", pid)
        yield Side("bare", pid, f"http://127.0.0.1:{port}/", folder, None)


async def ask(side: Side) -> float:
    """Ask once, over a connection of its own; return the milliseconds."""
    async with httpx.AsyncClient(timeout=120) as client:
        began_s = time.perf_counter()
        if side.body is None:
            answer = await client.get(side.url)
        else:
            answer = await client.post(side.url, json=dict(side.body))
        answer.raise_for_status()
        return (time.perf_counter() - began_s) * 1000


def run_window(sides: Sequence[Side], found: Mapping[str, Idle], seconds: float) -> None:
    """Measure all sides over the same seconds."""
    begun = {}
    for side in sides:
        processes = read_processes(side.pid)
        begun[side.name] = (time.monotonic(), count(processes), read_sizes(side.folder))
    time.sleep(seconds)
    for side in sides:
        at_s, before, sizes = begun[side.name]
        processes = read_processes(side.pid)
        lasted_s = time.monotonic() - at_s
        measured = measure_between(before, count(processes), lasted_s)
        idle = found[side.name]
        idle.cpu_percent.append(measured["cpu"])
        idle.wakes.append(measured["wakes"])
        idle.processes.append(len(processes))
        idle.log_bytes.append(count_growth(sizes, read_sizes(side.folder)) / lasted_s * DAY_S)
        for kind, values in measured["kinds"].items():
            idle.by_kind[kind].append(values)
        every = model = 0.0
        held: dict[str, float] = defaultdict(float)
        for kind, one in processes.values():
            with contextlib.suppress(psutil.Error):
                mib = read_shared_bytes(one) / MIB
                every += mib
                held[kind] += mib
                model += mib if kind == "replica fast" else 0.0
        idle.kind_mib = dict(held)
        idle.memory_mib.append(every)
        idle.model_mib.append(model)


def run(sides: Sequence[Side], *, settle_s: float, seconds: float, windows: int) -> dict[str, Idle]:
    """Settle, measure each window, and ask at last."""
    found = {side.name: Idle() for side in sides}
    for side in sides:
        asyncio.run(ask(side))  # once, so that nothing is still to be loaded
    time.sleep(settle_s)
    for _ in range(windows):
        run_window(sides, found, seconds)
    for side in sides:
        idle = found[side.name]
        idle.first_ms = asyncio.run(ask(side))
        idle.warm_ms = [asyncio.run(ask(side)) for _ in range(WARM_REQUESTS)]
    return found


def judge(ours: Idle, bare: Idle) -> list[Figure]:
    """Compare both with the bars."""
    pairs = {
        "CPU": ("% of a core", ours.cpu_percent, bare.cpu_percent),
        "wake-ups": ("a second", ours.wakes, bare.wakes),
        "memory without the model": ("MiB", ours.without_mib, bare.memory_mib),
    }
    figures = []
    for what, (unit, own, other) in pairs.items():
        share = [mine / theirs for mine, theirs in zip(own, other, strict=True)]
        detail = f"{statistics.median(own):.1f} to {statistics.median(other):.1f} {unit}"
        figures.append(Figure(what, detail, statistics.median(share), BARS[what], "of bare", tuple(share)))
    warm = statistics.median(ours.warm_ms)
    detail = f"{ours.first_ms:.0f} ms, then {warm:.0f} ms ({max(ours.warm_ms):.0f} ms at most)"
    figures.append(Figure("first request after idleness", detail, ours.first_ms / warm, FIRST_MAX, "of the next"))
    growth = statistics.median(ours.log_bytes) / 1e6
    figures.append(Figure("logs", f"bare: {statistics.median(bare.log_bytes) / 1e6:.0f} MB", growth,
                          LOG_MB_A_DAY_MAX, "MB a day"))  # fmt: skip
    return figures


def describe(found: Mapping[str, Idle]) -> str:
    """Write the table of both sides."""
    rows = ["| | CPU, % of a core | wake-ups/s | processes | MiB | without the model |", "|---|---|---|---|---|---|"]
    for name, idle in found.items():
        values = (idle.cpu_percent, idle.wakes, idle.processes, idle.memory_mib, idle.without_mib)
        rows.append(f"| {name} | " + " | ".join(f"{statistics.median(value):.1f}" for value in values) + " |")
    return "\n".join(rows)


def show_kinds(name: str, idle: Idle) -> str:
    """Write one side's kinds of processes, the dearest first."""
    rows = []
    for kind, values in idle.by_kind.items():
        cpu = statistics.median(cpu for cpu, _ in values)
        wakes = statistics.median(wakes for _, wakes in values)
        rows.append((cpu, f"  {name} {kind:<22} {cpu:5.1f} %  {wakes:6.1f} /s  {idle.kind_mib.get(kind, 0):7.1f} MiB"))
    return "\n".join(row for _, row in sorted(rows, reverse=True))


def main() -> int:
    """Run, compare, report."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.idle", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of one window")
    parser.add_argument("--windows", type=int, default=3)
    parser.add_argument("--settle", type=float, default=60.0)
    parser.add_argument("--show", action="store_true", help="print each kind of process")
    parser.add_argument("--write", action="store_true", help="put the table into loadtests/README.md")
    given = parser.parse_args()
    handle_end_signals()
    with short_folder() as folder, short_folder() as other, start_bare(other) as bare, start_ours(folder) as ours:
        found = run([ours, bare], settle_s=given.settle, seconds=given.seconds, windows=given.windows)
    figures = judge(found["ours"], found["bare"])
    if given.show:
        print("\n".join(show_kinds(name, idle) for name, idle in found.items()))
    print(describe(found))
    print("\n".join(figure.row() for figure in figures))
    if given.write:
        write("idle", f"python -m loadtests.idle --seconds {given.seconds:g}", figures, describe(found))
    return 0 if all(figure.met for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
