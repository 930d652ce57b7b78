"""`mlx-stack-serve service install|uninstall|status|restart`: the server as a user service that starts at login.

Invariants: a foreign file is neither changed nor removed; nothing is written that wasn't shown before; `restart` and
`uninstall` drain the server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from deployments.cli.preflight import check
from deployments.cli.service.init_system import ServiceFault
from deployments.cli.service.launchd import Launchd
from deployments.cli.service.owned_files import FileState, OwnedFile, look_at, read_mark, remove_file, sign, write_file
from deployments.cli.service.service_plan import (
    TEMPLATE,
    ServicePlan,
    find_environment_file,
    list_uncarried,
    make_plan,
    read_environment_file,
)
from deployments.cli.service.systemd import Systemd
from deployments.config.config_errors import ConfigError
from deployments.config.config_paths import announce_config
from deployments.graph.serve_file import ConfigFile, read_file
from deployments.running.supervisor import is_open

INSTALL = "`mlx-stack-serve service install` does it"
FOREIGN = "{} is not as this command has written it: move it away, then try again"


def _find_init_system(home: Path, environ: Mapping[str, str]) -> Launchd | Systemd:
    """Find what starts services on this platform."""
    return Launchd(home) if sys.platform == "darwin" else Systemd(home, environ)


def service_command(order: str, config: Path | None, *, yes: bool) -> int:
    """Carry one order out; return the exit code. Raises ConfigError: one line: a configuration that can't be served."""
    desk = _ServiceDesk(_find_init_system(Path.home(), os.environ), Path.home(), os.environ)
    try:
        if order == "install":
            return desk.install(announce_config(config), yes=yes)
        return {"uninstall": desk.uninstall, "status": desk.status, "restart": desk.restart}[order]()
    except OSError as error:
        raise ServiceFault(f"{error.filename}: {error.strerror}") from None


def describe_service(config: Path) -> tuple[str, str]:
    """Describe the service beside this configuration, for the doctor: a level, and words."""
    init = _find_init_system(Path.home(), os.environ)
    state, text = look_at(init.path)
    if state is FileState.ABSENT:
        return "ok", f"not installed ({INSTALL})"
    mark = read_mark(text)
    if mark is None:
        return "warn", FOREIGN.format(init.path)
    try:
        found = init.state()
    except ServiceFault as error:
        return "warn", f"installed, {error}"
    words = f"installed, {found.words}" + (f", process {found.pid}" if found.pid else "")
    if mark["config"] != os.path.abspath(config):
        return "warn", f"{words}; it serves another configuration: {mark['config']}"
    return ("ok" if found.running else "warn"), words


class _ServiceDesk:
    """Takes the orders."""

    def __init__(
        self,
        init: Launchd | Systemd,
        home: Path,
        environ: Mapping[str, str],
        ask: Callable[[str], str] = input,
        say: Callable[[str], None] = print,
    ) -> None:
        self._init = init
        self._home = home
        self._environ = environ
        self._ask = ask
        self._say = say

    def install(self, config: Path, *, yes: bool) -> int:
        file = self._read_servable(config)
        self._init.check()
        runs = look_at(self._init.path)[0] is not FileState.ABSENT and self._init.state().running
        if not runs and is_open(file.url):
            raise ServiceFault(f"a server answers at {file.url} already: stop it first, or take another port")
        plan = make_plan(config, file, self._environ, home=self._home, folder=Path.cwd())
        keys = OwnedFile(path=plan.environment_file, text=sign(TEMPLATE, plan.config), mode=0o600, kept=True)
        new = [owned for owned in (self._init.write(plan), keys) if self._is_to_write(owned)]
        folders = [path for path in plan.writable if not path.exists()]
        self._say("\n".join(_show(new, folders)))
        if not yes and not self._is_agreed("Write this, and start the service?"):
            return 1
        for path in folders:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for owned in new:
            write_file(owned)
        self._init.start()
        self._say(f"started; `mlx-stack-serve service status` tells when {file.url} answers")
        self._remark(file, plan)
        return 0

    def uninstall(self) -> int:
        state, _ = look_at(self._init.path)
        if state is FileState.ABSENT:
            self._say("not installed")
            return 0
        if state is FileState.FOREIGN:
            raise ServiceFault(FOREIGN.format(self._init.path))
        self._init.check()
        self._init.stop()
        remove_file(self._init.path)
        self._init.forget()
        self._say(f"stopped; removed {self._init.path}")
        keys = find_environment_file(self._home, self._environ)
        if look_at(keys)[0] is not FileState.ABSENT:
            gone = remove_file(keys)
            self._say(f"removed {keys}" if gone else f"kept {keys}: what stands there is yours")
        return 0

    def status(self) -> int:
        mark = self._read_mark()
        state = self._init.state()
        self._say(f"service: {state.words}")
        self._say(f"file: {self._init.path}")
        self._say(f"configuration: {mark['config']}")
        self._say(f"starts at login: {'yes' if state.at_login else 'no'}")
        if state.pid:
            self._say(f"process: {state.pid}")
        if state.restarts:
            self._say(f"started again after a failure: {state.restarts} times")
        try:
            url = read_file(Path(mark["config"])).url
        except ConfigError as error:
            self._say(f"the configuration can't be read any more: {error}")
            return 1
        self._say(f"{url}: {'answers' if is_open(url) else 'does not answer'}")
        return 0 if state.running else 1

    def restart(self) -> int:
        """Stop the service, which drains it, and start it; not with a configuration that can't be served."""
        mark = self._read_mark()
        self._read_servable(Path(mark["config"]))
        self._init.check()
        self._init.restart()
        self._say("drained, and started again; `mlx-stack-serve service status` tells when it answers")
        return 0

    def _read_servable(self, config: Path) -> ConfigFile:
        """Read a configuration, and hold it against the keys that the service will have: not this shell's."""
        keys = find_environment_file(self._home, self._environ)
        environ: dict[str, str] = {}
        read_environment_file(keys, environ)
        try:
            file = read_file(config)
            check(file, environ)
        except ConfigError as error:
            raise ConfigError(f"{config}: {error} (the service's variables stand in {keys})") from None
        return file

    def _is_to_write(self, owned: OwnedFile) -> bool:
        state, text = look_at(owned.path)
        if owned.kept:
            return state is FileState.ABSENT
        if state is FileState.FOREIGN:
            raise ServiceFault(FOREIGN.format(owned.path))
        return text != owned.text

    def _read_mark(self) -> Mapping[str, str]:
        state, text = look_at(self._init.path)
        if state is FileState.ABSENT:
            raise ServiceFault(f"not installed: {INSTALL}")
        mark = read_mark(text)
        if mark is None:
            raise ServiceFault(FOREIGN.format(self._init.path))
        return mark

    def _is_agreed(self, question: str) -> bool:
        try:
            return self._ask(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            raise ServiceFault("nobody answers here: --yes writes it without a question") from None

    def _remark(self, file: ConfigFile, plan: ServicePlan) -> None:
        for words in self._init.list_remarks():
            self._say(words)
        names = list_uncarried(file, self._environ, plan.environment_file)
        if names:
            words = f"set here, but not for the service: {', '.join(names)}; what belongs to it goes into"
            self._say(f"{words} {plan.environment_file}, then `mlx-stack-serve service restart`")


def _show(files: list[OwnedFile], folders: list[Path]) -> Iterator[str]:
    for path in folders:
        yield f"will make {path} (mode 0700)"
    for file in files:
        yield f"will write {file.path} (mode {file.mode:04o}):"
        yield from (f"    {line}" for line in file.text.splitlines())
    if not files:
        yield "all files are as they should be"
