"""The only place that logs and counts.

Log lines go to Ray Serve's logger, which adds the request id, the deployment and the replica, and writes JSON where
`logging_config` asks for it. Prompts, answers and keys are never logged. Metrics appear on Ray's Prometheus endpoint
under `ray_mlx_stack_*`; their labels come from bounded sets (tier names, fault names, error codes).
"""

from __future__ import annotations

import logging
import time
from typing import Any

from ray.serve import metrics

__all__ = ["MonotonicClock", "RequestMetrics", "log_error", "log_info"]

LOG = logging.getLogger("ray.serve")


def log_info(event: str, **fields: Any) -> None:
    """One line about something that happened as meant."""
    LOG.info(_line(event, fields))


def log_error(event: str, error: BaseException, **fields: Any) -> None:
    """One line and the stack of an error that is a bug or a break inside."""
    LOG.error(_line(event, fields), exc_info=error)


def _line(event: str, fields: dict[str, Any]) -> str:
    words = " ".join(f"{key}={value}" for key, value in fields.items() if value is not None)
    return f"{event} {words}"


class MonotonicClock:
    """`deployments.ports.Clock` on this machine's monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds since some fixed moment."""
        return time.monotonic_ns()


class RequestMetrics:
    """Counters of one Router replica. Made inside a replica, since Ray's metrics belong to a process."""

    def __init__(self) -> None:
        self._requests = metrics.Counter(
            "mlx_stack_requests", description="Finished requests.", tag_keys=("outcome", "tier")
        )
        self._attempts = metrics.Counter(
            "mlx_stack_attempts",
            description="Attempts on tiers, by fault and flaw (none: good).",
            tag_keys=("tier", "fault", "flaw"),
        )
        self._tokens = metrics.Counter("mlx_stack_tokens", description="Tokens of attempts.", tag_keys=("tier", "kind"))

    def count(self, report: dict[str, Any]) -> None:
        """Count one finished request by its report."""
        self._requests.inc(tags={"outcome": report["outcome"], "tier": report["tier"] or "none"})
        for attempt in report["attempts"]:
            self._attempts.inc(
                tags={"tier": attempt["tier"], "fault": attempt["fault"] or "none", "flaw": attempt["flaw"] or "none"}
            )
            usage = attempt["usage"] or {}
            for kind in ("prompt", "completion"):
                tokens = usage.get(f"{kind}_tokens", 0)
                if tokens:
                    self._tokens.inc(tokens, tags={"tier": attempt["tier"], "kind": kind})
