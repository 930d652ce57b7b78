"""`mlx-stack-serve service install|uninstall|status|restart`: the server as a user service that starts at login.

Invariants: a foreign file is neither changed nor removed; nothing is written that wasn't shown before; `restart` and
`uninstall` drain the server.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.cli.preflight import check
from deployments.cli.service.init_system import ForeignFile, ServiceFault, read_config_of, read_own, sign
from deployments.cli.service.launchd import Launchd
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
from deployments.config.whole_file import write_whole
from deployments.graph.serve_file import ConfigFile, read_file
from deployments.running.supervisor import is_open

_INSTALL = "`mlx-stack-serve service install` does it"


def _find_init_system(home: Path, environ: Mapping[str, str]) -> Launchd | Systemd:
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
    try:
        text = read_own(init.path)
        if text is None:
            return "ok", f"not installed ({_INSTALL})"
        found = init.state()
    except ForeignFile as error:
        return "warn", str(error)
    except ServiceFault as error:
        return "warn", f"installed, {error}"
    words = f"installed, {found.words}" + (f", process {found.pid}" if found.pid else "")
    if (served := read_config_of(text)) != os.path.abspath(config):
        return "warn", f"{words}; it serves another configuration: {served}"
    return ("ok" if found.running else "warn"), words


@dataclass(frozen=True, slots=True)
class _ServiceDesk:
    init: Launchd | Systemd
    home: Path
    environ: Mapping[str, str]
    ask: Callable[[str], str] = input
    say: Callable[[str], None] = print

    def install(self, config: Path, *, yes: bool) -> int:
        file = self._read_servable(config)
        old = read_own(self.init.path)
        self.init.check()
        runs = old is not None and self.init.state().running
        if not runs and is_open(file.url):
            raise ServiceFault(f"a server answers at {file.url} already: stop it first, or take another port")
        plan = make_plan(config, file, self.environ, home=self.home, folder=Path.cwd())
        new: list[_NewFile] = []
        if (text := self.init.write(plan)) != old:
            new.append((self.init.path, text, 0o644))
        if not os.path.lexists(plan.environment_file):  # it is the user's from then on
            new.append((plan.environment_file, sign(TEMPLATE, plan.config), 0o600))
        folders = [path for path in plan.writable if not path.exists()]
        self.say("\n".join(_show(new, folders)))
        if not yes and not self._is_agreed("Write this, and start the service?"):
            return 1
        for path in folders:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path, text, mode in new:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, text, mode)
        self.init.start()
        self.say(f"started; `mlx-stack-serve service status` tells when {file.url} answers")
        self._remark(file, plan)
        return 0

    def uninstall(self) -> int:
        if read_own(self.init.path) is None:
            self.say("not installed")
            return 0
        self.init.check()
        self.init.stop()
        self.init.path.unlink(missing_ok=True)
        self.init.forget()
        self.say(f"stopped; removed {self.init.path}")
        keys = find_environment_file(self.home, self.environ)
        try:
            if read_own(keys) is not None:
                keys.unlink(missing_ok=True)
                self.say(f"removed {keys}")
        except ForeignFile:
            self.say(f"kept {keys}: what stands there is yours")
        return 0

    def status(self) -> int:
        config, state = self._find_config(), self.init.state()
        self.say(f"service: {state.words}")
        self.say(f"file: {self.init.path}")
        self.say(f"configuration: {config}")
        self.say(f"starts at login: {'yes' if state.at_login else 'no'}")
        if state.pid:
            self.say(f"process: {state.pid}")
        if state.restarts:
            self.say(f"started again after a failure: {state.restarts} times")
        try:
            url = read_file(config).url
        except ConfigError as error:
            self.say(f"the configuration can't be read any more: {error}")
            return 1
        self.say(f"{url}: {'answers' if is_open(url) else 'does not answer'}")
        return 0 if state.running else 1

    def restart(self) -> int:
        """Stop the service, which drains it, and start it; not with a configuration that can't be served."""
        self._read_servable(self._find_config())
        self.init.check()
        self.init.restart()
        self.say("drained, and started again; `mlx-stack-serve service status` tells when it answers")
        return 0

    def _find_config(self) -> Path:
        text = read_own(self.init.path)
        if text is None:
            raise ServiceFault(f"not installed: {_INSTALL}")
        return Path(read_config_of(text) or "")

    def _read_servable(self, config: Path) -> ConfigFile:
        """Read a configuration, and hold it against the keys that the service will have: not this shell's."""
        keys = find_environment_file(self.home, self.environ)
        environ: dict[str, str] = {}
        read_environment_file(keys, environ)
        try:
            file = read_file(config)
            check(file, environ)
        except ConfigError as error:
            raise ConfigError(f"{config}: {error} (the service's variables stand in {keys})") from None
        return file

    def _is_agreed(self, question: str) -> bool:
        try:
            return self.ask(f"{question} [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            raise ServiceFault("nobody answers here: --yes writes it without a question") from None

    def _remark(self, file: ConfigFile, plan: ServicePlan) -> None:
        for words in self.init.list_remarks():
            self.say(words)
        names = list_uncarried(file, self.environ, plan.environment_file)
        if names:
            words = f"set here, but not for the service: {', '.join(names)}; what belongs to it goes into"
            self.say(f"{words} {plan.environment_file}, then `mlx-stack-serve service restart`")


_NewFile = tuple[Path, str, int]  # its text and its mode


def _show(files: list[_NewFile], folders: list[Path]) -> Iterator[str]:
    for path in folders:
        yield f"will make {path} (mode 0700)"
    for path, text, mode in files:
        yield f"will write {path} (mode {mode:04o}):"
        yield from (f"    {line}" for line in text.splitlines())
    if not files:
        yield "all files are as they should be"
