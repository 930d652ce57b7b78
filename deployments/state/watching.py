"""What is going on at this moment: the part of the state actor that the journal doesn't hold.

A page counts as open when the last `look` is less than `_LOOK_S` ago; every step's reply says so (`watched`), and only
then do Routers share what they run. Invariant: a Router's rows are forgotten `_SHARE_S` after it spoke last.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from deployments.state.history import History, RequestQuery, SessionQuery, TimeSpan
from deployments.state.journal import Journal
from deployments.state.records import Query
from reliability.admission.admit import AdmissionState

_LOOK_S = 3.0
_SHARE_S = 3.0
_SHARED_MAX = 256

F = TypeVar("F", bound=Callable[..., Any])


def one_at_a_time(method: F) -> F:
    """Let in one call at a time, and note when one succeeds: an actor that answers nothing any more ends itself."""

    @functools.wraps(method)
    def call_alone(self: Watchable, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            answer = method(self, *args, **kwargs)
            self._last_call_s = time.monotonic()
            return answer

    return cast(F, call_alone)


class Watchable:
    """What may be asked of the actor, mostly outside of its lock. Ray calls these one at a time."""

    _journal: Journal
    _state: AdmissionState
    _lock: threading.RLock
    _last_call_s: float
    _history: History | None = None
    _looked_s: float = float("-inf")
    _shared: Mapping[str, tuple[float, Sequence[Mapping[str, Any]]]] = {}

    @property
    def watched(self) -> bool:
        """Whether a page is open."""
        return time.monotonic() - self._looked_s < _LOOK_S

    def look(self, client: str, after: int | None) -> dict[str, Any]:
        """Return what the other Routers run, and the reports after this id; None: no reports, but the newest id."""
        now_s = self._looked_s = time.monotonic()
        fresh = {name: rows for name, (at_s, rows) in self._shared.items() if now_s - at_s < _SHARE_S}
        if after is None:
            finished, newest = [], self._open_history().ask(RequestQuery(limit=1))
        else:
            finished = newest = self._open_history().ask(RequestQuery(after=after, limit=50))
        return {
            "running": [row for name, rows in fresh.items() if name != client for row in rows],
            "finished": finished,
            "newest": newest[0]["id"] if newest else (after or 0),
        }

    def share_running(self, client: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take what one Router runs at this moment."""
        now_s = time.monotonic()
        kept = {name: shared for name, shared in self._shared.items() if now_s - shared[0] < _SHARE_S}
        self._shared = kept | {client: (now_s, tuple(rows[:_SHARED_MAX]))}

    def browse(self, question: RequestQuery | SessionQuery | Query) -> list[dict[str, Any]]:
        """Return the finished requests, the sessions or the incidents that match, the newest first."""
        return self._open_history().ask(question)

    def summarize(self, span: TimeSpan) -> dict[str, Any]:
        """Sum up a span: its requests by tier, its incidents by kind."""
        return self._open_history().summarize(span)

    def count_incidents(self, span: TimeSpan) -> list[tuple[int, str, int]]:
        """Count the incidents of a span by piece and kind."""
        return self._open_history().count_incidents(span)

    @one_at_a_time
    def find_keys(self, kind: Literal["request", "session"], name: str) -> list[str]:
        """Return the API keys that have a "request" or a "session" of this name, also one whose requests still run."""
        found = self._journal.find_keys(kind, name)
        return sorted(found | self._state.budget.owners_of(name) if kind == "session" else found)

    @one_at_a_time
    def sign_out(self, nonce: str, expires_s: int) -> None:
        """End a cookie of the control room, for every Router and the next start."""
        with self._journal.step() as journal:
            journal.sign_outs.add(nonce, expires_s, time.time())

    @one_at_a_time
    def is_signed_out(self, nonce: str, expires_s: int) -> bool:
        """Return whether a cookie of the control room was ended."""
        return self._journal.sign_outs.has(nonce, expires_s)

    @one_at_a_time
    def get_page_secret(self) -> str:
        """Return what the control room's cookies are sealed with: made once, and kept in the journal."""
        return self._journal.read_page_secret()

    def _open_history(self) -> History:
        self._last_call_s = time.monotonic()
        if self._history is None:
            self._history = History(self._journal.path)
        return self._history
