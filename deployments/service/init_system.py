"""What stands between `mlx-stack-serve service` and the program that starts services: systemd or launchd.

Either is asked by its own command line, through one function (`Run`), which tests replace. What they answer is put
into `ServiceState`; the rest of the code knows no more of them than this protocol.

What must never happen: a wait without an end for either of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deployments.service.owned_files import OwnedFile
from deployments.service.service_plan import ServicePlan

__all__ = ["Finished", "InitSystem", "Run", "ServiceFault", "ServiceState", "run_program"]

# A stop has its own bound in the unit (`STOP_WITHIN_S`), and a start comes behind it.
ASK_S = 60.0
WORDS_MAX = 300


class ServiceFault(RuntimeError):
    """It can't be done. The message is one line that says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program has ended, and what it printed."""

    code: int
    out: str

    @property
    def words(self) -> str:
        """What it printed, as one line that isn't long."""
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


class InitSystem(Protocol):
    """systemd's user manager, or launchd."""

    @property
    def path(self) -> Path:
        """Where the service's own file belongs."""

    def check(self) -> None:
        """Check that services of the user's can be run here.

        Raises:
            ServiceFault: they can't.
        """

    def write(self, plan: ServicePlan) -> OwnedFile:
        """Write the service's file (only its text)."""

    def list_remarks(self) -> list[str]:
        """List what its user should know of it once it is installed."""

    def start(self) -> None:
        """Have the written service started now, and at each login.

        Raises:
            ServiceFault: it can't be started.
        """

    def stop(self) -> None:
        """Stop it, and don't start it at the login any more.

        Raises:
            ServiceFault: it can't be stopped.
        """

    def forget(self) -> None:
        """Forget the service once its file is gone."""

    def restart(self) -> None:
        """Stop it, which drains it, and start it.

        Raises:
            ServiceFault: it can't be stopped or started.
        """

    def state(self) -> ServiceState:
        """Tell how it is.

        Raises:
            ServiceFault: nobody knows.
        """


def run_program(command: Sequence[str]) -> Finished:
    """Run a program to its end.

    Raises:
        ServiceFault: it isn't there, or it doesn't end.
    """
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
        raise ServiceFault(f"{command[0]} can't be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ServiceFault(f"`{' '.join(command)}` has not ended within {ASK_S:g} s") from None
    return Finished(done.returncode, done.stdout.decode("utf-8", "replace"))
