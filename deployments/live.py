"""A `user_config` that changes while the server runs.

At the start of a replica a wrong one is refused: the replica doesn't start, and Serve shows the line that names the
key. Later it must not take a working server down, and Serve would stop a replica whose `reconfigure` raises. So the
replica goes on with what it has, says so in the log, and `/ready` shows the refused line until a good one comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from deployments.config import ConfigError
from deployments.telemetry import log_error

__all__ = ["applied"]

C = TypeVar("C")


def applied(
    patched: Callable[[Mapping[str, Any]], C], change: Mapping[str, Any] | None, current: C, *, first: bool, at: str
) -> tuple[C, str | None]:
    """Return the configuration to go on with, and why a change was refused.

    Raises:
        ConfigError: at the start of a replica (`first`).
    """
    try:
        return patched(change or {}), None
    except ValueError as error:
        if first:
            raise ConfigError(f"user_config of {at}: {error}") from None
        log_error("user_config_refused", error, deployment=at)
        return current, str(error)
