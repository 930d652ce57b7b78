"""SessionState: the one writer of what the Router replicas share.

A Router replica is one of several and may die at any time, so the reports of finished requests and the tokens spent by
each session are kept in one actor, which Ray Serve starts with the Router and health-checks (`deployment_actors`). The
Router sends one call per request, after the answer, and doesn't wait for it.

The actor is plain and synchronous: each method is one step from a whole state to a whole state, and Ray runs them one
after the other. Everything that grows is bounded: the oldest report and the session that was silent longest leave
first. Nothing here is on disk: a crash of the actor empties it, and costs no request.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

__all__ = ["STATE_ACTOR", "SessionState"]

STATE_ACTOR = "SessionState"


class SessionState:
    """Reports by request id and token totals by session, both bounded."""

    def __init__(self, *, reports_max: int, sessions_max: int) -> None:
        self._reports_max = reports_max
        self._sessions_max = sessions_max
        self._reports: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._sessions: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def record(self, report: dict[str, Any]) -> None:
        """Take the report of one finished request. A client that reuses a request id replaces its older report."""
        self._reports.pop(report["request_id"], None)
        self._reports[report["request_id"]] = report
        while len(self._reports) > self._reports_max:
            self._reports.popitem(last=False)
        self._count(report)

    def _count(self, report: dict[str, Any]) -> None:
        name = report["session"]
        session = self._sessions.pop(name, None) or _new_session(name)
        session["requests"] += 1
        for attempt in report["attempts"]:
            usage = attempt["usage"] or {}
            session["prompt_tokens"] += usage.get("prompt_tokens", 0)
            session["completion_tokens"] += usage.get("completion_tokens", 0)
        session["last_request_id"] = report["request_id"]
        self._sessions[name] = session
        while len(self._sessions) > self._sessions_max:
            self._sessions.popitem(last=False)

    def report(self, request_id: str) -> dict[str, Any] | None:
        """The report of one request, or None where it is unknown or has left."""
        return self._reports.get(request_id)

    def session(self, name: str) -> dict[str, Any] | None:
        """The totals of one session, or None."""
        return self._sessions.get(name)


def _new_session(name: str) -> dict[str, Any]:
    return {"session": name, "requests": 0, "prompt_tokens": 0, "completion_tokens": 0, "last_request_id": None}
