"""The service on Linux: a unit of systemd's user manager, written from `service.unit.jinja`.

It starts at login or, with lingering, with the machine; stops by SIGTERM, which drains, then SIGKILL; restarts after
failures with a growing delay (since systemd 254), but not after exit code 2. The sandbox lets the server write to its
own folders only, and needs a user namespace. /tmp stays shared: other commands find the log and sockets there.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from pathlib import Path

import jinja2

from deployments.cli.service.init_system import (
    STOP_WITHIN_S,
    Run,
    ServiceFault,
    ServiceState,
    give_order,
    run_program,
    sign,
)
from deployments.cli.service.service_plan import ServicePlan, find_config_folder

UNIT = "mlx-stack-serve.service"
_BACKOFF_SINCE = 254
_NO_MANAGER = (
    "there is no systemd user manager here ({}): log in as this user with a session of its own (not by su or sudo), "
    "or, as root, `loginctl enable-linger USER`; without systemd start `mlx-stack-serve serve` from whatever starts "
    "programs here"
)
LINGER = "it stops when you log out, and starts when you log in: `loginctl enable-linger` keeps it without a login"
NO_SANDBOX = "this system allows no user namespaces, so the unit has no sandbox (ProtectSystem)"
_SANDBOX = ("PrivateUsers=yes", "ProtectSystem=strict")


class Systemd:
    """systemd's manager of one user."""

    def __init__(self, home: Path, environ: Mapping[str, str], run: Run = run_program) -> None:
        self.path = find_config_folder(home, environ) / "systemd" / "user" / UNIT
        self._run = run

    def check(self) -> None:
        found = self._run(["systemctl", "--user", "show", "--property=Version"])
        if found.code:
            raise ServiceFault(_NO_MANAGER.format(found.words))

    def write(self, plan: ServicePlan) -> str:
        found = re.match(r"systemd (\d+)", self._run(["systemctl", "--version"]).out)
        backoff = found is not None and int(found[1]) >= _BACKOFF_SINCE
        return sign(_write_unit(plan, backoff=backoff, sandbox=self._can_sandbox()), plan.config)

    def list_remarks(self) -> list[str]:
        remarks = [f"its output: journalctl --user -u {UNIT} -f"]
        if not self._can_sandbox():
            remarks.append(NO_SANDBOX)
        if self._run(["loginctl", "show-user", "--property=Linger", "--value"]).out.strip() != "yes":
            remarks.append(LINGER)
        return remarks

    def start(self) -> None:
        self._order("daemon-reload")
        self._order("enable", UNIT)
        self._order("restart", UNIT)

    def stop(self) -> None:
        self._order("disable", "--now", UNIT)

    def forget(self) -> None:
        """Have the manager see that the unit is gone. One that never failed has nothing to be reset."""
        self._order("daemon-reload")
        self._run(["systemctl", "--user", "reset-failed", UNIT])

    def restart(self) -> None:
        self._order("restart", UNIT)

    def state(self) -> ServiceState:
        names = ("ActiveState", "SubState", "UnitFileState", "MainPID", "NRestarts", "Result")
        found = self._run(["systemctl", "--user", "show", UNIT, f"--property={','.join(names)}"])
        if found.code:
            raise ServiceFault(_NO_MANAGER.format(found.words))
        known = dict(line.split("=", 1) for line in found.out.splitlines() if "=" in line)
        result = known.get("Result", "success")
        words = f"{known.get('ActiveState', 'unknown')} ({known.get('SubState', 'unknown')})"
        return ServiceState(
            running=known.get("ActiveState") in ("active", "reloading", "deactivating"),
            words=words if result == "success" else f"{words}, {result}",
            pid=int(known.get("MainPID") or 0) or None,
            restarts=int(known.get("NRestarts") or 0),
            at_login=known.get("UnitFileState") == "enabled",
        )

    def _order(self, *words: str) -> None:
        give_order(self._run, "systemctl", "--user", *words)

    def _can_sandbox(self) -> bool:
        """Try what the sandbox needs, on a program that does nothing."""
        asked = ["systemd-run", "--user", "--wait", "--collect", "--quiet"]
        properties = [f"--property={line}" for line in _SANDBOX]
        return self._run([*asked, *properties, "true"]).code == 0


def _write_unit(plan: ServicePlan, *, backoff: bool, sandbox: bool) -> str:
    templates = jinja2.Environment(keep_trailing_newline=True)
    templates.filters |= {"word": _quote, "percent": _escape, "literal": glob.escape}
    text = Path(__file__).with_name("service.unit.jinja").read_text(encoding="utf-8")
    values = {"sandbox_lines": _SANDBOX if sandbox else (), "stop_within_s": STOP_WITHIN_S}
    return templates.from_string(text).render(plan=plan, backoff=backoff, **values)


def _quote(words: str) -> str:
    """Quote one word of several; a space, a quote, a backslash and a per cent sign stand for themselves."""
    escaped = _escape(words.replace("\\", "\\\\").replace('"', '\\"'))
    return escaped if re.fullmatch(r"[\w./:=@+,~-]+", escaped) else f'"{escaped}"'


def _escape(words: str) -> str:
    return words.replace("%", "%%")
