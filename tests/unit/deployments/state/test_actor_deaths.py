"""The state actor and its link where grants can get lost: an actor that dies twice, a caller that leaves while its
answer is on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deployments.config import RouterConfig, StateConfig
from deployments.request.policy import state_limits
from deployments.state.actor import SessionState
from deployments.state.journal import Bounds
from deployments.state.link import Link
from deployments.state.records import Query, SettlementItem, StateLimits, Step, StepRequest
from reliability.admission.admit import AdmissionRequest, Grant
from reliability.admission.events import Settlement
from reliability.types import Usage, Verdict

SPENT = Usage(prompt_tokens=3, completion_tokens=4)


def limits() -> StateLimits:
    return state_limits(RouterConfig(), StateConfig(), {})


def life(folder: Path) -> SessionState:
    """A life of the actor; the one before it is gone without a word."""
    return SessionState(folder=str(folder), bounds=Bounds(), windows_max=10, idle_exit_s=None)


def asked() -> StepRequest:
    return StepRequest(
        admission=AdmissionRequest(tier="fast", key="k", session="s", prompt_tokens=10, output_tokens=20)
    )


class Caller:
    """A Router replica's side of the steps."""

    def __init__(self) -> None:
        self.number = 0

    def step(self, actor: SessionState, **work: Any) -> Any:
        self.number += 1
        step = Step(client="router", number=self.number, config=limits().digest, **work)
        reply = actor.step(step)
        if reply is None:
            actor.configure(limits())
            reply = actor.step(step)
        assert reply is not None
        return reply

    def grant(self, actor: SessionState) -> str:
        decision = self.step(actor, requests=(asked(),)).answers[0].decision
        assert isinstance(decision, Grant)
        return decision.id

    def settle(self, actor: SessionState, grant: str) -> None:
        self.step(actor, items=(SettlementItem(settlement=Settlement(grant, Verdict.SUCCESS, SPENT)),))


@pytest.mark.parametrize("deaths", [1, 2, 3, 5])
def test_a_grant_of_any_life_is_settled_in_any_later_one(tmp_path, deaths):
    """However often the actor dies, a grant keeps its name: what was settled before a death stays settled, what was
    open is settled after it, and the books hold each exactly once."""
    caller, open_grants = Caller(), []
    for _ in range(deaths + 1):
        actor = life(tmp_path)
        caller.settle(actor, caller.grant(actor))
        open_grants.append(caller.grant(actor))
    last = life(tmp_path)
    before = last.budget("k", "s")
    for grant in open_grants:
        caller.settle(last, grant)
    after = last.budget("k", "s")

    count = deaths + 1
    assert (before["open_calls"], before["spent_tokens"]) == (count, count * SPENT.total_tokens)
    assert (after["open_calls"], after["spent_tokens"]) == (0, 2 * count * SPENT.total_tokens)
    assert after["reserved_tokens"] == last.stats()["grants"] == 0
    assert life(tmp_path).budget("k", "s") == after


def test_a_grant_that_expires_is_an_incident_whatever_closes_it(tmp_path):
    """Nobody settled it: it is charged what is known, its prompt, and that is written down, also where the next ask is
    what notices the time."""
    actor, caller = life(tmp_path), Caller()
    caller.step(actor, requests=(StepRequest(admission=replace(asked().admission, hold_ns=1)),))
    caller.grant(actor)
    incidents = actor.incidents(Query(kind="grant_expired"))

    assert [(each["tier"], each["evidence"]["tokens"]) for each in incidents] == [("fast", 10)]
    assert actor.budget("k", "s")["spent_tokens"] == 10
    assert actor.stats()["grants"] == 1


class Near:
    """The real actor, in this process: each call takes one turn of the event loop."""

    def __init__(self, actor: SessionState) -> None:
        self._actor = actor

    def close(self) -> None:
        pass

    async def call(self, method: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        return getattr(self._actor, method)(*args)


@pytest.mark.parametrize("turns", range(12))
def test_a_caller_that_leaves_at_any_turn_leaves_no_grant_behind(tmp_path, turns):
    """Whenever the asker is cancelled, also after the answer is there and before it could be read, the grant goes back
    unused."""
    actor = life(tmp_path)
    actor.configure(limits())

    async def leave() -> None:
        async def find() -> Near:
            return Near(actor)

        link = Link(find, limits())
        await link.start(5.0)
        asking = asyncio.create_task(link.admit(asked()))
        for _ in range(turns):
            await asyncio.sleep(0)
        if asking.done():
            unused = Settlement(asking.result().decision.id, Verdict.IGNORED, Usage())
            link.put(SettlementItem(settlement=unused), flush=True)
        asking.cancel()
        await asyncio.wait({asking})
        await link.admit(asked())  # whatever was on the way has arrived
        await link.close()

    asyncio.run(leave())

    assert actor.stats()["grants"] == 1  # the last one's


def test_the_link_starts_with_an_actor_that_takes_its_time(tmp_path):
    """An actor that isn't there at once is waited for: when `start` returns, asks are answered, and none of the first
    requests runs without a grant."""
    tries: list[int] = []

    async def find() -> Near:
        tries.append(1)
        if len(tries) < 4:
            raise TimeoutError("it is being made")
        return Near(life(tmp_path))

    async def start() -> bool:
        link = Link(find, limits())
        await link.start(30.0)
        answer = await link.admit(asked())
        await link.close()
        return isinstance(answer.decision, Grant)

    assert asyncio.run(start())
