"""A hosted model that thinks without end is answered from, in every dialect, whole and streamed, through the whole
server."""

import re
import uuid
from typing import Any

import httpx
import pytest

from deployments.tiers.hosted.thought_bound import OVER_TOKENS
from tests.clients.record import WIRES
from tests.support import plays, scripts
from tests.support.dialects import ROUTES, write_body
from tests.support.http_asking import user
from tests.support.matrices import STREAMS, take_turns
from tests.support.serving import Server, until
from tests.support.thinkers import ANSWER, PROMPT_TOKENS, think, thinker, thought_of

BUDGET = 512
THOUGHT = BUDGET + OVER_TOKENS
BUDGETS: dict[str, dict[str, Any]] = {
    "chat": {"max_thinking_tokens": BUDGET},
    "messages": {"thinking": {"type": "enabled", "budget_tokens": BUDGET}},
    "responses": {"reasoning": {"effort": "minimal"}, "store": False},
}


@pytest.fixture(scope="module")
def server(deploy, upstream):
    tiers = {way: scripts.hosted(upstream, "far", continues=way) for way in ("prefill", "anchor")}
    tiers["next"] = scripts.hosted(upstream, "next")
    return deploy(scripts.graph(tiers, ["anchor", "next"], retries=0), "thinking-budget")


def ask_for(server: Server, dialect: str, model: str, stream: bool) -> tuple[str, str, dict[str, Any]]:
    request_id, path = uuid.uuid4().hex, ROUTES[dialect]
    body = {"model": model, "stream": stream, **write_body(dialect, user("weather?")), **BUDGETS[dialect]}
    response = httpx.post(server.url + path, json=body, headers={"x-request-id": request_id}, timeout=60.0)
    assert response.status_code == 200, response.text
    text = WIRES[path.removeprefix("/v1")].read_answer(response.content).text
    report = until(lambda: server.find(f"/v1/reliability/requests/{request_id}"), "the report is there")
    return response.text, text, report


@pytest.mark.parametrize(
    ("dialect", "stream", "tags", "continues"), take_turns(BUDGETS, STREAMS, (False, True), ("prefill", "anchor"))
)
def test_the_answer_comes_behind_the_budget(server, upstream, dialect, stream, tags, continues):
    """Law: the client gets the thought so far, once, and the answer, in one attempt; the report says how long the
    thought was, what ended it, and what both requests cost."""
    upstream.plays("far", thinker(thought_of(2_000), tags=tags))
    before = len(upstream.log)
    body, text, report = ask_for(server, dialect, continues, stream)

    assert text == ANSWER
    [attempt] = report["attempts"]
    assert attempt["thinking"] == {"tokens": THOUGHT, "ended": "budget"}
    assert attempt["usage"]["completion_tokens"] >= THOUGHT + 4
    assert attempt["usage"]["prompt_tokens"] >= PROMPT_TOKENS
    assert len(upstream.log) == before + 2
    shown = re.findall(r"\bw\d+", body)
    assert shown[:THOUGHT] == [word.strip() for word in thought_of(THOUGHT)]
    if dialect != "responses":  # whose last events have all of it once more
        assert len(shown) == THOUGHT


def test_a_model_that_only_thinks_is_passed_over(server, upstream, dialect, stream):
    """Law: one that thinks beyond its budget twice has an empty answer, and the next tier gives its own."""
    upstream.plays("far", thinker(thought_of(2_000), tags=False, obeys=False))
    upstream.plays("next", plays.good("It is 22."))
    _, text, report = ask_for(server, dialect, "auto", stream)

    assert text == "It is 22."
    assert [one["flaw"] for one in report["attempts"]] == ["empty", None]
    assert report["attempts"][0]["thinking"] == {"tokens": 2 * THOUGHT, "ended": "budget"}


@pytest.mark.parametrize("tags", [False, True])
def test_a_thought_within_its_budget_is_the_model_s_own(server, upstream, tags):
    """Law: it is reported as ended by the model, and asked for once."""
    upstream.plays("far", think(thought_of(BUDGET), tags=tags))
    before = len(upstream.log)
    _, text, report = ask_for(server, "chat", "anchor", stream=False)

    assert text == ANSWER
    assert report["attempts"][0]["thinking"] == {"tokens": BUDGET, "ended": "model"}
    assert len(upstream.log) == before + 1
