"""The state as a Router replica sees it: exact, and nothing left open."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest

from deployments.config.app_config import StateConfig
from deployments.config.config_errors import ConfigError
from deployments.request.policy import state_limits
from deployments.state.client import RequestState, State, folder_of
from deployments.state.link import _CALL_S, StateUnavailable
from deployments.state.records import StateLimits, TurnItem
from reliability.admission.request import AdmissionRequest, Grant, Rejection
from reliability.loops import Turn
from reliability.types import Usage, Verdict
from tests.support.incarnations import done, life
from tests.support.near_actor import NearActor
from tests.support.room_rig import report
from tests.support.small_config import config_of
from tests.support.tier_asking import eventually

S0, S1 = "s0", "s1"


def config(session: int = 10**6, hour: int = 10**9) -> StateLimits:
    """Limits as the configuration gives them: asks reserve 100 tokens."""
    budget = {"per_session": session, "per_hour": hour, "max_output_tokens": 50, "policy": "hard_stop"}
    chain, retries = {"chain": ["fast"]}, {"floor": 1000}
    app = config_of("reliability", {"escalation": chain, "token_budget": budget, "retry_budget": retries})
    return state_limits(app, app.state, {})


@contextlib.asynccontextmanager
async def playing(folder: Path, **limits: int) -> AsyncGenerator[tuple[State, NearActor], None]:
    """A Router's state and its actor; at the end everything has been handed over and nothing is open."""
    near = NearActor(folder, lost=False, call_s=0.001)
    state = State(near.find, config(**limits))
    await state.start()
    yield state, near
    await asyncio.sleep(30)
    stats = near.actor.stats()
    assert (stats["grants"], stats["reserved_tokens"]) == (0, 0)
    await state.close()
    near.actor._journal.close()


def ask(session: str = S0, tier: str = "fast", **more: Any) -> AdmissionRequest:
    return AdmissionRequest(tier=tier, key="k", session=session, prompt_tokens=50, **more)


def request(state: State, session: str = S0, name: str = "r", **more: Any) -> RequestState:
    return RequestState(state, key="k", session=session, request_id=name, **more)


async def called(state: State, session: str, name: str, tokens: int = 100) -> bool:
    """One whole request of 100 tokens; whether it was admitted."""
    port = request(state, session, name)
    grant = await port.admit(ask(session))
    if isinstance(grant, Rejection):
        return False
    verdict, usage = Verdict.IGNORED, Usage()
    try:
        await asyncio.sleep(0.5)
        verdict, usage = Verdict.SUCCESS, Usage(prompt_tokens=tokens)
    finally:
        port.settle(grant, verdict, usage, None)
    port.finish(done(name, session, tokens=tokens).report, (), None)
    return True


@pytest.mark.parametrize(("window", "tokens", "admitted"), [("hour", 5000, 50), ("session", 799, 4 * 7)])
async def test_the_hour_and_each_session_are_exact(tmp_path, window, tokens, admitted):
    """Of 200 requests at once, of four sessions, exactly those for which the hour or the session has tokens run."""
    async with playing(tmp_path, **{window: tokens}) as (state, _):
        ran = await asyncio.gather(*(called(state, f"s{n % 4}", f"r{n}") for n in range(200)))
        assert sum(ran) == admitted
        spent = [(await state.session("k", f"s{n}") or {"spent_tokens": 0})["spent_tokens"] for n in range(4)]
        assert sum(spent) == 100 * admitted
        assert window == "hour" or spent == [700] * 4


@pytest.mark.parametrize("wait_s", [None, -1.0, 0.5, 1e11, inf, -inf, nan])
async def test_whatever_a_tier_asks_for_can_be_settled(tmp_path, wait_s):
    """No word on when to come back, however long or senseless, keeps a grant open or takes the link down."""
    async with playing(tmp_path) as (state, _):
        port = request(state)
        port.settle(await port.admit(ask()), Verdict.FAILURE, Usage(), wait_s)
        await asyncio.sleep(0.1)
        assert state.waiting_items == 0
        assert state.up


async def test_helpers_spend_the_budget_of_their_agent(tmp_path):
    """A call of a helper with a grant, and one without, count where its agent's do: what they have spent together keeps
    out all of them, and nobody else. A helper's books show that budget."""
    async with playing(tmp_path, session=200) as (state, near):
        helper = request(state, "main.a1", parent="main")
        grant = await helper.admit(ask("main.a1", parent="main"))
        helper.settle(grant, Verdict.SUCCESS, Usage(prompt_tokens=60), None)
        helper.charge(Usage(prompt_tokens=80))
        helper.finish(report("r", session="main.a1", parent="main", key="k"), (), None)
        await asyncio.sleep(1)

        assert near.actor.books("k", "main.a1")[1]["spent_tokens"] == 140
        assert near.actor.budget("k", "main")["spent_tokens"] == 140
        for session, parent in (("main", ""), ("main.a2", "main"), ("main.a1", "main")):
            refused = await request(state, session, parent=parent).admit(ask(session, parent=parent))
            assert isinstance(refused, Rejection)
        assert await called(state, S1, "other")


async def test_the_window_is_the_sessions(tmp_path):
    """What a session has said comes with its next request's first grant, and only where it is asked for."""
    async with playing(tmp_path) as (state, _):
        port = request(state)
        grant = await port.admit(ask())
        port.settle(grant, Verdict.SUCCESS, Usage(), None)
        port.finish(done().report, (), TurnItem(key="k", session=S0, turn=Turn(text="hello"), request="q"))
        port = request(state, name="r2", wants_window=True)
        grants = [await port.admit(ask()), await port.admit(ask(extra=True))]
        assert [said.text for said in port.window.answers] == ["hello"]
        for grant in grants:
            port.settle(grant, Verdict.SUCCESS, Usage(), None)
        other = request(state, S1, wants_window=True)
        other.settle(await other.admit(ask(S1)), Verdict.SUCCESS, Usage(), None)
        assert other.window.answers == ()


