"""One app on Ray: what only Ray carries, each once. What the server does of itself the other files of this folder show
in one process (`tests/support/near_server.py`), and on Ray too with `--on-ray`.
"""

import re
from typing import Any

import httpx
import openai
import pytest
import ray

from tests.support import plays, scripts
from tests.support.client_load import PATIENT, kill_state
from tests.support.dialects import DIALECTS, ask_in
from tests.support.http_asking import WEATHER_TOOLS, user
from tests.support.serving import Deploy, Server, until
from tests.support.upstream import Upstream

pytestmark = pytest.mark.ray

APP = "onray"
GOOD: Any = {
    "when": {"has_tools": True},
    "answer": [{"tool_call": {"name": "get_weather", "arguments": {"city": "P"}}}],
}


@pytest.fixture(scope="module")
def server(deploy_on_ray: Deploy, upstream: Upstream) -> Server:
    hosted = {"kind": "hosted", "base_url": upstream.base_url, "model": "some/model"}
    args = scripts.args(
        tiers={"fast": {"kind": "scripted", "script": [GOOD, {"answer": "from fast"}]}, "late": hosted},
        reliability={
            "escalation": {"chain": ["fast", "late"]},
            "token_budget": {"enabled": False},
            **scripts.UNBOUNDED,
        },
        server={"timeouts": PATIENT},
    )
    return deploy_on_ray(args, APP)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_each_dialect_is_answered(server, dialect, stream):
    """A text and a call, whole and streamed, by the dialect's own client: with the tokens and the report."""
    said = ask_in(dialect, server, user("hi"), stream=stream)
    called = ask_in(dialect, server, user("weather?"), stream=stream, tools=WEATHER_TOOLS)

    assert (said.text, said.finish, said.report["tier"]) == ("from fast", "stop", "fast")
    assert (called.calls, called.finish) == ([("get_weather", {"city": "P"})], "tool_calls")
    assert all(one.tokens and min(one.tokens[:2]) > 0 for one in (said, called))


@pytest.mark.parametrize("stream", [False, True])
def test_a_large_request_goes_by_reference(server, upstream, stream):
    """More than gRPC carries between replicas: the upstream reads every word of it."""
    upstream.plays("some/model", plays.good("All of it."))
    text = "word " * 300_000
    response = server.post({"model": "late", "messages": user(text), "stream": stream})

    assert response.status_code == 200, response.text
    assert upstream.log[-1].body["messages"][-1]["content"] == text


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_a_good_answer_is_no_error_of_its_deployment(server, upstream, stream):
    """An upstream that holds its connection after the last word keeps a replica busy with tidying up, and that isn't
    cut off: Serve would count each such answer as an error, on every dashboard. (Stands before the client that leaves,
    which is one.)"""
    upstream.plays("some/model", (*plays.good("Hello, at last."), plays.Wait(10)))
    before, errors = counted("request"), counted("error")
    for _ in range(5):
        assert server.post({"model": "late", "messages": user("hi"), "stream": stream}).status_code == 200

    until(lambda: counted("request") >= before + 5, "Serve has counted them")
    assert counted("error") == errors


def counted(what: str) -> float:
    """What Serve's own counter of this app's `late` says on this node's Prometheus endpoint."""
    (node,) = ray.nodes()
    text = httpx.get(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics", timeout=30).text
    sample = rf'^ray_serve_deployment_{what}_counter(?:_total)?\{{([^}}]*deployment="late"[^}}]*)\}} (\S+)$'
    return sum(float(value) for labels, value in re.findall(sample, text, re.MULTILINE) if f'"{APP}"' in labels)


def test_a_client_that_leaves_closes_the_upstream(server, upstream):
    """Over the proxy and the handle: its connection is closed."""
    upstream.plays("some/model", plays.hang(2))
    with httpx.Client(timeout=30.0) as client:
        body = {"model": "late", "messages": user("hi"), "stream": True}
        request = client.build_request("POST", f"{server.url}/v1/chat/completions", json=body)
        next(client.send(request, stream=True).iter_bytes())
    until(lambda: upstream.log[-1].left, "the upstream's connection is closed")


def test_the_metrics_page_has_what_the_nodes_count(server):
    """The server's own page asks Ray's endpoints: a finished request is there."""
    server.post({"model": "fast", "messages": user("hi")})

    until(lambda: "ray_mlx_stack_requests" in server.get("/metrics").text, "the request is counted")


def test_the_memory_page_says_which_replicas_have_come(server):
    """Law: each replica that holds memory has one record of its beginning, and the page shows it."""

    def find_started() -> list[str]:
        found = httpx.get(f"{server.url}/v1/reliability/incidents?kind=scaling").json()["data"]
        return [one["tier"] for one in found if one["reason"] == "started"]

    until(lambda: find_started() == ["fast"], "a record of its replica's beginning")
    page = httpx.get(f"{server.url}/ui/memory", headers={"accept": "text/html"}).text

    assert "What scaled" in page
    assert page.count(": a replica started on ") == 1


def test_a_killed_state_actor_forgets_no_response(server):
    """What it has confirmed is in the journal: its next incarnation finds the response, and a request goes on from
    it."""
    with server.client() as client:
        made = client.responses.create(model="auto", input="hi")
        until(lambda: server.ask_state("recall_responses", "", made.id), "the response is kept")
        kill_state(APP)
        read = until(lambda: find(client, made.id), "the actor is back")
        went_on = client.responses.create(model="auto", input="and on", previous_response_id=made.id)

    assert read == made
    assert went_on.output_text == "from fast"


def find(client: openai.OpenAI, response_id: str) -> Any:
    """Read a stored response; None while the state doesn't answer."""
    try:
        return client.responses.retrieve(response_id)
    except openai.InternalServerError:
        return None
