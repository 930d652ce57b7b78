"""The client of the commands that ask a running server: over TLS, and of servers that mean no good."""

import contextlib
import gzip
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from deployments.cli import agents, server_client
from deployments.cli.commands import cli
from deployments.cli.server_client import DEFAULT_URL, NoAnswer, ServerClient, find_url
from deployments.config.config_errors import ConfigError
from deployments.config.free_port import find_owners, find_peer_owners, free_port
from deployments.evaluate.evaluation_target import NoServer, UrlTarget
from deployments.running.folder import RunFolder, base_folder
from tests.support.certificates import write_certificate
from tests.support.hostile_folder import fill_folder, find_run
from tests.support.loopback import JsonServer
from tests.support.reach import listening_as_nobody
from tests.unit.deployments.test_main import SCRIPTED


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    server = JsonServer(otherwise=(200, {"data": []}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*write_certificate(tmp_path))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with server:
        yield f"https://127.0.0.1:{server.server_port}"


def test_a_certificate_of_one_s_own_is_believed_where_the_environment_names_it(url, tmp_path, monkeypatch):
    """By `SSL_CERT_FILE`, on our own machine as elsewhere; a proxy of the environment is still not asked there. That
    certificates are not there is one line, and only where they are asked for."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(NoAnswer, match="CERTIFICATE_VERIFY_FAILED"):
        ServerClient(url.replace("https", "HTTPS"), {}).get("sessions")

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    assert ServerClient(url, {}).get("sessions") == {"data": []}
    monkeypatch.setenv("SSL_CERT_FILE", "/none.pem")
    with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
        ServerClient("https://127.0.0.1:1", {})
    for host in ("127.0.0.1", "192.0.2.1"):
        ServerClient(f"http://{host}:1", {})


def drip(peer: socket.socket, text: bytes, head: bytes = b"") -> None:
    """Send `text` a byte at a time, a little within each read's own time, for as long as the client stays."""
    peer.sendall(head)
    gone = threading.Event()
    for byte in text * 100:
        peer.sendall(bytes([byte]))
        gone.wait(0.05)


def flood(peer: socket.socket) -> None:
    """Send a body that has no end."""
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        peer.sendall(bytes(1 << 20))


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
HOSTILE: dict[str, Callable[[socket.socket], None]] = {
    "nothing within 0.5 s": lambda peer: drip(peer, HEAD),
    "nothing within 0.5 s (body)": lambda peer: drip(peer, b" ", head=HEAD + b"\r\n"),
    "its answer is over 32 MiB": flood,
    "it compresses its answer unasked": lambda peer: peer.sendall(
        HEAD + b"content-encoding: gzip\r\n\r\n" + gzip.compress(bytes(1 << 26))
    ),
    "Server disconnected": lambda peer: None,
    "Server disconnected (no HTTP)": lambda peer: peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 8),
}


@pytest.mark.parametrize("said", HOSTILE)
def test_an_answer_ends(said):
    """A server that drips its head or its body, sends without end, compresses, hangs up or speaks no HTTP costs one
    line, within `ask_s` and a bound of memory."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            with contextlib.suppress(OSError):
                HOSTILE[said](self.request)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        ask_s = 0.5 if "within" in said else 30.0
        client = ServerClient(f"http://127.0.0.1:{server.server_address[1]}", {}, ask_s=ask_s)
        with pytest.raises(NoAnswer, match=said.partition(" (")[0]) as caught:
            client.get("live")
        server.shutdown()

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("proxy", "said"), [("socks5://127.0.0.1:9", "SOCKS"), ("ftp://x", "Unknown scheme")])
def test_a_proxy_that_cant_be_used_is_one_line(monkeypatch, proxy, said):
    """Law: a proxy of the environment that httpx can't use, as many have one for SOCKS, is said as such: it ended in a
    traceback, or as another server's answer. Loopback is asked without it."""
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(NoAnswer, match=said):
        ServerClient("http://192.0.2.1:1", {}).get("live")
    with pytest.raises(NoServer, match=said), UrlTarget("http://192.0.2.1:1", "", (), cloud=False).open(""):
        pass
    with pytest.raises(NoAnswer, match="connection attempts failed"):
        ServerClient("http://127.0.0.1:1", {}).get("live")


PROGRAM = Path(sys.executable).with_name("mlx-stack-serve")
KEY = "msk-secret"
# What a command is given, so that it ends by itself and fetches nothing.
ARGUMENTS = {"serve": "none.yaml", "evaluate": "--cases 0", "prepare": "--behind", "pull": "none", "key": "agent"}
ARGUMENTS |= {"service": "status", "launch": "claude", "why": "r-1", "completion": "bash"}
TAB = {"_MLX_STACK_SERVE_COMPLETE": "bash_complete", "COMP_LINE": "mlx-stack-serve why ", "COMP_POINT": "20"}


