"""One app on Ray: what only Ray carries, each once. What the server does of itself the other files of this folder show
in one process (`tests/support/near_server.py`), and on Ray too with `--on-ray`.
"""

import contextlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.clients.record import WIRES
from tests.clients.wires import Answer
from tests.contract.test_serve import of, ours, read_metrics
from tests.support import plays, scripts
from tests.support.client_load import PATIENT, Ledger, kill_replica, kill_state, processes
from tests.support.dialects import ask_in
from tests.support.http_asking import WEATHER_TOOLS, user
from tests.support.schema_attacks import ATTACKS, RULES, attack, spare_bystander
from tests.support.serving import Server, ask_actor, until

pytestmark = pytest.mark.ray

APP = "onray"
WORDS = 300
READ = 100  # words that the client has read when somebody dies
WORD_S = 0.01
DEADLINE_S = 10.0  # the call of a dead Router stays open so long
FAR_TOKENS = 64
PROMPT_TOKENS_MAX = 64
# Not one like the other: an answer that repeats itself is stopped. Each is one token to the tier.
TEXT = " ".join(f"w{number}" for number in range(WORDS))
ASKED = [{"role": "user", "content": "Tell me a long story."}]
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": ASKED},
    "/messages": {"messages": ASKED, "max_tokens": 2 * WORDS},
    "/responses": {"input": "Tell me a long story."},
}
STORY: Any = {"when": {"last_user": "Tell me a long story."}, "token_delay_s": WORD_S, "answer": TEXT}
BROKEN: Any = {"when": {"last_user": "break"}, "answer": {"status": 500}}
LONG, SHORT = "word " * 400, "hi"
PRESSURE = "x-mlx-stack-memory-pressure"


@pytest.fixture(scope="module")
def knob(tmp_path_factory):
    """What the scripted sensor of memory reads; everything behind it is real."""
    path = tmp_path_factory.mktemp("memory") / "knob"
    path.write_text("normal")
    return path


@pytest.fixture(scope="module")
def deploy_file(serve_port, upstream, knob, state_folder):
    """As `serve deploy` of a file with these `user_config`s. `standard` never rests from bystanders; of `late`, in the
    cloud, the upstream's log is a witness. What is complex here is a prompt of 300 tokens."""
    from ray import serve
    from ray.serve.schema import ServeDeploySchema

    script = [*RULES, scripts.CALLS, STORY, BROKEN, {"answer": "from fast"}]
    pressure = {"sensor": f"scripted:{knob}", "sustained_s": 2.0, "poll_s": 0.1, "calm_s": 0.5, "stale_s": 5.0}
    pressure |= {"complex_prompt_tokens": 300, "critical_prompt_tokens": 300}
    reliability = {
        "escalation": {"chain": ["fast", "late"], "max_retries_before_escalate": 1},
        "token_budget": {"per_session": None, "per_hour": None, "max_output_tokens": 200_000},
        "memory_pressure": pressure,
        **scripts.UNBOUNDED,
    }
    args = {
        "tiers": {
            "fast": scripts.scripted(*script),
            "standard": scripts.tier("standard"),
            "late": scripts.hosted(upstream, cloud=True),
        },
        "reliability": reliability,
        "server": {"timeouts": PATIENT, "deadline_s": DEADLINE_S},
        "state": {"path": str(state_folder / APP)},
    }
    application = {"name": APP, "route_prefix": f"/{APP}", "import_path": "deployments.app:build", "args": args}

    def deploy(**changes: dict[str, Any]) -> None:
        made = application | {"deployments": [{"name": n, "user_config": change} for n, change in changes.items()]}
        client = serve.context._get_global_client()
        client.deploy_apps(ServeDeploySchema.model_validate({"applications": [made]}), _blocking=True)

    yield deploy
    serve.delete(APP, _blocking=False)


@pytest.fixture(scope="module")
def server(deploy_file, serve_port):
    deploy_file()
    return Server(APP, f"http://127.0.0.1:{serve_port}/{APP}", partial(ask_actor, APP))


