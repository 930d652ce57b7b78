"""What `mlx-stack-serve service` knows of systemd and launchd, and of the files that it writes for them.

`Systemd` and `Launchd` have the same methods. Each asks by the system's own command line, through one function (`Run`),
which tests replace. A comment in each file names its writer, the configuration and the SHA-256 of all other lines: a
file that carries its own sum is ours, any other text is foreign.
Invariants: no wait for either is without end; a foreign file is neither overwritten nor removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from deployments.config.config_errors import CommandFailed

# The supervisor's own promise is 10 s, and 3 more until it kills by itself (`deployments/running`).
STOP_WITHIN_S = 20
ASK_S = 60.0
WORDS_MAX = 300
_NOT_RUN = 127


class ServiceFault(CommandFailed):
    """The service can't be installed, asked or stopped. The message is one line that says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program has ended, and what it printed."""

    code: int
    out: str

    @property
    def words(self) -> str:
        return " ".join(self.out.split())[:WORDS_MAX] or f"exit code {self.code}"


Run = Callable[[Sequence[str]], Finished]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceState:
    """What the init system knows of the service; `words` are its own for the state."""

    running: bool
    words: str
    pid: int | None = None
    restarts: int | None = None
    at_login: bool = False


def run_program(command: Sequence[str]) -> Finished:
    """Run a program to its end. A program that isn't there, or doesn't end, has failed like any other: `_NOT_RUN`."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ASK_S,
            check=False,
        )
    except OSError as error:
        return Finished(_NOT_RUN, f"{command[0]} can't be run: {error.strerror}")
    except subprocess.TimeoutExpired:
        return Finished(_NOT_RUN, f"`{' '.join(command)}` has not ended within {ASK_S:g} s")
    return Finished(done.returncode, done.stdout.decode("utf-8", "replace"))


def give_order(run: Run, *command: str) -> None:
    """Run a program that must succeed. Raises ServiceFault: it failed."""
    done = run(command)
    if done.code:
        raise ServiceFault(f"`{' '.join(command)}` failed: {done.words}")


WORDS = "Written by `mlx-stack-serve service install`:"
MARK = re.compile(rf"^(?:# |<!-- ){re.escape(WORDS)} (\{{.*\}})(?: -->)?\n", re.MULTILINE)
BYTES_MAX = 1 << 20


class ForeignFile(ServiceFault):
    """A file of another writer stands where one of ours belongs."""


def sign(text: str, config: Path, *, xml: bool = False) -> str:
    """Add the line that says whose the text is: as the first, or after the head of an XML file."""
    # Two dashes would end an XML comment.
    mark = json.dumps({"config": str(config), "sha256": _digest(text)}).replace("-", "\\u002d")
    if not xml:
        return f"# {WORDS} {mark}\n{text}"
    head, _, rest = text.partition("\n")
    return f"{head}\n<!-- {WORDS} {mark} -->\n{rest}"


def read_config_of(text: str) -> str | None:
    """Read for which configuration the text was signed; None where it isn't as it was signed."""
    found = MARK.search(text)
    try:
        mark = json.loads(found[1]) if found else {}
    except ValueError:
        return None
    rest = found and text[: found.start()] + text[found.end() :]
    return str(mark.get("config")) if rest is not None and mark.get("sha256") == _digest(rest) else None


def read_own(path: Path) -> str | None:
    """Read a file of ours; None where there is none. Raises ForeignFile: a link, unreadable, or of another writer."""
    if not os.path.lexists(path):
        return None
    text = ""
    if not path.is_symlink():
        with contextlib.suppress(OSError, UnicodeDecodeError), path.open(encoding="utf-8") as file:
            text = file.read(BYTES_MAX)
    if read_config_of(text) is None:
        raise ForeignFile(f"{path} is not as this command has written it: move it away, then try again")
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
