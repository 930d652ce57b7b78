"""Who may ask, and for what: API keys, admin routes, and a listener that stays on loopback while there are no keys.

Without keys each caller on this machine is the admin, and on another host the server refuses to start unless
`server.allow_open` is true. Web pages are kept out by `Origin` and, against DNS rebinding, by `Host`. Invariants: a key
is compared by its digest, in constant time, and stands in no repr, log or error; no request is without a caller.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from starlette.requests import Request

from deployments.api.api_keys import MAKE_ONE, ApiKey, digest, load_keys
from deployments.config.app_config import ServerConfig
from deployments.config.config_errors import ConfigError
from deployments.config.loopback import is_loopback, is_own, is_own_page
from deployments.errors import ApiError
from deployments.listener.listening import find_serving_host
from deployments.telemetry import log_warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. `name` is empty where no keys are configured. `tokens_per_hour` None: no own budget."""

    name: str
    admin: bool
    allow_cloud: bool
    tokens_per_hour: int | None = None


_SAFE = ("GET", "HEAD", "OPTIONS")  # no route changes anything by these
ANYBODY = Caller(name="", admin=True, allow_cloud=True)


class Access:
    """The keys of one configuration, as digests."""

    def __init__(self, keys: tuple[ApiKey, ...], *, allow_open: bool = False, origins: Collection[str] = ()) -> None:
        self._callers = tuple(
            (k.sha256, Caller(name=k.name, admin=k.admin, allow_cloud=k.allow_cloud, tokens_per_hour=k.tokens_per_hour))
            for k in keys
        )
        self._allow_open = allow_open
        self._origins = frozenset(origins)

    def __repr__(self) -> str:
        return f"Access({len(self._callers)} keys, allow_open={self._allow_open})"

    @property
    def keyed(self) -> bool:
        return bool(self._callers)

    @property
    def shared(self) -> bool:
        return len(self._callers) > 1

    @property
    def key_hours(self) -> Mapping[str, int]:
        """The tokens an hour of each key that has such a limit."""
        callers = (caller for _, caller in self._callers)
        return {c.name: c.tokens_per_hour for c in callers if c.tokens_per_hour is not None}

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Identify who sends these headers, whose names are in lower case. Raises `ApiError`: `invalid_api_key`."""
        if not self._callers:
            return ANYBODY
        key = _read_key(headers)
        if not key:
            words = "an API key is needed: send it as `Authorization: Bearer KEY` or `x-api-key: KEY`"
            raise ApiError("invalid_api_key", words)
        own = digest(key)
        # Each entry is compared, also after one has matched.
        matching = [caller for sha256, caller in self._callers if hmac.compare_digest(sha256, own)]
        if not matching:
            raise ApiError("invalid_api_key", "the API key is wrong")
        return matching[0]

    def identify(self, request: Request) -> Caller:
        """Identify who sends this request, after `guard`. Raises `ApiError`: `forbidden`, `invalid_api_key`."""
        self.guard(request.client.host if request.client else None, request.headers)
        return self.caller(request.headers)

    def find_key(self, name: str) -> tuple[bytes, Caller] | None:
        """Find the digest of the key of this name, and whose it is: for the control room's cookies."""
        return next(((sha256, caller) for sha256, caller in self._callers if caller.name == name), None)

    def viewer(self, client_host: str | None, headers: Mapping[str, str]) -> Caller | None:
        """Identify who looks at what strangers may see a part of; None: a stranger. Raises `ApiError`:
        `invalid_api_key`."""
        if self._callers:
            return self.caller(headers) if _read_key(headers) else None
        try:
            self.guard(client_host, headers)
        except ApiError:
            return None
        return ANYBODY

    def identify_admin(self, request: Request) -> Caller:
        """Identify who sends this request, and pass an admin alone. Raises `ApiError`: as `identify`; `forbidden`."""
        caller = self.identify(request)
        if not caller.admin:
            raise ApiError("forbidden", "this route needs an admin's API key")
        return caller

    def guard(self, client_host: str | None, headers: Mapping[str, str]) -> None:
        """Pass a peer by its address, `Host` and `Origin`: without keys only this machine may ask, and no web page from
        elsewhere. Raises `ApiError`: `forbidden`."""
        if self._callers or self._allow_open:
            return
        words = "this server has no API keys and answers only to its own machine"
        if is_loopback(client_host):
            origin = headers.get("origin", "")
            if not is_own(headers.get("host", "")):
                words += ", and the request's Host header names another one"
            elif not (is_own(origin) or origin in self._origins):
                words += ", and the request's Origin header names another one: add it to server.cors_origins"
            else:
                return
        raise ApiError("forbidden", f"{words}: configure keys (server.api_keys_file), or set server.allow_open")

    def refuse_page(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a change that the page of another site asks for, unless `lets_read` lets it in. With keys there is
        nothing to refuse: such a page brings none. Raises `ApiError`: `forbidden`."""
        if self._callers or method in _SAFE or not is_foreign_page(headers):
            return
        if not self.lets_read(headers.get("origin", "")):
            raise ApiError("forbidden", "a page of another site may change nothing here: see server.cors_origins")

    def lets_read(self, origin: str) -> bool:
        """Tell whether web pages of `origin` may read answers: those of this machine, and the configuration's."""
        return origin in self._origins or is_own_page(origin)

    def refuse_host(self, host: str | None) -> None:
        """Refuse to listen on `host` without keys. Raises `ConfigError`: it isn't loopback, and `server.allow_open` is
        false."""
        if not self.is_open_on(host) or self._allow_open:
            return
        shown = host or "an unknown host"
        raise ConfigError(
            f"http_options.host: {shown} is not loopback and no API keys are configured: set http_options.host to "
            f"127.0.0.1, or configure server.api_keys_file or server.api_keys_env ({MAKE_ONE}), or let everybody in "
            "with server.allow_open: true"
        )

    def is_open_on(self, host: str | None) -> bool:
        """Tell whether everybody who reaches `host` may ask, from other machines too."""
        return not self._callers and not is_loopback(host)


def is_foreign_page(headers: Mapping[str, str]) -> bool:
    """Tell whether the page of another site sends this. A browser says so (`Sec-Fetch-Site`) to loopback and over TLS;
    to a plain address of the network it sends only `Origin`, with all that may change something."""
    if "sec-fetch-site" in headers:
        return headers["sec-fetch-site"] not in ("none", "same-origin")
    return "origin" in headers and headers["origin"].partition("://")[2] != headers.get("host")


def _read_key(headers: Mapping[str, str]) -> str:
    """Read the key that a request brings, or "". A bearer token goes before `x-api-key`; other schemes don't count."""
    scheme, _, token = headers.get("authorization", "").strip().partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return bearer or headers.get("x-api-key", "").strip()


def access_for(server: ServerConfig, environ: Mapping[str, str] = os.environ) -> Access:
    """Read the keys and check the listener of the Serve instance that this code runs under, if any. Blocks for a file
    and the Serve controller. Raises `ConfigError`: the keys can't be used, or the server would be open unasked."""
    access = Access(load_keys(server, environ), allow_open=server.allow_open, origins=server.cors_origins)
    if access.keyed:
        return access
    host = find_serving_host()
    if host is not None:
        access.refuse_host(host)
        if access.is_open_on(host):
            log_warning("open_to_everybody", host=host, why="server.allow_open is true and there are no API keys")
    return access
