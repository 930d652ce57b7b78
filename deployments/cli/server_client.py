"""Find the server that a command asks, and ask it, with the key of the environment.

    --url URL       that server, wherever it is
    --config FILE   the server that this configuration starts, on loopback
    neither         the server that this user runs on this machine, else `DEFAULT_URL`

Invariants: the working directory, which may be anybody's repository, has no say. The key goes to an address on the
command line, or to a process of this user or of root on loopback; a folder that others may write to names no server;
no redirect is followed. An answer ends (`ask_s`, `ANSWER_BYTES_MAX`) and isn't decompressed. A failure is one line
without the key, or anything that a terminal or a shell would obey. `FIELDS` tell our answers from another server's.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from deployments.cli.agents import KEY
from deployments.config.config_errors import ConfigError
from deployments.config.free_port import find_owners, find_peer_owners
from deployments.config.loopback import is_loopback
from deployments.running.folder import RunFolder, base_folder
from deployments.running.own_folder import list_trusted
from deployments.work.json_text import load_object

ASK_S = 15.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024
WORDS_MAX = 500
LINES_MAX = 500  # of a list, as the server gives them at once
# Each route's answer has one of them.
FIELDS = frozenset({"tiers", "data", "attempts", "windows"})
_HINTS = {401: f" (the key is read from {KEY})", 403: f" (the key in {KEY} is no admin's)"}
# What reading an answer raises where it has another shape than ours.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError)


class NoAnswer(Exception):
    """The server sent none, or none that can be shown. The message is one line."""


def plain(value: Any) -> str:
    """Write a value without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "�" for letter in str(value))


def name_foreign(url: str, error: Exception) -> str:
    """Write the line for a server whose answer has another shape than ours."""
    words = plain(f"{type(error).__name__}: {error}")
    return f"{url} is not an MLX Stack Serve instance: its answer can't be read ({words})"[:WORDS_MAX]


