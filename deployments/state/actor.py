"""SessionState: the one writer of what the Router replicas share. Budgets, breakers, retry budget, windows, incidents.

Each method is one transition from a complete state to a complete state, one at a time. The journal is the truth and the
actor its cache: a step is committed before it is answered. The actor is detached and ends itself when no Router has
spoken for `idle_exit_s` (docs/decisions/060-detached-state-actor.md). Limits come from the Routers: a step names the
digest of its limits, and an actor that has others answers None, which asks for the same step with its limits.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.config.app_config import StateConfig
from deployments.config.config_errors import ConfigError
from deployments.state.idempotent_answers import KeptAnswers, KeptItem, KeptQuestion, KeptReply
from deployments.state.incident_record import IncidentKind
from deployments.state.journal import JOURNAL, Superseded, open_journal
from deployments.state.records import (
    AnswerItem,
    Health,
    Item,
    KeptResponse,
    Reply,
    StateLimits,
    StateStep,
    StepAnswer,
    StepRequest,
    TurnItem,
)
from deployments.state.transaction import Transaction
from deployments.state.unix_socket import StepListener, find_socket_folder
from deployments.state.watching import Watchable, one_at_a_time
from deployments.work.large_work import settle_collector
from reliability.admission import admit as admission
from reliability.admission.admit import AdmissionConfig
from reliability.admission.breaker import Phase
from reliability.admission.budget import loads
from reliability.admission.events import Order, Reset, Tick
from reliability.admission.request import Grant
from reliability.key_shares import KeyShares
from reliability.loops import LoopConfig, Window, keep_answer, keep_looked, observe
from reliability.loops.answer_history import count_kept_chars
from reliability.sessions import Conversations

LOG = logging.getLogger("ray.serve")
_NS_PER_S = 1_000_000_000
_TIDY_EVERY_NS = 10 * _NS_PER_S
_SNAPSHOT_EVENTS = 4_000
_IDLE_EXIT_S = 60.0
_WINDOW_CHARS_MAX = 32_000_000


class SessionState(Watchable):
    """The actor. `folder` holds the journal; `clock_ns`: a monotonic clock. It stays without `idle_exit_s`."""

    def __init__(
        self,
        *,
        folder: str,
        bounds: StateConfig,
        idle_exit_s: float | None = _IDLE_EXIT_S,
        clock_ns: Callable[[], int] | None = None,
    ) -> None:
        self._lock = threading.RLock()
        self._listener: StepListener | None = None
        self._superseded = False
        self._incarnation = uuid.uuid4().hex[:12]
        self._clock_ns = clock_ns or time.monotonic_ns
        self._windows = _Windows(bounds.sessions_max)
        self._kept = KeptAnswers()
        self._conversations = Conversations(bounds.sessions_max, int(bounds.session_ttl_s * _NS_PER_S))
        self._journal, restored = open_journal(Path(folder) / JOURNAL, self._incarnation, bounds)
        self._digest, self._config, self._loops = "", restored.config, LoopConfig()
        # Wall time where this incarnation began, monotonic time from there on; never before the journal's last moment.
        self._sleeps = clock_ns is None
        self._start_ns = max(time.time_ns(), restored.at_ns) - self._clock_ns()
        self._state = restored.state
        self._events = restored.events
        self._steps = 0
        self._tidied_ns = self._clock_ns()
        self._last_call_s = time.monotonic()
        self._transit(lambda transaction: transaction.begin(self._incarnation, restored.put_aside))
        if idle_exit_s is not None:
            settle_collector()
            threading.Thread(target=self._leave_when_idle, args=(idle_exit_s,), daemon=True).start()

    # -- steps -------------------------------------------------------------------------------------------------

    @one_at_a_time
    def configure(self, limits: StateLimits) -> None:
        """Take these limits, and write them down with the state that they begin at."""
        self._write_snapshot(limits.digest, limits.admission)
        self._digest, self._config, self._loops = limits.digest, limits.admission, limits.loops

    @one_at_a_time
    def step(self, step: StateStep, limits: StateLimits | None = None) -> Reply | None:
        """Do one step; None where its limits aren't known: it should come again with them. Raises Superseded: this
        actor no longer owns the journal, and will leave when it has been idle. sqlite3.Error: the disk failed; nothing
        was done."""
        if step.config != self._digest and (step.works or not self._digest):
            if limits is None or limits.digest != step.config:
                return None
            self.configure(limits)
        self._tidy()
        self._kept.hear(step.client, self._now_ns())
        answers = self._do(step) if step.works else []
        return Reply(answers=tuple(answers), health=self._health(), watched=self.watched)

    def _do(self, step: StateStep) -> list[StepAnswer]:
        answers: list[StepAnswer] = []
        requests: list[StepRequest] = []

        def apply_step(transaction: Transaction) -> None:
            number, attempt, grants = self._journal.last_step(step.client)
            if (step.number, step.attempt) <= (number, attempt):
                return  # an older attempt, come late: whoever sent it waits for a newer one
            if step.number > number:
                transaction.apply_items(step.items)
                self._hear_answers(step.client, step.items)
            else:
                transaction.settle_unused(grants)
            requests.extend(map(self._find_session, step.requests))
            answers.extend(transaction.admit(requests))
            grants = [a.decision.id for a in answers if isinstance(a.decision, Grant)]
            self._journal.write_step(step.client, step.number, step.attempt, grants, transaction.now_s)

        self._steps += 1
        for item in self._transit(apply_step).turns:
            self._windows.take(item, self._loops)
        return [self._complete(answer, request) for answer, request in zip(answers, requests, strict=True)]

    def _transit(self, transition: Callable[[Transaction], Any]) -> Transaction:
        """Go from a complete state to a complete state, or nowhere. What has expired is closed first."""
        try:
            with self._journal.step() as journal:
                transaction = Transaction(self._state, self._config, journal, self._now_ns(), self._wall_s())
                transaction.expire()
                transition(transaction)
        except Superseded as error:
            if not self._superseded:
                LOG.warning("the state actor is superseded: %s (%s)", error, self._journal.path)
            self._superseded = True
            raise
        self._state = transaction.state
        self._events += transaction.events
        return transaction

    def _find_session(self, request: StepRequest) -> StepRequest:
        """Find the session of a request that names none; a step that comes again finds the same one."""
        if request.trail is None:
            return request
        asked = request.admission
        session = self._conversations.find(asked.key, request.trail, request.ticket, self._now_ns())
        return replace(request, admission=replace(asked, session=session))

    def _hear_answers(self, client: str, items: Sequence[Item]) -> None:
        """Note how requests ended, before later ones are asked about that may continue from there."""
        now_ns = self._now_ns()
        for item in items:
            if isinstance(item, KeptItem):
                self._kept.take(item, client, now_ns)
            if isinstance(item, AnswerItem):
                session = item.session
                if item.trail is not None:
                    session = self._conversations.find(item.key, item.trail, item.ticket, now_ns)
                self._conversations.answer(item.key, session, item.ticket, item.answered, now_ns)

    def _complete(self, answer: StepAnswer, request: StepRequest) -> StepAnswer:
        asked = request.admission
        window = self._windows.find(asked.key, asked.session, request.complete) if request.window else None
        session = None if request.trail is None else asked.session
        return StepAnswer(decision=answer.decision, window=window, session=session)

    def find_socket(self) -> tuple[str, str]:
        """Return the node that this actor is on, and the path of its socket there; empty where there can be none."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        if self._listener is None:
            try:
                path = find_socket_folder(os.environ) / f"state-{self._incarnation[:6]}"
                self._listener = StepListener(path, self.step)
            except (OSError, ConfigError) as error:  # without it the steps go through Ray, too
                LOG.warning("the state actor has no socket: %s", error)
                return node, ""
        return node, str(self._listener.path)

    # -- questions ---------------------------------------------------------------------------------------------

    @one_at_a_time
    def report(self, key: str, request_id: str) -> dict[str, Any] | None:
        return self._journal.report(key, request_id)

    @one_at_a_time
    def budget(self, key: str, session: str) -> dict[str, Any]:
        """Return what one session has spent, as far as it is reported, and reserved, and how full its windows are."""
        now_ns, ledger = self._now_ns(), self._state.budget
        known = ledger.session_of(self._config.budget.bounds, key, session, now_ns)
        full = loads(ledger, self._config.budget, key, session, now_ns)
        used = ledger.count_running_tokens(key, session) if known.open else 0
        return {
            "spent_tokens": known.spent + used,
            "reserved_tokens": max(0, known.reserved - used),
            "open_calls": known.open,
            "windows": {each.window.value: {"tokens": each.tokens, "tokens_max": each.tokens_max} for each in full},
        }

    @one_at_a_time
    def books(self, key: str, session: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return what one session has done, and the budget that it spends, both of the same moment."""
        known = self._journal.session(key, session)
        return known, self.budget(key, (known or {}).get("parent") or session)

    @one_at_a_time
    def ask_kept(self, question: KeptQuestion) -> KeptReply:
        """Say what has become of a repeated request; hand it over where no Router answers it any more."""
        return self._kept.ask(question, self._now_ns())

    # -- responses that clients go on from ---------------------------------------------------------------------

    @one_at_a_time
    def keep_response(self, response: KeptResponse) -> None:
        """Keep a response. Sent again it changes nothing. Raises as `step`."""
        with self._journal.step() as journal:
            journal.shelf.write(response)

    @one_at_a_time
    def recall_responses(self, key: str, response_id: str) -> list[KeptResponse]:
        """Return a response and those that it goes on from, the newest first, as far as one call may."""
        return self._journal.shelf.walk(key, response_id)

    @one_at_a_time
    def forget_response(self, key: str, response_id: str) -> bool:
        """Forget a response; False where there is none. Raises as `step`."""
        with self._journal.step() as journal:
            return journal.shelf.delete(key, response_id)

    @one_at_a_time
    def stats(self) -> dict[str, Any]:
        """Describe what this actor holds: for tests and soaks."""
        return {
            "steps": self._steps,
            "sessions": self._state.budget.sessions.count,
            "grants": self._state.grants.count,
            "reserved_tokens": self._state.budget.hour.reserved,
            "conversations": len(self._conversations),
            "kept_answers": len(self._kept),
            "journal": str(self._journal.path),
        }

    # -- by hand -----------------------------------------------------------------------------------------------

    @one_at_a_time
    def order(self, order: Order) -> None:
        """Keep all calls off a tier, lift that hold, or let calls through at once that its breaker holds off."""

        def apply_order(transaction: Transaction) -> None:
            transaction.apply(order)
            transaction.note(IncidentKind.OPERATOR, order.tier, reason=order.kind, key="")

        self._transit(apply_order)

    @one_at_a_time
    def reset(self, key: str, session: str) -> None:
        """Forget what a session has spent, and what it was answered."""

        def apply_reset(transaction: Transaction) -> None:
            transaction.apply(Reset(key, session))
            transaction.note(IncidentKind.OPERATOR, None, reason="reset", key=key, session=session)
            self._journal.forget_session(key, session)

        self._transit(apply_reset)
        self._windows.forget(key, session)

    # -- house -------------------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Close what has expired, let the idle and the old go, and begin the journal anew when it is long."""
        now_ns = self._clock_ns()  # a wall clock that is wrong for a moment is no reason to delete at that moment
        if now_ns - self._tidied_ns < _TIDY_EVERY_NS and self._events < _SNAPSHOT_EVENTS:
            return
        self._tidied_ns = now_ns
        self._transit(lambda transaction: transaction.apply(Tick("sweep")))
        if self._events >= _SNAPSHOT_EVENTS:
            self._write_snapshot(self._digest, self._config)
        self._journal.trim(self._wall_s())

    def _write_snapshot(self, digest: str, config: AdmissionConfig) -> None:
        with self._journal.step() as journal:
            journal.write_snapshot(self._now_ns(), digest, config, self._state)
        self._events = 0

    def _health(self) -> Mapping[str, Health]:
        now_ns, health = self._now_ns(), {}
        for tier, breaker in self._state.breakers.items():
            phase = admission.phase_of(self._state, tier, now_ns)
            left_s = max(0, breaker.until_ns - now_ns) / _NS_PER_S if phase is Phase.OPEN else 0.0
            health[tier] = Health(phase=phase, isolated=breaker.isolated, until_s=left_s)
        return health

    def _now_ns(self) -> int:
        now_ns = self._clock_ns()
        if self._sleeps:  # after a night a spent hour is over; a wall clock that is set back moves nothing
            self._start_ns = max(self._start_ns, time.time_ns() - now_ns)
        return self._start_ns + now_ns

    def _wall_s(self) -> float:
        """Return the time that records are dated by, and trimmed and asked for: the Routers date some of them, too."""
        return (time.time_ns() if self._sleeps else self._now_ns()) / _NS_PER_S

    def _leave_when_idle(self, idle_exit_s: float) -> None:
        """End the actor when no Router has spoken for so long. Runs on a thread that reads one number."""
        while (idle_s := time.monotonic() - self._last_call_s) < idle_exit_s:
            time.sleep(idle_exit_s - idle_s + 0.01)
        import ray

        LOG.info("state actor: no Router has spoken for %g s; leaving", idle_exit_s)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)


