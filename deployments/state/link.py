"""The link from one Router replica to the state actor: everything that the replica says goes through here, in order.

    items (what has happened) ─┐
    asks (what wants to run) ──┴▶ one step at a time ──▶ actor ──▶ answers

At most one step is on its way; what comes up meanwhile goes with the next one. A lone request makes two steps: its ask,
and its settle together with its report; a busy server far fewer.

UP      steps are answered. An ask waits for its step.
DOWN    the last step failed. Asks of local tiers fail at once (`StateSilent`): the walk goes on without a grant. Asks
        of paid tiers wait for the actor to come back, as long as their caller has patience. Items wait. The same items
        are sent again under the same number, every `RETRY_S`, until they are answered; see `deployments.state.records`.
CLOSED  what was left has been sent once more; every ask fails.

Who owns it: the Router replica's event loop. The actor is found by its name and made where it is missing.

What must never happen: an item that is applied twice, one that is lost while this process lives (beyond `ITEMS_MAX`,
which is said in the log), a request that waits for an actor that is known to be away although its tier costs nothing.
Where too many items wait, the reports go first, then grants (they expire at what they were last known to have used),
and only then charges.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from deployments.state.records import (
    Answer,
    Asked,
    Done,
    Health,
    Item,
    Progressed,
    Reply,
    Said,
    Settled,
    StateLimits,
    Step,
)
from deployments.telemetry import log_error, log_info
from reliability.admission.admit import Grant
from reliability.types import Usage, Verdict

__all__ = ["Actor", "Link", "StateSilent"]

ITEMS_MAX = 20_000
ITEMS_PER_STEP = 512
ASKS_PER_STEP = 256
CALL_S = 5.0  # an actor that takes longer is as good as dead; a replay of a full journal takes less
RETRY_S = 0.25
BEAT_S = 1.0
AWAY = "the state actor is away"


class StateSilent(RuntimeError):
    """The state actor can't be asked."""


class Actor(Protocol):
    """The actor's methods as the link calls them: a Ray handle in the server, something nearer in tests."""

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """Call one method."""
        ...

    def close(self) -> None:
        """Nothing more will be asked of it."""
        ...


