"""One seeded world: Router replicas, their links, a faulty wire, and a real SessionState that dies now and then.

Time is virtual, the journal is a real file. The wire loses calls before they arrive and replies after they were done,
lets calls hang and arrive when nobody waits any more, and kills the actor at any of these moments. Then the world
heals, and the books must be those of the clients: to the token, and each item exactly once.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from deployments.state.actor import SessionState
from deployments.state.link import _CALL_S, Link, StateUnavailable
from deployments.state.records import Query, StateLimits
from reliability.admission.admit import AdmissionConfig
from reliability.admission.breaker import BreakerConfig
from reliability.admission.budget import BudgetConfig, Limit
from reliability.admission.events import Charge, Progress
from reliability.admission.request import Grant
from reliability.admission.retry_budget import RetryBudgetLimits
from reliability.types import Verdict
from tests.sim.clock import VirtualClock, run
from tests.sim.world import Broken, law
from tests.support.incarnations import ROOM, S, ask, done, life, limits, settled

CLIENTS = 5
REQUESTS = 5
HANG_MAX_S = 20.0
LOCAL_S = 0.5
WORLD_S = 2000.0
FATES = ("lost", "unanswered", "late", "slow", "killed before", "killed after")


class Wire:
    """In the place of Ray: the way to the actor, and its restarts."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder = rng, folder
        self.fates: dict[str, float] = {fate: rng.choice((0.0, 0.0, 0.05, 0.2)) for fate in FATES}
        self.dark = rng.choice((0.0, 0.0, 0.3))  # the actor can't be found
        self.seen: Counter[str] = Counter()
        self.running: set[asyncio.Task[Any]] = set()
        self.actor = self.born()

    def born(self) -> SessionState:
        return life(self.folder, VirtualClock())  # type: ignore[arg-type]

    def kill(self) -> None:
        self.actor._journal.close()
        self.actor = self.born()

    def heal(self) -> None:
        self.fates, self.dark = dict.fromkeys(FATES, 0.0), 0.0

    async def find(self) -> Wire:
        if self.rng.random() < self.dark:
            await asyncio.sleep(self.rng.choice((0.0, 1.0, HANG_MAX_S)))
            raise ConnectionError("no actor there")
        return self

    def close(self) -> None:
        pass

    async def call(self, method: str, *args: Any) -> Any:
        """What is on its way goes on, whether somebody still waits for it or not."""
        task = asyncio.create_task(self._carried(method, *args))
        self.running.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.running.discard(task)
        if not task.cancelled():
            task.exception()

    async def _carried(self, method: str, *args: Any) -> Any:
        fate = self._fate()
        self.seen[fate] += 1
        await asyncio.sleep(self.rng.uniform(_CALL_S, HANG_MAX_S) if fate == "late" else 0.001)
        if fate == "killed before":
            self.kill()
        if fate in ("lost", "killed before"):
            raise ConnectionError(fate)
        answer = getattr(self.actor, method)(*args)
        if fate == "killed after":
            self.kill()
        if fate in ("unanswered", "killed after"):
            raise ConnectionError(fate)
        await asyncio.sleep(self.rng.uniform(0, 2 * _CALL_S) if fate == "slow" else 0.001)
        return answer

    def _fate(self) -> str:
        for fate, share in self.fates.items():
            if self.rng.random() < share:
                return fate
        return "well"