def test_each_dialect_is_answered(server, dialect, stream):
    """A text and a call, whole and streamed, by the dialect's own client: with the tokens and the report."""
    said = ask_in(dialect, server, user("hi"), stream=stream)
    called = ask_in(dialect, server, user("weather?"), stream=stream, tools=WEATHER_TOOLS)

    assert (said.text, said.finish, said.report["tier"]) == ("from fast", "stop", "fast")
    assert (called.calls, called.finish) == ([("get_weather", {"city": "Paris"})], "tool_calls")
    assert all(one.tokens and min(one.tokens[:2]) > 0 for one in (said, called))


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
    text = read_metrics()
    sample = rf'^ray_serve_deployment_{what}_counter(?:_total)?\{{([^}}]*deployment="late"[^}}]*)\}} (\S+)$'
    return sum(float(value) for labels, value in re.findall(sample, text, re.MULTILINE) if f'"{APP}"' in labels)


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
    assert ours(samples, "escalations")[("reason", "server_error"), ("tier", "fast")] == 3
    assert not [value for _, labels, _ in samples for value in labels.values() if "made-up" in value]


def test_the_memory_page_says_which_replicas_have_come(server):
    """Law: each replica that holds memory has one record of its beginning, and the page shows it."""

    def find_started() -> list[str]:
        found = httpx.get(f"{server.url}/v1/reliability/incidents?kind=scaling").json()["data"]
        return [one["tier"] for one in found if one["reason"] == "started"]

    until(lambda: sorted(find_started()) == ["fast", "standard"], "a record of each replica's beginning")
    page = httpx.get(f"{server.url}/ui/memory", headers={"accept": "text/html"}).text

    assert "What scaled" in page
    assert page.count(": a replica started on ") == 2


kill_router = partial(kill_replica, APP, "Router")


def stream(
    server: Server, route: str, headers: dict[str, str], then: Callable[[], Any] | None = None
) -> tuple[Answer, httpx.Headers]:
    """Stream one answer, and do `then` in the middle of it; return it and its headers.

    Raises:
        httpx.HTTPError: no answer came, or its connection broke.
    """
    raw, body = b"", {"model": "fast", "stream": True, **BODIES[route]}
    with httpx.stream("POST", f"{server.url}/v1{route}", json=body, headers=headers, timeout=60.0) as got:
        got.raise_for_status()
        for piece in got.iter_bytes():
            raw += piece
            if then is not None and len(re.findall(rb"\bw\d+", raw)) >= READ:
                then, _ = None, then()
        return WIRES[route].read_answer(raw), got.headers


def ask_again(ask: Callable[[], Any], away: type[Exception] = httpx.HTTPError) -> Any:
    """Ask until somebody is there again, as a client's retries do."""

    def attempt() -> Any:
        with contextlib.suppress(away):
            return ask()

    return until(attempt, "the repeated request is answered")


def test_a_killed_state_actor_costs_no_word_and_forgets_nothing(server):
    """Law: a stream goes on while the actor is away, and what it has cost is booked once it is back. What it has
    confirmed is in the journal: its next incarnation finds a response, and a request goes on from it."""
    with server.client() as client:
        made = client.responses.create(model="auto", input="hi")
        until(lambda: server.ask_state("recall_responses", "", made.id), "the response is kept")
        answer, _ = stream(server, "/chat/completions", {"x-mlx-stack-session": "own"}, partial(kill_state, APP))
        read = ask_again(lambda: client.responses.retrieve(made.id), openai.InternalServerError)
        went_on = client.responses.create(model="auto", input="and on", previous_response_id=made.id)
    books = until(Ledger(server, "own").settled, "no call is open")

    assert (answer.text, read, went_on.output_text) == (TEXT, made, "from fast")
    assert WORDS <= books["spent_tokens"] <= WORDS + PROMPT_TOKENS_MAX


