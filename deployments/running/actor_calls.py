"""A call of an actor that belongs to the process which makes it, not to the request that it is made for.

Ray takes what a task submits for that task's children, and knows an asyncio task by a context variable. Where a client
leaves, Serve cancels its request with all its children (`ray.cancel`, recursive). A call that is canceled before it is
sent leaves its number out of the caller's row, and a synchronous actor does calls in the order of their numbers: it
lets those behind the gap wait until 30 seconds have passed without a new one. A caller that asks again sooner is never
heard again. Measured 2026-11-26, Ray 2.60.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any

__all__ = ["call_actor"]


def call_actor(remote: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `handle.method.remote` or a class's `remote` outside of any request, and return what it returns. Who awaits
    the reference may be canceled; the call goes on."""
    return contextvars.Context().run(remote, *args, **kwargs)
