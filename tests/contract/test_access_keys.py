"""With API keys on: who is let in, who sees what, who may change what, and the routes under `/v1/reliability`.

Three keys: `boss` (admin), `agent` and `other` (neither sees the other's).
"""

from typing import Any

import httpx
import pytest

from tests.support import scripts
from tests.support.http_asking import Outcome, ask, report_of, user
from tests.support.serving import Server, until

KEYS = {name: f"sk-{name}-0123456789abcdef0123" for name in ("boss", "agent", "other")}
SESSION_TOKENS = 1_250
# What each answer to "spend" says that it has cost.
SPENT = {"prompt_tokens": 300, "completion_tokens": 100}


def rules(tier: str) -> list[dict[str, Any]]:
    spend = {"when": {"last_user": "spend"}, "answer": "spent", "usage": SPENT}
    return [spend, *scripts.rules(tier)]


@pytest.fixture(scope="module")
def server(deploy, tmp_path_factory):
    keys = scripts.write_keys(tmp_path_factory.mktemp("keys"), KEYS, boss={"admin": True})
    tiers = {name: scripts.scripted(*rules(name)) for name in scripts.TWO}
    budget = {"per_session": SESSION_TOKENS, "max_output_tokens": 100, "policy": "hard_stop"}
    return deploy(scripts.graph(tiers, server={"api_keys_file": keys}, token_budget=budget), "keys")


