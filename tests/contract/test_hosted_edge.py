"""A hosted tier against a real HTTP server that plays OpenRouter, seen through the whole graph."""

import json
import os
from typing import Any

import httpx
import pytest

from tests.conftest import CLOUD_KEY_ENV
from tests.support import plays, scripts
from tests.support.serving import Deploy, Server, until
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


def calls_of(upstream: Upstream, before: int) -> int:
    return len(upstream.log) - before


@pytest.mark.parametrize("stream", [False, True])
def test_a_good_answer(server, upstream, stream):
    """The upstream's text and usage reach the client; the upstream saw the key, the model and the client's fields."""
    upstream.plays("some/model", plays.good("Hello from above."))
    body = {"model": "premium", "messages": HI, "stream": stream, "made_up": 7, "temperature": 0.3}
    response = server.post(body | ({"stream_options": {"include_usage": True}} if stream else {}))
    seen = upstream.log[-1]

    assert response.headers["x-mlx-stack-tier"] == "premium"
    assert text_of(response.text, stream=stream) == "Hello from above."
    assert '"total_tokens":18' in response.text
    assert seen.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert (seen.body["model"], seen.body["stream"], seen.body["made_up"]) == ("some/model", True, 7)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("play", "calls", "reason"),
    [
        (plays.status(401), 1, "server_error"),
        (plays.status(429, headers={"Retry-After": "30"}), 1, "server_error"),
        (plays.status(500), 2, "server_error"),
        (plays.status(503), 2, "server_error"),
        (plays.hang(), 1, "timeout"),
        (plays.slow(3.0), 1, "timeout"),
        (plays.cut(), 2, "server_error"),
        (plays.malformed(0), 2, "server_error"),
        (plays.error_frame(0), 2, "server_error"),
    ],
    ids=["401", "429", "500", "503", "hang", "slow", "cut", "malformed", "error-frame"],
)
def test_a_fault_before_the_first_byte(server, upstream, play, calls, reason, stream):
    """Each fault ends in the next tier's good answer, after as many upstream calls as the fault deserves."""
    upstream.plays("some/model", play)
    before = len(upstream.log)
    response = server.post({"model": "premium", "messages": HI, "stream": stream})

    assert response.status_code == 200
    assert text_of(response.text, stream=stream).startswith("Hello from backup")
    assert response.headers["x-mlx-stack-escalated-from"] == "premium"
    assert response.headers["x-mlx-stack-escalation-reason"] == reason
    assert calls_of(upstream, before) == calls
    assert UPSTREAM_KEY not in response.text


# A frame that is not JSON, and nothing behind it.
TORN = (*plays.malformed(2)[:4], plays.Abort())


@pytest.mark.parametrize("play", [plays.cut(2), TORN, plays.error_frame(2), plays.ends_early(2)])
def test_a_fault_in_the_middle_of_a_stream(server, upstream, play):
    """After the first text the stream ends in one error frame; nobody else's text follows."""
    upstream.plays("some/model", play)
    response = server.post({"model": "premium", "messages": HI, "stream": True})
    last = json.loads(response.text.strip().split("data: ")[-1])

    assert last["error"]["code"] == "stream_broken"
    assert "[DONE]" not in response.text
    assert "backup" not in text_of(response.text, stream=True)


def test_a_stream_without_done_is_whole_when_it_has_a_finish_reason(server, upstream):
    """Some servers forget `[DONE]`; ours doesn't."""
    upstream.plays("some/model", plays.no_done())
    response = server.post({"model": "premium", "messages": HI, "stream": True})

    assert response.text.endswith("data: [DONE]\n\n")


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
    assert calls_of(upstream, before) == 1
    assert ready["tiers"]["keyless"] == {"state": "unavailable", "reason": "NOT_SET is not set", "breaker": "closed"}


def test_the_key_is_nowhere_to_be_seen(server, upstream):
    """An upstream that echoes the key in its error doesn't make us tell it: not in answers, reports or status pages."""
    upstream.plays("some/model", plays.status(400, f"your key {UPSTREAM_KEY} is odd", error_code="content_filter"))
    response = server.post({"model": "premium", "messages": HI})
    report = server.get(f"/v1/reliability/requests/{response.headers['x-request-id']}")
    pages = [server.get(path).text for path in ("/ready", "/v1/models")]

    assert response.status_code == 400
    assert all(UPSTREAM_KEY not in text for text in (response.text, report.text, *pages, str(response.headers)))


def test_a_client_that_leaves_closes_the_upstream(server, upstream):
    """The upstream sees its connection closed within a second of the client's."""
    upstream.plays("some/model", plays.hang(2))
    with httpx.Client(timeout=30.0) as client:
        request = client.build_request(
            "POST", f"{server.url}/v1/chat/completions", json={"model": "premium", "messages": HI, "stream": True}
        )
        next(client.send(request, stream=True).iter_bytes())
    until(lambda: upstream.log[-1].left, "the upstream's connection is closed", wait_s=1.0)


def text_of(body: str, *, stream: bool) -> str:
    if not stream:
        return str(json.loads(body)["choices"][0]["message"]["content"])
    frames: list[Any] = [json.loads(line[6:]) for line in body.split("\n\n") if line.startswith("data: {")]
    return "".join(f["choices"][0]["delta"].get("content") or "" for f in frames if f.get("choices"))
