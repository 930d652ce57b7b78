"""Wrong starts: each ends at once, with one line that names what is wrong, before Ray or anything else is started."""

import json
import os
import resource
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments import __main__
from deployments.cli import serve_command
from deployments.cli.preflight import _is_too_old
from deployments.config.config_errors import CommandFailed
from deployments.config.free_port import free_port
from deployments.graph.serve_file import read_file
from deployments.running.folder import RunFolder
from tests.support.certificates import write_certificate
from tests.support.config_files import make_document
from tests.support.repository import ROOT

Document = dict[str, Any]


def good(port: int, folder: Path) -> Document:
    """A configuration that starts."""
    return make_document(http={"port": port}, state={"path": str(folder / "state")})


class Started(Exception):
    """In the place of the supervisor."""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[tuple[Path, int]]:
    """A folder of its own for files and for runs, and a free port; who gets as far as to start something is found."""

    def execve(_: str, __: list[str], flags: dict[str, str]) -> None:
        raise Started(flags)

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.delenv("MLX_STACK_API_KEYS", raising=False)
    monkeypatch.chdir(ROOT)
    return tmp_path, free_port()


def write(place: tuple[Path, int], *changes: tuple[str, Any]) -> Path:
    """Write a configuration that starts, but for the changes."""
    folder, port = place
    document = good(port, folder)
    for key, value in changes:
        put(document, key, value)
    (folder / "c.yaml").write_text(yaml.safe_dump(document))
    return folder / "c.yaml"


def put(document: Document, path: str, value: Any) -> None:
    """Set one key; `applications.0.` stands for itself, `args.` for the application's."""
    *way, last = path.replace("args.", "applications.0.args.").split(".")
    here: Any = document
    for name in way:
        here = here[int(name)] if name.isdigit() else here.setdefault(name, {})
    here[int(last) if isinstance(here, list) else last] = value


def tls(path: str) -> Document:
    return {"host": "127.0.0.1", "ssl_keyfile": path, "ssl_certfile": path}


WRONG: dict[str, tuple[str, Any, str]] = {
    "unknown key at the top": ("http_option", {}, "http_option: unknown key; allowed here: "),
    "unknown key of Serve": ("http_options.prot", 8000, "http_options.prot: unknown key"),
    "unknown key of an application": ("applications.0.nmae", "x", "applications.0.nmae: unknown key"),
    "unknown key of a deployment": (
        "applications.0.deployments",
        [{"name": "fast", "num_replica": 2}],
        "applications.0.deployments.0.num_replica: unknown key",
    ),
    "unknown key of a patch": (
        "applications.0.deployments",
        [{"name": "fast", "user_config": {"modle": "x"}}],
        "deployments.0.user_config: modle: unknown key",
    ),
    "a port in place of options": ("http_options", 8000, "http_options: a mapping is needed"),
    "nothing in place of options": ("http_options", None, "http_options: a mapping is needed"),
    "a list in place of options": ("http_options", [], "http_options: a mapping is needed"),
    "Serve's own default": ("http_options", {}, "http_options.host: 0.0.0.0 is not loopback"),
    "no application": ("applications", [], "exactly one with import_path deployments.app:build"),
    "unknown key in args": ("args.tears", {}, "tears: unknown key; allowed here: evaluate, reliability, "),
    "bad type": ("args.server.attempts_max", "many", "server.attempts_max: "),
    "a bad value of Serve": ("proxy_location", "Nowhere", "proxy_location: "),
    "a port that is none": ("http_options.port", 70000, "http_options.port: 70000 is no port"),
    "a port of letters": ("http_options.port", "http", "http_options.port: "),
    "a port below zero": ("http_options.port", -1, "http_options.port: -1 is no port"),
    "another machine's address": ("http_options.host", "192.0.2.1", "http_options.host: "),
    "no address at all": ("http_options.host", "no such host", "http_options.host: "),
    "open to everybody": ("http_options.host", "0.0.0.0", "is not loopback and no API keys are configured"),
    "a missing TLS key": ("http_options", tls("/none"), "http_options.ssl_keyfile: can't be read: No such file"),
    "half of TLS": ("http_options.ssl_certfile", "/none/cert.pem", "http_options.ssl_certfile: "),
    "TLS files that hold no key": ("http_options", tls("Makefile"), "ssl_certfile: certificate and key can't be used"),
    "a state that can't be written": ("args.state.path", "/proc/none", "state.path: can't write to /proc/none"),
    "a file for a state": ("args.state.path", str(ROOT / "Makefile"), "state.path: can't write to"),
    "a state that others can write into": ("args.state.path", "/tmp", "state.path: others can write into /tmp (mode "),
    "a wrong import path": ("applications.0.import_path", "deployments.app:biuld", "import_path deployments.app:build"),
    "a wrong deployment": (
        "applications.0.deployments",
        [{"name": "fats"}],
        "deployments.0.name: there is no deployment 'fats'; deployments: Router, fast",
    ),
    "a deployment that is none": ("applications.0.deployments", ["fast"], "deployments.0: a mapping is needed"),
    "deployments that are none": ("applications.0.deployments", 5, "deployments: a list is needed"),
    "a wrong patch": ("applications.0.deployments", [{"name": "fast", "user_config": "x"}], "user_config: a mapping"),
    "an application that is none": ("applications.0", "x", "applications.0: a mapping is needed"),
    "args that are none": ("applications.0.args", [1], "args: a mapping"),
    "a missing script": ("args.tiers.fast.script", "/none/script.yaml", "tiers.fast.script: script script.yaml can't"),
    "a wrong script": ("args.tiers.fast.script", [{"anser": "x"}], "tiers.fast.script: rule 1"),
    "a missing key file": ("args.server.api_keys_file", "/none/keys", "server.api_keys_file: can't be read: No such"),
    "a folder for a key file": ("args.server.api_keys_file", "/tmp", "server.api_keys_file: can't be read: Is a dir"),
    "a route without a slash": ("applications.0.route_prefix", "x", "route_prefix: "),
    "no route": ("applications.0.route_prefix", None, "route_prefix: "),
    "nobody who listens": ("proxy_location", "Disabled", "proxy_location: Disabled: nobody would listen"),
}


