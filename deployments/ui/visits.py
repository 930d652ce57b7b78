"""Who looks at the control room, and may they give orders: the cookie, the token, and the guard before every page.

    keys configured   an admin's key, sent once to `/ui/sign-in`, becomes a cookie; any other page leads there
    none              whoever is on this machine, by the API's own guard; the cookie only carries the nonce of the token

A page is shown to a `Visit`; an order is a POST that brings the token of its cookie, from a page of this very origin.
The cookie is HttpOnly and SameSite=Strict, and `Secure` where the page came by TLS. Its name has the port in it, since
browsers give the cookies of one host to all of its ports. Signing out ends the cookie on the server, in the journal
that all Routers share (`deployments/state/journal.py`): a copy of it opens nothing any more.

What must never happen: an order without the token, a page to somebody whom the API would refuse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from deployments.api.access import ANYBODY, Access, Caller
from deployments.api.admin import await_state
from deployments.api.body import Bodies
from deployments.errors import ApiError
from deployments.state.client import State
from deployments.ui.sealing import COOKIE_S, Cookie, Seal

__all__ = ["NotSignedIn", "Visit", "Visits", "find_root"]

AWAY = "no_tier_available"  # what `await_state` raises
TOKEN_HEADER, TOKEN_FIELD = "x-csrf-token", "token"
FORM_BYTES_MAX, FORM_S, FIELDS_MAX, READERS_MAX = 65_536, 10.0, 64, 8


class NotSignedIn(Exception):
    """Who asks must sign in first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Who looks, and the token of their orders. `fresh`: the cookie that they still have to be given."""

    caller: Caller
    token: str
    fresh: str | None = None


class Visits:
    """The guard. `access` is called at each request, since a `user_config` may change it."""

    def __init__(self, access: Callable[[], Access], state: State) -> None:
        self._access, self._state = access, state
        self._seal: Seal | None = None
        self._bodies = Bodies(READERS_MAX)

    async def open_page(self, request: Request) -> Visit:
        """Let somebody look.

        Raises:
            NotSignedIn: there are keys, and no good cookie.
            ApiError: `forbidden`; `no_tier_available` where the state actor doesn't answer.
        """
        access, seal = self._access(), await self._find_seal()
        access.guard(request.client.host if request.client else None, request.headers)
        cookie = await self._read(request, access, seal)
        if cookie is not None:
            return Visit(caller=_find_caller(access, cookie.name), token=seal.make_token(cookie))
        if access.keyed:
            raise NotSignedIn
        fresh = seal.make_cookie("", b"", time.time())
        made = seal.read_cookie(fresh)
        if made is None:
            raise AssertionError("a cookie that was just made can be read")
        return Visit(caller=ANYBODY, token=seal.make_token(made[0]), fresh=fresh)

    async def may_look(self, request: Request) -> bool:
        """Tell whether whoever was let in by this request still would be. While the state actor is away nobody knows:
        they stay."""
        try:
            await self.open_page(request)
        except NotSignedIn:
            return False
        except ApiError as error:
            return error.code == AWAY
        return True

    async def take_order(self, request: Request) -> tuple[Visit, Mapping[str, str]]:
        """Let somebody change something; return what the form says, too.

        Raises:
            NotSignedIn, ApiError: as `take_call`.
        """
        form = await self.read_form(request)
        return await self.take_call(request, form.get(TOKEN_FIELD, "")), form

    async def take_call(self, request: Request, token: str = "") -> Visit:
        """Let somebody send something, whose token stands in a header, if it isn't given.

        Raises:
            NotSignedIn, ApiError: as `open_page`; `forbidden`: it doesn't come from a page of this server.
        """
        visit = await self.open_page(request)
        refuse_foreign(request)
        seal = await self._find_seal()
        cookie = await self._read(request, self._access(), seal)
        if cookie is None or not seal.is_token(cookie, request.headers.get(TOKEN_HEADER) or token):
            raise ApiError("forbidden", "the order doesn't carry the token of this page: load the page again")
        return visit

    async def read_form(self, request: Request) -> Mapping[str, str]:
        """Read a form, within its bounds; of a field that comes twice the last one counts.

        Raises:
            ApiError: it is too large or too slow, or no form.
        """
        raw = await self._bodies.read(request, bytes_max=FORM_BYTES_MAX, first_s=FORM_S)
        try:
            return dict(parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))
        except ValueError:
            raise ApiError("invalid_request", "the form can't be read") from None

    async def sign_in(self, request: Request, key: str) -> str | None:
        """Return the cookie for an admin's key; None where it is none.

        Raises:
            ApiError: as `take_order`.
        """
        access, seal = self._access(), await self._find_seal()
        access.guard(request.client.host if request.client else None, request.headers)
        refuse_foreign(request)
        try:
            caller = access.caller({"authorization": f"Bearer {key.strip()}"})
        except ApiError:
            return None
        found = access.find_key(caller.name)
        return seal.make_cookie(caller.name, found[0], time.time()) if caller.admin and found else None

    def set_cookie(self, request: Request, response: Response, value: str | None) -> None:
        """Give the browser its cookie; None takes it away."""
        response.set_cookie(
            _name_cookie(request),
            value or "",
            max_age=COOKIE_S if value else 0,
            path=find_root(request) or "/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    async def sign_out(self, request: Request) -> None:
        """End the cookie that this request brings: for every Router, until it would have expired.

        Raises:
            ApiError: `no_tier_available` where the state actor doesn't answer.
        """
        access = self._access()
        cookie = await self._read(request, access, await self._find_seal())
        if cookie is not None and access.keyed:
            await await_state(self._state.sign_out(cookie.nonce, cookie.expires_s))

    async def _read(self, request: Request, access: Access, seal: Seal) -> Cookie | None:
        read = seal.read_cookie(request.cookies.get(_name_cookie(request), ""))
        if read is None:
            return None
        cookie, sealed = read
        found = access.find_key(cookie.name) if access.keyed else (b"", ANYBODY)
        good = found is not None and found[1].admin and seal.is_good(cookie, sealed, found[0], time.time())
        if not good or (access.keyed and await await_state(self._state.is_signed_out(cookie.nonce, cookie.expires_s))):
            return None
        return cookie

    async def _find_seal(self) -> Seal:
        if self._seal is None:
            self._seal = Seal(await await_state(self._state.get_page_secret()))
        return self._seal


def refuse_foreign(request: Request) -> None:
    """Refuse what another site's page sends, as far as the browser says so.

    Raises:
        ApiError: `forbidden`.
    """
    origin = request.headers.get("origin")
    elsewhere = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if elsewhere or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ApiError("forbidden", "orders are taken from this server's own pages only")


def find_root(request: Request) -> str:
    """Find the prefix that the app is served under, without the control room's own."""
    root: str = request.scope.get("app_root_path", request.scope.get("root_path", ""))
    return quote(root.rstrip("/"))


def _find_caller(access: Access, name: str) -> Caller:
    found = access.find_key(name)
    return found[1] if found else ANYBODY


def _name_cookie(request: Request) -> str:
    port = request.url.port
    return f"mlx_stack_{port}" if port else "mlx_stack"
