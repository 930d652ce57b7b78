"""One session, two hundred requests at once, a budget for fifty of them: over a real socket, a tier that costs money
(its server is a real HTTP double with a log) and a local one. That two Routers share their books `test_kills` shows.

What a call reserves is what it uses (see `tests.support.client_load`), so the number that fits is exact: `FIT`.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from deployments.api.api_keys import new_key
from tests.support import scripts
from tests.support.client_load import (
    COST,
    PATIENT,
    PROMPT_TOKENS,
    How,
    Ledger,
    Outcome,
    ask,
    crowd,
    kill_state,
    of_session,
    openai_client,
    paced,
    scripted,
    state_pid,
)
from tests.support.serving import Server, until
from tests.support.upstream import Upstream

APP = "budgets"
CLIENTS = 200
FIT = 50
LIMIT = FIT * COST
INTERN_FIT = 10
OUTPUT_MAX = 100
BOSS = new_key()
INTERNS = {"intern": new_key(), "trainee": new_key()}
TALK = {"when": {"last_user": "talk"}, "answer": " ".join(f"w{n}" for n in range(400))}


@pytest.fixture(scope="module")
def server(deploy, upstream, tmp_path_factory):
    return deploy(args(upstream, tmp_path_factory), "near_budgets")


@pytest.fixture(scope="module")
def on_ray(deploy_on_ray, upstream, tmp_path_factory):
    """The same on Ray, behind two Router replicas."""
    return deploy_on_ray(args(upstream, tmp_path_factory), APP)


def args(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`premium` costs money, `local` doesn't; each answers alone. The interns have hours of their own."""
    upstream.plays("some/model", paced())
    hours = {name: {"tokens_per_hour": INTERN_FIT * COST} for name in INTERNS}
    keys = scripts.write_keys(tmp_path_factory.mktemp("keys"), {"boss": BOSS, **INTERNS}, boss={"admin": True}, **hours)
    premium = scripts.hosted(upstream, cloud=True)
    budget = {"policy": "hard_stop", "per_session": LIMIT, "per_hour": None, "max_output_tokens": OUTPUT_MAX}
    return scripts.graph(
        {"local": scripts.scripted(TALK, scripted()), "premium": premium},
        ["local"],
        retries=0,
        timeouts=PATIENT,
        server={"router_replicas": 2, "body_s": 60.0, "api_keys_file": keys},
        token_budget=budget,
    )


def ledger_of(server: Server, session: str) -> Ledger:
    return Ledger(server, session, key="boss", bearer=BOSS)


def rush(ledger: Ledger, *, stream: bool, model: str, count: int = CLIENTS, leavers: int = 0) -> list[Outcome]:
    """`count` requests of one session at once. `leavers` of each three go, at all stages of their way."""

    async def one(client: Any, number: int) -> Outcome:
        leaves = leavers and number % 3 < leavers
        leave_s = 0.1 + number * 0.01 if leaves else None
        return await ask(client, ledger.session, stream=stream, model=model, leave_s=leave_s)

    return asyncio.run(crowd(ledger, one, count))


def rush_and_kill(ledger: Ledger, when: Callable[[], Any], **how: Any) -> tuple[list[Outcome], int]:
    """The same, while the state actor is killed once `when` holds; and its process."""

    def kill() -> int:
        until(when, "calls are under way")
        return kill_state(APP)

    with ThreadPoolExecutor(1) as thread:
        killed = thread.submit(kill)
        outcomes = rush(ledger, **how)
    return outcomes, killed.result()


