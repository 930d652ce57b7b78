"""What the service runs: `mlx-stack-serve serve CONFIG` as if typed in this folder, and the file with its keys.

Invariant: a secret is never in a file that others can read, nor on a command line.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from deployments.config.config_errors import ConfigError
from deployments.config.config_paths import read_variables
from deployments.config.tier_config import HostedTierConfig
from deployments.graph.serve_file import ConfigFile
from deployments.models.cache_folder import default_cache_dir
from deployments.state.client import folder_of

# Where things are, and nothing that is secret.
CARRIED = (
    "XDG_CACHE_HOME", "XDG_STATE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "RAY_TMPDIR", "PYTHONPATH",
)  # fmt: skip
SECRET = ("MLX_STACK_API_KEYS", "HF_TOKEN")
TEMPLATE = """\
# Keys of the server that runs as a service, a line each: NAME=VALUE. Only you may read this file; it is yours from
# now on. `mlx-stack-serve service restart` takes changes up.
#
# OPENROUTER_API_KEY=
# MLX_STACK_API_KEYS=
# HF_TOKEN=
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePlan:
    """One service. `writable` are the folders that the server writes to."""

    config: Path
    python: str
    folder: Path
    environment: Mapping[str, str]
    environment_file: Path
    writable: tuple[Path, ...]

    @property
    def command(self) -> tuple[str, ...]:
        return (self.python, "-P", "-m", "deployments", "serve", str(self.config))


def make_plan(config: Path, file: ConfigFile, environ: Mapping[str, str], *, home: Path, folder: Path) -> ServicePlan:
    """Plan a service that serves `config` from `folder`. Raises ConfigError: a name that its file can't hold."""
    carried = {name: environ[name] for name in CARRIED if environ.get(name)}
    written = [
        folder_of(file.app, file.args.state),
        default_cache_dir().parent,  # the hub's and pip's own caches are there too
        home / ".ray",
        Path("/tmp"),
        *(Path(carried[name]) for name in ("HF_HOME", "HF_HUB_CACHE", "RAY_TMPDIR") if name in carried),
    ]
    plan = ServicePlan(
        config=Path(os.path.abspath(config)),
        python=sys.executable,
        folder=folder,
        environment=carried,
        environment_file=find_environment_file(home, environ),
        writable=tuple(path.expanduser().absolute() for path in written),
    )
    paths = (plan.folder, plan.environment_file, *plan.writable)
    for words in (*plan.command, *carried.values(), *map(str, paths)):
        if not words.isprintable():
            raise ConfigError(f"{words!r} has a character that a service's file can't hold: take another path")
    if str(folder).endswith(("\\", " ")):
        raise ConfigError(f"{str(folder)!r} has an end that a service's file can't hold: take another folder")
    return plan


def find_environment_file(home: Path, environ: Mapping[str, str]) -> Path:
    """Name the file with the service's keys."""
    return find_config_folder(home, environ) / "mlx-stack-serve" / "service.env"


def find_config_folder(home: Path, environ: Mapping[str, str]) -> Path:
    """Name the folder of the user's configuration; a relative `XDG_CONFIG_HOME` is none, as its rule has it."""
    given = Path(environ.get("XDG_CONFIG_HOME", ""))
    return given if given.is_absolute() else home / ".config"


def read_environment_file(path: Path, environ: MutableMapping[str, str]) -> None:
    """Set the variables of the file, NAME=VALUE a line, unless the environment has them; no file, no variables. Raises
    ConfigError: others may read the file, or a line is no variable. The message doesn't show it: it may be a key."""
    try:
        state = path.stat()
        if stat.S_IMODE(state.st_mode) & 0o077 or state.st_uid != os.getuid():
            raise ConfigError(f"{path}: holds keys, and others may read it: chmod 600 {path}")
        known = read_variables(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from None
    for name, value in known.items():
        environ.setdefault(name, value.strip("\"'"))


def list_uncarried(file: ConfigFile, environ: Mapping[str, str], path: Path) -> list[str]:
    """List the variables with keys that are set here, and that the service's file doesn't name."""
    preset = file.args.reliability.escalation.cloud_fallback.api_key_env
    hosted = [tier for tier in file.args.tiers.values() if isinstance(tier, HostedTierConfig)]
    names = [tier.api_key_env or (preset if tier.preset else "") for tier in hosted]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        lines = []
    there = {line.partition("=")[0].strip() for line in lines}
    return [name for name in dict.fromkeys((*names, *SECRET)) if environ.get(name) and name not in there]
