"""Responses that are kept: handed over behind the answer, found again, and bounded in use."""

import asyncio
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.openai_responses import stored_responses
from deployments.api.openai_responses.item_ids import make_tag, name_response
from deployments.api.openai_responses.response_body import Wanted
from deployments.api.openai_responses.stored_record import NeedsRecall, open_record
from deployments.api.openai_responses.stored_responses import KEY_BYTES_MAX, StoredResponses, _RecallBudget
from deployments.errors import ApiError
from deployments.state.link import StateUnavailable
from deployments.state.records import KeptResponse


class Memory:
    """A shelf in memory, which may be away for so many calls."""

    def __init__(self, away: int = 0) -> None:
        self.rows: dict[tuple[str, str], KeptResponse] = {}
        self.away = away

    def fail(self) -> None:
        if self.away:
            self.away -= 1
            raise StateUnavailable("away")

    async def keep_response(self, response: KeptResponse) -> None:
        self.fail()
        self.rows[response.key, response.id] = response

    async def recall_responses(self, key: str, response_id: str) -> list[KeptResponse]:
        self.fail()
        found = self.rows.get((key, response_id))
        return [] if found is None else [found]

    async def forget_response(self, key: str, response_id: str) -> bool:
        self.fail()
        return self.rows.pop((key, response_id), None) is not None


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_responses, "RETRY_S", 0.001)
    monkeypatch.setattr(stored_responses, "LOOK_S", 0.001)


def keep(
    stored: StoredResponses,
    *,
    key: str = "k",
    previous: str | None = None,
    items: bytes | None = b"[]",
    tokens: int = 1,
) -> str:
    """Keep a response; return its name."""
    wanted = Wanted(tag=make_tag(), echo={}, items=items, previous=previous)
    run: Any = SimpleNamespace(key=key, request=SimpleNamespace(session_id="s"))
    written = f'{{"id":"{name_response(wanted.tag)}","usage":{{"total_tokens":{tokens}}}}}'.encode()
    stored.keep(SimpleNamespace(wanted=wanted), run, SimpleNamespace(written=written))  # type: ignore[arg-type]
    return name_response(wanted.tag)


def recall(stored: StoredResponses, previous: str | None, key: str = "k", **items: str) -> Any:
    return stored.recall(key, NeedsRecall(previous, items), ExitStack())


async def test_what_is_kept_is_found():
    """At once, while it waits, and later, when the state has it."""
    shelf = Memory()
    stored = StoredResponses(shelf)
    name = keep(stored)
    early = await stored.find("k", name)
    await stored.close()
    late = await stored.find("k", name)

    assert early is not None
    assert early == late == shelf.rows["k", name]
    assert open_record(early.record) == {"input": [], "response": {"id": name, "usage": {"total_tokens": 1}}}


async def test_a_state_that_is_away_is_asked_again():
    """A killed actor costs nobody a response."""
    shelf = Memory(away=3)
    stored = StoredResponses(shelf)
    name = keep(stored)
    await stored.close()

    assert list(shelf.rows) == [("k", name)]


async def test_a_chain_is_recalled_from_its_beginning():
    """The oldest comes first, with the session of the newest."""
    stored = StoredResponses(Memory())
    first = keep(stored)
    second = keep(stored, previous=first)
    await stored.close()
    third = keep(stored, previous=second)
    recalled = await recall(stored, third)

    assert [open_record(record)["response"]["id"] for record in recalled.chain] == [first, second, third]
    assert recalled.session == "s"
    assert recalled.size > 0


async def test_another_key_finds_nothing():
    """What another key keeps is answered as if it weren't there."""
    stored = StoredResponses(Memory())
    name = keep(stored)

    assert await stored.find("other", name) is None
    assert not await stored.forget("other", name)
    with pytest.raises(ApiError, match="not found") as caught:
        await recall(stored, name, key="other")
    assert caught.value.code == "previous_response_not_found"


async def test_what_shall_not_be_stored_is_not():
    """Without items there is nothing to keep."""
    shelf = Memory()
    stored = StoredResponses(shelf)
    keep(stored, items=None)
    await stored.close()

    assert shelf.rows == {}


async def test_what_is_deleted_is_gone():
    """Also where it waits still; a name of no form is nothing."""
    shelf = Memory()
    stored = StoredResponses(shelf)
    name = keep(stored)

    assert await stored.forget("k", name)
    await stored.close()
    assert shelf.rows == {}
    assert not await stored.forget("k", "resp_1")


async def test_what_waits_of_one_key_pushes_out_nothing_of_another(monkeypatch):
    """Law: above the bound, the key whose responses wait with the most bytes loses its oldest."""
    monkeypatch.setattr(stored_responses, "WAITING_BYTES_MAX", 280)
    monkeypatch.setattr(stored_responses, "CLOSE_S", 0.001)
    stored = StoredResponses(Memory(away=10**9))
    mine = keep(stored, key="other")
    names = [keep(stored) for _ in range(6)]
    waiting = list(stored._waiting)
    await stored.close()

    assert waiting == [("other", mine), *(("k", name) for name in names[4:])]


async def test_a_state_that_stays_away_is_given_up(monkeypatch):
    """Not asked for ever."""
    monkeypatch.setattr(stored_responses, "PATIENCE_S", 0.02)
    stored = StoredResponses(Memory(away=10**9))
    keep(stored)
    await stored.close()

    assert not stored._waiting


