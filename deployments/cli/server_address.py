"""Find the server that a command asks: `launch`, `agents`, `status`, `why`, a Tab of the shell ...

    --url URL       that server, wherever it is
    --config FILE   the server that this configuration starts, on loopback
    neither         the server that this user runs on this machine, else `DEFAULT_URL`

These commands send the API key, so the working directory, which may be anybody's repository, has no say.

Invariants:
- The API key goes to loopback, or to an address that stands on the command line.
- On loopback it goes to a process of this user or of root.
- Another user of the machine can't name a server: a folder that others may write to counts for nothing.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from deployments.config.config_errors import ConfigError
from deployments.config.free_port import find_owners
from deployments.config.loopback import is_loopback
from deployments.running.folder import LOCK, RunFolder, base_folder
from deployments.running.own_folder import list_trusted

__all__ = ["DEFAULT_URL", "PLAIN", "find_records", "find_url"]

DEFAULT_URL = "http://127.0.0.1:8000"
PLAIN = re.compile(r"[\w.:/@+~%\[\]-]+")  # what stands in a shell, in TOML and in JSON as it is


def find_url(given: str | None, config: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Find where the server listens, without `/v1`. `given` and `config` stand on the command line.

    Raises:
        ConfigError: one line: no URL, a configuration that can't be read, another machine or another user's server
            that `--url` doesn't name, or several servers.
    """
    if given is not None:
        return _parse_url(given)
    if config is not None:
        from deployments.serve_file import read_file

        try:
            url = read_file(config).url
        except ConfigError as error:
            raise ConfigError(f"{config}: {error}") from None
        return _refuse_elsewhere(url, f"{config}: http_options.host")
    running = list(dict.fromkeys(str(record["url"]) for record in find_records(environ)))
    if len(running) > 1 and DEFAULT_URL not in running:
        raise ConfigError(f"You run {len(running)} servers: {', '.join(running)}. Name one with --url.")
    if running and DEFAULT_URL not in running:
        return _refuse_elsewhere(running[0], "the running server's host")
    return _refuse_elsewhere(DEFAULT_URL, "the default address")


def _refuse_elsewhere(url: str, what: str) -> str:
    """Return a URL of loopback on which no other user listens.

    Raises:
        ConfigError: it is another one.
    """
    parts = urlsplit(url)
    fault = "" if is_loopback(parts.hostname) else "is not loopback"
    if not fault and (strangers := find_owners(parts.hostname or "", parts.port or 80) - list_trusted()):
        fault = f"({url}) belongs to another user of this machine ({min(strangers)})"
    if fault:
        raise ConfigError(f"{what} {fault}, and the API key would be sent there: if you mean it, add --url {url}")
    return url


def find_records(environ: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """Yield what is known of the servers whose supervisors live, `url` above all; nothing where another user could
    reach their folder."""
    try:
        base = base_folder(environ)
    except ConfigError:
        return
    for path in sorted((base / "runs").glob("*-*")):
        record = RunFolder(path).record()
        url = record.get("url")
        if isinstance(url, str) and PLAIN.fullmatch(url) and _is_held(path / LOCK):
            yield record


def _is_held(lock: Path) -> bool:
    """Return whether a process holds the lock of a run."""
    try:
        file = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def _parse_url(given: str) -> str:
    url = given.rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and PLAIN.fullmatch(url)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"--url: {given[:100]!r} is no URL of a server: http://127.0.0.1:8000 is one")
    return url
