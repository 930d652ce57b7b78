"""The names of responses (`resp_TAG`) and of their items (`msg_TAG_N`, `in_TAG_N`), and the opaque form of texts.

TAG: the second that the response began in, in hexadecimal, and 24 random digits. The seal is base64 behind a mark, no
secret: some clients (Codex) pass back `encrypted_content` alone.
Invariants: no two responses have one name; no item names another response than its own.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import time

_MARK = "mlxs1."

_TAG = r"[0-9a-f]{8}[0-9a-f]{24}"
_RESPONSE = re.compile(rf"resp_({_TAG})")
_ITEM = re.compile(rf"[a-z]{{2,5}}_({_TAG})_[0-9]{{1,6}}")
_YOUNG_S = 3_600.0  # as long as a response may take


def make_tag() -> str:
    """Make the tag of a new response."""
    return f"{int(time.time()) & 0xFFFFFFFF:08x}{secrets.token_hex(12)}"


def name_response(tag: str) -> str:
    """Name the response of this tag."""
    return f"resp_{tag}"


def is_response_id(name: str) -> bool:
    """Tell whether it is a name that this server could have given."""
    return _RESPONSE.fullmatch(name) is not None


def tag_of(item_id: object) -> str | None:
    """Read the tag of the response that an item belongs to; None where it isn't one of ours."""
    found = _ITEM.fullmatch(item_id) if isinstance(item_id, str) else None
    return None if found is None else found[1]


def has_just_begun(response_id: str) -> bool:
    """Tell whether the response began so few seconds ago that it may still be on its way to where it is kept."""
    found = _RESPONSE.fullmatch(response_id)
    return found is not None and 0 <= time.time() - int(found[1][:8], 16) <= _YOUNG_S


def seal(text: str) -> str:
    """Write reasoning, or a summary, in its opaque form."""
    return _MARK + base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def open_seal(sealed: object) -> str | None:
    """Read it back; None where it isn't ours."""
    if not isinstance(sealed, str) or not sealed.startswith(_MARK):
        return None
    try:
        raw = base64.b64decode(sealed[len(_MARK) :].encode("ascii"), altchars=b"-_", validate=True)
        return raw.decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None
