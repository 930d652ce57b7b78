"""The state as a Router replica sees it.

`State` belongs to the replica: its link to the actor, with the questions and orders of operators. `RequestState`
belongs to one request and is its `Admission` port.
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, cast

import ray

from deployments import __version__
from deployments.config.app_config import StateConfig
from deployments.config.config_errors import ConfigError
from deployments.config.config_paths import state_folder
from deployments.running.actor_calls import call_actor, start_actor
from deployments.state.actor import SessionState
from deployments.state.idempotent_answers import KeptItem
from deployments.state.journal import SCHEMA_VERSION
from deployments.state.link import Actor, Link, StateUnavailable
from deployments.state.records import (
    AnswerItem,
    IncidentItem,
    KeptResponse,
    ReportItem,
    SettlementItem,
    StepRequest,
    TurnItem,
)
from deployments.state.unix_socket import SocketActor
from reliability.admission.events import Charge, Progress, Settlement
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.loops import Window
from reliability.sessions import Answered, Trail
from reliability.types import Usage, Verdict

_NS_PER_S = 1_000_000_000
_RETRY_AFTER_S_MAX = 86_400  # how long a tier's `Retry-After` counts at most
_PATIENCE_S = 10.0  # a link that has been down for so long: who asks for a paid tier waits in vain
_MADE_S = 15.0  # a new actor replays its journal first; who waits longer asks again
_Ts = TypeVarTuple("_Ts")
T = TypeVar("T")
# Ray's name for the head node: the journal is a file, so an actor that restarts elsewhere would find it gone.
_HEAD = {"node:__internal_head__": 0.001}


def _question(method: Callable[[SessionState, *_Ts], T]) -> Callable[[State, *_Ts], Coroutine[Any, Any, T]]:
    """Make of a method of the actor the one that asks it from here. Raises StateUnavailable."""

    @functools.wraps(method)
    async def ask(state: State, *args: *_Ts) -> T:
        return cast(T, await state.call(method.__name__, *args))

    return ask


class State(Link):
    """The link of one Router replica, with the questions and orders of its operators."""

    def note(self, incident: Mapping[str, Any]) -> None:
        """Hand over an incident that belongs to no request."""
        self.put(IncidentItem(incident=incident), flush=True)

    def tell_kept(self, item: KeptItem, *, flush: bool) -> bool:
        """Hand over a piece of an answer. False: the state is away, and nothing was handed over."""
        if self.up:
            self.put(item, flush=flush)
        return self.up

    # -- questions and orders: each raises StateUnavailable ---------------------------------------------------------

    find_keys = _question(SessionState.find_keys)
    report = _question(SessionState.report)
    browse = _question(SessionState.browse)
    summarize = _question(SessionState.summarize)
    count_incidents = _question(SessionState.count_incidents)
    get_page_secret = _question(SessionState.get_page_secret)
    sign_out = _question(SessionState.sign_out)
    is_signed_out = _question(SessionState.is_signed_out)
    recall_responses = _question(SessionState.recall_responses)
    forget_response = _question(SessionState.forget_response)
    ask_kept = _question(SessionState.ask_kept)
    order = _question(SessionState.order)
    reset = _question(SessionState.reset)

    async def session(self, key: str, session: str) -> dict[str, Any] | None:
        """Return what one session has done, spent and reserved."""
        known, ledger = await self.call("books", key, session)
        if known is None and not ledger["spent_tokens"] and not ledger["open_calls"]:
            return None
        return {"session": session, "key": key, **(known or {}), **ledger}

    async def find_shared_windows(self) -> Mapping[str, Mapping[str, int]]:
        """Return how full the windows are that all sessions share."""
        ledger = await self.call("budget", "", "")
        return cast(Mapping[str, Mapping[str, int]], ledger["windows"])

    async def look(self, after: int | None) -> dict[str, Any]:
        """Return what other Routers run, and which requests have ended since."""
        return cast(dict[str, Any], await self.call("look", self.client, after))

    async def share_running(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show what this Router runs to a page that is open on another one."""
        await self.call("share_running", self.client, rows)

    async def keep_response(self, response: KeptResponse) -> None:
        """Keep a response. It may be large, and is handed to Ray on a thread."""
        shared = await asyncio.to_thread(ray.put, response) if ray.is_initialized() else response
        await self.call("keep_response", shared)


