"""What launchd leaves to the program that it starts: a log with a bound, and keys that are in no plist.

launchd opens the log before the program runs, and goes on appending whatever its size. So at each start a log that is
too large becomes the older part, `.1`, and output goes to a new one. What one run prints there is a few lines (what Ray
prints has a bounded file of its own), so the two parts together stay within about twice `LOG_BYTES_MAX`.

What must never happen: a key that others can read is taken without a word.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from deployments.config import ConfigError
from deployments.service.service_plan import check_environment_file

__all__ = ["bound_output", "read_environment_file"]

LOG_BYTES_MAX = 4 * 1024 * 1024


def bound_output(path: Path, bytes_max: int = LOG_BYTES_MAX, outputs: tuple[int, ...] = (1, 2)) -> None:
    """Put a log that is too large aside, and lead the outputs into the new one.

    Raises:
        ConfigError: it can't be written.
    """
    try:
        if path.exists() and path.stat().st_size > bytes_max:
            path.replace(path.with_name(f"{path.name}.1"))
        new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}") from None
    for output in outputs:
        os.dup2(new, output)
    os.close(new)


def read_environment_file(path: Path, environ: MutableMapping[str, str]) -> None:
    """Set what stands there, a NAME=VALUE a line, unless the environment holds it; no file, no variables.

    Raises:
        ConfigError: others may read it, or a line is none.
    """
    check_environment_file(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: can't be read: {getattr(error, 'strerror', 'it is not UTF-8')}") from None
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            name, sign, value = line.partition("=")
            if not sign or not name.isidentifier():
                # The line itself may be a key.
                raise ConfigError(f"{path}: line {number}: NAME=VALUE is needed")
            environ.setdefault(name, value.strip("\"'"))
