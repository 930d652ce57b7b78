"""Ask a running server, with the key of the environment.

Another server may be there that answers any route with 200: an answer without one of our fields is foreign.

Invariants:
- An answer ends: `ask_s` bounds all of it, `ANSWER_BYTES_MAX` its size. It is never decompressed.
- A redirect is not followed: the key goes to the address that was named only.
- A failure is one line that says what to do, without the key or what a terminal or a shell would obey.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from deployments.cli.text_output import plain
from deployments.config.config_errors import ConfigError
from deployments.config.loopback import is_loopback

__all__ = ["KEY", "LINES_MAX", "MALFORMED", "NoAnswer", "NotAnswered", "ServerClient", "name_foreign", "read_words"]

KEY = "MLX_STACK_API_KEY"
ASK_S = 15.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024
WORDS_MAX = 500
LINES_MAX = 500  # of a list, as the server gives them at once
# Each route's answer has one of them.
FIELDS = frozenset({"tiers", "data", "attempts", "windows"})
HINTS = {401: f" (the key is read from {KEY})", 403: f" (the key in {KEY} is no admin's)"}
# What reading an answer raises where it has another shape than ours.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError)


class NotAnswered(Exception):
    """There is no answer to show. The message is one line."""


class NoAnswer(Exception):
    """The server sent none. The message is the reason, in a few words."""


def name_foreign(url: str, error: Exception) -> str:
    """Write the line for a server whose answer has another shape than ours."""
    words = plain(f"{type(error).__name__}: {error}")
    return f"{url} is not an MLX Stack Serve instance: its answer can't be read ({words})"[:WORDS_MAX]


class ServerClient:
    """The server at `url`, without `/v1`. `transport`: how it is reached, where that isn't the network. `ask_s`: for
    how long.

    Raises:
        ConfigError: the key can't be one, or the file of certificates isn't there.
    """

    def __init__(
        self,
        url: str,
        environ: Mapping[str, str] = os.environ,
        transport: httpx.AsyncBaseTransport | None = None,
        ask_s: float = ASK_S,
    ) -> None:
        self.url = url
        self._key, self._ask_s = _read_key(environ), ask_s
        own = is_loopback(urlsplit(url).hostname)
        # `trust_env`: a proxy of the environment can't reach our loopback.
        self._options: dict[str, Any] = {
            "base_url": url,
            "timeout": ask_s,
            "transport": transport,
            "verify": _trust(url),
            "trust_env": not own,
        }

    def get(self, path: str, **params: Any) -> Any:
        """Ask for one thing below `/v1/reliability`.

        Raises:
            NotAnswered: the server is away, or refuses.
        """
        try:
            status, body = self.ask(f"/v1/reliability/{path}", **params)
        except NoAnswer as error:
            raise NotAnswered(
                f"no server answers at {self.url} ({error}): start one with mlx-stack-serve serve"
            ) from None
        if status == 200 and FIELDS & body.keys():
            return body
        if "error" not in body:
            raise NotAnswered(f"{self.url} is not an MLX Stack Serve instance (HTTP {status}).")
        said = read_words(body) or f"HTTP {status}"
        raise NotAnswered(f"the server at {self.url} says: {said}{HINTS.get(status, '')}")

    def ask(self, path: str, *, keyed: bool = True, **params: Any) -> tuple[int, dict[str, Any]]:
        """Ask for any path, with the key where `keyed`; return the status and the JSON object, empty where it is none.

        Raises:
            NoAnswer: the server sent none within `ask_s`, or one that is too large.
        """
        try:
            return asyncio.run(
                self._ask(path, keyed, {name: value for name, value in params.items() if value is not None})
            )
        except TimeoutError:
            raise NoAnswer(f"nothing within {self._ask_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, ssl.SSLError) as error:
            raise NoAnswer(str(error) or type(error).__name__) from None

    async def _ask(self, path: str, keyed: bool, params: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        headers = {"accept-encoding": "identity"}
        headers |= {"authorization": f"Bearer {self._key}"} if self._key and keyed else {}
        raw = bytearray()
        async with (
            asyncio.timeout(self._ask_s),
            httpx.AsyncClient(**self._options) as http,
            http.stream("GET", path, params=params, headers=headers) as answer,
        ):
            if "content-encoding" in answer.headers:
                raise NoAnswer("it compresses its answer unasked")
            async for piece in answer.aiter_bytes():
                raw += piece
                if len(raw) > ANSWER_BYTES_MAX:
                    raise NoAnswer(f"its answer is over {ANSWER_BYTES_MAX >> 20} MiB")
            return answer.status_code, _read_object(bytes(raw))


def _read_key(environ: Mapping[str, str]) -> str:
    key = environ.get(KEY, "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{KEY}: no API key has such characters")
    return key


def _trust(url: str) -> ssl.SSLContext | bool:
    """Choose whose certificates are believed: by `SSL_CERT_FILE` also where the environment else counts for nothing."""
    try:
        return urlsplit(url).scheme != "http" and httpx.create_ssl_context()
    except OSError as error:
        raise ConfigError(f"SSL_CERT_FILE: can't be read: {error.strerror}") from None


def _read_object(raw: bytes) -> dict[str, Any]:
    """Read the JSON object of an answer; empty where it is none."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def read_words(body: Mapping[str, Any]) -> str:
    """Read what an error says, as one line of plain text: our own are objects, those of other servers may be texts. It
    stands in what a person reads, and among lines that a shell may read."""
    error = body.get("error")
    words = error.get("message") if isinstance(error, dict) else error
    return plain(words[:WORDS_MAX]) if isinstance(words, str) else ""
