"""`mlx-stack-serve service`: nothing is written that wasn't shown, and nothing of anybody else's is touched."""

import os
import stat
from pathlib import Path

import pytest

from deployments import __main__
from deployments.cli import service_command as service
from deployments.cli.service.init_system import ServiceFault, ServiceState
from deployments.cli.service_command import _ServiceDesk, describe_service
from deployments.config.config_errors import ConfigError
from deployments.config.free_port import free_port
from tests.support import config_files
from tests.support.init_systems import RememberedInit
from tests.support.loopback import JsonServer

RUNNING = ServiceState(running=True, words="active (running)", pid=7, restarts=2, at_login=True)


def write_config(folder: Path, port: int, host: str = "127.0.0.1") -> Path:
    """A configuration that can be served."""
    state = {"path": str(folder / "state")}
    return config_files.write_config(folder / "serve_config.yaml", http={"host": host, "port": port}, state=state)


class Room:
    """A home, a configuration, and a desk with an init system that only remembers."""

    def __init__(self, folder: Path, environ: dict[str, str], state: ServiceState | None = None, answer: str = "y"):
        self.config = write_config(folder, free_port())
        self.init = RememberedInit(folder, state)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.keys = folder / ".config" / "mlx-stack-serve" / "service.env"
        self._answer = answer
        self.desk = _ServiceDesk(self.init, folder, environ, ask=self._ask, say=self.said.append)

    def _ask(self, question: str) -> str:
        self.asked.append("\n".join(self.said))
        if not self._answer:
            raise EOFError
        return self._answer

    @property
    def words(self) -> str:
        """All that was said."""
        return "\n".join(self.said)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_what_is_written_was_shown_before_the_question(tmp_path):
    """Each file with path, mode and every line; then it is written, and the service started."""
    room = Room(tmp_path, {})

    assert room.desk.install(room.config, yes=False) == 0
    for path, mode in ((room.init.path, 0o644), (room.keys, 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
        assert f"will write {path} (mode {mode:04o})" in room.asked[0]
        assert all(f"    {line}" in room.asked[0] for line in path.read_text().splitlines())
    assert f"will make {tmp_path / 'state'} (mode 0700)" in room.asked[0]
    assert room.init.orders == ["check", "start"]
    assert "a remark" in room.words


@pytest.mark.parametrize("answer", ["n", "", "  "])
def test_without_a_yes_nothing_is_written(tmp_path, answer):
    """A no, a bare Enter, or nobody there who could answer. `--yes`, for scripts, asks nothing and shows all the
    same."""
    room = Room(tmp_path, {}, answer=answer)
    if answer:
        assert room.desk.install(room.config, yes=False) == 1
    else:
        with pytest.raises(ServiceFault, match="--yes"):
            room.desk.install(room.config, yes=False)

    assert (room.init.path.exists(), room.keys.exists(), room.init.orders) == (False, False, ["check"])
    room.asked.clear()
    room.said.clear()
    assert room.desk.install(room.config, yes=True) == 0
    assert room.asked == []
    assert f"will write {room.init.path}" in room.words


def test_installed_twice_is_installed_once(tmp_path):
    """A file that is as it should be isn't written again, one of ours that differs is, and the user's keys stay."""
    room = Room(tmp_path, {})
    room.desk.install(room.config, yes=True)
    room.keys.write_text("OPENROUTER_API_KEY=x\n")
    written = room.init.path.stat().st_mtime_ns
    room.said.clear()
    room.desk.install(room.config, yes=True)
    again = room.init.path.stat().st_mtime_ns
    (tmp_path / "b").mkdir()
    other = write_config(tmp_path / "b", free_port())
    room.desk.install(other, yes=True)

    assert written == again
    assert "all files are as they should be" in room.words
    assert str(other) in room.init.path.read_text()
    assert room.keys.read_text() == "OPENROUTER_API_KEY=x\n"


@pytest.mark.parametrize("order", ["install", "uninstall", "status", "restart"])
def test_a_unit_that_somebody_else_has_written_stays(tmp_path, order):
    """Each order says so; none touches it, and none stops or starts it."""
    room = Room(tmp_path, {})
    room.init.path.parent.mkdir()
    room.init.path.write_text("[Service]\nExecStart=/mine\n")
    with pytest.raises(ServiceFault, match="is not as this command has written it: move it away"):
        room.desk.install(room.config, yes=True) if order == "install" else getattr(room.desk, order)()

    assert room.init.path.read_text() == "[Service]\nExecStart=/mine\n"
    assert not room.keys.exists()
    assert set(room.init.orders) <= {"check"}


@pytest.mark.parametrize("filled", [False, True])
def test_uninstalled_is_what_was_installed_and_no_more(tmp_path, filled):
    """It is stopped before its file goes; a file with the user's keys stays, and so do the folders with the state."""
    room = Room(tmp_path, {})
    room.desk.install(room.config, yes=True)
    if filled:
        room.keys.write_text("OPENROUTER_API_KEY=x\n")

    assert room.desk.uninstall() == 0
    assert room.init.orders[2:] == ["check", "stop", "forget"]
    assert not room.init.path.exists()
    assert room.keys.exists() is filled
    assert (f"kept {room.keys}" in room.words) is filled
    assert (tmp_path / "state").is_dir()
    assert room.desk.uninstall() == 0
    assert room.said[-1] == "not installed"


def test_a_server_that_runs_in_a_terminal_goes_first(tmp_path):
    """The service would wait for the port again and again."""
    room = Room(tmp_path, {})
    taken = pytest.raises(ServiceFault, match=r"answers at .* already: stop it first")
    with JsonServer(otherwise=(200, {})) as server, taken:
        room.desk.install(write_config(tmp_path, server.server_port), yes=True)

    assert not room.init.path.exists()


def test_the_service_is_checked_with_its_own_keys(tmp_path):
    """Those of the shell it will not have: they are named, and never shown nor written. Those of its file it will, and
    so it may listen for other machines; a file that others can read is refused before anything is written."""
    room = Room(tmp_path, {"MLX_STACK_API_KEYS": "boss:sk-secret-enough-for-a-key:admin"})
    config = write_config(tmp_path, free_port(), host="0.0.0.0")
    with pytest.raises(ConfigError, match=f"no API keys are configured.*variables stand in {room.keys}"):
        room.desk.install(config, yes=True)
    assert room.desk.install(write_config(tmp_path, free_port()), yes=True) == 0
    assert "set here, but not for the service: MLX_STACK_API_KEYS" in room.words
    assert "sk-secret" not in room.words + room.init.path.read_text() + room.keys.read_text()

    write_config(tmp_path, free_port(), host="0.0.0.0")
    room.init.path.unlink()
    room.keys.write_text("MLX_STACK_API_KEYS=boss:sk-secret-enough-for-a-key:admin\n")
    room.keys.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        room.desk.install(config, yes=True)
    assert not room.init.path.exists()
    room.keys.chmod(0o600)
    assert room.desk.install(config, yes=True) == 0


@pytest.mark.parametrize(("state", "code"), [(RUNNING, 0), (ServiceState(running=False, words="failed"), 1)])
def test_status_says_how_it_is(tmp_path, state, code):
    """And its exit code is for programs."""
    room = Room(tmp_path, {}, state=state)
    with pytest.raises(ServiceFault, match="not installed"):
        room.desk.status()
    room.desk.install(room.config, yes=True)
    room.said.clear()

    assert room.desk.status() == code
    assert f"service: {state.words}" in room.words
    assert f"configuration: {room.config}" in room.words
    assert ("started again after a failure: 2 times" in room.words) is (code == 0)
    assert room.said[-1].endswith("does not answer")


def test_a_configuration_that_cant_be_served_keeps_the_running_one(tmp_path):
    """`restart` reads it before it stops anything."""
    room = Room(tmp_path, {})
    room.desk.install(room.config, yes=True)
    good = room.config.read_text()
    room.config.write_text(good.replace("chain:", "chian:"))
    with pytest.raises(ConfigError, match="chian"):
        room.desk.restart()
    orders = list(room.init.orders)
    room.config.write_text(good)

    assert room.desk.restart() == 0
    assert orders == ["check", "start"]
    assert room.init.orders == ["check", "start", "check", "restart"]


def test_the_doctor_knows_of_it(tmp_path, monkeypatch):
    """One line: not installed, how it is, or that it serves another configuration than this."""
    room = Room(tmp_path, {}, state=RUNNING)
    monkeypatch.setattr(service, "_find_init_system", lambda *_: room.init)
    assert describe_service(room.config) == ("ok", "not installed (`mlx-stack-serve service install` does it)")
    room.desk.install(room.config, yes=True)
    installed = describe_service(Path(os.path.relpath(room.config)))
    assert installed == ("ok", "installed, active (running), process 7")
    level, words = describe_service(tmp_path / "other.yaml")
    assert (level, f"another configuration: {room.config}" in words) == ("warn", True)
    room.init.path.write_text("mine")
    assert describe_service(room.config)[0] == "warn"


def test_an_order_that_fails_is_one_line(tmp_path, monkeypatch, capsys):
    """And exit code 1, or 2 where the configuration is wrong."""
    room = Room(tmp_path, {})
    monkeypatch.setattr(service, "_find_init_system", lambda *_: room.init)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)

    assert __main__.main(["service", "restart"]) == 1
    assert __main__.main(["service", "install", str(tmp_path / "none.yaml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 2
