"""Runs: an agent's process in a work folder and a home of its own, for a bounded time, and what came of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from loadtests.real_agents.agents import AGENTS, Launch
from loadtests.real_agents.tap import Exchange, listen
from loadtests.real_agents.trials import FILES, Trial
from loadtests.real_agents.verdicts import Verdict, judge_trial

__all__ = ["Run", "run_all", "run_launch"]

RUN_S = 120.0
# Who gets as far as this is in no way held up.
EXCHANGES_MAX = 24
OUTPUT_CHARS = 20_000
# What of this program's environment an agent may see: no key, no other server.
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# LiteLLM, in OpenHands and aider, else asks the network for its list of prices.
OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a trial. `twin`: it ran at the same time as another of the same trial."""

    trial: Trial
    twin: bool
    exchanges: list[Exchange]
    output: str
    verdict: Verdict


def run_all(trials: Sequence[Trial], programs: Mapping[str, Path], url: str, folder: Path) -> Iterator[Run]:
    """Run each trial by itself, and then aider twice at once."""
    for number, trial in enumerate(trials):
        yield run_trial(trial, programs[trial.agent], url, folder / f"run-{number}")
    twin = next((trial for trial in trials if trial.name == "aider-same"), None)
    if twin:
        yield from run_twins(twin, programs[twin.agent], url, folder)


def run_twins(trial: Trial, programs: Path, url: str, folder: Path) -> list[Run]:
    """Run a trial twice at once."""
    found: list[Run] = []
    threads = [
        threading.Thread(
            target=lambda place: found.append(run_trial(trial, programs, url, place, twin=True)),
            args=(folder / f"twin-{number}",),
            daemon=True,
        )
        for number in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def run_trial(trial: Trial, programs: Path, url: str, place: Path, twin: bool = False) -> Run:
    """Run one trial in the new folder `place`."""
    work, home = place / "work", place / "home"
    work.mkdir(parents=True)
    home.mkdir()
    for name, text in FILES.items():
        (work / name).write_text(text, encoding="utf-8")
    (work / "check.sh").chmod(0o755)
    begun = time.monotonic()
    with listen(url) as tap:
        launch = AGENTS[trial.agent].launch(programs, home, f"{tap.url}/v1", trial.task)
        code, output = run_launch(launch, work, home, lambda: len(tap.exchanges) >= EXCHANGES_MAX)
    seconds = time.monotonic() - begun
    verdict = judge_trial(trial, tap.exchanges, code, seconds)
    print(f"{verdict}", file=sys.stderr, flush=True)
    return Run(trial, twin, tap.exchanges, output, verdict)


def run_launch(
    launch: Launch, work: Path, home: Path, is_enough: Callable[[], bool], seconds: float = RUN_S
) -> tuple[int | None, str]:
    """Run an agent's program until it ends, or it is enough, or the time is up. Nothing of its process group is left.

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
        code = _wait(process, is_enough, time.monotonic() + seconds)
    finally:
        _end_session(process)
    return code, log.read_text(encoding="utf-8", errors="replace")[-OUTPUT_CHARS:]


def _wait(process: subprocess.Popen[bytes], is_enough: Callable[[], bool], deadline: float) -> int | None:
    while time.monotonic() < deadline and not is_enough():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.1)
    return None


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """End a process that leads a session, and all who are in it, also those in a group of their own (a shell's)."""
    for one in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if one != process.pid and os.getsid(one) == process.pid:
                os.kill(one, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
