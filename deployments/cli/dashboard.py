"""`mlx-stack-serve dashboard`: Ray's dashboard for the server that runs here, until Ctrl-C or the server's end.

A server starts none by itself (docs/decisions/002-idle-costs.md); `serve status` and `serve deploy` need it.
Invariants: it listens on loopback, asks for Ray's token, and ends with its terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from deployments.cli.serve_command import environment
from deployments.cli.server_client import find_records
from deployments.config.config_errors import ConfigError
from deployments.config.config_paths import announce_flags

_PORTS = 20
_NEEDED = ("gcs_address", "cluster_id", "node_ip_address", "session_dir")


def dashboard(url: str | None, port: int) -> NoReturn:
    """Become Ray's dashboard of the server at `url`, else of the one here. Raises ConfigError: none, or several."""
    known = _find_ray(url, os.environ)
    flags = environment(announce_flags(), os.environ)
    command = _build_command(known, port)
    sys.stderr.write(
        f"Ray's dashboard: http://127.0.0.1:{port} (or the next free port), until Ctrl-C. It requires a token: "
        "RAY_AUTH_MODE=token ray get-auth-token\n"
    )
    sys.stderr.flush()
    os.execve(sys.executable, command, flags)


def _find_ray(url: str | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Find the Ray of the one server that runs here. Raises ConfigError: no server, several, or its Ray isn't known."""
    wanted = (None, "") if url is None else (url, url.rstrip("/").removesuffix("/v1"))
    found = [record for record in find_records(environ) if url is None or record["url"] in wanted]
    if not found:
        raise ConfigError("No server of yours runs here" + (f" at {url}." if url else "."))
    if len(found) > 1:
        raise ConfigError(f"You run {len(found)} servers here. Name one with --url.")
    ray = found[0].get("ray")
    if not isinstance(ray, dict) or not all(isinstance(ray.get(name), str) for name in _NEEDED):
        raise ConfigError(f"The server at {found[0]['url']} has not started its Ray yet. Try again in some seconds.")
    return ray


def _build_command(known: Mapping[str, str], port: int) -> list[str]:
    import ray

    session = Path(known["session_dir"])
    return [
        sys.executable,
        "-P",
        str(Path(ray.__file__).parent / "dashboard" / "dashboard.py"),
        "--host=127.0.0.1",
        f"--port={port}",
        f"--port-retries={_PORTS}",
        f"--gcs-address={known['gcs_address']}",
        f"--cluster-id-hex={known['cluster_id']}",
        f"--node-ip-address={known['node_ip_address']}",
        f"--temp-dir={session.parent}",
        f"--session-dir={session}",
        f"--log-dir={session / 'logs'}",
    ]