async def test_a_silent_state_is_a_503():
    """Who asks meanwhile is told to come back."""
    stored = StoredResponses(Memory(away=1))

    with pytest.raises(ApiError) as caught:
        await stored.find("k", name_response("0" * 32))
    assert caught.value.status == 503


async def test_a_young_response_is_waited_for():
    """Another Router may have it still: it is looked for a few times; an old one once."""
    shelf = Memory()
    stored, other = StoredResponses(shelf), StoredResponses(shelf)
    looking = asyncio.create_task(stored.find("k", name := keep(other)))
    await other.close()

    assert (await looking) is not None
    assert name


async def test_a_chain_has_a_bound(monkeypatch):
    """A conversation that is too long is refused by the field that brought it."""
    monkeypatch.setattr(stored_responses, "CHAIN_MAX", 2)
    stored = StoredResponses(Memory())
    name = keep(stored)
    for _ in range(2):
        name = keep(stored, previous=name)

    with pytest.raises(ApiError) as caught:
        await recall(stored, name)
    assert caught.value.param == "previous_response_id"
    await stored.close()


async def test_an_item_is_recalled_with_its_response():
    """Two items of one response bring it once; one that isn't there brings nothing: the parser notes it."""
    stored = StoredResponses(Memory())
    name = keep(stored)
    item = name.replace("resp_", "msg_")
    items = {"input.0.id": f"{item}_0", "input.1.id": f"{item}_1"}
    recalled = await stored.recall("k", NeedsRecall(None, items), ExitStack())

    assert list(recalled.others) == [name]
    gone = await stored.recall("k", NeedsRecall(None, {"input.0.id": "msg_" + "0" * 32 + "_0"}), ExitStack())
    assert not gone.others
    await stored.close()


async def test_a_conversation_beyond_every_context_is_refused_before_it_is_recalled():
    """Law: where the newest response used twice the largest context, the rest isn't asked for; an unknown context
    refuses nothing."""
    shelf = Memory()
    stored = StoredResponses(shelf, lambda: 1_000)
    first = keep(stored)
    name = keep(stored, previous=first, tokens=2_001)
    await stored.close()
    del shelf.rows["k", first]  # whoever asked for it would not find it

    with pytest.raises(ApiError, match="2,001 tokens; the largest context of a tier is 1,000") as caught:
        await recall(stored, name)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(ApiError) as unknown:
        await recall(StoredResponses(shelf), name)
    assert unknown.value.code == "previous_response_not_found"


MIB = 1024 * 1024
sizes = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 16 * MIB)), max_size=40)


async def hold(budget: _RecallBudget, key: str, size: int) -> None:
    """One request: it holds its bytes for some turns of the loop."""
    with ExitStack() as ending:
        async with budget.turn(key):
            await budget.reserve(key, size, ending)
        for _ in range(3):
            assert budget.held_bytes <= stored_responses.RECALLED_BYTES_MAX
            assert budget._held[key] <= KEY_BYTES_MAX
            await asyncio.sleep(0)


@given(sizes)
def test_all_are_served_within_the_budget(requests: list[tuple[str, int]]) -> None:
    """Law: however many come at the same time, the bytes in use stay within both bounds, all are served, and nothing
    stays reserved."""

    async def run() -> int:
        budget = _RecallBudget()
        await asyncio.gather(*(hold(budget, key, size) for key, size in requests))
        return budget.held_bytes

    assert asyncio.run(run()) == 0


async def test_a_full_budget_refuses_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a request that finds the budget of its key used up gets a 503 with the limits; another key is served."""
    monkeypatch.setattr(stored_responses, "WAIT_S", 0.01)
    budget = _RecallBudget()
    with ExitStack() as first, ExitStack() as second:
        await budget.reserve("a", KEY_BYTES_MAX, first)
        with pytest.raises(ApiError, match="limit is 64 MiB, and 32 MiB for one API key") as caught:
            await budget.reserve("a", 1, second)
        assert caught.value.code == "overloaded"
        await budget.reserve("b", KEY_BYTES_MAX, second)


async def test_a_request_waits_for_its_turn_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: however many requests of one key come at the same time, each is served or refused within twice `WAIT_S`: the
    places in the Router that they hold are everybody's. The turns come back."""
    monkeypatch.setattr(stored_responses, "WAIT_S", 0.05)

    async def ask(budget: _RecallBudget, at_once: ExitStack) -> str:
        try:
            async with budget.turn("a"):
                await budget.reserve("a", KEY_BYTES_MAX, at_once)
        except ApiError as error:
            return error.code
        return "served"

    budget = _RecallBudget()
    with ExitStack() as ending:
        async with asyncio.timeout(2.0):  # one after the other, four at a time, they would take 5 s
            codes = await asyncio.gather(*(ask(budget, ending) for _ in range(400)))
        assert codes == ["served", *["overloaded"] * 399]
        async with budget.turn("b"):
            pass
    with ExitStack() as ending:
        assert await ask(budget, ending) == "served"


async def test_no_key_opens_what_another_has_stored() -> None:
    """Law: a stored response is opened as often as its own key wants, and by no other key."""
    stored = StoredResponses(Memory())
    names = {key: keep(stored, key=key) for key in "ab"}
    await stored.close()

    assert await stored.open("a", names["a"]) == await stored.open("a", names["a"])
    assert await stored.open("b", names["b"])
    assert await stored.open("b", names["a"]) is None
