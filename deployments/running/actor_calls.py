"""Start and call an actor for the process itself, and not for the request that happens to run.

Serve cancels a request that its client leaves, with all calls that were made in it; a call that is cancelled before it
is sent makes a synchronous actor wait 30 s for the gap to be filled (docs/decisions/082).
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Mapping
from typing import Any

NAMESPACE = "mlx-stack-serve"


def call_actor(remote: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `handle.method.remote` or a class's `remote` outside of any request, and return what it returns."""
    return contextvars.Context().run(remote, *args, **kwargs)


def start_actor(kind: type, name: str, options: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Return the handle of the detached actor of this name, made where there is none. `options`: more of Ray's."""
    made = {"name": name, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    maker = _make_ray_class(kind).options(**made, max_restarts=-1, num_cpus=0, **options)
    return call_actor(maker.remote, *args, **kwargs)


@functools.cache
def _make_ray_class(kind: type) -> Any:
    """Make Ray's class for an actor, once: each call of `ray.remote` makes a new one, which is never freed."""
    import ray  # not with the module: without Ray no actor is started

    return ray.remote(kind)
