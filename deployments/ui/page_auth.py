"""Who looks at the control room, and may they give orders: cookie, token, and the guard before every page.

    keys configured   an admin's key, sent once to `/ui/sign-in`, becomes a cookie; any other page leads there
    none              whoever is on this machine, by the API's own guard; the cookie only carries the token's nonce
    cookie            NAME:EXPIRES:NONCE:SEAL, with SEAL = HMAC(secret, NAME, EXPIRES, NONCE, the digest of NAME's key)
    token             HMAC(secret, NONCE, NAME) is in the page, and comes back with every order

The secret is the journal's own: all Routers share it, and who reads the key file can't make a cookie of it. Removing a
key ends its cookies; signing out ends one in the journal (`deployments/state/journal.py`). A cookie's name has the
port, since browsers share cookies among a host's ports.
Invariants: no order without the token; no page for somebody whom the API would refuse; the API under `/v1` takes no
cookie; no comparison's time tells how much was right.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from deployments.api.access import ANYBODY, Access, Caller, is_foreign_page
from deployments.api.admin import await_state
from deployments.api.body import Bodies
from deployments.errors import ApiError
from deployments.state.client import State

_COOKIE_S = 7 * 86_400
_COOKIE_CHARS_MAX = 512
_FindOwner = Callable[[str], tuple[bytes, Caller] | None]  # by the name of a key: its digest, and whose it is


@dataclass(frozen=True, slots=True)
class _Cookie:
    """What a cookie says. `name` "" is whoever is on this machine, where there are no keys."""

    name: str
    expires_s: int
    nonce: str


class _Seal:
    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def make(self, name: str, digest: bytes, now_s: float) -> tuple[_Cookie, str]:
        """Make a cookie for the key `name` with this digest; return it and its text."""
        cookie = _Cookie(name, int(now_s) + _COOKIE_S, secrets.token_hex(16))
        return cookie, self._spell(cookie, digest)

    def read(self, text: str, find_owner: _FindOwner, now_s: float) -> tuple[_Cookie, Caller] | None:
        """Read a cookie; None where this server hasn't made it for the key that has its name now, or it has ended."""
        parts = text.split(":")
        if len(text) > _COOKIE_CHARS_MAX or len(parts) != 4 or not parts[1].isascii() or not parts[1].isdecimal():
            return None
        cookie = _Cookie(parts[0], int(parts[1]), parts[2])
        owner = find_owner(cookie.name)
        if owner is None or not _is_same(self._spell(cookie, owner[0]), text) or cookie.expires_s <= now_s:
            return None
        return cookie, owner[1]

    def make_token(self, cookie: _Cookie) -> str:
        return self._hash("order", cookie.nonce, cookie.name)

    def _spell(self, cookie: _Cookie, digest: bytes) -> str:
        said = f"{cookie.name}:{cookie.expires_s}:{cookie.nonce}"
        return f"{said}:{self._hash('cookie', said, digest.hex())}"

    def _hash(self, *parts: str) -> str:
        return hmac.new(self._secret, "\n".join(parts).encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _is_same(text: str, given: str) -> bool:
    return hmac.compare_digest(text.encode("utf-8", "replace"), given.encode("utf-8", "replace"))


_AWAY = "no_tier_available"  # what `await_state` raises
_TOKEN_HEADER, _TOKEN_FIELD = "x-csrf-token", "token"
_FORM_BYTES_MAX, _FORM_S, _FIELDS_MAX, _READERS_MAX = 65_536, 10.0, 64, 8


class NotSignedIn(Exception):
    """Who asks must sign in first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Who looks, by which cookie, and the token of their orders. `fresh`: a cookie that they have yet to be given."""

    caller: Caller
    cookie: _Cookie
    token: str
    fresh: str | None = None


class Visits:
    """The guard. `access` is called at each request, since a `user_config` may change it."""

    def __init__(self, access: Callable[[], Access], state: State) -> None:
        self._access, self._state = access, state
        self._seal: _Seal | None = None
        self._bodies = Bodies(_READERS_MAX)

    async def open_page(self, request: Request) -> Visit:
        """Let somebody look. Raises NotSignedIn: there are keys, and no good cookie; ApiError: `forbidden`;
        `no_tier_available` where the state actor doesn't answer."""
        access, seal = self._access(), await self._find_seal()
        access.guard(request.client.host if request.client else None, request.headers)
        now_s = time.time()
        found = seal.read(request.cookies.get(_name_cookie(request), ""), functools.partial(_find_owner, access), now_s)
        if found is None and not access.keyed:
            cookie, fresh = seal.make("", b"", now_s)
            return Visit(caller=ANYBODY, cookie=cookie, token=seal.make_token(cookie), fresh=fresh)
        if found is None:
            raise NotSignedIn
        cookie, caller = found
        if access.keyed and await await_state(self._state.is_signed_out(cookie.nonce, cookie.expires_s)):
            raise NotSignedIn
        return Visit(caller=caller, cookie=cookie, token=seal.make_token(cookie))

    async def may_look(self, request: Request) -> bool:
        """Tell whether the visitor of this request still may look. While the state actor is away they stay."""
        try:
            await self.open_page(request)
        except NotSignedIn:
            return False
        except ApiError as error:
            return error.code == _AWAY
        return True

    async def take_order(self, request: Request) -> tuple[Visit, Mapping[str, str]]:
        form = await self.read_form(request)
        return await self.take_call(request, form.get(_TOKEN_FIELD, "")), form

    async def take_call(self, request: Request, token: str = "") -> Visit:
        visit = await self.open_page(request)
        _refuse_foreign(request)
        if not _is_same(visit.token, request.headers.get(_TOKEN_HEADER) or token):
            raise ApiError("forbidden", "the order doesn't carry the token of this page: load the page again")
        return visit

    async def read_form(self, request: Request) -> Mapping[str, str]:
        with ExitStack() as ending:
            raw = await self._bodies.read(request, bytes_max=_FORM_BYTES_MAX, first_s=_FORM_S, ending=ending)
        try:
            return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX))
        except ValueError:
            raise ApiError("invalid_request", "the form can't be read") from None

    async def sign_in(self, request: Request, key: str) -> str | None:
        access, seal = self._access(), await self._find_seal()
        access.guard(request.client.host if request.client else None, request.headers)
        _refuse_foreign(request)
        try:
            caller = access.caller({"authorization": f"Bearer {key.strip()}"})
        except ApiError:
            return None
        found = access.find_key(caller.name)
        return seal.make(caller.name, found[0], time.time())[1] if caller.admin and found else None

    def set_cookie(self, request: Request, response: Response, value: str | None) -> None:
        """Give the browser its cookie; None takes it away."""
        response.set_cookie(
            _name_cookie(request),
            value or "",
            max_age=_COOKIE_S if value else 0,
            path=find_root(request) or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    async def sign_out(self, visit: Visit) -> None:
        if self._access().keyed:
            await await_state(self._state.sign_out(visit.cookie.nonce, visit.cookie.expires_s))

    async def _find_seal(self) -> _Seal:
        if self._seal is None:
            self._seal = _Seal(await await_state(self._state.get_page_secret()))
        return self._seal


def _find_owner(access: Access, name: str) -> tuple[bytes, Caller] | None:
    """Find the admin whose key has this name; without keys anybody, whose cookie has no name."""
    if not access.keyed:
        return b"", ANYBODY
    found = access.find_key(name)
    return found if found is not None and found[1].admin else None


def _refuse_foreign(request: Request) -> None:
    if is_foreign_page(request.headers):
        raise ApiError("forbidden", "orders are taken from this server's own pages only")


def find_root(request: Request) -> str:
    """Find the prefix that the app is served under, without the control room's own."""
    root: str = request.scope.get("app_root_path", request.scope.get("root_path", ""))
    return quote(root.rstrip("/"))


def _name_cookie(request: Request) -> str:
    port = request.url.port
    return f"mlx_stack_{port}" if port else "mlx_stack"
