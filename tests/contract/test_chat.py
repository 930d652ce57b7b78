"""The promise to an unchanged agent, with the real openai client over a real socket."""

import json

import pytest

from tests.support import scripts
from tests.support.http_asking import WEATHER_TOOLS, ask, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.serving import until


@pytest.fixture(scope="module")
def server(deploy):
    return deploy(scripts.args(), "chat")


@pytest.fixture(scope="module")
def quiet_server(deploy):
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


BROKEN = [
    ("500", "server_error", 2),
    ("unavailable", "server_error", 0),
    ("loading", "server_error", 0),
    ("too-long", "context_length", 0),
]


@pytest.mark.parametrize(("fault", "reason", "retries", "stream"), take_turns(BROKEN, STREAMS))
def test_a_broken_tier_is_replaced_by_the_next(server, fault, reason, retries, stream):
    """Also for what only a tier of this machine says of itself: the client sees one good answer, and the headers tell.
    What a hosted one does wrong is `test_fault_matrix`'s."""
    outcome = ask(server, user(f"fast:{fault}"), stream=stream)
    way = {"Tier": "standard", "Escalated-From": "fast", "Escalation-Reason": reason, "Retries": str(retries)}

    assert outcome.text.startswith("Hello from standard")
    assert outcome.trail.items() >= way.items()


# What each tier does, and what becomes of the request: status, code, whether a client may ask again, when.
NONE_LEFT = [
    ("500", 502, "upstream_error", None, "5"),
    ("hang", 504, "timeout", None, "5"),
    ("429", 429, "overloaded", None, "7"),
    ("unavailable", 400, "no_tier_configured", "false", None),
    ("loading", 503, "tiers_loading", None, "5"),
    ("too-long", 400, "context_length_exceeded", "false", None),
    ("400", 400, "bad_request", "false", None),
]


@pytest.mark.parametrize(("fault", "status", "code", "retry", "wait_s", "stream"), take_turns(NONE_LEFT, STREAMS))
def test_no_tier_left_is_one_clear_error(server, fault, status, code, retry, wait_s, stream):
    """When nobody can answer, the client gets one HTTP error that names the reasons, streamed or not."""
    others = "unavailable" if fault == "loading" else fault
    outcome = ask(server, user(f"fast:{fault} standard:{others} longctx:{others}"), stream=stream)

    assert (outcome.status, outcome.code) == (status, code)
    assert outcome.error["message"]
    assert outcome.headers.get("x-should-retry") == retry
    assert outcome.headers.get("retry-after") == wait_s


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
