"""Each event leaves its incident: with the request's id, in one shape, and without a word of the conversation.

The sentinel stands in prompts, results, bad arguments, invented names and an upstream's error; none of it may be found
in any record, as long as `incidents.keep_text` is off, which is how it is shipped.
"""

import json
from typing import Any

import httpx
import pytest

from tests.support import scripts
from tests.support.http_asking import WEATHER_TOOLS, Outcome, ask, incidents_of, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.serving import Server

SENTINEL = "zebra-4711"
CITY = {"city": SENTINEL}
GOOD = {"tool_call": {"name": "get_weather", "arguments": CITY}}
RECORD = {"id", "at", "kind", "request_id", "session", "key", "tier", "reason", "evidence", "model", "generation"}
RECORD |= {"prompt_tokens", "completion_tokens", "ttft_ms", "elapsed_ms", "attempt"}


def bad(name: str, arguments: Any) -> list[dict[str, Any]]:
    return [{"tool_call": {"name": name, "arguments": arguments}}]


def rules() -> list[dict[str, Any]]:
    """`fast`: goes wrong as the task says."""
    return [
        {"when": {"transcript": "task:field"}, "answer": bad("get_weather", {SENTINEL: SENTINEL})},
        {"when": {"transcript": "task:name"}, "answer": bad(f"get_{SENTINEL}", CITY)},
        {"when": {"transcript": "task:malformed"}, "answer": bad("get_weather", f'{{"city": "{SENTINEL}')},
        {"when": {"transcript": "task:empty"}, "answer": [{"raw": ""}], "finish": "stop"},
        {"when": {"transcript": "task:500"}, "answer": [{"status": 500, "message": f"no {SENTINEL}"}]},
        {"when": {"transcript": "task:400"}, "answer": [{"status": 400, "message": f"no {SENTINEL}", "param": "x"}]},
        {"when": {"transcript": "task:repair"}, "answer": [{"raw": f"```\n{GOOD['tool_call']}\n```"}]},
        {"when": {"transcript": "task:cycle"}, "answer": [{"raw": f"{SENTINEL} again. " * 800}]},
        {"when": {"transcript": "task:nearly"}, "answer": "spent", "usage": {"prompt_tokens": 420_000}},
        {"when": {"transcript": "task:spend"}, "answer": "spent", "usage": {"prompt_tokens": 900_000}},
        {"when": {"has_tools": True}, "answer": [GOOD]},
    ]


@pytest.fixture(scope="module")
def server(deploy):
    tiers = {"fast": scripts.scripted(*rules()), "standard": scripts.scripted(rules()[-1])}
    budget = {"per_session": 500_000, "per_hour": None, "policy": "hard_stop", "max_output_tokens": 1_000}
    health = {"failures_max": 3, "rate_percent": None, "open_s": 1.0}
    return deploy(scripts.graph(tiers, token_budget=budget, tier_health=health), "incidents")


def asked(server: Server, task: str, *, stream: bool, session: str = "", model: str = "auto") -> Outcome:
    headers = {"X-MLX-Stack-Session": session} if session else {}
    text = f"task:{task} {SENTINEL}"
    return ask(server, user(text), stream=stream, model=model, tools=WEATHER_TOOLS, headers=headers)


def told(server: Server, outcome: Outcome) -> list[Any]:
    """The records of one request, each of the one shape, each naming it, none with a word of what was said."""
    records = incidents_of(server, outcome)
    for record in records:
        assert set(record) == RECORD, record
        assert record["request_id"] == outcome.request_id
        assert record["session"] == outcome.header("Session")
        assert SENTINEL not in json.dumps(record), record
    return records


EVENTS: dict[str, list[tuple[str, str]]] = {
    "field": [("flaw", "tool_call_invalid")] * 2 + [("escalation", "tool_validation_failure")],
    "name": [("flaw", "tool_call_invalid")] * 2 + [("escalation", "tool_validation_failure")],
    "malformed": [("flaw", "tool_call_invalid")] * 2 + [("escalation", "tool_validation_failure")],
    "empty": [("flaw", "empty")] * 2 + [("escalation", "tool_validation_failure")],
    "500": [("fault", "server_error")] * 2 + [("escalation", "server_error")],
    "400": [("fault", "refused"), ("escalation", "server_error")],
    "repair": [("repair", "literal")],
    "cycle": [("loop", "cycle")] * 2 + [("escalation", "loop_detected")],
}


@pytest.mark.parametrize(("task", "stream"), take_turns(EVENTS, STREAMS))
def test_what_goes_wrong_in_a_request_is_told(server, task, stream):
    """Flaws, faults, repairs, loops and escalations, in their order."""
    ask(server, user("hi"), stream=False, tools=WEATHER_TOOLS)  # a good answer: the breaker stays out of this
    outcome = asked(server, task, stream=stream)
    found = [(record["kind"], record["reason"]) for record in told(server, outcome)]

    if task == "cycle" and stream:
        # Its text stands before the client: it is stopped, and ends there.
        assert found == [("loop", "cycle")]
    else:
        assert [pair for pair in found if pair[0] != "repair"] == [p for p in EVENTS[task] if p[0] != "repair"]
    assert all(pair in found for pair in EVENTS[task] if pair[0] == "repair")


def test_a_budget_is_told(server):
    """The request that was refused for it, and what it was refused for. Over 80 % the next answer says so in its
    header, and the record says how full the window is."""
    assert asked(server, "spend", stream=False, session="spent").status == 200
    refused = asked(server, "spend", stream=True, session="spent")

    assert (refused.status, refused.code) == (400, "budget_exceeded")
    assert ("budget", "budget") in [(r["kind"], r["reason"]) for r in told(server, refused)]

    first = asked(server, "nearly", stream=False, session="nearly")
    second = asked(server, "any", stream=True, session="nearly")

    assert (first.header("Budget-Warning"), second.header("Budget-Warning")) == (None, "80%")
    assert [r["kind"] for r in told(server, second)] == ["budget"]


def test_nothing_that_was_said_is_in_any_record(server):
    """All records of this app at once, an operator's acts among them."""
    server.get("/health")
    whole: list[Any] = []
    page: dict[str, Any] = {"next": ""}
    while page["next"] is not None:
        before = f"&before={page['next']}" if page["next"] else ""
        page = server.get(f"/v1/reliability/incidents?limit=500{before}").json()
        whole += page["data"]

    assert len(whole) > 20
    assert {"flaw", "fault", "loop", "escalation", "repair"} <= {r["kind"] for r in whole}
    assert SENTINEL not in json.dumps(whole)


def test_without_keys_nobody_elsewhere_reads_or_changes_them(server):
    """Whom a proxy on this machine passes on from another one is refused here as at the models' door."""
    far = {"x-forwarded-for": "203.0.113.7"}
    paths = ("incidents", "tiers", "requests/some", "sessions/some")
    asked_for = [("GET", path) for path in paths] + [("POST", "tiers/fast/isolate")]
    for method, path in asked_for:
        refused = httpx.request(method, f"{server.url}/v1/reliability/{path}", headers=far, timeout=30.0)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden"), path

    assert asked(server, "any", stream=False).header("Tier") == "fast"
