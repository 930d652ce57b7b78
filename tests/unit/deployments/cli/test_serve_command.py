"""How `make serve` starts: nothing is started that others could reach around the API keys."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.cli import serve_command
from deployments.cli.serve_command import environment
from deployments.config.config_errors import ConfigError
from tests.support.repository import ROOT


@pytest.mark.parametrize("told", ["disabled", "DISABLED"])
def test_nothing_is_started_without_rays_token(monkeypatch, told):
    """The ports between replicas are open to other machines, and only the token keeps those out."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("RAY_AUTH_MODE", told)
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("it was started"))

    with pytest.raises(SystemExit, match="RAY_AUTH_MODE=disabled"):
        serve_command.serve(Path("serve_config.yaml"))


def test_what_is_set_already_stays():
    """The user's own environment goes before the file, and HAProxy can be switched off. A wrong bound ends the start
    with one line, with HAProxy and without it: neither its script nor Ray's proxy is left to fail over it."""
    for switch in ("0", "1"):
        wrong = {"MLX_STACK_UNREAD_S": "soon", "RAY_SERVE_ENABLE_HA_PROXY": switch}
        with pytest.raises(ConfigError, match=r"^MLX_STACK_UNREAD_S: seconds are needed .*$"):
            serve_command.environment(ROOT / "serve.env", wrong)
    given = {"RAY_SERVE_ENABLE_HA_PROXY": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "0"}
    flags = serve_command.environment(ROOT / "serve.env", given)

    assert flags["RAY_SERVE_ENABLE_HA_PROXY"] == "0"
    assert flags["RAY_SERVE_THROUGHPUT_OPTIMIZED"] == "0"
    assert "RAY_SERVE_HAPROXY_BINARY_PATH" not in flags
    assert serve_command.environment(ROOT / "no-such.env", given) == given | {"grpc_proxy": ""}


@pytest.mark.parametrize(("files", "connections"), [(resource.RLIM_INFINITY, 8192), (20_000, 7897), (4096, 1536)])
def test_haproxy_asks_for_no_more_files_than_it_may_have(monkeypatch, files, connections):
    """HAProxy ends at its start where it can't have the files that its connections may take: 2.5 for each."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    flags = serve_command.environment(ROOT / "serve.env", {})

    assert flags.get("RAY_SERVE_HAPROXY_MAXCONN", str(connections)) == str(connections)


_CALL = """
import grpc
from concurrent.futures import ThreadPoolExecutor
server = grpc.server(ThreadPoolExecutor(1))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
grpc.channel_ready_future(grpc.insecure_channel(f"127.0.0.1:{port}")).result(timeout=20)
"""


def test_calls_between_replicas_use_no_proxy(tmp_path):
    """Law: a proxy in the environment, as companies set one, is not asked for a replica's port: each request got a 504,
    and the tiers stayed "starting". Who names a proxy for gRPC gets it."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    flags = environment(tmp_path / "serve.env", os.environ | proxies)

    subprocess.run([sys.executable, "-c", _CALL], env=flags, check=True)
    assert environment(tmp_path / "serve.env", {"grpc_proxy": "http://p"})["grpc_proxy"] == "http://p"


@pytest.mark.parametrize("line", ["NAME", "=x", "A B=c", "\xff"])
def test_flags_that_cant_be_read_are_one_line(tmp_path, line):
    """A broken line in `serve.env` is named, and not met by the kernel at the `exec`."""
    (tmp_path / "serve.env").write_bytes(b"# flags\n" + line.encode("latin-1") + b"\n")

    with pytest.raises(ConfigError, match=r"serve\.env: (line 2: NAME=VALUE is needed|can't be read)"):
        environment(tmp_path / "serve.env", {})


_INTERRUPTED = """
import os, signal
from pathlib import Path
from deployments.cli import serve_command

def swallow(config):
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        pass

serve_command.check_start = swallow
signal.signal(signal.SIGINT, signal.default_int_handler)
serve_command.serve(Path("a.yaml"))
"""


def test_ctrl_c_in_the_checks_ends_the_command_whatever_swallows_it():
    """Python raises it in whatever runs. While a module was imported, it became an error of pydantic's, or nothing."""
    ran = subprocess.run([sys.executable, "-P", "-c", _INTERRUPTED], capture_output=True, timeout=60, check=False)

    assert ran.returncode == -signal.SIGINT
    assert ran.stderr == b""
