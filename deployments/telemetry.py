"""The only place that logs: to Ray Serve's logger, one word for the event, and fields.

Ray (2.60) loses a JSON line with a value that JSON can't say, and raises for a field named like one of `logging`'s:
both are ruled out here. Invariants: prompts, answers, keys, and words that may quote them are never logged, so of an
exception its words only where its class speaks of machines; a session is logged by its digest (`session_tag`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import sqlite3
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from deployments.config.config_errors import ConfigError

LOG = logging.getLogger("ray.serve")
_FIELD_CHARS_MAX = 300
_STACK_FRAMES_MAX = 30
_CAUSES_MAX = 4
# What `logging` refuses as a field, what Ray puts in itself, and what it reads as a command.
_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {
    *("asctime", "exc_text", "message", "stack_info", "taskName", "timestamp_ns", "_ray_timestamp_ns"),
    *("job_id", "worker_id", "node_id", "actor_id", "actor_name", "task_id", "task_name", "task_func_name"),
    *("application", "component_id", "component_name", "deployment", "replica", "route"),
    *("log_to_stderr", "ray_serve_extra_fields", "serve_access_log", "skip_context_filter"),
}
_REQUEST_ID = "request_id"  # Ray puts it before the words of a line of text, as it is
# They speak of files, sockets, processes and configuration keys, never of a request's content.
_WORDS_ARE_SAFE = (OSError, sqlite3.Error, RayActorError, ConfigError)


def log_info(event: str, **fields: Any) -> None:
    """Log one line about something that happened as meant. Never raises. The place in the code
    isn't named: to find it costs more than the line."""
    if LOG.isEnabledFor(logging.INFO):
        words, extra = _format_line(event, fields), _build_extra(event, fields)
        LOG.handle(LOG.makeRecord(LOG.name, logging.INFO, __name__, 0, words, (), None, extra=extra))


def log_warning(event: str, **fields: Any) -> None:
    """Log one line about something that is meant and that the operator should know of."""
    LOG.warning(_format_line(event, fields), extra=_build_extra(event, fields))


def log_error(event: str, error: BaseException, **fields: Any) -> None:
    """Log one line and the stack of an error that is a bug or a break inside. Never raises."""
    fields |= {"error": type(error).__name__}
    # Ray raises what was raised elsewhere as an instance of both classes, and its words hold the other's whole story.
    if isinstance(error, _WORDS_ARE_SAFE) and not isinstance(error, RayTaskError):
        fields |= {"words": str(error)}
    LOG.error(
        "\n".join([_format_line(event, fields), *_format_stack(error)]), extra=_build_extra(event, fields), stacklevel=2
    )


def flush_logs() -> None:
    """Write what Serve still holds back: it collects lines, up to a thousand, and loses them where it is killed."""
    for handler in LOG.handlers:
        handler.flush()


def hush(words: str) -> None:
    """Leave out the lines of this process that begin with these words: Serve logs each call of a method, and who is
    asked every few seconds how it is would fill the terminal with it."""
    LOG.addFilter(lambda record: not (isinstance(record.msg, str) and record.getMessage().startswith(words)))


def log_request(report: Mapping[str, Any]) -> None:
    """Log the line of one finished request, from its report."""
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
    """Name a session as the logs do: twelve hex digits."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _format_line(event: str, fields: Mapping[str, Any]) -> str:
    words = (f"{key}={_format_value(value)}" for key, value in fields.items() if value is not None)
    return " ".join([event, *words])


def _format_value(value: Any) -> str:
    """Write a value as one word: quoted where a space, a quote or a line end would make two of it."""
    text = str(_make_loggable(value))
    return text if text.isprintable() and not set(text) & set(' "=') and text else json.dumps(text)


def _build_extra(event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    given = {"event": event} | {key: value for key, value in fields.items() if value is not None}
    extra = {f"{key}_" if key in _TAKEN else key: _make_loggable(value) for key, value in given.items()}
    if _REQUEST_ID in extra:
        extra[_REQUEST_ID] = _format_value(extra[_REQUEST_ID])
    return extra


def _make_loggable(value: Any) -> str | int | float | bool:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)[:_FIELD_CHARS_MAX]


def _format_stack(error: BaseException) -> Iterable[str]:
    """Tell where it was raised and by what, without the words of any exception: they may quote the conversation."""
    cause: BaseException | None = error
    for depth in range(_CAUSES_MAX):
        if cause is None:
            return
        yield f"{'caused by ' if depth else ''}{type(cause).__module__}.{type(cause).__qualname__}, raised at"
        for frame in traceback.extract_tb(cause.__traceback__)[-_STACK_FRAMES_MAX:]:
            yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
