"""The only place that logs and counts.

Log lines go to Ray Serve's logger. What happened is one word, and the rest are fields: in the text encoding they stand
behind it as `key=value`, in the JSON encoding they are keys of the line as well. Ray (2.60) writes JSON with a plain
`json.dumps` of the record's attributes, so a value that JSON can't say would lose the whole line, and a field named
like one of `logging`'s attributes raises; both are ruled out here, for every field. Ray's own fields (request id,
deployment, replica, ...) are put in after ours and win.

What is never logged: prompts, answers, keys, and what may quote them, such as the `detail` of an attempt or the words
of an exception that choked on a value; of an exception its type, its place and the stack are told, and its words only
where its class speaks of machines (`WORDS_ARE_SAFE`). Session names are logged as a short digest: agents put people's
names and addresses there (`user`, `metadata.user_id`), and logs travel further than this server; who knows a session's
name can compute its digest (`session_tag`) and follow it through the lines.

Metrics appear on Ray's Prometheus endpoint under `ray_mlx_stack_*`. Each label has a closed set of values: the
configured tiers, and enums; whatever else turns up is counted as `other`. So no client can make a new time series.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import sqlite3
import time
import traceback
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any

from ray.exceptions import RayActorError, RayTaskError
from ray.serve import metrics

from deployments.config import ConfigError
from reliability.escalation import reason_of
from reliability.tools.verdicts import RepairKind
from reliability.types import Attempt, Fault, Flaw, Reason, RefuseCode

__all__ = [
    "MonotonicClock",
    "RequestMetrics",
    "flush_logs",
    "hush",
    "log_error",
    "log_info",
    "log_request",
    "log_warning",
    "session_tag",
]

LOG = logging.getLogger("ray.serve")
FIELD_CHARS_MAX = 300
STACK_FRAMES_MAX = 30
CAUSES_MAX = 4
# What `logging` refuses as a field, what Ray puts in itself, and what it reads as a command.
TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {
    *("asctime", "exc_text", "message", "stack_info", "taskName", "timestamp_ns", "_ray_timestamp_ns"),
    *("job_id", "worker_id", "node_id", "actor_id", "actor_name", "task_id", "task_name", "task_func_name"),
    *("application", "component_id", "component_name", "deployment", "replica", "route"),
    *("log_to_stderr", "ray_serve_extra_fields", "serve_access_log", "skip_context_filter"),
}
# They speak of files, sockets, processes and configuration keys, never of a request's content.
WORDS_ARE_SAFE = (OSError, sqlite3.Error, RayActorError, ConfigError)

OTHER = "other"
NONE = "none"
OUTCOMES = frozenset({"answered", "client_left", *RefuseCode})
FAULTS = frozenset({NONE, *Fault})
FLAWS = frozenset({NONE, *Flaw})
MARKS = frozenset({"nudged", "broken", "detected"})
TTFT_MS: list[float] = [10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000]
INTER_TOKEN_MS: list[float] = [1, 2.5, 5, 10, 20, 35, 50, 75, 100, 200, 500, 1000, 5000]
OVERHEAD_MS: list[float] = [0.5, 1, 2, 3, 5, 7.5, 10, 20, 50, 100, 500, 2000]
REQUEST_MS: list[float] = [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 900_000]


class MonotonicClock:
    """`deployments.ports.Clock` on this machine's monotonic clock."""

    def now_ns(self) -> int:
        """Nanoseconds since some fixed moment."""
        return time.monotonic_ns()


# -- lines ---------------------------------------------------------------------------------------------------------


def log_info(event: str, **fields: Any) -> None:
    """One line about something that happened as meant. Never raises. Where it was written isn't said: to find that out
    costs more than the line."""
    if LOG.isEnabledFor(logging.INFO):
        words, extra = _line(event, fields), _extra(event, fields)
        LOG.handle(LOG.makeRecord(LOG.name, logging.INFO, __name__, 0, words, (), None, extra=extra))


def log_warning(event: str, **fields: Any) -> None:
    """One line about something that is meant and that the operator should know of."""
    LOG.warning(_line(event, fields), extra=_extra(event, fields))


