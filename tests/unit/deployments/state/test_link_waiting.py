"""What waits for the state actor: in order, bounded, and what is missed least gives way."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.idempotent_answers import KeptItem
from deployments.state.link import Link, _WaitingItems
from deployments.state.records import AnswerItem, IncidentItem, Item, ReportItem, SettlementItem, TurnItem
from reliability.admission.events import Charge
from reliability.admission.request import Grant
from tests.support.incarnations import LIMITS, ask, settled
from tests.support.near_actor import NearActor

KINDS = [KeptItem, ReportItem, TurnItem, AnswerItem, SettlementItem, Charge, IncidentItem]
ORDER = [(KeptItem,), (ReportItem, TurnItem, AnswerItem), (SettlementItem,), (Charge, IncidentItem)]


def drop_by_search(items: list[Item]) -> Item:
    """The rule, said plainly."""
    for kinds in ORDER:
        for item in items:
            if isinstance(item, kinds):
                return items.pop(next(at for at, one in enumerate(items) if one is item))
    raise AssertionError("nothing waits")


@given(st.integers(0, 6), st.lists(st.one_of(st.sampled_from(KINDS), st.integers(0, 8))))
def test_it_is_a_list_that_drops_what_is_missed_least(most, moves):
    """Whatever is put and taken: what comes out, and what gives way, is what a search through a list would find."""
    waiting, plain = _WaitingItems(most), []
    for move in moves:
        if isinstance(move, int):
            taken, plain = plain[:move], plain[move:]
            assert all(one is other for one, other in zip(waiting.take(move), taken, strict=True))
        else:
            item = object.__new__(move)  # what is in it doesn't matter
            plain.append(item)
            lost = drop_by_search(plain) if len(plain) > most else None
            assert waiting.put(item) is lost
        assert len(waiting) == len(plain)


class OneTurn(NearActor):
    """Each call takes one turn of the event loop."""

    async def call(self, method: str, *args: Any) -> Any:
        await asyncio.sleep(0)
        return await super().call(method, *args)


@pytest.mark.parametrize("turns", range(12))
async def test_a_caller_that_leaves_at_any_turn_leaves_no_grant_behind(tmp_path, turns):
    """Whenever the asker is cancelled, also after the answer is there and before it could be read, the grant goes back
    unused."""
    near = OneTurn(tmp_path)
    await near.link.start(5.0)
    asking = asyncio.create_task(near.link.admit(ask()))
    for _ in range(turns):
        await asyncio.sleep(0)
    if asking.done():
        near.link.put(settled(asking.result().decision, 0), flush=True)
    asking.cancel()
    await asyncio.wait({asking})
    await near.link.admit(ask())  # whatever was on the way has arrived
    await near.link.close()
    assert near.actor.stats()["grants"] == 1  # the last one's


async def test_the_link_starts_with_an_actor_that_takes_its_time(tmp_path):
    """An actor that isn't there at once is waited for: when `start` returns, asks are answered, and none of the first
    requests runs without a grant."""
    tries: list[int] = []

    async def find() -> NearActor:
        tries.append(1)
        if len(tries) < 4:
            raise TimeoutError("it is being made")
        return NearActor(tmp_path)

    link = Link(find, LIMITS)
    await link.start(30.0)
    assert isinstance((await link.admit(ask())).decision, Grant)
    await link.close()
