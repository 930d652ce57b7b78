"""The promise to an unchanged agent, with the real openai client over a real socket."""

import json

import httpx
import openai
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
    return deploy(args | {"server": args["server"] | {"keepalive_s": 0.3}}, "quiet")


@pytest.mark.parametrize("stream", [False, True])
def test_a_plain_answer(server, stream):
    """An unchanged client gets the text, the usage, and the headers that say which tier answered."""
    options = {"stream_options": {"include_usage": True}} if stream else {}
    outcome = ask(server, user("hi"), stream=stream, **options)
    usage = (outcome.frames[-1] if stream else json.loads(outcome.wire))["usage"]

    assert outcome.text == "Hello from fast. Grüße, 你好."
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert outcome.trail == {"Tier": "fast", "Retries": "0", "Attempts": "1"}
    assert outcome.request_id


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


@pytest.mark.parametrize("stream", [False, True])
def test_two_broken_tiers(server, stream):
    """The walk goes on until a tier answers; it is named with the tier that the request started at."""
    outcome = ask(server, user("fast:500 standard:hang"), stream=stream)

    assert outcome.text.startswith("Hello from longctx")
    assert outcome.trail.items() >= {"Escalated-From": "fast", "Escalation-Reason": "server_error"}.items()


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
    """Once a keep-alive has gone out the status is 200, so the error is the stream's last frame, without [DONE]."""
    response = quiet_server.post(
        {"messages": user("fast:hang standard:hang"), "stream": True},
    )
    frames = [line for line in response.text.split("\n\n") if line]

    assert response.status_code == 200
    assert ": keep-alive" in frames
    last = json.loads(frames[-1].removeprefix("data: "))
    assert last["error"]["code"] == "timeout"
    assert last["mlx_stack"]["outcome"] == "timeout"


def test_a_frame_error_reaches_the_openai_client(server):
    """The client raises what the error frame says instead of taking half an answer for a whole one."""
    with server.client() as client:
        stream = client.chat.completions.create(model="fast", messages=user("fast:break"), stream=True)
        texts: list[str] = []
        with pytest.raises(openai.APIError, match="fast") as caught:
            texts.extend(chunk.choices[0].delta.content or "" for chunk in stream)

    assert "".join(texts) == "half an answer "
    assert caught.value.body["code"] == "stream_broken"


@pytest.mark.parametrize("fault", ["break", "stall"])
def test_text_that_breaks_off_ends_in_an_error_frame(server, fault):
    """After the first text no other tier may answer: the stream ends in one error frame, never by just closing."""
    response = server.post({"messages": user(f"fast:{fault}"), "stream": True})

    assert response.text.count('"half') == 1
    assert "Hello from standard" not in response.text
    assert "[DONE]" not in response.text
    assert json.loads(response.text.strip().split("data: ")[-1])["error"]["code"] == "stream_broken"


def test_a_whole_answer_that_breaks_off_is_answered_by_the_next_tier(server):
    """A client that doesn't stream has seen nothing of the broken answer, so it gets a whole one."""
    outcome = ask(server, user("fast:break"), stream=False)

    assert outcome.text.startswith("Hello from standard")
    assert outcome.header("Escalated-From") == "fast"


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_call_never_leaves(server, stream):
    """A tier that breaks off in a call leaves no trace: the call comes from the next tier, once."""
    response = server.post({"messages": user("fast:cut-call weather"), "tools": WEATHER_TOOLS, "stream": stream})

    assert response.text.count("get_weather") == 1
    assert response.headers["x-mlx-stack-tier"] == "standard"


@pytest.mark.parametrize("stream", [False, True])
def test_legacy_functions(server, stream):
    """A client that still speaks `functions` is answered with `function_call`."""
    function = WEATHER_TOOLS[0]["function"]
    body = {"messages": user("weather"), "functions": [function], "stream": stream}
    text = server.post(body).text

    assert '"function_call":{' in text
    assert '"finish_reason":"function_call"' in text
    assert "tool_calls" not in text.replace('"tool_calls":null', "")


def test_silence_is_filled_with_comments(quiet_server):
    """While a tier is silent the stream carries SSE comments, and no header claims a tier that hasn't answered yet."""
    response = quiet_server.post({"messages": user("wait"), "stream": True})

    assert "x-mlx-stack-tier" not in response.headers
    assert response.text.startswith(": keep-alive\n\n")
    assert response.text.endswith("data: [DONE]\n\n")
    assert '"content":"late"' in response.text


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


@pytest.mark.parametrize(
    ("model", "tier"),
    [("auto", "fast"), ("standard", "standard"), ("openai/gpt-4o", "standard"), ("gpt-4o-mini", "fast")],
)
def test_model_names_the_starting_tier(server, model, tier):
    """`model` is a tier, an alias or `auto`."""
    outcome = ask(server, user("hi"), stream=False, model=model)

    assert outcome.header("Tier") == json.loads(outcome.wire)["model"] == tier


def test_models(server):
    """Each tier, `auto` and each alias is listed with its state, and the openai client can read the list."""
    with server.client() as client:
        models = {model.id: model for model in client.models.list()}
        ones = [client.models.retrieve(name) for name in ("gpt-4o", "openai/gpt-4o")]

    assert set(models) == {"fast", "standard", "longctx", "auto", "gpt-4o", "gpt-4o-mini", "openai/gpt-4o"}
    assert models["fast"].state == "ready"
    assert [one.starts_at for one in ones] == ["standard", "standard"]
    assert server.get("/v1/models/none").status_code == 404


def test_health_and_readiness(server):
    """Alive is one question, able to answer another."""
    assert server.get("/health").json() == {"status": "ok"}
    ready = server.get("/ready").json()
    assert ready["ready"] is True
    assert set(ready["tiers"]) == {"fast", "standard", "longctx"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_the_generation(server, stream):
    """Within a second after the client has gone the tier works no more, streaming or not: the report says who left."""
    name = f"left-{stream}"
    headers = {"x-request-id": name}

    body = {"messages": user("talk"), "stream": stream}
    # Leaving the `with` closes the socket; a whole answer never starts within the read timeout.
    with httpx.Client(timeout=httpx.Timeout(30.0, read=0.8)) as client:
        request = client.build_request("POST", f"{server.url}/v1/chat/completions", json=body, headers=headers)
        if stream:
            next(client.send(request, stream=True).iter_bytes())
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.send(request)
    report = until(lambda: server.find(f"/v1/reliability/requests/{name}"), "the report", wait_s=2.0)

    assert report["outcome"] == "client_left"
    assert report["attempts"][0]["cancelled"] is True
    assert report["attempts"][0]["elapsed_ms"] < 2000
