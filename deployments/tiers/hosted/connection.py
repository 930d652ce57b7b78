"""A connection to an upstream: its URL and secrets, whom to trust, the form of history that it takes (`send_in_form`),
and what has arrived and was not taken yet (`Inbox`).

`send_in_form` is the only place where a hosted tier sends a request twice: a chat template's refusal has generated
nothing. The inbox reads ahead in a task of its own, so that work is done per read, not per token; beyond
`INBOX_BYTES_MAX` the connection's own flow control holds the upstream back.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import aiohttp
import certifi
from yarl import URL

from deployments.tiers.history_repair import HistoryForm, soften
from deployments.tiers.hosted.redaction import secret_headers
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, wants_softer
from deployments.work.large_work import large
from reliability.types import ChatRequest, Failed

CHAT = "/chat/completions"


def build_tls() -> ssl.SSLContext:
    """Trust what the environment names (SSL_CERT_FILE, SSL_CERT_DIR), else certifi's list. A Python on macOS may know
    nobody by itself."""
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())


def parse_endpoint(base_url: str) -> tuple[URL, tuple[str, str] | tuple[()]]:
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


def find_route(url: URL, route: str) -> URL:
    """Return the URL of another route of the same API."""
    if route == CHAT:
        return url
    return url.with_path(url.raw_path.removesuffix(CHAT) + route, encoded=True, keep_query=True)


def encode_login(login: Sequence[str]) -> str:
    """Return the login as HTTP sends it."""
    return base64.b64encode(":".join(login).encode()).decode("ascii")


def list_secrets(url: URL, login: Sequence[str]) -> list[str]:
    """List the secrets of an address in each form that goes out, since an upstream may echo any of them: a field of the
    query also with its escapes."""
    sent = {name: value for name, _, value in (field.partition("=") for field in url.raw_query_string.split("&"))}
    found = [*secret_headers(url.query), *secret_headers(sent)]
    return [*login, encode_login(login), *found] if login else found


INBOX_BYTES_MAX = 1024 * 1024


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


Refusal = tuple[int, UpstreamComplaint, Failed]  # the status, what the upstream complains of, and the fault that it is
Send = Callable[[HistoryForm], Awaitable[aiohttp.ClientResponse | Failed]]


async def send_in_form(
    request: ChatRequest,
    form: HistoryForm,
    send: Send,
    read_refusal: Callable[[aiohttp.ClientResponse], Awaitable[Refusal]],
) -> tuple[aiohttp.ClientResponse | Failed, HistoryForm]:
    """Return a response that is an answer, or why there is none; and the form that is known to be taken from now on."""
    response = await send(form)
    if isinstance(response, Failed) or _is_answer(response):
        return response, form
    status, complaint, failed = await read_refusal(response)
    softer = None if request.route else wants_softer(status, complaint)
    if softer is None or softer <= form or not await large(request.body_bytes, _differs, request, form, softer):
        return failed, form
    response = await send(softer)
    if isinstance(response, Failed) or _is_answer(response):
        return response, form if isinstance(response, Failed) else softer
    return (await read_refusal(response))[2], form


def _is_answer(response: aiohttp.ClientResponse) -> bool:
    return 200 <= response.status < 300


def _differs(request: ChatRequest, form: HistoryForm, softer: HistoryForm) -> bool:
    return list(soften(request.messages, softer)) != list(soften(request.messages, form))