def refusals(outcomes: list[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.how is How.REFUSED]


def answers(outcomes: list[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.how is How.ANSWERED]


# What is spent stays spent; what open calls hold may come back, so who is refused for that may ask again.
STAYS = (400, "budget_exceeded", "false", False)
PASSES = (429, "rate_limit_exceeded", None, True)


def told(outcome: Outcome) -> tuple[Any, ...]:
    headers = outcome.headers
    return outcome.status, outcome.code, headers.get("x-should-retry"), "retry-after" in headers


def assert_refused_for_the_budget(outcomes: list[Outcome]) -> None:
    assert {told(each) for each in outcomes} <= {STAYS, PASSES}


def test_two_hundred_at_once_get_what_the_budget_holds(server, upstream, stream):
    """Fifty are answered, the others are refused; the ledger never passes its limit, and the
    upstream was asked fifty times."""
    ledger = ledger_of(server, f"paid-{stream}")
    outcomes = rush(ledger, stream=stream, model="premium")
    books = until(ledger.settled, "nothing is reserved")

    assert {each.how for each in outcomes} == {How.ANSWERED, How.REFUSED}
    assert (len(answers(outcomes)), len(refusals(outcomes))) == (FIT, CLIENTS - FIT)
    assert_refused_for_the_budget(refusals(outcomes))
    assert sum(each.tokens for each in outcomes) == books["spent_tokens"] == LIMIT
    assert max(ledger.looks) <= LIMIT
    assert len(of_session(upstream.log, ledger.session)) == FIT


@pytest.mark.parametrize("stream", [False, pytest.param(True, marks=pytest.mark.further)])
def test_a_local_tier_gets_what_the_budget_holds_too(server, stream):
    """The same for a tier that costs nothing. Its calls may run without a grant where the machine is so busy that the
    state actor isn't heard in time; each of these says so in its report, and no other is let through beyond the fifty.
    All are in the ledger."""
    ledger = ledger_of(server, f"local-{stream}")
    outcomes = rush(ledger, stream=stream, model="local")
    books = until(ledger.settled, "nothing is reserved")
    answered = answers(outcomes)
    silent = ungranted(server, answered) if len(answered) > FIT else 0

    assert {each.how for each in outcomes} == {How.ANSWERED, How.REFUSED}
    assert FIT <= len(answered) <= FIT + silent
    assert_refused_for_the_budget(refusals(outcomes))
    assert sum(each.tokens for each in outcomes) == books["spent_tokens"] == len(answered) * COST
    assert max(ledger.looks) <= LIMIT + silent * COST


def ungranted(server: Server, answered: list[Outcome]) -> int:
    reports = [report_of(server, each.headers["x-request-id"]) for each in answered]
    return sum(1 for report in reports if report["state_silent"])


@pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.further)])
def test_clients_that_leave_give_back_what_they_did_not_use(server, upstream, stream):
    """A third of the clients go, some before the upstream's first word: the ledger never passes its limit, nothing
    stays reserved, and it holds the answers that were read, and of every other call its prompt and the words that its
    client had read."""
    ledger = ledger_of(server, f"left-{stream}")
    upstream.plays("some/model", paced(0.1))
    outcomes = rush(ledger, stream=stream, model="premium", leavers=1)
    books = until(ledger.settled, "nothing is reserved")
    upstream.plays("some/model", paced())
    calls = of_session(upstream.log, ledger.session)
    # What the upstream has written and the server hasn't read when the client goes, the ledger can't know.
    words_read = sum(len(each.text.split()) for each in outcomes if each.how is How.LEFT)
    whole = len(answers(outcomes))
    taken = whole * COST + (len(calls) - whole) * PROMPT_TOKENS + words_read

    assert {each.how for each in outcomes} <= {How.ANSWERED, How.REFUSED, How.LEFT}
    assert any(each.how is How.LEFT for each in outcomes)
    assert_refused_for_the_budget(refusals(outcomes))
    assert sum(each.tokens for each in answers(outcomes)) == whole * COST
    assert taken <= books["spent_tokens"] <= LIMIT
    assert max(ledger.looks) <= LIMIT


@pytest.mark.ray
@pytest.mark.nightly
def test_a_killed_state_actor_lets_no_more_than_the_budget_through(on_ray, upstream, stream):
    """Kill -9 in the middle: the paid tier stays closed while the ledger is away, and goes on exactly where it was. No
    call is counted twice and none is forgotten: a second rush fills the budget up to the last call."""
    ledger = ledger_of(on_ray, f"killed-{stream}")
    upstream.plays("some/model", paced(0.1))
    begun = lambda: len(of_session(upstream.log, ledger.session)) >= 5  # noqa: E731
    first, killed = rush_and_kill(ledger, begun, stream=stream, model="premium")
    books = until(ledger.settled, "nothing is reserved")
    calls = of_session(upstream.log, ledger.session)

    assert state_pid(APP) != killed
    assert {each.how for each in first} <= {How.ANSWERED, How.REFUSED}
    # Who waited too long for the actor was told so, and wasn't let through.
    assert {each.code for each in refusals(first)} <= {"budget_exceeded", "rate_limit_exceeded", "no_tier_available"}
    assert len(calls) == len(answers(first)) <= FIT
    assert books["spent_tokens"] == len(calls) * COST
    assert max(ledger.looks) <= LIMIT

    upstream.plays("some/model", paced())
    second = rush(ledger, stream=stream, model="premium", count=FIT + 10)

    assert len(answers(first)) + len(answers(second)) == len(of_session(upstream.log, ledger.session)) == FIT
    assert_refused_for_the_budget(refusals(second))
    assert until(ledger.settled, "nothing is reserved")["spent_tokens"] == LIMIT