def log_error(event: str, error: BaseException, **fields: Any) -> None:
    """One line and the stack of an error that is a bug or a break inside. Never raises."""
    fields |= {"error": type(error).__name__}
    # Ray raises what was raised elsewhere as an instance of both classes, and its words hold the other's whole story.
    if isinstance(error, WORDS_ARE_SAFE) and not isinstance(error, RayTaskError):
        fields |= {"words": str(error)}
    LOG.error("\n".join([_line(event, fields), *_stack(error)]), extra=_extra(event, fields), stacklevel=2)


def flush_logs() -> None:
    """Write what Serve still holds back: it collects lines, up to a thousand, and loses them where it is killed."""
    for handler in LOG.handlers:
        handler.flush()


def hush(words: str) -> None:
    """Leave out the lines of this process that begin with these words: Serve logs each call of a method, and who is
    asked every few seconds how it is would fill the terminal with it."""
    LOG.addFilter(lambda record: not (isinstance(record.msg, str) and record.getMessage().startswith(words)))


def log_request(report: Mapping[str, Any]) -> None:
    """The line of one finished request, from its report."""
    log_info(
        "request",
        request_id=report["request_id"],
        session=session_tag(report["session"]),
        outcome=report["outcome"],
        tier=report["tier"],
        escalated_from=report["escalated_from"],
        reason=report["escalation_reason"],
        retries=report["retries"],
        loop=report["loop"],
        total_ms=report.get("total_ms"),
        cost_usd=report.get("cost_usd"),
    )


