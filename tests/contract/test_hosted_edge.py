"""A hosted tier against a real HTTP server that plays OpenRouter, seen through the whole graph: what goes up, and what
comes back. How it fails is `test_fault_matrix`'s."""

import json
import os

import pytest

from tests.clients.wires import chat
from tests.conftest import CLOUD_KEY_ENV
from tests.support import plays, scripts
from tests.support.serving import Deploy, Server
from tests.support.upstream import Upstream

UPSTREAM_KEY = os.environ[CLOUD_KEY_ENV]
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def server(deploy: Deploy, upstream: Upstream) -> Server:
    """Tier `premium` is OpenRouter's double; `backup` says so when it had to stand in."""
    hosted = {"kind": "hosted", "preset": "openrouter", "base_url": upstream.base_url, "model": "some/model"}
    hosted["api_key_env"] = CLOUD_KEY_ENV
    keyless = hosted | {"api_key_env": "NOT_SET"}
    args = scripts.args(
        tiers={"premium": hosted, "backup": scripts.tier("backup"), "keyless": keyless},
        reliability={
            "escalation": {"chain": ["keyless", "premium", "backup"], "max_retries_before_escalate": 1},
            **scripts.UNBOUNDED,
        },
        server={"timeouts": scripts.QUICK},
    )
    return deploy(args, "hosted")


@pytest.mark.parametrize("stream", [False, True])
def test_a_good_answer(server, upstream, stream):
    """The upstream's text and usage reach the client; the upstream saw the key, the model and the client's fields."""
    upstream.plays("some/model", plays.good("Hello from above."))
    body = {"model": "premium", "messages": HI, "stream": stream, "made_up": 7, "temperature": 0.3}
    response = server.post(body | ({"stream_options": {"include_usage": True}} if stream else {}))
    seen = upstream.log[-1]

    assert response.headers["x-mlx-stack-tier"] == "premium"
    assert chat.read_answer(response.content).text == "Hello from above."
    assert '"total_tokens":18' in response.text
    assert seen.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert (seen.body["model"], seen.body["stream"], seen.body["made_up"]) == ("some/model", True, 7)


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_pass_through(server, upstream, stream):
    """The upstream's calls arrive whole, with their ids."""
    upstream.plays("some/model", plays.tools(("f", {"a": 1}), ("g", {"b": "ü"})))
    tools = [{"type": "function", "function": {"name": name}} for name in "fg"]
    with server.client() as client:
        if stream:
            with client.chat.completions.stream(model="premium", messages=HI, tools=tools) as events:
                choice = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(model="premium", messages=HI, tools=tools).choices[0]

    calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls]
    assert calls == [("f", {"a": 1}), ("g", {"b": "ü"})]
    assert choice.finish_reason == "tool_calls"
    assert len({c.id for c in choice.message.tool_calls}) == 2


def test_without_its_key_a_tier_is_skipped_and_says_why(server, upstream):
    """No key: the tier is `unavailable` with the variable's name, nothing is sent, and the chain goes on."""
    upstream.plays("some/model", plays.good("Hello from above."))
    before = len(upstream.log)
    response = server.post({"model": "auto", "messages": HI})
    ready = server.get("/ready").json()

    assert response.headers["x-mlx-stack-escalated-from"] == "keyless"
    assert response.headers["x-mlx-stack-retries"] == "0"
    assert len(upstream.log) == before + 1
    assert ready["tiers"]["keyless"] == {"state": "unavailable", "reason": "NOT_SET is not set", "breaker": "closed"}


def test_the_key_is_nowhere_to_be_seen(server, upstream):
    """An upstream that echoes the key in its error doesn't make us tell it: not in answers, reports or status pages."""
    upstream.plays("some/model", plays.status(400, f"your key {UPSTREAM_KEY} is odd", error_code="content_filter"))
    response = server.post({"model": "premium", "messages": HI})
    report = server.get(f"/v1/reliability/requests/{response.headers['x-request-id']}")
    pages = [server.get(path).text for path in ("/ready", "/v1/models")]

    assert response.status_code == 400
    assert all(UPSTREAM_KEY not in text for text in (response.text, report.text, *pages, str(response.headers)))
