"""The link from one Router replica to the state actor: everything that the replica says goes through here, in order.

At most one step is on its way; what comes up meanwhile goes with the next one. While the actor is away, requests of
local tiers fail at once (`StateUnavailable`), those of paid tiers wait, and the same items are sent again under the
same number. Where more than `_ITEMS_MAX` items wait, what is missed least goes first, of each kind the oldest.
Invariants: no item is applied twice, overtakes another, or is lost while this process lives, except beyond
`_ITEMS_MAX`, which the log reports; no request of a local tier waits for an actor that is known to be away.
"""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from deployments.state.idempotent_answers import KeptItem
from deployments.state.records import (
    AnswerItem,
    Health,
    Item,
    Reply,
    ReportItem,
    SettlementItem,
    StateLimits,
    StateStep,
    StepAnswer,
    StepRequest,
    TurnItem,
)
from deployments.telemetry import log_error, log_info
from reliability.admission.events import Progress, Settlement
from reliability.admission.request import Grant
from reliability.types import Usage, Verdict

_ITEMS_PER_STEP = 512
_REQUESTS_PER_STEP = 256
_START_S = 15.0
_CALL_S = 5.0  # an actor that takes longer is as good as dead; a replay of a full journal takes less
_RETRY_S = 0.25
_HEARTBEAT_S = 1.0
_LOST_PER_LINE = 1000
_AWAY = "the state actor is away"
_ITEMS_MAX = 20_000
# Who gives way, first to last; what is in no group gives way last.
_GROUPS: tuple[tuple[type, ...], ...] = ((KeptItem,), (ReportItem, TurnItem, AnswerItem), (SettlementItem,))
_GROUP_OF = {kind: at for at, kinds in enumerate(_GROUPS) for kind in kinds}


class StateUnavailable(RuntimeError):
    """The state actor can't be asked."""


class Actor(Protocol):
    """The actor's methods as the link calls them: a Ray handle in the server, a local object in tests."""

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """Call one method."""

    def close(self) -> None:
        """Let go of it: nothing more will be asked of it."""


class _WaitingItems:
    """What waits for the actor, in the order in which it came. Each kind has a queue of numbers of its own, so that no
    search is needed for what gives way."""

    def __init__(self, most: int = _ITEMS_MAX) -> None:
        self._most = most
        self._items: OrderedDict[int, Item] = OrderedDict()
        self._groups: tuple[deque[int], ...] = tuple(deque() for _ in range(len(_GROUPS) + 1))
        self._number = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> Item | None:
        """Put an item behind all others; return what gave way to it, which may be itself."""
        self._number += 1
        self._items[self._number] = item
        self._groups[_GROUP_OF.get(type(item), -1)].append(self._number)
        if len(self._items) <= self._most:
            return None
        return self._items.pop(next(group for group in self._groups if group).popleft())

    def take(self, count: int) -> tuple[Item, ...]:
        taken: list[Item] = []
        while self._items and len(taken) < count:
            _, item = self._items.popitem(last=False)
            self._groups[_GROUP_OF.get(type(item), -1)].popleft()  # the oldest of all is the oldest of its group
            taken.append(item)
        return tuple(taken)


