"""Does the server answer where a client would ask it?"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.error
import urllib.request

__all__ = ["is_open"]

ASK_S = 1.0
# No proxy of the environment: the server is on this machine.
OPENER = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    # Its certificate is for its clients to judge.
    urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),
)


def is_open(url: str) -> bool:
    """Return whether `/health` below `url` is answered with 200."""
    with (
        contextlib.suppress(OSError, ValueError, http.client.HTTPException),
        OPENER.open(f"{url}/health", timeout=ASK_S) as response,
    ):
        return bool(response.status == 200)
    return False
