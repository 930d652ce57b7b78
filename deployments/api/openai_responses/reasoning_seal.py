"""`encrypted_content` of a reasoning item: the reasoning itself, in an opaque form.

OpenAI seals its models' reasoning so that a client can carry it along without reading it. Here it is no secret: the
same item shows it in `content`, and the seal is base64 behind a mark. It is for clients that pass `encrypted_content`
back and drop the rest (Codex does). A seal without our mark is another server's and can't be read.
"""

from __future__ import annotations

import base64
import binascii

__all__ = ["open_seal", "seal"]

MARK = "mlxs1."


def seal(reasoning: str) -> str:
    """Write reasoning in its opaque form."""
    return MARK + base64.urlsafe_b64encode(reasoning.encode("utf-8", "surrogatepass")).decode("ascii")


def open_seal(sealed: str) -> str | None:
    """Read it back; None where it isn't ours."""
    if not sealed.startswith(MARK):
        return None
    try:
        raw = base64.b64decode(sealed[len(MARK) :].encode("ascii"), altchars=b"-_", validate=True)
        return raw.decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None