def read_books(server: Server, session: str) -> Any:
    """What is booked of a session, as soon as somebody answers."""
    got = ask_again(lambda: httpx.get(f"{server.url}/v1/reliability/sessions/{session}", timeout=10.0))
    return got.json() if got.status_code == 200 else None


@pytest.mark.parametrize(
    "route", [pytest.param(route, marks=[pytest.mark.nightly] * (route != "/messages")) for route in BODIES]
)
def test_the_repeat_of_a_killed_stream_is_the_whole_answer(server, route):
    """Law: under the same name the repeat brings the text from its first word to its last, without what stood being
    written again; a third request is told the same, by no tier. The books hold soon after the death what its client has
    read, give or take, and at the end the answer once."""
    session = f"repeated-{route.split('/')[1]}"
    headers = {"Idempotency-Key": f"story-{session}", "x-mlx-stack-session": session}
    ask_again(lambda: stream(server, "/chat/completions", {}))
    with pytest.raises(httpx.HTTPError):
        stream(server, route, headers, kill_router)

    early = until(lambda: read_books(server, session), "the session is known")["spent_tokens"]
    assert READ - FAR_TOKENS <= early <= WORDS + PROMPT_TOKENS_MAX + FAR_TOKENS
    told, _ = ask_again(lambda: stream(server, route, headers))
    ledger = Ledger(server, session)
    spent = until(ledger.settled, "no call is open", wait_s=120.0)["spent_tokens"]
    again, how = stream(server, route, headers)

    assert told.text == TEXT
    assert told.report["continued"]
    assert again.text == TEXT
    assert how["Idempotent-Replayed"] == "true"
    assert until(ledger.settled, "no call is open")["spent_tokens"] == spent
    assert WORDS <= spent <= WORDS + 2 * PROMPT_TOKENS_MAX + FAR_TOKENS


def test_an_sdk_repeats_by_itself(server):
    """Law: the openai client, as it is, gets its whole answer over the death of a Router; so does one that streams and
    asks again."""
    ask_again(lambda: stream(server, "/chat/completions", {}))
    client = server.client(max_retries=8)
    killer = threading.Timer(READ * WORD_S, kill_router)
    killer.start()
    answer = client.chat.completions.create(model="fast", messages=ASKED)
    killer.join()

    assert answer.choices[0].message.content == TEXT


# A union, a large answer; several at once bring a pattern and work that goes to another process. The others are their
# further ways.
EACH_TIME = ("union-wrong", "many-values")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.nightly] * (name not in EACH_TIME)) for name in ATTACKS]
)
def test_a_schema_costs_nobody_else_their_time(server, upstream, name):
    """The call is delivered where it is valid, refused where it isn't; the bystander is served all the while."""
    upstream.plays("some/model", plays.good("No call."))
    outcome = spare_bystander(server, lambda word: attack(server, name, word))

    if ATTACKS[name].delivered:
        assert outcome.calls == [("f", ATTACKS[name].arguments)]
    else:
        assert (outcome.status, outcome.error["code"]) == (400, "invalid_answer")


def test_several_attackers_at_once_cost_no_more(server, upstream):
    """The large work of many waits for its turn, away from the small."""
    names = ("compile-bomb", "unique", "enum") * 2
    upstream.plays("some/model", plays.good("No call."))

    def attack_all(word: str) -> list[int]:
        with ThreadPoolExecutor(len(names)) as pool:
            return list(pool.map(lambda name: attack(server, name, word).status, names))

    assert spare_bystander(server, attack_all) == [200, 200, 400] * 2


def say(server: Server, text: str, **options: Any) -> httpx.Response:
    return server.post({"messages": user(text), "stream": options.pop("stream", False)}, **options)


def turn(server: Server, knob: Path, level: str) -> None:
    """Set the level of memory, and wait until an answer shows it."""
    knob.write_text(level)
    shown = {"warn": "warning", "critical": "critical"}.get(level)
    until(lambda: say(server, SHORT).headers.get(PRESSURE) == shown, f"the header says {shown}")