@dataclass(slots=True, eq=False)
class RequestState:
    """The `deployments.request.interfaces.Admission` of one request. `wants_window`, `complete`, `trail`: as of a
    `StepRequest`. `parent`: the session whose budget this one spends."""

    link: Link
    key: str
    session: str
    request_id: str
    wants_window: bool = False
    complete: int = 0
    trail: Trail | None = None
    parent: str = ""
    window: Window | None = None
    _searched: bool = False
    _ticket: str = field(default_factory=lambda: uuid.uuid4().hex)

    async def admit(self, request: AdmissionRequest) -> Grant | Rejection:
        """Admit. Raises `StateUnavailable`: the actor is away, and the tier is local or it has been so for long."""
        if self.link.down_s > _PATIENCE_S:
            raise StateUnavailable(self.link.condition)
        answer = await self.link.admit(
            StepRequest(
                admission=request if self.trail is None else replace(request, session=self.session),
                window=self.wants_window,
                trail=None if self._searched else self.trail,
                ticket=self._ticket,
                complete=self.complete,
            )
        )
        if answer.session is not None:
            self.session, self._searched = answer.session, True
        if answer.window is not None:
            self.window, self.wants_window = answer.window, False
        return answer.decision

    @property
    def trouble(self) -> str:
        """What the last step failed by, if it did."""
        return self.link.trouble

    def settle(self, grant: Grant, verdict: Verdict, usage: Usage | None, retry_after_s: float | None) -> None:
        """Settle as the protocol says. A failure is sent at once: other requests should know."""
        # In this order `max` also makes nothing of what is no number.
        wait_s = min(max(0.0, retry_after_s or 0.0), _RETRY_AFTER_S_MAX)
        settlement = Settlement(grant.id, verdict, usage, retry_after_ns=int(wait_s * _NS_PER_S))
        item = SettlementItem(settlement=settlement, request_id=self.request_id, session=self.session, key=self.key)
        self.link.put(item, flush=verdict is Verdict.FAILURE)

    def progress(self, grant: Grant, usage: Usage) -> None:
        """Hand over what a call has used so far."""
        self.link.progress(Progress(grant.id, usage.total_tokens))

    def adopt(self, session: str) -> None:
        """Take the session of an earlier request, which is replayed."""
        self.session, self.trail = session, None

    def charge(self, usage: Usage) -> None:
        """Hand over what a call without a grant has cost."""
        self.link.put(Charge(self.key, self.parent or self.session, usage.total_tokens), flush=False)

    def finish(
        self,
        report: Mapping[str, Any],
        incidents: Iterable[Mapping[str, Any]],
        turn: TurnItem | None,
        answered: Answered | None = None,
    ) -> None:
        """Hand over what an ended request leaves."""
        if self.trail is not None:
            who = {"key": self.key, "session": self.session, "ticket": self._ticket}
            left = AnswerItem(answered=answered, trail=None if self._searched else self.trail, **who)
            self.link.put(left, flush=False)
        if turn is not None:
            self.link.put(turn, flush=False)
        item = ReportItem(key=self.key, session=self.session, report=report, incidents=tuple(incidents))
        self.link.put(item, flush=True)


# -- Ray -------------------------------------------------------------------------------------------------------


class _RayActor:
    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def call(self, method: str, *args: Any) -> Any:
        """Send the call; the reference is awaited by the caller."""
        return call_actor(getattr(self._handle, method).remote, *args)

    def close(self) -> None:
        """Do nothing: Ray keeps nothing open for it."""


def _actor_name(app: str) -> str:
    """Return the actor's name in Ray. It carries the version: older code isn't found, and gives way."""
    return f"SessionState:{app}:{__version__}-{SCHEMA_VERSION}"


def ray_finder(app: str, config: StateConfig) -> Callable[[], Awaitable[Actor]]:
    """Return the function that finds or makes the actor, on a thread: Ray blocks. Raises ConfigError: no folder."""
    folder = folder_of(app, config)

    def find_or_make() -> Actor:
        options = {"max_task_retries": 0, "resources": _HEAD}
        made = start_actor(SessionState, _actor_name(app), options, folder=str(folder), bounds=config)
        node, path = ray.get(call_actor(made.find_socket.remote), timeout=_MADE_S)
        here = path and node == ray.get_runtime_context().get_node_id()
        return SocketActor(_RayActor(made), path) if here else _RayActor(made)

    return functools.partial(asyncio.to_thread, find_or_make)


def folder_of(app: str, config: StateConfig) -> Path:
    """Return where an app's journal is. Raises ConfigError: it would be in a home directory that isn't known."""
    try:
        return Path(config.path).expanduser() if config.path else state_folder(app)
    except RuntimeError:  # `~` of nobody on this machine, or a user without a home
        raise ConfigError("state.path: its home directory isn't known; name another folder") from None
