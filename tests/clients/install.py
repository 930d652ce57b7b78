"""Installs clients as they are published: a venv or an npm prefix for each, outside of the repository, pinned."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from loadtests.real_agents import agents

HERE = Path(__file__).parent
INSTALL_S = 1200.0
PYTHONS = ("3.11", "3.12", "3.13")


def install(packages: str, cache: Path, pythons: tuple[str, ...] = PYTHONS) -> Path:
    """Install what `packages` names, unless it is there with the same pins; return the folder of its programs.

    Raises:
        FileNotFoundError: no Python that it runs on, or no npm.
        subprocess.CalledProcessError, subprocess.TimeoutExpired: it can't be installed.
    """
    wanted = find_pins(packages)
    if wanted.suffix == ".txt":
        return agents.install_packages(wanted, cache / packages, pythons)
    folder = cache / f"npm-{packages}"
    stamp = folder / "installed.json"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted.read_text(encoding="utf-8"):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, folder / "package.json")
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(["npm", "install", *quiet], cwd=folder, check=True, timeout=INSTALL_S)
        shutil.copy(wanted, stamp)
    return folder / "node_modules" / ".bin"


def read_version(packages: str) -> str:
    """Read the pinned version of the first package."""
    wanted = find_pins(packages)
    text = wanted.read_text(encoding="utf-8")
    if wanted.suffix == ".json":
        return str(next(iter(json.loads(text)["dependencies"].values())))
    return re.split("==", text.splitlines()[0])[1]


def find_pins(packages: str) -> Path:
    folders = HERE / "requirements", agents.HERE / "requirements"
    pins = [folder / f"{packages}.txt" for folder in folders] + [HERE / "packages" / packages / "package.json"]
    return next(path for path in pins if path.exists())
