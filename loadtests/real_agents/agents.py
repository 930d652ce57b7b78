"""The agents: how each is installed and started. Configured are base URL, key and model, as any user would."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path.home() / ".cache" / "mlx-stack-agents"
KEY = "sk-none"
INSTALL_S = 1200.0
# aider stops asking again after three answers, and waits for its user, who says the same once more.
AIDER_SAYS = 3


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start: its arguments, what is added to the environment, and what is typed into it."""

    command: list[str]
    env: dict[str, str]
    typed: str = ""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent. `packages`: of `requirements/` and of its venv; `pythons`: what it runs on, the best one first;
    `build` makes its launch from the programs of a venv, a home of its own, the server's base URL and a task."""

    packages: str
    pythons: tuple[str, ...]
    build: Callable[[Path, Path, str, str], Launch]


def find_python(versions: tuple[str, ...]) -> str:
    """Find an interpreter of one of these versions: on the PATH, or among pyenv's.

    Raises:
        FileNotFoundError: there is none.
    """
    for version in versions:
        found = shutil.which(f"python{version}")
        # pyenv has a stand-in for each version that it knows; only those of its configuration run.
        if found and subprocess.run([found, "-V"], capture_output=True, check=False).returncode == 0:
            return found
        root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
        for path in sorted(root.glob(f"versions/{version}.*/bin/python{version}")):
            return str(path)
    raise FileNotFoundError(f"no Python {' or '.join(versions)}")


def install(agent: Agent, cache: Path) -> Path:
    """Make the agent's venv in `cache`, as `install_packages` does; return the folder of its programs."""
    return install_packages(HERE / "requirements" / f"{agent.packages}.txt", cache / agent.packages, agent.pythons)


def install_packages(wanted: Path, venv: Path, pythons: tuple[str, ...]) -> Path:
    """Make a venv of the packages that `wanted` pins, unless it is there with the same pins; return the folder of its
    programs.

    Raises:
        FileNotFoundError: no Python that they run on.
        subprocess.CalledProcessError, subprocess.TimeoutExpired: they can't be installed.
    """
    stamp = venv / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted.read_text(encoding="utf-8"):
        subprocess.run([find_python(pythons), "-m", "venv", "--clear", str(venv)], check=True, timeout=120)
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", str(wanted)], check=True, timeout=INSTALL_S)
        shutil.copy(wanted, stamp)
    return venv / "bin"


def _build_hermes(programs: Path, home: Path, url: str, task: str) -> Launch:
    settings = home / ".hermes" / "config.yaml"
    settings.parent.mkdir()
    model = f"model:\n  provider: custom\n  default: fast\n  base_url: {url}\n  api_key: {KEY}\n"
    settings.write_text(model, encoding="utf-8")
    command = [str(programs / "hermes"), "chat", "--quiet", "--yolo", "--query", task]
    return Launch(command, {"HERMES_HOME": str(settings.parent)})


def _build_smolagents(kind: str) -> Callable[[Path, Path, str, str], Launch]:
    def build(programs: Path, home: Path, url: str, task: str) -> Launch:
        command = [str(programs / "python"), str(HERE / "drivers" / "smolagents_run.py"), kind, task]
        return Launch(command, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY})

    return build


def _build_openhands(programs: Path, home: Path, url: str, task: str) -> Launch:
    command = [str(programs / "python"), str(HERE / "drivers" / "openhands_run.py"), task]
    return Launch(command, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY, "OPENHANDS_SUPPRESS_BANNER": "1"})


def _build_aider(programs: Path, home: Path, url: str, task: str) -> Launch:
    options = ["--edit-format", "diff", "--no-git", "--yes-always", "--no-pretty", "--no-fancy-input"]
    options += ["--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes"]
    options += ["--test-cmd", "./check.sh", "--auto-test"]
    where = ["--model", "openai/fast", "--openai-api-base", url, "--openai-api-key", KEY]
    return Launch([str(programs / "aider"), *where, *options, "notes.txt"], {}, f"{task}\n" * AIDER_SAYS)


AGENTS = {
    "hermes": Agent("hermes", ("3.11", "3.12", "3.13"), _build_hermes),
    "smolagents": Agent("smolagents", ("3.11", "3.12", "3.13"), _build_smolagents("tools")),
    "smolagents-code": Agent("smolagents", ("3.11", "3.12", "3.13"), _build_smolagents("code")),
    "openhands": Agent("openhands", ("3.12", "3.13"), _build_openhands),
    "aider": Agent("aider", ("3.11", "3.12"), _build_aider),
}