class ServerClient:
    """The server at `url`, without `/v1`; `named`: its address stands on the command line. `transport`: how it is
    reached, where that isn't the network. `ask_s`: for how long. Raises ConfigError: the key can't be one, or the file
    of certificates isn't there."""

    def __init__(
        self,
        url: str,
        environ: Mapping[str, str] = os.environ,
        transport: httpx.AsyncBaseTransport | None = None,
        ask_s: float = ASK_S,
        named: bool = False,
    ) -> None:
        self.url, self._key, self._ask_s = url, read_key(environ), ask_s
        own = is_loopback(urlsplit(url).hostname)
        self._extensions = {"trace": self._refuse_stranger} if own and not named else {}
        # `trust_env`: a proxy of the environment can't reach our loopback.
        self._options: dict[str, Any] = {"base_url": url, "timeout": ask_s, "transport": transport}
        self._options["trust_env"] = not own
        try:  # by `SSL_CERT_FILE`, where the environment else counts for nothing
            self._options["verify"] = urlsplit(url).scheme != "http" and httpx.create_ssl_context()
        except OSError as error:
            raise ConfigError(f"SSL_CERT_FILE: can't be read: {error.strerror}") from None

    @classmethod
    def find(cls, url: str | None, config: Path | None, ask_s: float = ASK_S) -> ServerClient:
        """Find the server that a command line names, or not. Raises ConfigError: as `find_url` and the class itself."""
        return cls(find_url(url, config), ask_s=ask_s, named=url is not None)

    def get(self, path: str, **params: Any) -> Any:
        """Ask for one thing below `/v1/reliability`. Raises NoAnswer: the server is away, or refuses."""
        try:
            status, body = self.ask(f"/v1/reliability/{path}", **params)
        except NoAnswer as error:
            words = f"no server answers at {self.url} ({error})"
            raise NoAnswer(f"{words}: start one with mlx-stack-serve serve") from None
        if status == 200 and FIELDS & body.keys():
            return body
        if "error" not in body:
            raise NoAnswer(f"{self.url} is not an MLX Stack Serve instance (HTTP {status}).")
        said = read_words(body) or f"HTTP {status}"
        raise NoAnswer(f"the server at {self.url} says: {said}{_HINTS.get(status, '')}")

    def ask(self, path: str, *, keyed: bool = True, **params: Any) -> tuple[int, dict[str, Any]]:
        """Ask for any path, with the key where `keyed`; return the status and the JSON object, empty where it is none.
        Raises NoAnswer: the server sent none within `ask_s`, or one that is too large."""
        given = {name: value for name, value in params.items() if value is not None}
        try:
            return asyncio.run(self._ask(path, keyed, given))
        except TimeoutError:
            raise NoAnswer(f"nothing within {self._ask_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError, ssl.SSLError) as error:  # also: its proxy
            raise NoAnswer(str(error) or type(error).__name__) from None

    async def _ask(self, path: str, keyed: bool, params: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        headers = {"accept-encoding": "identity"}
        headers |= {"authorization": f"Bearer {self._key}"} if self._key and keyed else {}
        raw = bytearray()
        async with (
            asyncio.timeout(self._ask_s),
            httpx.AsyncClient(**self._options) as http,
            http.stream("GET", path, params=params, headers=headers, extensions=self._extensions) as answer,
        ):
            if "content-encoding" in answer.headers:
                raise NoAnswer("it compresses its answer unasked")
            async for piece in answer.aiter_bytes():
                raw += piece
                if len(raw) > ANSWER_BYTES_MAX:
                    raise NoAnswer(f"its answer is over {ANSWER_BYTES_MAX >> 20} MiB")
            return answer.status_code, load_object(bytes(raw)) or {}

    async def _refuse_stranger(self, event: str, info: Mapping[str, Any]) -> None:
        """Close a connection that another user's process holds, before anything is sent. Raises NoAnswer."""
        if event != "connection.connect_tcp.complete":
            return
        stream = info["return_value"]
        own = stream.get_extra_info("socket")
        owners = find_peer_owners(own.getsockname(), own.getpeername())
        if owners is None or (owners and owners <= list_trusted()):
            return
        await stream.aclose()
        who = f"another user of this machine ({min(owners)})" if owners else "nobody any more"
        raise NoAnswer(f"the port belongs to {who}, and the API key would be sent there: if you mean it, add --url")


def read_key(environ: Mapping[str, str]) -> str:
    """Read the key of the environment. Raises ConfigError: it can't be one."""
    key = environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{KEY}: no API key has such characters")
    return key


def read_words(body: Mapping[str, Any]) -> str:
    """Read what an error says, as one line of plain text; other servers' errors may be texts and no objects."""
    error = body.get("error")
    words = error.get("message") if isinstance(error, dict) else error
    return plain(words[:WORDS_MAX]) if isinstance(words, str) else ""


DEFAULT_URL = "http://127.0.0.1:8000"
PLAIN = re.compile(r"[\w.:/@+~%\[\]-]+")  # what stands in a shell, in TOML and in JSON as it is


def find_url(given: str | None, config: Path | None, environ: Mapping[str, str] = os.environ) -> str:
    """Find where the server listens, without `/v1`. `given` and `config` stand on the command line. Raises ConfigError:
    one line: no URL, a configuration that can't be read, another machine or another user's server that `--url` doesn't
    name, or several servers."""
    if given is not None:
        return _parse_url(given)
    if config is not None:
        from deployments.graph.serve_file import read_file

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
    """Return a URL of loopback on which no other user listens. Raises ConfigError: it is another one."""
    parts = urlsplit(url)
    fault = "" if is_loopback(parts.hostname) else "is not loopback"
    if not fault and (strangers := find_owners(parts.hostname or "", parts.port or 80) - list_trusted()):
        fault = f"({url}) belongs to another user of this machine ({min(strangers)})"
    if fault:
        raise ConfigError(f"{what} {fault}, and the API key would be sent there: if you mean it, add --url {url}")
    return url


def find_records(environ: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """Yield the records of the servers whose supervisors live; nothing where another user could reach their folder."""
    try:
        base = base_folder(environ)
    except ConfigError:
        return
    for path in sorted((base / "runs").glob("*-*")):
        run = RunFolder(path)
        with run.dead() as dead:
            record = {} if dead else run.record()
        if PLAIN.fullmatch(str(record.get("url", ""))):
            yield record


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