class Link:
    """See the module. `find` gives the actor, or makes it; it is called again after each failure."""

    def __init__(self, find: Callable[[], Awaitable[Actor]], limits: StateLimits) -> None:
        self.health: Mapping[str, Health] = {}
        self.watched = False
        self.limits = limits
        self._find = find
        self._finding: asyncio.Future[Actor] | None = None
        self._actor: Actor | None = None
        self.client = uuid.uuid4().hex[:12]  # the name by which the actor knows this replica
        self._number = 1
        self._in_flight: tuple[Item, ...] = ()  # sent under `_number`, and not answered
        self._attempt = 0  # over 0: `_number` was sent before, may have been done, and keeps its items
        self._items = _WaitingItems(_ITEMS_MAX)
        self._lost = 0  # items that gave way since the actor last answered
        self._progress: dict[str, Progress] = {}  # of each open grant the newest; none that has been settled
        self._requests: deque[tuple[StepRequest, asyncio.Future[StepAnswer]]] = deque()
        self.up = True  # whether the last step was answered
        self.trouble = ""  # what it failed by
        self._down_at_s = 0.0
        self._closed = False
        self._wake = asyncio.Event()
        self._first_reply = asyncio.Event()
        self._heard = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    @property
    def waiting_items(self) -> int:
        """What the actor hasn't confirmed yet."""
        return len(self._items) + len(self._progress) + len(self._in_flight)

    @property
    def condition(self) -> str:
        return "up" if self.up else "away" + (f": {self.trouble}" if self.trouble else "")

    @property
    def down_s(self) -> float:
        """For how long no step has been answered."""
        return 0.0 if self.up else asyncio.get_running_loop().time() - self._down_at_s

    async def start(self, wait_s: float = _START_S) -> None:
        """Begin, and wait `wait_s` at most for the first answered step. Must run on the event loop of the Router."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._first_reply.wait()

    async def close(self) -> None:
        """Send what is left, once, and stop."""
        self._closed = True
        if self._pump is not None:
            self._pump.cancel()
            with suppress(asyncio.CancelledError):
                await self._pump
            self._pump = None
            try:
                await self._send()
            except Exception as error:
                log_error("state_items_left", error, items=self.waiting_items)
        self._forget()
        if self._finding is not None:
            self._finding.cancel()
        for _, future in self._requests:
            if not future.done():
                future.set_exception(StateUnavailable("the link to the state actor is closed"))
        self._requests.clear()

    def put(self, item: Item, *, flush: bool) -> None:
        """Hand over an item. Without `flush` it goes with the next step, whenever that is."""
        if isinstance(item, SettlementItem):
            self._progress.pop(item.settlement.grant_id, None)
        if (lost := self._items.put(item)) is not None:
            if self._lost % _LOST_PER_LINE == 0:  # a line for each would fill the disk
                too_many = StateUnavailable(f"over {_ITEMS_MAX} items wait")
                log_error("state_item_lost", too_many, item=type(lost).__name__, lost_before=self._lost)
            self._lost += 1
        if flush:
            self._wake.set()

    def progress(self, item: Progress) -> None:
        """Hand over what a running call has used so far. Only the newest of each grant is kept."""
        self._progress[item.grant_id] = item
        self._wake.set()

    async def admit(self, request: StepRequest) -> StepAnswer:
        """Have one call admitted. Raises StateUnavailable: the actor is away and the tier local, or the link closed."""
        if self._closed or (not self.up and request.admission.local):
            raise StateUnavailable(_AWAY)
        future: asyncio.Future[StepAnswer] = asyncio.get_running_loop().create_future()
        self._requests.append((request, future))
        self._wake.set()
        try:
            return await future
        except asyncio.CancelledError:
            # The caller left, or was out of patience, after the answer had come and before it was read.
            if not future.cancelled() and future.exception() is None:
                self._settle_unused(request, future.result())
            raise

    async def call(self, method: str, *args: Any) -> Any:
        """Ask one question, outside of the steps. Raises StateUnavailable: no answer."""
        try:
            actor = await self._find_actor()
            async with asyncio.timeout(_CALL_S):
                return await actor.call(method, *args)
        except Exception as error:
            self._forget()
            raise StateUnavailable(f"the state actor doesn't answer ({type(error).__name__})") from error

    async def hear(self) -> None:
        """Wait, for one call's time at most, until the tiers' health covers all that was sent before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CALL_S):
                for _ in range(2):  # the first answer may have been on its way already
                    self._heard.clear()
                    self._wake.set()
                    await self._heard.wait()

    # -- the pump ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):  # not `wait_for`, which in Python 3.11 may swallow `close`
                async with asyncio.timeout(_HEARTBEAT_S):
                    await self._wake.wait()
            try:
                await self._send()
            except Exception as error:
                self._mark_down(error)
                await asyncio.sleep(_RETRY_S)
                self._wake.set()

    async def _send(self) -> None:
        """Send one step, or several while more has come up that can't wait."""
        while True:
            self._wake.clear()
            if not self._attempt:
                progress, self._progress = tuple(self._progress.values()), {}
                self._in_flight = (*progress, *self._items.take(_ITEMS_PER_STEP))
            requests = self._take_requests()
            if self._requests or self._items or self._progress:
                self._wake.set()  # more than this step may hold, or what came after the one that is sent again
            try:
                reply = await self._exchange(tuple(request for request, _ in requests))
            except BaseException:
                self._attempt += 1
                self._hand_back(requests)
                raise
            self._in_flight, self._attempt = (), 0
            if not self.up:
                self.up, self.trouble = True, ""
                log_info("state_back", items_lost=self._lost)
                self._lost = 0
            self._first_reply.set()
            self.health, self.watched = reply.health, reply.watched
            self._heard.set()
            self._deliver(requests, reply)
            if not self._wake.is_set():
                return

    def _take_requests(self) -> list[tuple[StepRequest, asyncio.Future[StepAnswer]]]:
        taken: list[tuple[StepRequest, asyncio.Future[StepAnswer]]] = []
        while self._requests and len(taken) < _REQUESTS_PER_STEP:
            request, future = self._requests.popleft()
            if not future.done():
                taken.append((request, future))
        return taken

    async def _exchange(self, requests: tuple[StepRequest, ...]) -> Reply:
        actor, limits = await self._find_actor(), self.limits
        step = StateStep(
            client=self.client,
            number=self._number,
            config=limits.digest,
            items=self._in_flight,
            requests=requests,
            attempt=self._attempt,
        )
        async with asyncio.timeout(_CALL_S):
            reply = await actor.call("step", step)
            if reply is None:  # it decides by other limits
                reply = await actor.call("step", step, limits)
        if not isinstance(reply, Reply) or len(reply.answers) != len(requests):
            raise StateUnavailable("the state actor didn't answer what it was asked")
        self._number += step.works
        return reply

    def _deliver(self, requests: list[tuple[StepRequest, asyncio.Future[StepAnswer]]], reply: Reply) -> None:
        for (request, future), answer in zip(requests, reply.answers, strict=True):
            if not future.done():
                future.set_result(answer)
            else:  # its caller left while it was on the way
                self._settle_unused(request, answer)

    def _settle_unused(self, request: StepRequest, answer: StepAnswer) -> None:
        if isinstance(answer.decision, Grant):
            unused = Settlement(answer.decision.id, Verdict.IGNORED, Usage())
            self.put(SettlementItem(settlement=unused, key=request.admission.key), flush=True)

    def _hand_back(self, requests: list[tuple[StepRequest, asyncio.Future[StepAnswer]]]) -> None:
        """Take the requests of a failed step back: local ones go on without, paid ones wait for the next try."""
        for request, future in reversed(requests):
            if future.done():
                continue
            if request.admission.local:
                future.set_exception(StateUnavailable(_AWAY))
            else:
                self._requests.appendleft((request, future))

    def _forget(self) -> None:
        """Look for it anew before the next call."""
        actor, self._actor = self._actor, None
        if actor is not None:
            actor.close()

    def _mark_down(self, error: Exception) -> None:
        self._forget()
        cause = getattr(error, "cause", None) or error  # what Ray says around it is for the log
        self.trouble = str(cause) if isinstance(cause, (RuntimeError, sqlite3.Error)) else type(cause).__name__
        if self.up:
            self.up, self._down_at_s = False, asyncio.get_running_loop().time()
            log_error("state_silent", error)
        # Who asked meanwhile for a local tier shouldn't wait either.
        waiting, self._requests = list(self._requests), deque()
        self._hand_back(waiting)

    async def _find_actor(self) -> Actor:
        """Return the actor. A search that takes too long goes on, and the next caller waits for the same one."""
        if self._actor is None:
            finding = self._finding = self._finding or asyncio.ensure_future(self._find())
            try:
                async with asyncio.timeout(_CALL_S):
                    self._actor = await asyncio.shield(finding)
            finally:
                if finding.done() and self._finding is finding:
                    self._finding = None
        return self._actor
