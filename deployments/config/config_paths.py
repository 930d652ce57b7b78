"""Which files a command reads: the one that is given, else this folder's `serve_config.yaml` (`serve.env`), else the
built-in one; and where the server keeps its own.

Invariants: a user's own file is never passed over; one that was not named is announced, as the folder may be anybody's.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from deployments.config.config_errors import ConfigError
from deployments.config.whole_file import read_bounded

BUILT_IN = Path(__file__).parents[1] / "built_in"
_CONFIG = "serve_config.yaml"
_FLAGS = "serve.env"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def announce_config(given: Path | None) -> Path:
    """Name the configuration file, and say on standard error which one it is where none is given."""
    if given is not None:
        return given
    found = _own_or_built_in(_CONFIG)
    own = f"using {_CONFIG} of the working directory: {found.absolute()}"
    words = f"no {_CONFIG} in {Path.cwd()}: using the built-in {found}" if found.parent == BUILT_IN else own
    print(words, file=sys.stderr, flush=True)  # noqa: T201
    return found


def announce_flags() -> Path:
    """Name the file with the flags of Ray Serve's processes, and say on standard error where it is the working
    directory's: they set the environment of every process of the server."""
    found = _own_or_built_in(_FLAGS)
    if found.resolve() != (BUILT_IN / _FLAGS).resolve():
        print(f"using {_FLAGS} of the working directory: {found.absolute()}", file=sys.stderr, flush=True)  # noqa: T201
    return found


def _own_or_built_in(name: str) -> Path:
    path = Path(name)
    if path.exists() and not path.is_file():  # a pipe, or a terminal, which reading would wait for
        raise ConfigError(f"{path.absolute()}: is no file")
    # A link that leads nowhere counts: who reads it says so.
    return path if os.path.lexists(path) else BUILT_IN / name


def state_folder(app: str) -> Path:
    """Name the folder of an app's journal where the configuration names none: in the user's state directory."""
    if os.environ.get("XDG_STATE_HOME"):
        root = Path(os.environ["XDG_STATE_HOME"])
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Application Support"
    else:
        root = Path.home() / ".local" / "state"
    return root / "mlx-stack-serve" / (app or "default")


def read_variables(path: Path) -> dict[str, str]:
    """Read a file of NAME=VALUE lines; lines that begin with `#` are comments. Raises FileNotFoundError: there is none.
    ConfigError: one line that names the file and the line's number, but doesn't show it: it may be a key."""
    try:
        lines = read_bounded(path).decode("utf-8").splitlines()
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {getattr(error, 'strerror', 'it is not UTF-8')}") from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            name, sign, value = line.partition("=")
            if not sign or not NAME.fullmatch(name):
                raise ConfigError(f"{path}: line {number}: NAME=VALUE is needed")
            found[name] = value
    return found
