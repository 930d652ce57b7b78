"""One app on Ray: what only Ray carries, each once. What the server does of itself the other files of this folder show
in one process (`tests/support/near_server.py`), and on Ray too with `--on-ray`.
"""

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
import ray

from tests.contract.test_serve import of, ours
from tests.support import plays, scripts
from tests.support.client_load import PATIENT, Ledger, kill_state, processes
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
WORDS = 300
READ = 100  # words that the client has read when the Router dies
WORD_S = 0.01
DEADLINE_S = 10.0  # the call of a dead Router stays open so long
FAR_TOKENS = 64
PROMPT_TOKENS_MAX = 64
# Not one like the other: an answer that repeats itself is stopped. Each is one token to the tier.
TEXT = " ".join(f"w{number}" for number in range(WORDS))
ASKED = [{"role": "user", "content": "Tell me a long story."}]
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": ASKED},
    "messages": {"messages": ASKED, "max_tokens": 2 * WORDS},
    "responses": {"input": "Tell me a long story."},
}
STORY: Any = {"when": {"last_user": "Tell me a long story."}, "token_delay_s": WORD_S, "answer": TEXT}
BROKEN: Any = {"when": {"last_user": "break"}, "answer": {"status": 500}}


@pytest.fixture(scope="module")
def server(deploy_on_ray: Deploy, upstream: Upstream) -> Server:
    hosted = {"kind": "hosted", "base_url": upstream.base_url, "model": "some/model"}
    args = scripts.args(
        tiers={"fast": {"kind": "scripted", "script": [GOOD, STORY, BROKEN, {"answer": "from fast"}]}, "late": hosted},
        reliability={
            "escalation": {"chain": ["fast", "late"], "max_retries_before_escalate": 1},
            "token_budget": {"per_session": None, "per_hour": None},
            **scripts.UNBOUNDED,
        },
        server={"timeouts": PATIENT, "deadline_s": DEADLINE_S},
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


def test_the_router_counts_what_it_serves(server, upstream):
    """Requests over the socket appear on the node's endpoint, and no client's word becomes a label."""
    upstream.plays("some/model", plays.good("From above."))
    odd = {"model": "fast", "user": "made-up-user", "messages": user("break made-up-words")}
    for _ in range(3):
        assert server.post(odd, headers={"x-mlx-stack-session": "made-up-session"}).status_code == 200
    assert server.post(odd | {"model": "made-up-model"}).status_code == 404

    def find_failed() -> list[float]:
        return [value for labels, value in ours(of(APP), "attempts").items() if ("fault", "server_error") in labels]

    until(lambda: find_failed() == [6], "two attempts of each request are counted")
    samples = of(APP)
    assert ours(samples, "escalations") == {(("reason", "server_error"), ("tier", "fast")): 3}
    assert not [value for _, labels, _ in samples for value in labels.values() if "made-up" in value]


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


def kill_router() -> None:
    (process,) = processes(f"ServeReplica:{APP}:Router")
    os.kill(process.pid, signal.SIGKILL)


def read_piece(frame: dict[str, Any]) -> str:
    """Read the text of one frame, in whichever dialect."""
    if frame.get("type") == "content_block_delta":
        return str(frame["delta"].get("text", ""))
    if frame.get("type") == "response.output_text.delta":
        return str(frame["delta"])
    return "".join(choice["delta"].get("content") or "" for choice in frame.get("choices", []))


def stream(
    server: Server, route: str, headers: dict[str, str], then: Callable[[], None] | None = None
) -> tuple[str, dict[str, Any], httpx.Headers]:
    """Stream one answer, and do `then` in the middle of it; return its text, its report and its headers.

    Raises:
        httpx.HTTPError: no answer came, or its connection broke.
    """
    text, report = "", {}
    body = {"model": "fast", "stream": True, **BODIES[route]}
    with httpx.stream("POST", f"{server.url}/v1/{route}", json=body, headers=headers, timeout=60.0) as got:
        got.raise_for_status()
        for line in got.iter_lines():
            if not line.startswith("data: {"):
                continue
            frame = json.loads(line[6:])
            text += read_piece(frame)
            report = frame.get("mlx_stack") or report
            if then is not None and len(text.split()) >= READ:
                then, _ = None, then()
        return text, report, got.headers


def ask_again(ask: Callable[[], Any]) -> Any:
    """Ask until a Router is there again, as a client's retries do."""

    def attempt() -> Any:
        try:
            return ask()
        except httpx.HTTPError:
            return None

    return until(attempt, "the repeated request is answered")


@pytest.mark.parametrize(
    "route", ["messages", *(pytest.param(route, marks=pytest.mark.nightly) for route in BODIES if route != "messages")]
)
def test_the_repeat_of_a_killed_stream_is_the_whole_answer(server: Server, route: str) -> None:
    """Law: under the same name the repeat brings the text from its first word to its last, without what stood being
    written again; a third request is told the same, by no tier; and the books hold the answer once."""
    session = f"repeated-{route.split('/')[0]}"
    headers = {"Idempotency-Key": f"story-{session}", "x-mlx-stack-session": session}
    ask_again(lambda: stream(server, "chat/completions", {}))
    with pytest.raises(httpx.HTTPError):
        stream(server, route, headers, kill_router)

    text, report, _ = ask_again(lambda: stream(server, route, headers))
    ledger = Ledger(server, session)
    spent = until(ledger.settled, "no call is open", wait_s=120.0)["spent_tokens"]
    again, _, told = stream(server, route, headers)

    assert text == TEXT
    assert report["continued"]
    assert again == TEXT
    assert told["Idempotent-Replayed"] == "true"
    assert until(ledger.settled, "no call is open")["spent_tokens"] == spent
    assert WORDS <= spent <= WORDS + 2 * PROMPT_TOKENS_MAX + FAR_TOKENS


def test_an_sdk_repeats_by_itself(server: Server) -> None:
    """Law: the openai client, as it is, gets its whole answer over the death of a Router; so does one that streams and
    asks again."""
    ask_again(lambda: stream(server, "chat/completions", {}))
    client = server.client(max_retries=8)
    killer = threading.Timer(READ * WORD_S, kill_router)
    killer.start()
    answer = client.chat.completions.create(model="fast", messages=ASKED)
    killer.join()

    assert answer.choices[0].message.content == TEXT