def test_pressure_goes_from_normal_to_critical_and_back(server, knob, upstream):
    """The header says it on every answer; once pressure has lasted, and at once at critical, a complex request goes to
    the cloud, and says why; simple ones stay; each change of the level is one incident; afterwards all is as before."""
    upstream.plays("some/model", plays.good("Hello from above."))

    def incidents() -> list[dict[str, Any]]:
        return list(server.get("/v1/reliability/incidents?kind=memory").json()["data"])

    turn(server, knob, "normal")
    before = len(incidents())
    assert say(server, LONG).headers["x-mlx-stack-tier"] == "fast"

    turn(server, knob, "warn")
    moved = until(lambda: (r := say(server, LONG)).headers["x-mlx-stack-tier"] == "late" and r, "it has lasted")
    assert moved.headers["x-mlx-stack-escalation-reason"] == "memory_pressure"
    assert moved.headers["x-mlx-stack-escalated-from"] == "fast"
    assert say(server, SHORT).headers["x-mlx-stack-tier"] == "fast"
    report = server.get(f"/v1/reliability/requests/{moved.headers['x-request-id']}").json()
    assert "sustained: prompt tokens >= 300" in report["attempts"][0]["detail"]

    turn(server, knob, "critical")
    assert say(server, LONG).headers["x-mlx-stack-tier"] == "late"
    assert say(server, SHORT, stream=True).headers[PRESSURE] == "critical"
    assert server.get("/ready").json()["memory"]["level"] == "critical"
    # A big prompt isn't computed here, and this one may not leave.
    refused = [say(server, LONG, stream=s, headers={"X-MLX-Stack-Local-Only": "true"}) for s in (False, True)]

    turn(server, knob, "normal")
    assert say(server, LONG).headers["x-mlx-stack-tier"] == "fast"
    told = until(lambda: len(i := incidents()) >= before + 4 and i, "each change has its incident")
    newest = list(reversed([incident["reason"] for incident in told[: len(told) - before]]))
    # Down it goes by one level at a time.
    assert newest == ["normal -> warn", "warn -> critical", "critical -> warn", "warn -> normal"]
    assert all("held" in incident["evidence"] for incident in told)
    for answer in refused:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "memory_pressure")
        assert int(answer.headers["retry-after"]) >= 1
        assert "local-only" in answer.json()["error"]["message"]


def test_user_config_is_live(server, deploy_file):
    """Law: a changed `user_config` takes effect without a restart, also where a deployment began without one; a wrong
    one changes nothing and is shown in /ready; one that is taken out of the file is gone, and what it has changed
    too."""
    (router,) = processes(f"ServeReplica:{APP}:Router")
    deploy_file(Router={"server": {"aliases": {"other": "fast"}}}, fast={"script": [{"answer": "changed"}]})
    until(lambda: server.get("/v1/models/other").status_code == 200, "the alias is there")
    until(lambda: say(server, "hi").json()["choices"][0]["message"]["content"] == "changed", "the script has changed")

    deploy_file(Router={"server": {"aliasses": {}}}, fast={"scrip": []})
    ready = until(lambda: find_refused(server), "the wrong ones are shown")
    assert (server.get("/v1/models/other").status_code, "changed" in say(server, "hi").text) == (200, True)
    deploy_file()
    until(lambda: server.get("/v1/models/other").status_code == 404, "the alias is gone")
    until(lambda: "from fast" in say(server, "hi").text, "the script is as it was")

    assert ready["refused_user_config"].startswith("server.aliasses: unknown key")
    assert "scrip: unknown key" in ready["tiers"]["fast"]["reason"]
    assert [process.pid for process in processes(f"ServeReplica:{APP}:Router")] == [router.pid]


def find_refused(server: Server) -> Any:
    ready = server.get("/ready").json()
    return ready if ready["refused_user_config"] and ready["tiers"]["fast"]["reason"] else None