def refused(path: Path, capsys: pytest.CaptureFixture[str], code: int = 2, command: str = "serve") -> str:
    """Start with this file; the one line with which that ends."""
    try:
        got: Any = __main__.main([command, str(path)])
    except SystemExit as ended:
        print(ended.code, file=sys.stderr)
        got = 1
    out, err = capsys.readouterr()
    assert got == code, err
    assert out == ""
    assert err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_configuration_is_one_line(place, capsys, case):
    """Whatever is wrong in the file: one line that names the file and the key, exit code 2, and nothing is started."""
    key, value, said = WRONG[case]
    path = write(place, (key, value))
    line = refused(path, capsys)

    assert line.startswith(f"{path}: ")
    assert said in line


TEXTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "applications: a list is needed"), "no YAML": (b"a: [", "is not YAML"),
    "tabs": (b"a:\n\t- b", "is not YAML"), "no text": (b"\xff\xfe\x00", "is not UTF-8"),
    "no such date": (b"a: 2026-02-31", "is not YAML"),
    "another program's": (b"services: {web: {image: nginx}}", "applications: a list is needed"),
    "only a word": (b"hello", "applications: a list is needed"),
    "no end": (b"[" * 5000, "is not YAML"),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_a_file_that_is_no_configuration_is_one_line(place, capsys, case):
    """So is a file that holds something else or never ends; a missing file and a folder are said in the system's
    words."""
    data, said = TEXTS[case]
    path = place[0] / "c.yaml"
    path.write_bytes(data)

    assert said in refused(path, capsys)
    assert "can't be read: No such file" in refused(place[0] / "none.yaml", capsys)
    assert "can't be read: Is a directory" in refused(place[0], capsys)
    assert "can't be read: it is over 33,554,432 bytes" in refused(Path("/dev/zero"), capsys)


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ("deployments.app:build", "exactly one with import_path"),
        ("no_such_module:app", "import_path: there is no module 'no_such_module'"),
    ],
)
def test_an_application_beside_ours_is_another_and_is_there(place, capsys, beside, said):
    """With two of ours, which one's tiers and keys would it be? And without another one Serve would start."""
    ours = good(place[1], place[0])["applications"][0]
    path = write(place, ("applications", [ours, {"name": "b", "route_prefix": "/b", "import_path": beside}]))

    assert said in refused(path, capsys)


NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.mark.parametrize(("mode", "user"), [(0o666, -1), (0o602, -1), pytest.param(0o644, 65534, marks=NEEDS_ROOT)])
def test_a_key_file_that_others_may_write_is_refused(place, capsys, mode, user):
    """Whoever may write there may let himself in; so may its owner, where anybody may make a file, as in /tmp."""
    place[0].chmod(0o1777)
    keys = place[0] / "keys.yaml"
    keys.write_text(f"- {{name: a, sha256: '{'0' * 64}'}}")
    keys.chmod(mode)
    os.chown(keys, user, user)
    path = write(place, ("args.server.api_keys_file", str(keys)), ("args.state.path", str(place[0] / "own" / "state")))

    assert "server.api_keys_file: others may write" in refused(path, capsys)


@pytest.mark.parametrize("command", ["serve", "preflight"])
def test_a_token_of_rays_that_others_may_have_read_is_refused(place, monkeypatch, capsys, command):
    """Law: who has the token runs code in the server. Ray makes its file with the mode that the umask leaves: any
    `ray.init()` before the first start has left one that all users can read, where they can enter the home directory.
    A token of the environment's own is in no file."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", f"{name}/token")
        Path(name, "token").write_text("0" * 64)
        Path(name, "token").chmod(0o644)

        assert f"{name}/token: other users can reach it" in refused(write(place), capsys, command=command)
        monkeypatch.setenv("RAY_AUTH_TOKEN", "1" * 64)
        if command == "preflight":
            assert __main__.main([command, str(write(place))]) == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every port and read every file")
def test_what_only_root_may(place, capsys):
    """A privileged port is said as one, and a file that may not be read too."""
    folder, _ = place
    (folder / "c.yaml").write_text(yaml.safe_dump(good(80, folder)))
    assert "http_options.port: 80 may be used by root alone" in refused(folder / "c.yaml", capsys)
    (folder / "c.yaml").chmod(0)
    assert "Permission denied" in refused(folder / "c.yaml", capsys)


@pytest.mark.parametrize("command", ["serve", "preflight"])
def test_a_port_that_is_taken_names_its_owner(place, capsys, command):
    """Exit code 1: the configuration is good, and somebody else is there. Serve would share the port, without a word.
    Who only holds it, and doesn't listen, isn't known."""
    path, port = write(place), place[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        held = refused(path, capsys, code=1, command=command)
        taken.listen()
        line = refused(path, capsys, code=1, command=command)

    assert f"127.0.0.1:{port} is taken by another process" in held
    assert f"127.0.0.1:{port} is taken by process {os.getpid()} (" in line


def test_the_state_folder_of_a_server_that_runs_is_refused(place, monkeypatch, capsys):
    """Whoever begins in it takes the ledger from the server that has it, which then can call no cloud tier any more.
    However the path is written; the line names the folder, the server, and the way out. Also of two that start at once,
    and have both passed the checks, one starts."""
    path, folder = write(place), place[0]
    (folder / "link").symlink_to(folder)
    beside = folder / "beside.yaml"
    beside.write_text(yaml.safe_dump(good(free_port(), folder / "link")))
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, __: commands.append(command))
    __main__.main(["serve", str(path)])

    def supervise(_: Any, __: str, run: RunFolder, *___: Any, verbose: bool) -> int:
        capsys.readouterr()
        with pytest.raises(CommandFailed, match=f" is taken by another server of this kind, process {os.getpid()} "):
            serve_command.run_supervised(json.loads(checked), verbose=False)  # it has passed the checks before
        for command in ("serve", "preflight"):
            line = refused(beside, capsys, code=1, command=command)
            assert (
                f"{folder / 'state'} is the state folder of another server of this kind, process {os.getpid()} " in line
            )
            assert f"({path}): stop it, or set another state.path in the configuration" in line
        run.remove()
        assert __main__.main(["preflight", str(beside)]) == 0
        return 0

    monkeypatch.setattr(serve_command, "supervise", supervise)
    monkeypatch.setattr(serve_command, "refuse_unfit", lambda *_: None)
    monkeypatch.setattr(os, "umask", lambda _: 0)
    checked = commands[0][commands[0].index("--checked") + 1]

    assert serve_command.run_supervised(json.loads(checked), verbose=False) == 0


@pytest.mark.parametrize("command", ["serve", "preflight"])
@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        *(("MLX_STACK_HEADER_S", "abc", 2), ("MLX_STACK_UNREAD_S", "0", 2), ("RAY_AUTH_MODE", "disabled", 1)),
        *(("MLX_STACK_UNREAD_S", "soon", 2), ("MLX_STACK_CONNECTIONS_OF_ONE", "many", 2)),
    ],
)
def test_an_environment_that_stops_the_start_is_found_before(place, monkeypatch, capsys, command, name, value, code):
    """`preflight` refuses what `serve` would refuse, in the same line."""
    monkeypatch.setenv(name, value)

    assert name in refused(write(place), capsys, code=code, command=command)


def test_a_folder_without_flags_has_the_built_in_ones(place, monkeypatch):
    """A server that is started anywhere keeps Ray on loopback and behind its token, as `make serve` does; a file of the
    folder goes before, and the environment before both."""
    folder = write(place).parent
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    with pytest.raises(Started) as built_in:
        __main__.main(["serve", "c.yaml"])
    (folder / "serve.env").write_text("RAY_AUTH_MODE=token\nMALLOC_ARENA_MAX=3\n")
    with pytest.raises(Started) as own:
        __main__.main(["serve", "c.yaml"])

    flags = built_in.value.args[0]
    assert flags["RAY_AUTH_MODE"] == "token"
    assert flags["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
    assert flags["RAY_USAGE_STATS_ENABLED"] == "1"
    assert own.value.args[0]["MALLOC_ARENA_MAX"] == "3"
    assert "RAY_SERVE_THROUGHPUT_OPTIMIZED" not in own.value.args[0]


def test_tls_is_never_left_out(place):
    """HAProxy, as Ray starts it, knows nothing of `ssl_certfile`: keys would travel in clear. So it stays out, and the
    terminal tells the URL that is true."""
    folder, port = place
    certificate, key = map(str, write_certificate(folder))
    tls = {"ssl_certfile": certificate, "ssl_keyfile": key}
    path = write(place, ("http_options", {"host": "127.0.0.1", "port": port, **tls}))
    with pytest.raises(Started) as started:
        __main__.main(["serve", str(path)])

    assert started.value.args[0]["RAY_SERVE_ENABLE_HA_PROXY"] == "0"
    assert read_file(path).url == f"https://127.0.0.1:{port}"


def test_every_process_writes_utf_8(place, monkeypatch):
    """Law: no locale stops the server: Ray writes an arrow into HAProxy's configuration, in the locale's encoding."""
    monkeypatch.setenv("PYTHONUTF8", "0")
    with pytest.raises(Started) as started:
        __main__.main(["serve", str(write(place))])

    assert started.value.args[0]["PYTHONUTF8"] == "1"


def test_a_state_folder_without_room_is_refused(place, capsys):
    """Law: a disk that still makes files but holds no byte more is found before the start. The state actor would die
    again and again on it, and the server be ready after minutes, without budgets."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = write(place)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, before[1]))
    try:
        line = refused(path, capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert f"state.path: can't write to {place[0] / 'state'}: " in line


def test_traces_without_their_packages_start_nothing(place, monkeypatch, capsys):
    """The line says what to install; where traces are off, nobody looks for the packages."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    off = __main__.main(["check", str(write(place))])
    on = __main__.main(["check", str(write(place, ("args.telemetry", {"traces": True})))])

    assert (off, on) == (0, 2)
    assert "telemetry.traces: the packages for it are not installed: pip install 'mlx-stack-serve[otel]'" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("macos", "old"), [("13.7.8", True), ("14.0", False), ("26.1", False), ("10.16", True), ("", False), ("x", False)]
)
def test_a_macos_without_mlx_is_known(macos, old):
    """Law: only a macOS before 14 is too old for the local tiers, and no other system is."""
    assert _is_too_old(macos) is old