class Link:
    """See the module. `find` gives the actor, or makes it; it is called again after each failure."""

    def __init__(self, find: Callable[[], Awaitable[Actor]], limits: StateLimits) -> None:
        self.health: Mapping[str, Health] = {}
        self.limits = limits
        self._find = find
        self._finding: asyncio.Future[Actor] | None = None
        self._actor: Actor | None = None
        self._client = uuid.uuid4().hex[:12]
        self._number = 1
        self._flying: tuple[Item, ...] = ()  # sent under `_number`, and not answered
        self._attempt = 0  # over 0: `_number` was sent before, may have been done, and keeps its items
        self._items: deque[Item] = deque()
        self._progress: dict[str, Progressed] = {}  # of each open grant the newest word; none that has been settled
        self._asks: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self._up = True
        self._closed = False
        self._wake = asyncio.Event()
        self._heard = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether the last step was answered."""
        return self._up

    @property
    def waiting_items(self) -> int:
        """What the actor hasn't confirmed yet."""
        return len(self._items) + len(self._progress) + len(self._flying)

    async def start(self, wait_s: float) -> None:
        """Begin, and wait for the first answered step, `wait_s` at most: to make an actor takes longer than any call to
        it may. Must run on the Router's event loop."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._heard.wait()

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
        for _, future in self._asks:
            if not future.done():
                future.set_exception(StateSilent("the link to the state actor is closed"))
        self._asks.clear()

    def put(self, item: Item, *, flush: bool) -> None:
        """Hand over an item. Without `flush` it goes with the next step, whenever that is."""
        if isinstance(item, Settled):
            self._progress.pop(item.grant_id, None)
        self._items.append(item)
        if len(self._items) > ITEMS_MAX:
            lost = self._drop_one()
            log_error("state_item_lost", StateSilent(f"over {ITEMS_MAX} items wait"), item=type(lost).__name__)
        if flush:
            self._wake.set()

    def progress(self, item: Progressed) -> None:
        """Hand over what a running call has used so far, soon. Only the newest word on each grant is kept, so that an
        actor that is away for long costs no more room than there are calls."""
        self._progress[item.grant_id] = item
        self._wake.set()

    async def ask(self, asked: Asked) -> Answer:
        """Have one call admitted.

        Raises:
            StateSilent: the actor is away, and the tier costs nothing; or the link is closed.
        """
        if self._closed or (not self._up and asked.ask.local):
            raise StateSilent(AWAY)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asks.append((asked, future))
        self._wake.set()
        try:
            return await future
        except asyncio.CancelledError:
            # The caller left, or was out of patience, after the answer had come and before it was read.
            if not future.cancelled() and future.exception() is None:
                self._return_unused(asked, future.result())
            raise

    async def call(self, method: str, *args: Any) -> Any:
        """Ask one question, beside the steps.

        Raises:
            StateSilent: no answer.
        """
        try:
            actor = await self._found()
            async with asyncio.timeout(CALL_S):
                return await actor.call(method, *args)
        except Exception as error:
            self._forget()
            raise StateSilent(f"the state actor doesn't answer ({type(error).__name__})") from error

    # -- the pump ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):  # not `wait_for`, which in Python 3.11 may swallow `close`
                async with asyncio.timeout(BEAT_S):
                    await self._wake.wait()
            try:
                await self._send()
            except Exception as error:
                self._fell_silent(error)
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _send(self) -> None:
        """One step, or several while more has come up that is not to wait."""
        while True:
            self._wake.clear()
            if not self._attempt:
                self._flying = self._taken_items()
            asks = self._taken_asks()
            if self._asks or self._items or self._progress:
                self._wake.set()  # more than this step may hold, or what came after the one that is sent again
            try:
                reply = await self._answered(tuple(asked for asked, _ in asks))
            except BaseException:
                self._attempt += 1
                self._hand_back(asks)
                raise
            self._flying, self._attempt = (), 0
            self._came_back()
            self._heard.set()
            self.health = reply.health
            self._deliver(asks, reply)
            if not self._wake.is_set():
                return

    def _taken_items(self) -> tuple[Item, ...]:
        progress, self._progress = tuple(self._progress.values()), {}
        count = min(len(self._items), ITEMS_PER_STEP)
        return (*progress, *(self._items.popleft() for _ in range(count)))

    def _taken_asks(self) -> list[tuple[Asked, asyncio.Future[Answer]]]:
        taken: list[tuple[Asked, asyncio.Future[Answer]]] = []
        while self._asks and len(taken) < ASKS_PER_STEP:
            asked, future = self._asks.popleft()
            if not future.done():
                taken.append((asked, future))
        return taken

    async def _answered(self, asks: tuple[Asked, ...]) -> Reply:
        actor, limits = await self._found(), self.limits
        step = Step(
            client=self._client,
            number=self._number,
            config=limits.digest,
            items=self._flying,
            asks=asks,
            attempt=self._attempt,
        )
        async with asyncio.timeout(CALL_S):
            reply = await actor.call("step", step)
            if reply is None:  # it decides by other limits
                reply = await actor.call("step", step, limits)
        if not isinstance(reply, Reply) or len(reply.answers) != len(asks):
            raise StateSilent("the state actor didn't answer what it was asked")
        self._number += step.works
        return reply

    def _deliver(self, asks: list[tuple[Asked, asyncio.Future[Answer]]], reply: Reply) -> None:
        for (asked, future), answer in zip(asks, reply.answers, strict=True):
            if not future.done():
                future.set_result(answer)
            else:  # the request left while its ask was on the way
                self._return_unused(asked, answer)

    def _return_unused(self, asked: Asked, answer: Answer) -> None:
        """Nobody will use this grant."""
        if isinstance(answer.decision, Grant):
            item = Settled(grant_id=answer.decision.id, verdict=Verdict.IGNORED, usage=Usage(), key=asked.ask.key)
            self.put(item, flush=True)

    def _hand_back(self, asks: list[tuple[Asked, asyncio.Future[Answer]]]) -> None:
        """The step failed: local asks go on without, paid ones wait for the next try."""
        for asked, future in reversed(asks):
            if future.done():
                continue
            if asked.ask.local:
                future.set_exception(StateSilent(AWAY))
            else:
                self._asks.appendleft((asked, future))

    def _came_back(self) -> None:
        if not self._up:
            self._up = True
            log_info("state_back")

    def _forget(self) -> None:
        """Look for it anew before the next call."""
        actor, self._actor = self._actor, None
        if actor is not None:
            actor.close()

    def _fell_silent(self, error: Exception) -> None:
        self._forget()
        if self._up:
            self._up = False
            log_error("state_silent", error)
        # Who asked meanwhile for a local tier shouldn't wait either.
        waiting, self._asks = list(self._asks), deque()
        self._hand_back(waiting)

    async def _found(self) -> Actor:
        """The actor. A search that takes too long goes on, and whoever asks next waits for the same one."""
        if self._actor is None:
            finding = self._finding = self._finding or asyncio.ensure_future(self._find())
            try:
                async with asyncio.timeout(CALL_S):
                    self._actor = await asyncio.shield(finding)
            finally:
                if finding.done() and self._finding is finding:
                    self._finding = None
        return self._actor

    def _drop_one(self) -> Item:
        """What can best be spared: a report, else a grant, else the oldest."""
        for kind in (Done | Said, Settled):
            for at, item in enumerate(self._items):
                if isinstance(item, kind):
                    del self._items[at]
                    return item
        return self._items.popleft()