class World:
    """A seed, played."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.spent: Counter[str] = Counter()
        self.ended = 0
        self.waited = 0

    def play(self) -> Counter[str]:
        """Play everything; return what the wire did. Raises `Broken`."""
        logging.getLogger("ray.serve").setLevel(logging.CRITICAL + 1)
        try:
            with tempfile.TemporaryDirectory(dir=ROOM) as room:
                return run(self._play(Path(room)))
        except Broken as broken:
            raise Broken(f"seed {self.seed}: {broken}") from broken
        finally:
            logging.getLogger("ray.serve").setLevel(logging.NOTSET)

    async def _play(self, folder: Path) -> Counter[str]:
        wire = Wire(self.rng, folder)
        self.hour_tokens = self.rng.choice((None, None, 3000))
        links = [Link(wire.find, self._limits()) for n in range(self.rng.randint(1, 2))]
        for link in links:
            await link.start(1.0)
        clients = [asyncio.create_task(self._client(f"s{n % 4}", links[n % len(links)])) for n in range(CLIENTS)]
        change = asyncio.create_task(self._changes(links))
        healing = asyncio.get_running_loop().call_later(self.rng.uniform(10, 120), wire.heal)
        try:
            async with asyncio.timeout(WORLD_S):
                await asyncio.gather(*clients)
        except TimeoutError as error:
            raise Broken("somebody waits for ever") from error
        healing.cancel()
        wire.heal()
        change.cancel()
        await self._settle_down(links, wire)
        self._judge(wire)
        for link in links:
            await link.close()
            law(link.waiting_items == 0, "a healthy link closes with items left")
        wire.actor._journal.close()
        return wire.seen

    def _limits(self) -> StateLimits:
        hour = Limit(tokens_max=self.hour_tokens)
        budget = BudgetConfig(hour=hour, output_tokens_default=self.rng.randint(40, 60), reservation_ns=100_000 * S)
        breaker = BreakerConfig(failures_max=None, rate_percent=None, permit_ns=100_000 * S)
        return limits(AdmissionConfig(breaker=breaker, budget=budget, retries=RetryBudgetLimits(floor=10**6)))

    async def _changes(self, links: list[Link]) -> None:
        """New limits, which reach one Router after the other."""
        while True:
            await asyncio.sleep(self.rng.uniform(1, 40))
            new = self._limits()
            for link in links:
                link.limits = new
                await asyncio.sleep(self.rng.uniform(0, 2))

    async def _client(self, session: str, link: Link) -> None:
        for n in range(REQUESTS):
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 1.0, 5.0)))
            local = self.rng.random() < 0.6
            grant = await self._asked(session, link, local)
            if grant is None and not local:
                continue
            for said in range(self.rng.choice((0, 0, 1, 3))):
                if isinstance(grant, Grant):
                    link.progress(Progress(grant_id=grant.id, tokens=50 + said))
                await asyncio.sleep(self.rng.choice((0.0, 0.1)))
            await asyncio.sleep(self.rng.choice((0.0, 0.1, 3.0)))
            tokens = self.rng.randint(0, 90)
            self.spent[session] += tokens
            if isinstance(grant, Grant):
                verdict = self.rng.choice(list(Verdict))
                link.put(settled(grant, tokens, verdict), flush=self.rng.random() < 0.5)
            else:
                link.put(Charge(key="k", session=session, tokens=tokens), flush=False)
            self.ended += 1
            name = f"{session}-{id(asyncio.current_task())}-{n}"
            link.put(done(name, session, tokens=tokens, incidents=1), flush=True)

    async def _asked(self, session: str, link: Link, local: bool) -> Grant | None:
        """A grant; None where the call goes on without, or not at all."""
        loop = asyncio.get_running_loop()
        patience_s = self.rng.choice((LOCAL_S, None) if local else (2.0, 10.0, None))
        began_s, was_up = loop.time(), link.up
        answer = None
        with suppress(StateUnavailable, TimeoutError):
            async with asyncio.timeout(patience_s):
                answer = await link.admit(ask("fast" if local else "cloud", session, local=local))
        took_s = loop.time() - began_s
        law(not local or was_up or took_s == 0, f"a local ask waited {took_s} s for a link that was down")
        law(not local or took_s < 3 * _CALL_S + 1, f"a local ask waited {took_s} s")
        law(local or patience_s or answer, "a patient ask of a paid tier was turned away")
        self.waited += not local and answer is not None and took_s > 1
        return answer.decision if answer and isinstance(answer.decision, Grant) else None

    async def _settle_down(self, links: list[Link], wire: Wire) -> None:
        """Liveness: in a healed world everything is handed over, soon; then what hung arrives too late."""
        began_s = asyncio.get_running_loop().time()
        while any(link.waiting_items or not link.up for link in links) or wire.running:
            await asyncio.sleep(0.5)
            law(asyncio.get_running_loop().time() - began_s < 6 * HANG_MAX_S, "a healed world doesn't settle down")

    def _judge(self, wire: Wire) -> None:
        for _ in range(2):
            actor = wire.actor
            stats = actor.stats()
            law(stats["grants"] == 0, f"{stats['grants']} grants are open")
            law(stats["reserved_tokens"] == 0, f"{stats['reserved_tokens']} tokens are reserved")
            for session, tokens in self.spent.items():
                books = actor.budget("k", session)["spent_tokens"]
                law(books == tokens, f"{session} has spent {tokens} tokens, the books say {books}")
            found = len(actor.browse(Query(kind="flaw", limit=10**6)))
            law(found == self.ended, f"{self.ended} requests have ended, {found} incidents are written")
            totals = [actor.books("k", session)[0] for session in self.spent]
            count = sum(each["requests"] for each in totals if each)
            law(count == self.ended, f"{self.ended} requests have ended, {count} are counted")
            wire.kill()
