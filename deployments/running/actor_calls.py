"""Call an actor for the process itself, and not for the request that happens to run.

Serve cancels a request that its client leaves, with all calls that were made in it; a call that is cancelled before it
is sent makes a synchronous actor wait 30 s for the gap to be filled (docs/decisions/082).
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any


def call_actor(remote: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `handle.method.remote` or a class's `remote` outside of any request, and return what it returns. Who awaits
    the reference may be canceled; the call goes on."""
    return contextvars.Context().run(remote, *args, **kwargs)
