"""A tier that breaks every connection, under many clients at once, and a healthy one behind it."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.client_load import PATIENT, How, Outcome, ask, of_session, openai_client, paced
from tests.support.plays import cut
from tests.support.serving import Deploy, Server
from tests.support.upstream import Upstream

CLIENTS = 48
FLOOR, SHARE_PERCENT = 10, 20  # the retry budget's defaults


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        server.plays("fast", cut())
        server.plays("standard", paced(0.0))
        yield server


@pytest.fixture(scope="module")
def server(deploy: Deploy, upstream: Upstream) -> Server:
    """No breaker steps in: what holds the calls off `fast` is the retry budget alone."""
    tiers = ("fast", "standard")
    args = {
        "tiers": {name: {"kind": "hosted", "base_url": upstream.base_url, "model": name} for name in tiers},
        "reliability": {
            "escalation": {"chain": list(tiers), "max_retries_before_escalate": 3},
            "token_budget": {"enabled": False},
            "tier_health": {"failures_max": None, "rate_percent": None},
        },
        "server": {"timeouts": PATIENT},
    }
    return deploy(args, "dying")


async def at_once(server: Server, session: str, *, stream: bool) -> list[Outcome]:
    async with openai_client(server) as client:
        return list(await asyncio.gather(*(ask(client, session, stream=stream) for _ in range(CLIENTS))))


@pytest.mark.parametrize("stream", [False, True])
def test_the_retry_budget_spares_the_dying_tier_and_costs_nobody_an_answer(server, upstream, stream):
    """However many requests must leave `fast` at the same time, `standard` answers each of them, once; second tries on
    `fast` stay within the retry budget."""
    session = f"dying-{stream}"
    outcomes = asyncio.run(at_once(server, session, stream=stream))
    calls = of_session(upstream.log, session)
    on_fast = sum(1 for seen in calls if seen.model == "fast")

    assert {each.how for each in outcomes} == {How.ANSWERED}
    assert len(calls) - on_fast == CLIENTS
    first_calls = 2 * 2 * CLIENTS  # of both runs, on both tiers
    assert CLIENTS <= on_fast <= CLIENTS + FLOOR + first_calls * SHARE_PERCENT // 100