async def test_what_is_known_of_a_session(tmp_path):
    """A session's totals and books are found from any side, under its key; a reset clears them."""
    async with playing(tmp_path) as (state, _):
        await called(state, S0, "r1", tokens=60)
        await asyncio.sleep(1)
        assert await state.find_keys("session", S0) == await state.find_keys("request", "r1") == ["k"]
        known = await state.session("k", S0)
        assert (known["key"], known["requests"], known["spent_tokens"]) == ("k", 1, 60)
        assert known["windows"]["session"] == {"tokens": 60, "tokens_max": 10**6}
        assert await state.session("other", S0) is None
        assert await state.find_keys("session", "stranger") == await state.find_keys("request", S0) == []
        assert (await state.report("k", "r1"))["request_id"] == "r1"
        assert await state.report("other", "r1") is None
        await state.reset("k", S0)
        assert await state.session("k", S0) is None


async def test_what_a_session_has_done_and_its_budget_are_of_one_moment(tmp_path):
    """While calls end, what their reports say was used is what the books have spent, at every look."""

    async def one(state, number):
        await asyncio.sleep(number * 0.0007)
        await called(state, S0, f"r{number}")

    async with playing(tmp_path) as (state, _):
        calls = asyncio.gather(*(one(state, number) for number in range(100)))
        looks = set()
        while not calls.done():
            books = await state.session("k", S0) or {}
            looks.add((books.get("requests", 0) * 100, books.get("spent_tokens", 0)))
            await asyncio.sleep(0.0003)
        assert len(looks) > 5
        assert all(reported == spent for reported, spent in looks)


async def test_what_is_said_while_the_actor_is_away_is_the_newest_word(tmp_path):
    """However long it is away: one word for each call is kept, none for a call that was settled meanwhile."""
    async with playing(tmp_path) as (state, near):
        port = request(state)
        grants = [await port.admit(ask()) for _ in range(2)]
        near.away = True
        await asyncio.sleep(2)
        for completion in range(1_000):
            for grant in grants:
                port.progress(grant, Usage(prompt_tokens=40, completion_tokens=completion))
        assert state.waiting_items <= 4
        assert near.actor.find_keys("session", S0) == ["k"], "it has no report yet"
        port.settle(grants[0], Verdict.SUCCESS, Usage(prompt_tokens=7), None)
        near.away = False
        await asyncio.sleep(2)
        books = await state.session("k", S0)
        assert (books["spent_tokens"], books["open_calls"]) == (7 + 1_039, 1)
        port.settle(grants[1], Verdict.SUCCESS, Usage(prompt_tokens=7), None)


@pytest.mark.parametrize("turns", range(6))
async def test_a_caller_that_is_cancelled_twice_leaves_nothing_open(tmp_path, turns):
    """Whoever leaves while the actor is silent, and is told again to leave at any turn after that: whatever is granted
    later goes back."""
    async with playing(tmp_path) as (state, near):
        near.open.clear()
        asking = asyncio.create_task(request(state).admit(ask()))
        await asyncio.sleep(0.1)
        asking.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        await asyncio.sleep(_CALL_S + 1)  # the call that hangs ends by its own time
        near.open.set()


def test_a_folder_is_named_or_the_users_own(tmp_path, monkeypatch):
    """`state.path` is the folder, also under a home directory; without it each app has one of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    assert folder_of("app", StateConfig(path="/var/lib/x")) == Path("/var/lib/x")
    assert folder_of("app", StateConfig(path="~/x")) == tmp_path / "x"
    assert folder_of("app", StateConfig()) == tmp_path / "state" / "mlx-stack-serve" / "app"


def test_a_home_that_is_not_known_is_one_line_that_names_the_key():
    """A folder under the home directory of nobody is a mistake in the configuration, and said as one."""
    with pytest.raises(ConfigError, match=r"^state\.path: its home directory isn't known"):
        folder_of("app", StateConfig(path="~nosuchuser/state"))


def lose_ledger(near: NearActor, folder: Path) -> None:
    """Let a second server begin in the same folder."""
    life(folder)


def fill_disk(near: NearActor, _: Path) -> None:
    """Let every step fail as SQLite does."""
    near.fails = sqlite3.OperationalError("database or disk is full")


@pytest.mark.parametrize(
    ("spoil", "words"), [(lose_ledger, "two servers need a state.path each"), (fill_disk, "disk is full")]
)
async def test_what_keeps_the_ledger_shut_is_said(tmp_path, spoil, words):
    """Why the actor's steps fail is known as long as they do. Who asks for a paid tier waits for it at first, and no
    more once it has been so for long: an operator must come."""
    near = NearActor(tmp_path, lost=False)
    state = State(near.find, config())
    await state.start()
    assert (state.condition, state.trouble) == ("up", "")
    spoil(near, tmp_path)
    paid = AdmissionRequest(tier="cloud", key="k", session=S0, prompt_tokens=1, local=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10.5):
            await RequestState(state, "k", S0, "r").admit(paid)
    asker, began_s = RequestState(state, "k", S0, "r"), asyncio.get_running_loop().time()
    with pytest.raises(StateUnavailable, match=words):
        await asker.admit(paid)
    assert asyncio.get_running_loop().time() == began_s
    assert words in asker.trouble
    assert state.condition.startswith("away: ")

    near.fails, near.actor = None, life(tmp_path)
    await eventually(lambda: (state.condition, asker.trouble) == ("up", ""))
    assert isinstance(await asker.admit(paid), Grant)
    await state.close()
