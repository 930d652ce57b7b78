"""The promise to an unchanged agent, with the real openai client over a real socket."""

import json

import pytest

from tests.support import scripts
from tests.support.http_asking import WEATHER_TOOLS, ask, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.serving import Deploy, Server, until


@pytest.fixture(scope="module")
def server(deploy: Deploy) -> Server:
    return deploy(scripts.args(), "chat")


@pytest.fixture(scope="module")
def quiet_server(deploy: Deploy) -> Server:
    """Such a graph with a keep-alive that comes before the timeouts do."""
    args = scripts.args(scripts.TWO)
    args["server"] |= {"keepalive_s": 0.2, "timeouts": scripts.QUICK | {"first_token_s": 0.5}}
    return deploy(args, "quiet")


def test_a_plain_answer(server, stream):
    """An unchanged client gets the text, the usage, and the headers that say which tier answered."""
    options = {"stream_options": {"include_usage": True}} if stream else {}
    outcome = ask(server, user("hi"), stream=stream, **options)
    last = outcome.frames[-1] if stream else json.loads(outcome.wire)
    usage = last["usage"]

    assert outcome.text == "Hello from fast. Grüße, 你好."
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert outcome.trail == {"Tier": "fast", "Retries": "0", "Attempts": "1"}
    assert (last["model"], bool(outcome.request_id)) == ("fast", True)


@pytest.mark.parametrize(
    ("fault", "reason", "retries", "stream"),
    take_turns(
        [
            ("500", "server_error", 2),
            ("unavailable", "server_error", 0),
            ("loading", "server_error", 0),
            ("too-long", "context_length", 0),
        ],
        STREAMS,
    ),
)
def test_a_broken_tier_is_replaced_by_the_next(server, fault, reason, retries, stream):
    """Also for what only a tier of this machine says of itself: the client sees one good answer, and the headers tell.
    What a hosted one does wrong is `test_fault_matrix`'s."""
    outcome = ask(server, user(f"fast:{fault}"), stream=stream)
    way = {"Tier": "standard", "Escalated-From": "fast", "Escalation-Reason": reason, "Retries": str(retries)}

    assert outcome.text.startswith("Hello from standard")
    assert outcome.trail.items() >= way.items()


@pytest.mark.parametrize(
    ("text", "status", "code", "retry", "stream"),
    take_turns(
        [
            ("fast:500 standard:500 longctx:500", 502, "upstream_error", None),
            ("fast:hang standard:hang longctx:hang", 504, "timeout", None),
            ("fast:429 standard:429 longctx:429", 429, "overloaded", None),
            ("fast:unavailable standard:unavailable longctx:unavailable", 400, "no_tier_configured", "false"),
            ("fast:loading standard:unavailable longctx:unavailable", 503, "tiers_loading", None),
            ("fast:too-long standard:too-long longctx:too-long", 400, "context_length_exceeded", "false"),
            ("fast:400 standard:400 longctx:400", 400, "bad_request", "false"),
        ],
        STREAMS,
    ),
)
def test_no_tier_left_is_one_clear_error(server, text, status, code, retry, stream):
    """When nobody can answer, the client gets one HTTP error that names the reasons, streamed or not."""
    outcome = ask(server, user(text), stream=stream)

    assert (outcome.status, outcome.code) == (status, code)
    assert outcome.error["message"]
    assert outcome.headers.get("x-should-retry") == retry
    wait_s = {"timeout": "5", "upstream_error": "5", "overloaded": "7", "tiers_loading": "5"}
    assert outcome.headers.get("retry-after") == wait_s.get(code)


def test_an_error_after_a_keep_alive_is_a_frame(quiet_server):
    """While a tier is silent the stream carries SSE comments, and no header claims a tier that hasn't answered. So the
    status is 200, and the error is the stream's last frame, without [DONE]."""
    response = quiet_server.post({"messages": user("fast:hang standard:hang"), "stream": True})
    last = json.loads(response.text.rstrip().rpartition("data: ")[2])

    assert (response.status_code, "x-mlx-stack-tier" in response.headers) == (200, False)
    assert response.text.startswith(": keep-alive\n\n")
    assert (last["error"]["code"], last["mlx_stack"]["outcome"]) == ("timeout", "timeout")


def test_legacy_functions(server, stream):
    """A client that still speaks `functions` is answered with `function_call`."""
    function = WEATHER_TOOLS[0]["function"]
    body = {"messages": user("weather"), "functions": [function], "stream": stream}
    text = server.post(body).text

    assert '"function_call":{' in text
    assert '"finish_reason":"function_call"' in text
    assert "tool_calls" not in text.replace('"tool_calls":null', "")


def test_the_report_stands_in_the_last_chunk_and_under_its_id(server):
    """Headers leave before the outcome, so the last chunk carries the report, and the state actor keeps it."""
    response = server.post(
        {"messages": user("fast:500 hello"), "stream": True}, headers={"x-mlx-stack-session": "night-run"}
    )
    frames = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line.startswith("data: {")]
    report = json.loads(frames[-1])["mlx_stack"]
    kept = until(lambda: server.find(f"/v1/reliability/requests/{report['request_id']}"), "the report")

    assert kept == report
    assert report["request_id"] == response.headers["x-request-id"]
    assert [a["tier"] for a in report["attempts"]] == ["fast", "fast", "standard"]
    assert report["session"] == "night-run"
    totals = server.get("/v1/reliability/sessions/night-run").json()
    assert totals["requests"] == 1
    assert totals["completion_tokens"] > 0