@pytest.mark.ray
@pytest.mark.nightly
def test_a_local_tier_goes_on_without_the_ledger_and_is_charged_afterwards(on_ray, stream):
    """While the actor is away calls that cost nothing run without a grant; once it is back the ledger holds them too,
    and what it holds then counts: over the limit nothing more is let through."""
    ledger = ledger_of(on_ray, f"open-{stream}")
    reserved = lambda: ledger.looks and ledger.looks[-1] > 0  # noqa: E731
    outcomes, killed = rush_and_kill(ledger, reserved, stream=stream, model="local")
    given = sum(each.tokens for each in outcomes)
    # What ran without a grant reserves nothing: it is there once it is there.
    books = until(lambda: (now := ledger.settled()) and now["spent_tokens"] >= given and now, "all is booked")

    assert {each.how for each in outcomes} <= {How.ANSWERED, How.REFUSED}
    assert_refused_for_the_budget(refusals(outcomes))
    assert state_pid(APP) != killed
    assert given == len(answers(outcomes)) * COST
    assert books["spent_tokens"] == given
    assert len(answers(outcomes)) >= FIT

    late = asyncio.run(one(on_ray, ledger.session, stream=stream))
    assert told(late) == STAYS


async def one(server: Server, session: str, *, stream: bool, model: str = "local") -> Outcome:
    async with openai_client(server, key=BOSS) as client:
        return await ask(client, session, stream=stream, model=model)


def test_a_key_has_an_hour_of_its_own(server, stream):
    """Over as many sessions as it likes a key gets what its own hour holds; another key isn't touched by it.

    On the tier that costs money: a local one may answer without a grant where the ledger is slow, on a busy machine.
    """
    name, key = list(INTERNS.items())[stream]

    async def both() -> tuple[list[Outcome], Outcome]:
        async with openai_client(server, key=key) as client:
            asked = (ask(client, f"{name}-{n}", stream=stream, model="premium") for n in range(3 * INTERN_FIT))
            outcomes = await asyncio.gather(*asked)
        return outcomes, await one(server, f"boss-{stream}", stream=stream, model="premium")

    outcomes, boss = asyncio.run(both())

    assert (len(answers(outcomes)), len(refusals(outcomes))) == (INTERN_FIT, 2 * INTERN_FIT)
    assert {told(each) for each in refusals(outcomes)} == {PASSES}
    assert all(0 < int(each.headers["retry-after"]) <= 3700 for each in refusals(outcomes))
    assert boss.how is How.ANSWERED


def test_a_stream_whose_client_left_is_settled(server, upstream):
    """The upstream's connection is closed, and the ledger holds what came until then, at least, and not the whole."""
    ledger = ledger_of(server, "went")
    upstream.plays("some/model", paced(0.5))

    async def leave() -> Outcome:
        async with openai_client(server, key=BOSS) as client:
            return await ask(client, ledger.session, stream=True, model="premium", leave_s=1.0)

    left = asyncio.run(leave())
    seen = of_session(upstream.log, ledger.session)[0]
    until(lambda: seen.left, "the upstream's connection is closed")
    books = until(ledger.settled, "nothing is reserved")
    upstream.plays("some/model", paced())

    assert left.how is How.LEFT
    assert PROMPT_TOKENS + len(left.text.split()) <= books["spent_tokens"] < COST


def test_an_upstream_that_sends_no_usage(server, upstream, stream):
    """It is counted all the same: an estimate from above stands in the answer, in the ledger and, marked, in the
    report."""
    ledger = ledger_of(server, f"untold-{stream}")
    upstream.plays("some/model", paced(usage=None))
    answer = asyncio.run(one(server, ledger.session, stream=stream, model="premium"))
    books = until(ledger.settled, "nothing is reserved")
    upstream.plays("some/model", paced())
    report = report_of(server, answer.headers["x-request-id"])

    assert answer.tokens == books["spent_tokens"] >= COST
    assert [attempt["estimated"] for attempt in report["attempts"]] == [True]


def report_of(server: Server, request_id: str) -> Any:
    url = f"{server.url}/v1/reliability/requests/{request_id}"
    return httpx.get(url, headers={"authorization": f"Bearer {BOSS}"}, timeout=30.0).json()


@pytest.mark.parametrize("named", [None, 5_000, 30])
def test_max_output_tokens_caps_every_answer(server, upstream, named, stream):
    """No tier is asked for more than the cap, whatever the client names; a local tier's answer ends there as a
    length."""
    cap, session = min(named or OUTPUT_MAX, OUTPUT_MAX), f"cap-{named}-{stream}"
    body: dict[str, Any] = {"stream": stream, "user": session} | ({} if named is None else {"max_tokens": named})
    paid, local = (
        server.post(
            body | {"model": model, "messages": [{"role": "user", "content": text}]},
            headers={"authorization": f"Bearer {BOSS}"},
        )
        for model, text in (("premium", "hi"), ("local", "talk"))
    )

    assert (paid.status_code, local.status_code) == (200, 200)
    assert of_session(upstream.log, session)[0].body["max_tokens"] == cap
    assert '"finish_reason":"length"' in local.text
    attempt = until(lambda: report_of(server, local.headers["x-request-id"]).get("attempts"), "the report")[0]
    assert attempt["usage"]["completion_tokens"] == cap
