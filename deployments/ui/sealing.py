"""Cookies and tokens that only this server can have made.

    cookie   NAME:EXPIRES:NONCE:SEAL     SEAL = HMAC(secret, NAME, EXPIRES, NONCE, the digest of NAME's key)
    token    HMAC(secret, NONCE)         stands in the page, and comes back with every order

The secret is one of the journal's, so that every Router, and the next start, knows the cookies of the last. It is no
API key's digest: whoever reads the file of keys must not be able to make a cookie of it. A key that is replaced or
removed ends its cookies, since its digest is sealed in.

What must never happen: a comparison whose time tells how much was right, a cookie that the API under `/v1` takes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass

__all__ = ["COOKIE_S", "Cookie", "Seal"]

COOKIE_S = 7 * 86_400
COOKIE_CHARS_MAX = 512


@dataclass(frozen=True, slots=True)
class Cookie:
    """What a cookie says. `name` "" is whoever is on this machine, where there are no keys."""

    name: str
    expires_s: int
    nonce: str


class Seal:
    """The secret, and what is made with it."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def __repr__(self) -> str:
        return "Seal()"

    def make_cookie(self, name: str, digest: bytes, now_s: float) -> str:
        """Make a new cookie for whoever has the key of this digest."""
        cookie = Cookie(name, int(now_s) + COOKIE_S, secrets.token_hex(16))
        return f"{self._spell(cookie)}:{self._seal(cookie, digest)}"

    def read_cookie(self, value: str) -> tuple[Cookie, str] | None:
        """Read a cookie and its seal, which is still to be checked: `is_good` needs the name's digest."""
        parts = value.split(":")
        if len(value) > COOKIE_CHARS_MAX or len(parts) != 4 or not parts[1].isascii() or not parts[1].isdecimal():
            return None
        return Cookie(parts[0], int(parts[1]), parts[2]), parts[3]

    def is_good(self, cookie: Cookie, seal: str, digest: bytes, now_s: float) -> bool:
        """Tell whether this server has made the cookie for this key, and it still counts."""
        same = hmac.compare_digest(self._seal(cookie, digest).encode(), seal.encode("utf-8", "replace"))
        return same and cookie.expires_s > now_s

    def make_token(self, cookie: Cookie) -> str:
        """Make the token of this cookie's pages."""
        return self._hash("order", cookie.nonce, cookie.name)

    def is_token(self, cookie: Cookie, token: str) -> bool:
        """Tell whether a token is this cookie's."""
        return hmac.compare_digest(self.make_token(cookie).encode(), token.encode("utf-8", "replace"))

    def _spell(self, cookie: Cookie) -> str:
        return f"{cookie.name}:{cookie.expires_s}:{cookie.nonce}"

    def _seal(self, cookie: Cookie, digest: bytes) -> str:
        return self._hash("cookie", self._spell(cookie), digest.hex())

    def _hash(self, *parts: str) -> str:
        return hmac.new(self._secret, "\n".join(parts).encode("utf-8", "replace"), hashlib.sha256).hexdigest()
