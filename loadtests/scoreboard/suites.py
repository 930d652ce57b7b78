"""The suites: what each is made of, where it runs, and how it is installed as its makers publish it."""

from __future__ import annotations

import os
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from loadtests.real_agents.agents import install_packages
from loadtests.running import ROOT

HERE = Path(__file__).parent
PYTHONS = ("3.12", "3.13")
SPARE_S = 1200.0


@dataclass(frozen=True, slots=True)
class Suite:
    """One suite. `driver`: of `drivers/`; `packages`: of `requirements/`; `cases`: the most of each kind when whole;
    `seeds`: one where a greedy answer is asked for."""

    name: str
    driver: str
    packages: str
    cases: int
    seeds: int
    what: str


SUITES = {
    suite.name: suite
    for suite in (
        Suite("forge", "forge_eval", "forge", 30, 5, "forge's scenarios without state, right"),
        Suite("bfcl", "bfcl_calls", "bfcl", 50, 1, "BFCL v4, one turn, right"),
        Suite("turns", "bfcl_turns", "bfcl", 20, 1, "BFCL v4, several turns, right"),
        Suite("json", "json_answers", "bfcl", 50, 1, "answers under a JSON schema, right"),
        Suite("langchain", "langchain_chat", "langchain", 1, 1, "LangChain's standard tests, passed"),
    )
}


def install_suite(packages: str, cache: Path) -> Path:
    """Install `requirements/PACKAGES.txt` into an environment in `cache`; what `PACKAGES.alone` names comes without the
    packages that it asks for, what `PACKAGES.source` names as source beside them. Return the environment's Python.

    Raises:
        FileNotFoundError: no Python that it runs on.
        subprocess.CalledProcessError, subprocess.TimeoutExpired: it can't be installed.
    """
    venv, pins = cache / f"scoreboard-{packages}", HERE / "requirements"
    python = install_packages(pins / f"{packages}.txt", venv, PYTHONS) / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    if (alone := pins / f"{packages}.alone").exists():
        subprocess.run([*pip, "install", "--no-deps", "-r", str(alone)], check=True)
    source = pins / f"{packages}.source"
    if source.exists() and not (venv / "source").exists():
        fetched = venv / "fetched"
        subprocess.run(
            [*pip, "download", "--no-deps", "--no-binary", ":all:", "-r", str(source), "-d", str(fetched)], check=True
        )
        with tarfile.open(next(fetched.glob("*.tar.gz"))) as archive:
            archive.extractall(fetched, filter="data")
        next(path for path in fetched.iterdir() if path.is_dir()).rename(venv / "source")
    return python


def run_suite(
    suite: Suite, url: str, model: str, rows: Path, cache: Path, *, cases: int, seeds: int, minutes: float
) -> None:
    """Run a suite against a server; its rows are added to `rows`, and what stands there isn't run again.

    Raises:
        subprocess.CalledProcessError, subprocess.TimeoutExpired: the driver failed, or hangs.
    """
    python = install_suite(suite.packages, cache)
    asked = {"url": url, "model": model, "rows": rows, "seeds": seeds, "cases": cases, "minutes": minutes}
    command = [str(python), str(HERE / "drivers" / f"{suite.driver}.py")]
    for name, value in asked.items():
        command += [f"--{name}", str(value)]
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    env["PYTHONPATH"] = str(cache / f"scoreboard-{suite.packages}" / "source")
    subprocess.run(command, check=True, cwd=ROOT.parent, env=env, timeout=60 * minutes + SPARE_S)
