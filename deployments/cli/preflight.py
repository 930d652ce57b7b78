"""Check what can be known to be wrong before anything is started, for `serve` and `preflight`.

A wrong configuration raises `ConfigError` (exit code 2), a taken port `CommandFailed` (1). The cheap checks come
first; the port is tried last, by binding it. The supervisor reports what only Ray can find.
"""

from __future__ import annotations

import errno
import os
import platform
import socket
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from deployments.api.access import Access
from deployments.api.api_keys import load_keys
from deployments.config.config_errors import CommandFailed, ConfigError
from deployments.config.free_port import find_listener
from deployments.config.tier_config import MlxTierConfig, ScriptedTierConfig
from deployments.graph.serve_file import ConfigFile, read_file
from deployments.reports.traces import check_packages
from deployments.running.folder import base_folder, clear_dead, find_other_server
from deployments.running.own_folder import ForeignStateError, make_private_folder, refuse_strangers_file
from deployments.state.client import folder_of
from deployments.state.journal import JOURNAL
from deployments.tiers.scripted.script import ScriptError, load_script

# MLX 0.32 has wheels for macOS 14 and newer.
_MACOS_LEAST = 14
_STATE_BYTES = 1024 * 1024  # an empty journal has a third of it
_OLD_MACOS = "warning: this macOS has no MLX 0.32: local tiers need macOS 14 or newer; hosted tiers work"


def preflight(path: Path, environ: Mapping[str, str] = os.environ) -> ConfigFile:
    """Check everything and clear what dead runs have left; warnings and what was cleared go to the terminal. Raises
    ConfigError: one line that names the file and the key; CommandFailed: who has the port or the state."""
    try:
        file = read_file(path)
        check(file, environ)
        _check_state(file)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    for line in clear_dead(base_folder(environ)):
        click.echo(line, err=True)
    _check_port(path, file, environ)
    folder = find_state_folder(file)
    if owner := find_other_server(base_folder(environ), state=folder):  # its ledger would be taken from it
        words = f"{owner}: stop it, or set another state.path in the configuration"
        raise CommandFailed(f"{folder} is the state folder of {words}")
    return file


def check(file: ConfigFile, environ: Mapping[str, str] = os.environ) -> None:
    """Check the file and what it names; write nothing, try no port. Raises ConfigError: a line that names the key."""
    _check_listener(file, environ)
    if any(isinstance(tier, MlxTierConfig) for tier in file.args.tiers.values()) and _is_too_old(platform.mac_ver()[0]):
        click.echo(_OLD_MACOS, err=True)
    for name, tier in file.args.tiers.items():
        if isinstance(tier, ScriptedTierConfig):
            try:
                load_script(tier.script)
            except ScriptError as error:
                raise ConfigError(f"tiers.{name}.script: {' '.join(str(error).split())}") from None
    _check_tls(file)
    if file.args.telemetry.traces:
        check_packages()


def _is_too_old(macos: str) -> bool:
    """Return whether this version of macOS has no MLX of the lock file; "" is another system."""
    return macos.partition(".")[0].isdecimal() and int(macos.partition(".")[0]) < _MACOS_LEAST


def _check_listener(file: ConfigFile, environ: Mapping[str, str]) -> None:
    """Read the API keys and hold them against the host; warn where everybody is let in on purpose. Raises ConfigError:
    the keys can't be used, or other machines could reach the server without one."""
    # The args must be good by themselves: the server starts with them and is patched then.
    for server in (file.args.server, file.server):
        access = Access(load_keys(server, environ), allow_open=server.allow_open)
        access.refuse_host(file.host)
    if access.is_open_on(file.host):
        everybody = f"everybody who reaches {file.host}:{file.port}"
        click.echo(f"warning: server.allow_open lets {everybody} in without an API key", err=True)


def _check_state(file: ConfigFile) -> None:
    """Make the journal's folder where it isn't there, as the state actor would, and try to write to it."""
    folder = folder_of(file.app, file.args.state)
    key = "state.path" if file.args.state.path else "state.path (not set)"
    try:
        make_private_folder(folder)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_STATE_BYTES))  # a full disk still makes files
        refuse_strangers_file(folder / JOURNAL)
    except ForeignStateError as error:
        raise ConfigError(f"{key}: {error.strerror}") from None
    except OSError as error:
        raise ConfigError(f"{key}: can't write to {folder}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{key}: no folder can have that name") from None


def find_state_folder(file: ConfigFile) -> str:
    """Find the folder of the journal, by the one name that it has however it is written."""
    return os.path.realpath(folder_of(file.app, file.args.state))


def _check_tls(file: ConfigFile) -> None:
    """Load certificate and key as whoever listens will."""
    if not file.tls:
        return
    http = file.http
    for key in ("ssl_keyfile", "ssl_certfile", "ssl_ca_certs"):
        try:
            if (path := getattr(http, key)) is not None:
                Path(path).open("rb").close()
        except (OSError, ValueError) as error:
            raise ConfigError(f"http_options.{key}: can't be read: {getattr(error, 'strerror', error)}") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # A password that isn't given is not asked for.
        context.load_cert_chain(http.ssl_certfile, http.ssl_keyfile, http.ssl_keyfile_password or "")
    except (OSError, ValueError) as error:
        words = getattr(error, "reason", None) or "they don't fit each other"
        raise ConfigError(f"http_options.ssl_certfile: certificate and key can't be used: {words}") from None


def _check_port(path: Path, file: ConfigFile, environ: Mapping[str, str]) -> None:
    try:
        found = socket.getaddrinfo(file.host, file.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"{path}: http_options.host: there is no address {file.host!r}") from None
    # A name may stand for an address that this machine doesn't have (`localhost` without IPv6): one is enough.
    tried = [_try_bind(family, address) for family, _, _, _, address in found]
    if errno.EADDRINUSE in tried:
        raise CommandFailed(_describe_owner(file, environ))
    if None not in tried:
        words = {
            errno.EACCES: f"http_options.port: {file.port} may be used by root alone: take one over 1023",
            errno.EADDRNOTAVAIL: f"http_options.host: {file.host} is no address of this machine",
        }.get(tried[0] or 0, f"http_options: can't listen on {file.host}:{file.port}: {os.strerror(tried[0] or 0)}")
        raise ConfigError(f"{path}: {words}")
    # Linux lets two share a port where both ask for it, as Ray Serve does, and an open one elsewhere take ours.
    if find_listener(file.host, file.port) is not None:
        raise CommandFailed(_describe_owner(file, environ))


def _try_bind(family: int, address: Any) -> int | None:
    """Try to listen there; return why one can't (`errno`), None where one can."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno
    return None


def _describe_owner(file: ConfigFile, environ: Mapping[str, str]) -> str:
    at = f"{file.host}:{file.port}"
    owner = find_other_server(base_folder(environ), f"{file.port}-*") or find_listener(file.host, file.port)
    return f"{at} is taken by {owner or 'another process'}: stop it, or change http_options.port in the configuration"
