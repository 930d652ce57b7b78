"""The service on macOS: a LaunchAgent of the user's, and its plist. Not run on macOS here.

It stops by SIGTERM, which drains, then SIGKILL. launchd appends to the log without a bound, so `serve --output` turns
it at each start; it knows no environment file, so `serve --environment` reads the keys, and none is in the plist.
"""

from __future__ import annotations

import os
import plistlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from deployments.cli.service.init_system import (
    STOP_WITHIN_S,
    Run,
    ServiceFault,
    ServiceState,
    give_order,
    run_program,
    sign,
)
from deployments.cli.service.service_plan import ServicePlan
from deployments.config.config_errors import ConfigError

_LOG_BYTES_MAX = 4 * 1024 * 1024
LABEL = "io.github.mlx-stack-serve"
_THROTTLE_S = 30
POLL_S = 0.2
# `bootstrap` soon after `bootout` answers EIO while launchd still lets go of the old agent, 5 s on one measured machine
# (tests/mac/assumptions.py).
_BUSY_CODE = 5
_BUSY_S = 15.0
_BUSY_POLL_S = 0.5
_NO_DOMAIN = (
    "launchd has no domain {} ({}): a LaunchAgent belongs to a login at the Mac's own screen. Log in there once (over "
    "the network too, by screen sharing), then install again"
)


class Launchd:
    """launchd's domain of one user."""

    def __init__(self, home: Path, run: Run = run_program, sleep: Callable[[float], None] = time.sleep) -> None:
        self.path = home / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        self._log = home / "Library" / "Logs" / "mlx-stack-serve.log"
        self._run, self._sleep = run, sleep
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"
        self._waited_s = 0.0

    def check(self) -> None:
        found = self._run(["launchctl", "print", self._domain])
        if found.code:
            raise ServiceFault(_NO_DOMAIN.format(self._domain, found.words))

    def write(self, plan: ServicePlan) -> str:
        return sign(_write_plist(plan, self._log), plan.config, xml=True)

    def list_remarks(self) -> list[str]:
        waited = [f"launchd took the agent after {self._waited_s:g} s, at first with EIO"] if self._waited_s else []
        return [*waited, f"its output: tail -f {self._log}", "it stops when you log out, and starts when you log in"]

    def start(self) -> None:
        """Load the agent, anew where it is loaded already; it starts by itself."""
        self.stop()
        self._order("enable", self._target)
        self._bootstrap()

    def _bootstrap(self) -> None:
        """Load the agent; try again for `_BUSY_S` while launchd answers EIO."""
        order = ("bootstrap", self._domain, str(self.path))
        self._waited_s = 0.0
        while (done := self._run(["launchctl", *order])).code == _BUSY_CODE and self._waited_s < _BUSY_S:
            self._sleep(_BUSY_POLL_S)
            self._waited_s += _BUSY_POLL_S
        if done.code:
            tried = f" for {self._waited_s:g} s" if self._waited_s else ""
            raise ServiceFault(
                f"`launchctl {' '.join(order)}` failed{tried}: {done.words}. The agent is not loaded: try "
                "`mlx-stack-serve service install` again"
            )

    def stop(self) -> None:
        if self._ask() is None:
            return
        self._order("bootout", self._target)
        self._wait(lambda: self._ask() is None)

    def forget(self) -> None:
        """Forget nothing: an agent that is unloaded is unknown."""

    def restart(self) -> None:
        """End it by a SIGTERM, and start it once it is gone. `kickstart -k` would not let it drain."""
        if self.state().running:
            self._order("kill", "SIGTERM", self._target)
            self._wait(lambda: not self.state().running)
        self._order("kickstart", self._target)

    def state(self) -> ServiceState:
        printed = self._ask()
        if printed is None:
            return ServiceState(running=False, words="not loaded")
        # launchd promises nothing of this text; a field that isn't there is not known.
        known = dict(re.findall(r"^\t([a-z ]+) = (.+)$", printed, re.MULTILINE))
        pid, code = known.get("pid", ""), known.get("last exit code", "")
        words = known.get("state", "unknown")
        return ServiceState(
            running=pid.isdecimal(),
            words=f"{words}, last exit code {code}" if code not in ("", "0", "(never exited)") else words,
            pid=int(pid) if pid.isdecimal() else None,
            at_login=True,
        )

    def _ask(self) -> str | None:
        found = self._run(["launchctl", "print", self._target])
        return None if found.code else found.out

    def _order(self, *words: str) -> None:
        give_order(self._run, "launchctl", *words)

    def _wait(self, is_over: Callable[[], bool]) -> None:
        for _ in range(round((STOP_WITHIN_S + 5) / POLL_S)):
            if is_over():
                return
            self._sleep(POLL_S)
        raise ServiceFault(
            f"{LABEL} has not ended within {STOP_WITHIN_S + 5} s: `launchctl print {self._target}` says why"
        )


def _write_plist(plan: ServicePlan, log: Path) -> str:
    agent = {
        "Label": LABEL,
        "ProgramArguments": [*plan.command, "--environment", str(plan.environment_file), "--output", str(log)],
        "WorkingDirectory": str(plan.folder),
        "EnvironmentVariables": dict(plan.environment),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": _THROTTLE_S,
        "ExitTimeOut": STOP_WITHIN_S,
        "ProcessType": "Interactive",  # others are slowed down while somebody works at the screen
        "Umask": 0o077,
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }
    return plistlib.dumps(agent, sort_keys=False).decode()


def bound_output(path: Path, bytes_max: int = _LOG_BYTES_MAX, outputs: tuple[int, ...] = (1, 2)) -> None:
    """Rename a log that is too large to `.1`, and redirect the outputs to the new one. Raises ConfigError."""
    try:
        if path.exists() and path.stat().st_size > bytes_max:
            path.replace(path.with_name(f"{path.name}.1"))
        new = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}") from None
    for output in outputs:
        os.dup2(new, output)
    os.close(new)
