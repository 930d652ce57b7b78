"""How many replicas each deployment has, as Serve reports it to this process: whether a tier is
scaled to zero is known without asking it.

A question would start a replica (`handle.py`). Serve's controller tells the router of each handle
at once when a replica comes or goes, and the router (`session_routing.py`) notes the number here.
Not there: Serve pickles a router's class with its module by value, so what that module holds is
another copy of it; what it imports is imported by name.

Written by the one router that this process has for a deployment, on the router's own thread; read by anybody.
"""

from __future__ import annotations

__all__ = ["note_replicas", "replicas_seen"]

# By app and deployment.
_SEEN: dict[tuple[str, str], int] = {}


def note_replicas(app: str, deployment: str, count: int) -> None:
    """Note how many run now."""
    _SEEN[app, deployment] = count


def replicas_seen(app: str, deployment: str) -> int:
    """Return how many replicas take requests, as the newest message has it; 0 before the first one.
    Only for deployments that are routed by `session_routing.session_routing`."""
    return _SEEN.get((app, deployment), 0)