def session_tag(session: str) -> str:
    """How a session is called in the logs: twelve hex digits."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _line(event: str, fields: Mapping[str, Any]) -> str:
    words = (f"{key}={_shown(value)}" for key, value in fields.items() if value is not None)
    return " ".join([event, *words])


def _shown(value: Any) -> str:
    """As one word: quoted where a space, a quote or a line end would make two of it."""
    text = str(_loggable(value))
    return text if text.isprintable() and not set(text) & set(' "=') and text else json.dumps(text)


def _extra(event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {"event": event} | {key: value for key, value in fields.items() if value is not None}
    return {f"{key}_" if key in TAKEN else key: _loggable(value) for key, value in given.items()}


def _loggable(value: Any) -> str | int | float | bool:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)[:FIELD_CHARS_MAX]


def _stack(error: BaseException) -> Iterable[str]:
    """Where it was raised and by what, without the words of any exception: they may quote what was said."""
    cause: BaseException | None = error
    for depth in range(CAUSES_MAX):
        if cause is None:
            return
        yield f"{'caused by ' if depth else ''}{type(cause).__module__}.{type(cause).__qualname__}, raised at"
        for frame in traceback.extract_tb(cause.__traceback__)[-STACK_FRAMES_MAX:]:
            yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


# -- metrics -------------------------------------------------------------------------------------------------------


class RequestMetrics:
    """The metrics of one Router replica. Made inside a replica, since Ray's metrics belong to a process.

    `tiers` are the configured names: every other one is counted as `other`.

    What is read of a report: `outcome`, `tier`, `loop`, `repairs`, `attempts`, and, where they are there, `total_ms`
    (from the request's arrival to its end) and `overhead_ms` (the same without the `elapsed_ms` of the attempts). Of an
    attempt: `tier`, `ran`, `fault`, `flaw`, `elapsed_ms`, `ttft_ms`, `usage`, and `cost_usd` where it is there.
    """

    def __init__(self, tiers: Collection[str] = ()) -> None:
        self._tiers = frozenset(tiers)
        self._requests = _counter("requests", "Finished requests, by the tier that was asked last.", "outcome", "tier")
        self._attempts = _counter("attempts", "Attempts, by fault and flaw (none: good).", "tier", "fault", "flaw")
        self._escalations = _counter("escalations", "Times that a tier was left for the next one.", "tier", "reason")
        self._repairs = _counter("repairs", "Delivered answers whose calls were mended, by kind.", "kind")
        self._loops = _counter("loops", "Requests in which a loop was found.", "mark")
        self._tokens = _counter("tokens", "Tokens of attempts, by kind: prompt or completion.", "tier", "kind")
        self._cost = _counter("cost_usd", "Estimated cost of attempts in US dollars.", "tier")
        self._ttft_ms = _histogram("ttft_ms", "From the call to the first piece of the answer.", TTFT_MS, "tier")
        self._inter_token_ms = _histogram(
            "inter_token_ms", "Time between two tokens, the mean of one attempt.", INTER_TOKEN_MS, "tier"
        )
        self._overhead_ms = _histogram("overhead_ms", "A request's time without its attempts' time.", OVERHEAD_MS)
        self._request_ms = _histogram("request_ms", "A request's whole time.", REQUEST_MS, "outcome")

    def count(self, report: Mapping[str, Any]) -> None:
        """Count one finished request by its report."""
        outcome = _known(report["outcome"], OUTCOMES)
        self._requests.inc(tags={"outcome": outcome, "tier": self._tier(report["tier"])})
        if report["loop"] is not None:
            self._loops.inc(tags={"mark": _known(report["loop"], MARKS)})
        for kind in report["repairs"]:
            self._repairs.inc(tags={"kind": _known(kind, frozenset(RepairKind))})
        for attempt in report["attempts"]:
            self._count_attempt(attempt)
        for before, after in pairwise(report["attempts"]):
            if before["tier"] != after["tier"]:
                self._escalations.inc(tags={"tier": self._tier(before["tier"]), "reason": _reason(before)})
        if (total_ms := report.get("total_ms")) is not None:
            self._request_ms.observe(max(0, total_ms), tags={"outcome": outcome})
        if (overhead_ms := report.get("overhead_ms")) is not None:
            self._overhead_ms.observe(max(0, overhead_ms), tags={})

    def _count_attempt(self, attempt: Mapping[str, Any]) -> None:
        tier = {"tier": self._tier(attempt["tier"])}
        fault, flaw = (_known(attempt[name] or NONE, known) for name, known in (("fault", FAULTS), ("flaw", FLAWS)))
        self._attempts.inc(tags=tier | {"fault": fault, "flaw": flaw})
        usage = attempt["usage"] or {}
        for kind in ("prompt", "completion"):
            if tokens := usage.get(f"{kind}_tokens", 0):
                self._tokens.inc(tokens, tags=tier | {"kind": kind})
        # A counter takes no zero; a tier that costs nothing has no cost to show.
        if cost_usd := attempt.get("cost_usd"):
            self._cost.inc(cost_usd, tags=tier)
        if attempt["ttft_ms"] is not None:
            self._ttft_ms.observe(attempt["ttft_ms"], tags=tier)
            gaps = usage.get("completion_tokens", 0) - 1
            if gaps > 0:
                decoding_ms = max(0, attempt["elapsed_ms"] - attempt["ttft_ms"])
                self._inter_token_ms.observe(decoding_ms / gaps, tags=tier)

    def _tier(self, name: str | None) -> str:
        return NONE if name is None else _known(name, self._tiers)


def _counter(name: str, words: str, *labels: str) -> metrics.Counter:
    return metrics.Counter(f"mlx_stack_{name}", description=words, tag_keys=labels)


def _histogram(name: str, words: str, boundaries: list[float], *labels: str) -> metrics.Histogram:
    return metrics.Histogram(f"mlx_stack_{name}", description=words, boundaries=boundaries, tag_keys=labels)


def _known(value: object, known: frozenset[str]) -> str:
    return str(value) if isinstance(value, str) and value in known else OTHER


def _reason(attempt: Mapping[str, Any]) -> str:
    """Why the tier was left, by the same rule as the header."""
    fault, flaw = attempt["fault"], attempt["flaw"]
    if (fault or NONE) not in FAULTS or (flaw or NONE) not in FLAWS:
        return OTHER
    left = Attempt(
        tier=attempt["tier"],
        ran=attempt["ran"],
        fault=Fault(fault) if fault else None,
        flaw=Flaw(flaw) if flaw else None,
    )
    return _known(reason_of(left), frozenset(Reason))