def as_(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


def call(server: Server, method: str, path: str, *, key: str = "boss", **options: Any) -> httpx.Response:
    return httpx.request(method, f"{server.url}{path}", headers=as_(key), timeout=30.0, **options)


def asked(server: Server, text: str = "hi", *, key: str = "agent", stream: bool = False, session: str = "") -> Outcome:
    headers = {"X-MLX-Stack-Session": session} if session else {}
    return ask(server, user(text), stream=stream, api_key=KEYS[key], headers=headers)


def code(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


ROUTES = [
    ("POST", "/v1/chat/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/fast"),
    ("GET", "/v1/reliability/requests/some"),
    ("GET", "/v1/reliability/sessions/some"),
    ("GET", "/v1/reliability/incidents"),
    ("GET", "/v1/reliability/tiers"),
    ("POST", "/v1/reliability/tiers/fast/isolate"),
    ("POST", "/v1/reliability/tiers/fast/close"),
    ("POST", "/v1/reliability/tiers/fast/restore"),
    ("POST", "/v1/reliability/sessions/some/reset"),
]
ADMIN_ROUTES = ROUTES[5:]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer sk-wrong"}, {"x-api-key": "sk-wrong"}])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_a_right_key_every_route_is_closed(server, method, path, headers):
    """401 with the scheme, before anything else is said: not even whether the route's object exists."""
    refused = httpx.request(method, f"{server.url}{path}", headers=headers, timeout=30.0)

    assert code(refused) == (401, "invalid_api_key")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert "sk-wrong" not in refused.text


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_the_state_of_the_server_needs_no_key(server, path):
    """Whoever watches the process isn't given a key."""
    assert server.get(path).status_code == 200


def test_a_stranger_learns_only_whether_it_is_ready(server):
    """Tier names need a key; memory, node names and the configuration's mistakes an admin's. A wrong key is told so."""
    stranger, agent, boss = (server.get("/ready").json(), ready(server, "agent"), ready(server, "boss"))

    assert stranger == {"ready": True}
    assert set(boss) == {"ready", "chain", "refused_user_config", "state_actor", "memory", "tiers"}
    assert set(boss) - set(agent) == {"memory", "refused_user_config"}
    assert set(agent["tiers"]) == {"fast", "standard"}
    wrong = httpx.get(f"{server.url}/ready", headers={"x-api-key": "sk-wrong"}, timeout=30.0)
    assert code(wrong) == (401, "invalid_api_key")


def ready(server: Server, key: str) -> dict[str, Any]:
    found: dict[str, Any] = call(server, "GET", "/ready", key=key).json()
    return found


def test_a_page_of_this_machine_may_ask_with_a_key(server):
    """The preflight needs none, and says which headers the page may send; the answer is the page's to read, a stream
    too, and an error too."""
    page = {"Origin": "http://localhost:3000"}
    named = "authorization, x-stainless-os"
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": named}
    url, body = f"{server.url}/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    before = httpx.options(url, headers=page | wanted, timeout=30.0)

    assert before.status_code == 204
    assert before.headers["access-control-allow-headers"] == named
    for sent, status in ((page | as_("agent"), 200), (page, 401)):
        answer = httpx.post(url, headers=sent, json=body, timeout=30.0)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == page["Origin"]
    foreign = httpx.options(url, headers={"Origin": "https://evil.example"} | wanted, timeout=30.0)
    assert code(foreign) == (403, "forbidden")


@pytest.mark.parametrize(("method", "path"), ADMIN_ROUTES)
def test_what_changes_or_shows_everything_needs_an_admin(server, method, path):
    """403 for a key that isn't one; and nothing has changed."""
    assert code(call(server, method, path, key="agent")) == (403, "forbidden")
    assert asked(server).header("Tier") == "fast"


def test_an_admin_can_free_a_sessions_budget(server, stream):
    """Three answers, then 400; reset, and it goes on; totals start again, and the act is an incident."""
    session = f"reset-{stream}"
    outcomes = [asked(server, "spend", stream=stream, session=session) for _ in range(5)]
    assert [o.status for o in outcomes] == [200, 200, 200, 400, 400]
    assert outcomes[3].code == "budget_exceeded"

    path = f"/v1/reliability/sessions/{session}"
    assert call(server, "POST", f"{path}/reset").json() == {"session": session, "key": "agent", "reset": True}
    again = asked(server, "spend", stream=stream, session=session)
    assert again.status == 200
    report_of(server, again, headers=as_("agent"))
    known = call(server, "GET", path).json()
    assert (known["requests"], known["spent_tokens"]) == (1, sum(SPENT.values()))
    acts = call(server, "GET", "/v1/reliability/incidents", params={"kind": "operator", "session": session}).json()
    assert [act["reason"] for act in acts["data"]] == ["reset"]
    assert code(call(server, "POST", "/v1/reliability/sessions/nobody/reset")) == (404, "not_found")


@pytest.fixture
def isolated(server):
    assert call(server, "POST", "/v1/reliability/tiers/fast/isolate").json() == {"tier": "fast", "isolated": True}
    yield
    assert call(server, "POST", "/v1/reliability/tiers/fast/restore").json() == {"tier": "fast", "restored": True}
    until(lambda: asked(server).header("Tier") == "fast", "the tier is back")


def test_an_isolated_tier_gets_no_call(server, isolated, stream):
    """All requests go to the next tier without an extra call; it is shown as degraded, and why."""
    trail = {"Tier": "standard", "Escalated-From": "fast", "Escalation-Reason": "server_error"}
    for _ in range(3):
        assert asked(server, stream=stream).trail == trail | {"Retries": "0", "Attempts": "1"}

    def shown() -> tuple[Any, ...]:
        fast = ready(server, "agent")["tiers"]["fast"]
        models = {m["id"]: m["state"] for m in call(server, "GET", "/v1/models", key="agent").json()["data"]}
        listed = {t["name"]: t for t in call(server, "GET", "/v1/reliability/tiers").json()["data"]}
        return fast["state"], fast["breaker"], models["fast"], listed["fast"]["isolated"], models["standard"]

    until(lambda: shown() == ("degraded", "isolated", "degraded", True, "ready"), "it is shown everywhere")


def test_the_last_tier_can_be_isolated_too(server, isolated, stream):
    """Then there is a clear refusal."""
    refused = ask(server, user("standard:500"), stream=stream, api_key=KEYS["agent"])

    assert (refused.status, refused.code) == (502, "upstream_error")
    assert "tier fast was taken out by hand" in refused.error["message"]


def test_a_tier_that_does_not_exist_can_not_be_isolated(server):
    """404, with the names that there are."""
    refused = call(server, "POST", "/v1/reliability/tiers/fsat/isolate")

    assert code(refused) == (404, "not_found")
    assert "fast, standard" in refused.json()["error"]["message"]