# The commands that ask a server: they can be told where it is.
CLIENTS = {name for name, command in cli.commands.items() if "url" in [one.name for one in command.params]}
CLIENTS ^= {"evaluate", "completion"}


@pytest.fixture(scope="module")
def trap() -> Iterator[JsonServer]:
    """A server that the repository names, with what came to it."""
    with JsonServer(otherwise=(200, {"status": "ok", "data": [], "tiers": []})) as made:
        yield made


def hold_run(base: Path, url: str) -> int:
    """Note a server that runs at `url`, as the supervisor does; it runs until the file is closed."""
    folder = RunFolder.create(base_folder({"RAY_TMPDIR": str(base)}), int(url.rpartition(":")[2]))
    folder.note(supervisor=os.getpid(), url=url)
    return folder.hold()


# Of each kind one: starts a server, looks at this machine, asks a server, starts an agent, is asked at each Tab.
EACH_TIME = ("serve", "doctor", "incidents", "launch", "completion")
COMMANDS = [one if one in EACH_TIME else pytest.param(one, marks=pytest.mark.nightly) for one in cli.commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_repository_neither_runs_nor_leads_a_command(tmp_path, trap, command):
    """Whatever is typed inside: no module of the folder is imported, and the server that its configuration names is
    asked nothing by a command that asks a server."""
    marks = tmp_path / "marks"
    for name in ("repository", "bin", "base"):
        (tmp_path / name).mkdir(mode=0o700)
    fill_folder(tmp_path / "repository", marks, trap.server_port)
    (tmp_path / "bin" / "claude").write_text("#!/bin/sh\necho started $ANTHROPIC_BASE_URL\n")
    (tmp_path / "bin" / "claude").chmod(0o755)
    trap.asked.clear()
    own = f"http://127.0.0.1:{free_port()}"
    places = {name: str(tmp_path / "home") for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    environ = places | {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "RAY_TMPDIR": str(tmp_path / "base")}
    environ |= {"MLX_STACK_API_KEY": KEY, "HF_HUB_OFFLINE": "1"} | (TAB if command == "completion" else {})
    held = hold_run(tmp_path / "base", own)
    try:
        ended = subprocess.run(
            [str(PROGRAM), command, *ARGUMENTS.get(command, "").split()],
            cwd=tmp_path / "repository", env=environ, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        os.close(held)

    assert find_run(marks) == []
    assert "Traceback" not in ended.stderr
    if command in CLIENTS:
        assert trap.asked == []
        assert str(trap.server_port) not in ended.stdout + ended.stderr
        assert command == "completion" or own in ended.stdout + ended.stderr
    assert KEY not in str(trap.asked) + ended.stdout + ended.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with a configuration of port 1, and in it; no server runs."""
    (tmp_path / "serve_config.yaml").write_text(yaml.safe_dump(SCRIPTED | {"http_options": {"port": 1}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def find(folder: Path, url: str | None = None, config: str | None = None) -> str:
    return find_url(url, None if config is None else Path(config), {"RAY_TMPDIR": str(folder)})


def write(folder: Path, host: str) -> str:
    (folder / "named.yaml").write_text(yaml.safe_dump(SCRIPTED | {"http_options": {"host": host, "port": 1234}}))
    return "named.yaml"


NEEDS_TABLES = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux' tables")
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")


@NEEDS_TABLES
@NEEDS_ROOT
def test_another_users_server_gets_no_key(folder, monkeypatch):
    """Law: while no server of this user's runs, anybody may listen on its port: who does gets the key only where the
    command line names the address."""
    with listening_as_nobody() as (port, _):
        url = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(server_client, "DEFAULT_URL", url)
        with pytest.raises(ConfigError, match=f"belongs to another user of this machine.*--url {url}"):
            find(folder)
        (folder / "named.yaml").write_text(yaml.safe_dump(SCRIPTED | {"http_options": {"port": port}}))
        with pytest.raises(ConfigError, match="another user"):
            find(folder, config="named.yaml")
        assert find(folder, url) == url


@NEEDS_TABLES
@NEEDS_ROOT
@pytest.mark.parametrize("accepts", [False, True])
def test_a_port_that_changed_hands_gets_no_key(accepts):
    """Law: before anything is sent, the user who holds the other end of the connection is checked: accepted or not yet,
    and whether that user still listens or not."""
    with listening_as_nobody(accepts=accepts) as (port, read):
        client = ServerClient(f"http://127.0.0.1:{port}", {agents.KEY: KEY}, ask_s=5.0)
        with pytest.raises(NoAnswer, match="belongs to another user of this machine"):
            client.get("sessions")
        assert not accepts or os.read(read, 65_536) == b"nothing"


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux' tables")
@pytest.mark.parametrize("listens", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_who_holds_a_connection_is_found(listens):
    """Before it is accepted, after that, and once no socket listens any more, over either family; none at its end."""
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    host = "::1" if listens == "::1" else "127.0.0.1"
    with socket.create_server((listens, 0), family=family, dualstack_ipv6=listens == "::") as server:
        own = socket.create_connection((host, server.getsockname()[1]))
        ends = own.getsockname(), own.getpeername()
        assert find_peer_owners(*ends) == {os.geteuid()}
        peer, _ = server.accept()
        assert find_peer_owners(*ends) == {os.geteuid()}
    assert find_peer_owners(*ends) == {os.geteuid()}
    peer.close()
    own.close()
    assert not find_peer_owners(*ends)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux' tables")
@pytest.mark.parametrize(
    ("listens", "asked", "found"),
    [
        *(("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "localhost", True), ("127.0.0.2", "127.0.0.1", False)),
        *(("0.0.0.0", "127.0.0.1", True), ("::1", "localhost", True), ("::1", "127.0.0.1", False)),
        ("::1", "[::1]", True),
    ],
)
def test_the_owner_of_a_port_is_found(listens, asked, found):
    """Whose process a connection would reach, by address and family."""
    family = socket.AF_INET6 if ":" in listens else socket.AF_INET
    with socket.create_server((listens, 0), family=family) as own:
        assert find_owners(asked, own.getsockname()[1]) == ({os.geteuid()} if found else set())


def test_the_server_that_runs_is_found(folder, monkeypatch):
    """By the lock that its supervisor holds. Once it is gone, or the folder may be written to by others, who could have
    the key sent to a port of theirs, it is none, and the default port is asked, where this user listens; the file in
    the working directory counts for nothing."""
    with socket.create_server(("127.0.0.1", 0)) as own:
        default = f"http://127.0.0.1:{own.getsockname()[1]}"
        monkeypatch.setattr(server_client, "DEFAULT_URL", default)
        held = hold_run(folder, "http://127.0.0.1:4321")
        assert find(folder) == "http://127.0.0.1:4321"
        folder.chmod(0o777)
        assert find(folder) == default
        folder.chmod(0o700)
        os.close(held)
        assert find(folder) == default


def test_of_several_servers_one_must_be_named(folder):
    """Unless one of them is at the default address."""
    held = [hold_run(folder, f"http://127.0.0.1:{port}") for port in (4321, 4322)]
    with pytest.raises(ConfigError, match=r"You run 2 servers: http://127.0.0.1:4321, .*Name one with --url"):
        find(folder)

    held.append(hold_run(folder, DEFAULT_URL))
    assert find(folder) == DEFAULT_URL
    for one in held:
        os.close(one)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "::1", ""])
def test_a_configuration_that_is_named_is_read(folder, host):
    """`http_options` of the file, where this machine reaches it by loopback."""
    assert find(folder, config=write(folder, host)).endswith(":1234")


@pytest.mark.parametrize("host", ["10.1.2.3", "example.org", "127.0.0.1.example.org"])
def test_another_machine_is_asked_only_where_the_command_line_names_it(folder, host):
    """A configuration that names one, or a run that does, is one line with the option that is needed."""
    with pytest.raises(ConfigError, match=rf"add --url http://{host}:1234") as caught:
        find(folder, config=write(folder, host))
    assert "\n" not in str(caught.value)

    held = hold_run(folder, f"http://{host}:1234")
    with pytest.raises(ConfigError, match=rf"add --url http://{host}:1234"):
        find(folder)
    os.close(held)
    assert find(folder, url=f"http://{host}:1234/v1/", config="none.yaml") == f"http://{host}:1234"


@pytest.mark.parametrize(
    "url",
    [
        *("127.0.0.1:8000", "ftp://a", "http://", 'http://a/"', "http://a b", "http://[", ""),
        *("http://a:port", "http://a:70000", "http://a:0"),
    ],
)
def test_what_is_no_url_is_said(url):
    """One line; and nothing that a shell, TOML or JSON would read otherwise."""
    with pytest.raises(ConfigError, match="--url"):
        find_url(url, None, {})
