"""A command that asks a running server: by its URL or that of the configuration, with the key of the environment.

Another server may stand there, which answers any route with 200: what has none of the fields of our routes' answers is
none of ours.

What must never happen: a traceback where the server is away or refuses, or is another one. One line says what is wrong,
and what to do. A key in such a line.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from deployments.config import ConfigError
from deployments.listener.listening import is_loopback

__all__ = ["KEY", "NotAnswered", "ServerClient"]

KEY = "MLX_STACK_API_KEY"
ASK_S = 15.0
# Each route's answer has one of them.
FIELDS = frozenset({"tiers", "data", "attempts", "windows"})
HINTS = {401: f" (the key is read from {KEY})", 403: f" (the key in {KEY} is no admin's)"}


class NotAnswered(Exception):
    """There is no answer to show. The message is one line."""


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
        transport: httpx.BaseTransport | None = None,
        ask_s: float = ASK_S,
    ) -> None:
        self.url = url
        key = _read_key(environ)
        own = is_loopback(urlsplit(url).hostname)
        self._http = httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key}"} if key else {},
            timeout=ask_s,
            transport=transport,
            verify=_trust(url),
            trust_env=not own,  # a proxy can't reach our loopback
        )

    def get(self, path: str, **params: Any) -> Any:
        """Ask for one thing below `/v1/reliability`.

        Raises:
            NotAnswered: the server is away, or refuses.
        """
        given = {name: value for name, value in params.items() if value is not None}
        try:
            answer = self._http.get(f"/v1/reliability/{path}", params=given)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            reason = str(error) or type(error).__name__
            raise NotAnswered(
                f"no server answers at {self.url} ({reason}): start one with mlx-stack-serve serve"
            ) from None
        body = _read_object(answer)
        if answer.status_code == 200 and FIELDS & body.keys():
            return body
        if "error" not in body:
            raise NotAnswered(f"what answers at {self.url} is no MLX Stack Serve (HTTP {answer.status_code})")
        said = _read_words(body["error"]) or f"HTTP {answer.status_code}"
        raise NotAnswered(f"the server at {self.url} says: {said}{HINTS.get(answer.status_code, '')}")

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()


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


def _read_object(answer: httpx.Response) -> dict[str, Any]:
    """Read the JSON object of an answer; empty where it is none."""
    try:
        body = answer.json()
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _read_words(error: Any) -> str:
    """Read what an error says: our own are objects, those of other servers may be texts."""
    words = error.get("message") if isinstance(error, dict) else error
    return words if isinstance(words, str) else ""
