"""How many replicas each deployment has, as Serve's controller reports it: known without a question, which would start
one.

The router of each handle (`session_routing.py`) notes it here, on its own thread. Not there: Serve pickles a router's
class with its module by value, so that module's variables would be another copy.
"""

from __future__ import annotations

# By app and deployment.
_SEEN: dict[tuple[str, str], int] = {}


def note_replicas(app: str, deployment: str, count: int) -> None:
    """Note how many run now."""
    _SEEN[app, deployment] = count


def replicas_seen(app: str, deployment: str) -> int:
    """Return how many replicas take requests, as the newest message has it; 0 before the first one.
    Only for deployments that are routed by `session_routing.session_routing`."""
    return _SEEN.get((app, deployment), 0)
