"""What `GET /ready` and `GET /v1/models` say of the tiers."""

import asyncio
import json
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.access import Caller
from deployments.api.models import count_prompt, filter_for, is_held_off, make_page, model_list, readiness
from deployments.state.records import Health
from reliability.admission.breaker import Phase
from reliability.types import ChatRequest, TierState, TierStatus
from tests.support.run_values import request_of

NAMES = ("fast", "standard", "premium")
STATUSES = st.tuples(
    *(
        st.builds(TierStatus, name=st.just(name), kind=st.just("mlx"), state=st.sampled_from(TierState))
        for name in NAMES
    )
)
HEALTH = st.dictionaries(
    st.sampled_from(NAMES),
    st.builds(Health, phase=st.sampled_from(Phase), isolated=st.booleans(), until_s=st.sampled_from([0.0, 3.0])),
)
CHAINS = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)


def told(statuses: Any, chain: list[str], health: dict[str, Health]) -> dict[str, Any]:
    """The whole body, as an admin reads it."""
    return readiness(statuses, chain, "tiers: wrong", health, state_actor="up", memory={"nodes": {}})


@given(STATUSES, CHAINS, HEALTH)
def test_it_is_ready_where_a_request_would_find_a_tier(
    statuses: tuple[TierStatus, ...], chain: list[str], health: dict[str, Health]
) -> None:
    """Law: ready is who has a tier in the chain that answers, or sleeps with none before it that is loading, and that
    isn't held off; a breaker that is half open takes a probe, so it holds nobody off."""
    states = {s.name: s.state for s in statuses}
    held = {name for name, one in health.items() if one.isolated or one.phase is Phase.OPEN}
    asked = [states[name] for name in chain if name not in held]
    wakeable = asked[: asked.index(TierState.LOADING)] if TierState.LOADING in asked else asked

    assert {name for name in NAMES if is_held_off(health.get(name))} == held
    assert told(statuses, chain, health)["ready"] == (TierState.READY in asked or TierState.ASLEEP in wakeable)


@given(STATUSES, CHAINS, HEALTH)
def test_a_ready_tier_that_takes_no_requests_is_degraded(
    statuses: tuple[TierStatus, ...], chain: list[str], health: dict[str, Health]
) -> None:
    """Law: only what is ready by itself is called degraded, exactly where its breaker isn't closed, and the reason says
    so; every other state is the tier's own."""
    for status in statuses:
        said, known = told(statuses, chain, health)["tiers"][status.name], health.get(status.name)
        hampered = known is not None and (known.isolated or known.phase is not Phase.CLOSED)
        degraded = hampered and status.state is TierState.READY

        assert said["state"] == ("degraded" if degraded else status.state.value)
        assert (said["breaker"] != "closed") == hampered
        assert not hampered or "isolated by hand" in said["reason"] or "its breaker is" in said["reason"]


@given(STATUSES, CHAINS, HEALTH)
def test_who_asks_sees_as_much_as_he_may(statuses, chain, health) -> None:
    """Law: a stranger sees whether it is ready and nothing else; a key shows the tiers, but neither the nodes nor the
    configuration's mistakes; an admin sees all."""
    body = told(statuses, chain, health)
    agent, admin = (Caller(name="a", admin=admin, allow_cloud=True) for admin in (False, True))

    assert filter_for(body, None) == {"ready": body["ready"]}
    assert body.keys() - filter_for(body, agent).keys() == {"memory", "refused_user_config"}
    assert filter_for(body, admin) == body


@given(STATUSES, CHAINS, HEALTH)
def test_an_alias_is_listed_as_the_tier_that_it_starts_at(statuses, chain, health) -> None:
    """Law: each tier once, then `auto` and the aliases; these say what their first tier says, under their own name."""
    rows = model_list(statuses, {"gpt": "standard", "any": "auto"}, chain, 5, health)
    tiers, others = rows[:3], rows[3:]
    by_id = {row["id"]: row for row in tiers}

    assert [row["id"] for row in tiers] == list(NAMES)
    assert [(row["id"], row["starts_at"]) for row in others] == [
        ("auto", chain[0]),
        ("gpt", "standard"),
        ("any", chain[0]),
    ]
    for row in others:
        own = {"id": row["id"], "display_name": row["id"], "starts_at": row["starts_at"]}
        assert row == by_id[row["starts_at"]] | own


def test_a_warning_stands_where_operators_and_clients_look() -> None:
    """Law: a ready tier whose calls can't be read says so in `/ready` and `/v1/models`, and stays ready; without a
    warning `/ready` has no word of it."""
    known = {"kind": "mlx", "state": TierState.READY}
    statuses = (TierStatus(name="fast", warning="its calls can't be read", **known), TierStatus(name="slow", **known))
    ready = readiness(statuses, ["fast", "slow"], None, {}, state_actor="up", memory=None)
    rows = model_list(statuses, {}, ["fast", "slow"], 5, {})

    assert ready["ready"]
    assert ready["tiers"]["fast"]["warning"] == "its calls can't be read"
    assert "warning" not in ready["tiers"]["slow"]
    assert [row["warning"] for row in rows] == ["its calls can't be read", None, "its calls can't be read"]


def test_a_list_is_read_by_both_clients() -> None:
    """Law: one answer has the fields of OpenAI's and of Anthropic's list; a pattern of names is no model."""
    statuses = [TierStatus(name="fast", kind="mlx", state=TierState.READY, context_tokens=8192)]
    entries = model_list(statuses, {"claude-*": "fast", "mine": "fast"}, ["fast"], 1_795_000_000, {})
    page = json.loads(json.dumps(make_page(entries)))

    assert [openai.types.Model.model_validate(one, strict=True).id for one in page["data"]] == ["fast", "auto", "mine"]
    assert [anthropic.types.ModelInfo.model_validate(one).max_input_tokens for one in page["data"]] == [8192] * 3
    assert (page["object"], page["has_more"], page["first_id"], page["last_id"]) == ("list", False, "fast", "mine")


class Tier:
    """A tier that counts so many, or fails."""

    name = "fast"

    def __init__(self, counted: int | Exception | None) -> None:
        self.counted = counted

    async def count_tokens(self, _: ChatRequest) -> int | None:
        if isinstance(self.counted, Exception):
            raise self.counted
        return self.counted


def count(counted: Any) -> dict[str, Any]:
    return asyncio.run(count_prompt(Tier(counted), request_of("word " * 40)))


@pytest.mark.parametrize("counted", [None, RuntimeError("gone"), TimeoutError()])
def test_a_count_is_the_tier_s_or_an_estimate(counted: Any):
    """A tier's figure stands as it is. One that can't count, or that fails, leaves an estimate, and the client is told
    that it is one."""
    told = count(counted)
    anthropic.types.MessageTokensCount.model_validate(count(123), strict=True)
    assert count(123) == {"input_tokens": 123, "mlx_stack": {"tier": "fast", "exact": True}}
    assert told["input_tokens"] > 50
    assert told["mlx_stack"] == {"tier": "fast", "exact": False}
