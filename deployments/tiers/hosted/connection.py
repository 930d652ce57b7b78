"""A connection to an upstream: where it is and with which secrets, and what has arrived and was not taken yet.

The client is aiohttp: docs/decisions/054. `Redactor` works on whole texts, before they are cut to a length: a piece of
a key no longer looks like one. The inbox reads ahead in a task of its own, so that work is done per read, not per
token; beyond `INBOX_BYTES_MAX` the connection's own flow control holds the upstream back.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping

import aiohttp
import certifi
from yarl import URL

from deployments.config.loopback import is_loopback

CHAT = "/chat/completions"
STREAMS_MAX = 256  # each has a connection
_CONNECTION_KEPT_S = 15.0
REDACTED = "[redacted]"
INBOX_BYTES_MAX = 1024 * 1024
_SECRET_CHARS_MIN = 4
_SHAPES = re.compile(r"\bsk-[\w*.-]{6,}|\bBearer\s+[^\s\"',;]+", re.IGNORECASE)
_SECRET_NAME = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


class Endpoint:
    """The API of an upstream. `key_env`: the variable that holds its key; `headers`: to be sent with each request."""

    def __init__(self, base_url: str, key_env: str | None, headers: Mapping[str, str]) -> None:
        self._key_env = key_env
        self._headers = dict(headers)
        self.url, self._login = _parse_url(base_url)

    @property
    def authority(self) -> str:
        """Its host and port; empty where the URL can't be used."""
        return self.url.raw_authority if self.url.host else ""

    def read_key(self) -> str:
        """Read the key; empty where there is none."""
        return os.environ.get(self._key_env, "").strip() if self._key_env else ""

    def find_problem(self, key: str) -> str:
        """Return why no request can be sent; empty where one can."""
        if not self.url.host:
            return "base_url is not an http or https address"
        if self._key_env and not key:
            return f"{self._key_env} is not set"
        if not (key.isascii() and (key.isprintable() or not key)):
            return f"{self._key_env} holds characters that no HTTP header can carry"
        return ""

    def find_route(self, route: str) -> URL:
        return self.url.with_path(self.url.raw_path.removesuffix(CHAT) + route, encoded=True, keep_query=True)

    def build_headers(self, key: str) -> dict[str, str]:
        sent = {
            "accept": "text/event-stream, application/json",
            "accept-encoding": "identity",  # a compressor would hold tokens back
            "content-type": "application/json",
        }
        sent |= {name.lower(): value for name, value in self._headers.items()}
        if key:
            sent["authorization"] = f"Bearer {key}"
        elif self._login:
            sent["authorization"] = f"Basic {self._encode_login()}"
        return sent

    def build_redactor(self, key: str) -> Redactor:
        """Build what takes the secrets out of texts, in every form that goes out."""
        fields = (field.partition("=") for field in self.url.raw_query_string.split("&"))
        login = [*self._login, self._encode_login()] if self._login else []
        secrets = [*login, *_list_secrets(self.url.query), *_list_secrets({name: value for name, _, value in fields})]
        return Redactor([key, *_list_secrets(self._headers), *secrets])

    def open_session(self, connect_s: float) -> aiohttp.ClientSession:
        """Open the connections. Nothing but connecting has a limit here: the tier keeps the time."""
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=STREAMS_MAX,
                keepalive_timeout=_CONNECTION_KEPT_S,
                ssl=_build_tls() if self.url.scheme == "https" else True,
            ),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=not is_loopback(self.url.host or ""),  # a proxy can't reach our loopback
        )

    def _encode_login(self) -> str:
        return base64.b64encode(":".join(self._login).encode()).decode("ascii")


def _parse_url(base_url: str) -> tuple[URL, tuple[str, str] | tuple[()]]:
    """Return the URL to post to, without credentials, and the credentials it held. No host: not usable."""
    try:
        url = URL(base_url.strip())
        host = url.host
    except (ValueError, TypeError, AttributeError, IndexError):
        return URL(), ()
    if url.scheme not in ("http", "https") or not host:
        return URL(), ()
    login = (url.user or "", url.password or "") if url.user is not None or url.password is not None else ()
    path = url.raw_path.rstrip("/").removesuffix(CHAT) + CHAT
    return url.with_user(None).with_path(path, encoded=True, keep_query=True), login


def _build_tls() -> ssl.SSLContext:
    """Trust what the environment names, else certifi's list: a Python on macOS may know nobody by itself."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())


def _list_secrets(headers: Mapping[str, str]) -> list[str]:
    """List the values of headers whose names suggest credentials, each also without its scheme (`Bearer`)."""
    values = [value for name, value in headers.items() if _SECRET_NAME.search(name)]
    return values + [value.rpartition(" ")[2] for value in values]


class Redactor:
    """Takes secrets out of texts: those of one tier, and what looks like a key, also half of it behind asterisks."""

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {secret for secret in secrets if len(secret) >= _SECRET_CHARS_MIN}
        self._secrets = sorted(found, key=len, reverse=True)  # a secret may begin with a shorter one

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return _SHAPES.sub(REDACTED, text)


class Inbox:
    """Collects the pieces of `source` until they are taken."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._cause: Exception | None = None
        self._ended = False
        self._news = asyncio.Event()
        self._has_space = asyncio.Event()
        self._task = asyncio.create_task(self._pump(source))

    async def take(self, not_before: float = 0.0) -> bytes:
        """Wait for something, and then for more until `not_before` (of the loop's clock) or the end; take all of it.
        Empty at the end; raises what the source raised."""
        await self._news.wait()
        more_s = not_before - asyncio.get_running_loop().time()
        if more_s > 0 and not self._ended:
            await asyncio.wait({self._task}, timeout=more_s)  # its end is the source's
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._has_space.set()
            if not self._ended:
                self._news.clear()
            return data
        if self._cause is not None:
            raise self._cause
        return b""

    async def close(self, grace_s: float = 0.0) -> None:
        """Stop reading; `grace_s`: let the source come to its own end for so long."""
        try:
            if grace_s > 0:
                await asyncio.wait({self._task}, timeout=grace_s)
        finally:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _pump(self, source: AsyncIterator[bytes]) -> None:
        try:
            async for data in source:
                if not data:
                    continue
                self._parts.append(data)
                self._size += len(data)
                self._news.set()
                if self._size >= INBOX_BYTES_MAX:
                    self._has_space.clear()
                    await self._has_space.wait()
        except Exception as cause:
            self._cause = cause
        finally:
            self._ended = True
            self._news.set()
