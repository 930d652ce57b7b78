"""What a request costs inside, where nothing goes wrong: two steps of the state actor at most, and one call to a tier.

Handle calls are counted where they end: in the log of the tier's upstream. Steps are the actor's own count; what asks
the actor by other ways (status pages, beats of the Router) is no step.
"""

import asyncio

import pytest

from reliability.admission.events import Order
from tests.support import scripts
from tests.support.client_load import PATIENT, How, Ledger, ask, openai_client, paced
from tests.support.serving import Server, until

ALONE = 20
AT_ONCE = 64


@pytest.fixture(scope="module")
def server(deploy, upstream):
    upstream.plays("some/model", paced(0.0))
    tier = scripts.hosted(upstream)
    return deploy(scripts.graph({"fast": tier, "standard": tier}, timeouts=PATIENT), "counts")


def steps(server: Server) -> int:
    return int(server.ask_state("stats")["steps"])


async def one_by_one(server: Server, session: str, *, stream: bool) -> list[How]:
    async with openai_client(server) as client:
        return [(await ask(client, session, stream=stream)).how for _ in range(ALONE)]


async def at_once(server: Server, session: str, *, stream: bool) -> list[How]:
    async with openai_client(server) as client:
        outcomes = await asyncio.gather(*(ask(client, session, stream=stream) for _ in range(AT_ONCE)))
        return [each.how for each in outcomes]


@pytest.mark.parametrize(("run", "count"), [(one_by_one, ALONE), (at_once, AT_ONCE)])
def test_two_steps_and_one_call(server, upstream, run, count, stream):
    """Each request, alone or among many, costs at most two steps of the actor and one call to a tier; many at once
    share their steps."""
    session = f"{run.__name__}-{stream}"
    ledger = Ledger(server, session)
    before, calls_before = steps(server), len(upstream.log)
    hows = asyncio.run(run(server, session, stream=stream))
    until(lambda: ledger.now().get("requests") == count, "all requests are written down")

    assert hows == [How.ANSWERED] * count
    assert len(upstream.log) - calls_before == count
    assert 2 <= steps(server) - before <= 2 * count


def test_a_refused_call_costs_no_more(server, upstream, stream):
    """A request that nobody admits (its tiers are isolated) makes no call at all."""
    for tier in ("fast", "standard"):
        server.ask_state("order", Order(tier, "isolate"))
    calls_before = len(upstream.log)
    try:
        hows = asyncio.run(one_by_one(server, f"isolated-{stream}", stream=stream))
    finally:
        for tier in ("fast", "standard"):
            server.ask_state("order", Order(tier, "restore"))

    assert hows == [How.REFUSED] * ALONE
    assert len(upstream.log) == calls_before