class _Windows:
    """The loop windows of all sessions. Over a bound the key that holds the most loses its oldest."""

    def __init__(self, windows_max: int, chars_max: int = _WINDOW_CHARS_MAX) -> None:
        self._max, self._chars_max = windows_max, chars_max
        self._windows: dict[tuple[str, str], Window] = {}
        self._shares: KeyShares[tuple[str, str]] = KeyShares()  # by their characters

    def find(self, key: str, session: str, complete: int = 0) -> Window:
        """Return a session's window; without the kept answers where they are no more than the `complete` ones that the
        request shows."""
        window = self._windows.get((key, session), Window())
        answers = sum(not each.turn.continued for each in window.kept)
        return replace(window, kept=()) if window.kept and answers <= complete else window

    def take(self, item: TurnItem, config: LoopConfig) -> None:
        window = self.forget(item.key, item.session)
        if item.request:
            window, _ = observe(window, item.turn, config, item.request)
        if item.shown is not None and config.enabled:
            kept = keep_answer(window.kept, item.shown, item.turn, config)
            looked = keep_looked(window.looked, item.shown.looked)
            window = replace(window, kept=kept, tools=window.tools or item.shown.tools, looked=looked)
        self._windows[item.key, item.session] = window
        self._shares.put(item.key, (item.key, item.session), count_kept_chars(window.kept))
        while len(self._windows) > self._max:
            self.forget(*self._shares.find_oldest())
        while self._shares.held.total() > self._chars_max:
            self.forget(*self._shares.find_oldest(self._shares.held))

    def forget(self, key: str, session: str) -> Window:
        self._shares.drop(key, (key, session))
        return self._windows.pop((key, session), Window())
