"""Runs: an agent's process in a work folder and a home of its own, for a bounded time, and what came of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from loadtests.real_agents.agents import AGENTS, Launch
from loadtests.real_agents.tap import Exchange, Tap, listen
from loadtests.real_agents.trials import FILES, Trial
from loadtests.real_agents.verdicts import Verdict, is_refused, judge_trial

RUN_S = 120.0
# Who gets as far as this is in no way held up; and who is refused so often, and asks again, has been told.
EXCHANGES_MAX = 24
REFUSED_MAX = 6
END_S = 2.0
# At once: all their first messages are equal (aider's examples), their edits not. Runs that are equal
# to the letter nobody can tell apart, so that these ask for something else than the runs before them, too.
AT_ONCE = " Two of you work at once."
TWINS = ("aider-same", "aider-counter")
OUTPUT_CHARS = 20_000
# What of this program's environment an agent may see: no key, no other server.
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# LiteLLM, in OpenHands and aider, else asks the network for its list of prices.
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a trial. `twin`: it ran at the same time as another one."""

    trial: Trial
    twin: bool
    exchanges: list[Exchange]
    output: str
    verdict: Verdict


def run_all(trials: Sequence[Trial], programs: Mapping[str, Path], url: str, folder: Path) -> Iterator[Run]:
    """Run each trial by itself, and then aider twice at once."""
    for number, trial in enumerate(trials):
        yield run_trial(trial, programs[trial.agent], url, folder / f"run-{number}")
    twins = [trial for trial in trials if trial.name in TWINS]
    if len(twins) == len(TWINS):
        yield from run_twins(twins, programs, url, folder)


def run_twins(trials: Sequence[Trial], programs: Mapping[str, Path], url: str, folder: Path) -> list[Run]:
    """Run trials at once; whoever interrupts it ends all of them."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(trials)) as pool:
        try:
            runs = [
                pool.submit(run_trial, trial, programs[trial.agent], url, folder / f"twin-{trial.name}", stop)
                for trial in trials
            ]
            return [run.result() for run in runs]
        finally:
            stop.set()


def run_trial(trial: Trial, programs: Path, url: str, place: Path, stop: threading.Event | None = None) -> Run:
    """Run one trial in the new folder `place`; `stop` ends it early, and says that it has a twin."""
    work, home = place / "work", place / "home"
    work.mkdir(parents=True)
    home.mkdir()
    for name, text in FILES.items():
        (work / name).write_text(text, encoding="utf-8")
    (work / "check.sh").chmod(0o755)
    begun = time.monotonic()
    with listen(url, Tap()) as tap:
        launch = AGENTS[trial.agent].build(programs, home, f"{tap.url}/v1", trial.task + (AT_ONCE if stop else ""))
        code, output = run_launch(
            launch, work, home, lambda: is_enough(tap.exchanges) or (stop is not None and stop.is_set())
        )
    seconds = time.monotonic() - begun
    verdict = judge_trial(trial, tap.exchanges, code, seconds)
    print(f"{verdict}", file=sys.stderr, flush=True)
    return Run(trial, stop is not None, tap.exchanges, output, verdict)


def is_enough(exchanges: Sequence[Exchange]) -> bool:
    """Return whether nothing new is to be expected of a run."""
    return len(exchanges) >= EXCHANGES_MAX or sum(map(is_refused, exchanges)) >= REFUSED_MAX


def run_launch(
    launch: Launch, work: Path, home: Path, may_end: Callable[[], bool], seconds: float = RUN_S
) -> tuple[int | None, str]:
    """Run an agent's program until it ends, or it is enough, or the time is up. Nothing that it has started is left.

    Returns its exit code, None if it had to be stopped, and the end of its output.
    """
    env = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    env |= {"HOME": str(home), "TMPDIR": str(home), "TERM": "dumb", "PYTHONUNBUFFERED": "1"} | OFFLINE | launch.env
    log, typed = home / "output.txt", home / "typed.txt"
    typed.write_text(launch.typed, encoding="utf-8")
    with log.open("wb") as out, typed.open("rb") as stdin:
        process = subprocess.Popen(
            launch.command, cwd=work, env=env, stdin=stdin, stdout=out, stderr=out, start_new_session=True
        )
    try:
        code = _wait(process, may_end, time.monotonic() + seconds)
    finally:
        _end_all(process, home)
    return code, log.read_text(encoding="utf-8", errors="replace")[-OUTPUT_CHARS:]


def _wait(process: subprocess.Popen[bytes], may_end: Callable[[], bool], deadline: float) -> int | None:
    while time.monotonic() < deadline and not may_end():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.1)
    return None


def _end_all(process: subprocess.Popen[bytes], home: Path) -> None:
    """End a program and whoever it has started: those in its session, and those whose home is its own (shells and
    terminals have sessions of their own)."""
    members = []
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if one.pid != process.pid and (os.getsid(one.pid) == process.pid or one.environ().get("HOME") == str(home)):
                one.kill()
                members.append(one)
    process.kill()
    process.wait()
    psutil.wait_procs(members, END_S)
