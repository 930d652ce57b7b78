"""What happens at the limit: the three policies, and the hour that all sessions share."""

import asyncio
from typing import Any

import httpx
import openai
import pytest

from reliability.escalation.refusals import LIKE_A_STATUS
from tests.support import scripts
from tests.support.client_load import COST, PATIENT, PROMPT_TOKENS, How, Ledger, Outcome, ask, openai_client, scripted
from tests.support.serving import Server, until

LIMIT = 1_000
# One answer that takes the session to 80 % of its budget, and a second one beyond it.
BIG = {
    "when": {"last_user": "big"},
    "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": LIMIT * 4 // 5 - PROMPT_TOKENS},
    "answer": "a big one",
}
HOUR_FIT = 50


def args(policy: str, *, tiers: tuple[str, ...] = ("local",), limits: dict[str, Any] | None = None) -> dict[str, Any]:
    """A graph whose every tier is scripted, under one policy."""
    limits = {"policy": policy, "per_session": LIMIT, "per_hour": None} | (limits or {})
    graph = {name: scripts.scripted(BIG, scripted(0.0)) for name in tiers}
    return scripts.graph(graph, retries=0, timeouts=PATIENT, server={"body_s": 60.0}, token_budget=limits)


@pytest.fixture(scope="module")
def warned(deploy):
    return deploy(args("warn_and_continue"), "warned")


@pytest.fixture(scope="module")
def cheaper(deploy):
    return deploy(args("escalate", tiers=("cheap", "dear")), "cheaper")


@pytest.fixture(scope="module")
def stopped(deploy):
    return deploy(args("hard_stop"), "stopped")


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "streamed"])
def hours(request, deploy):
    """An hour of its own for streamed requests, and one for the others."""
    name = f"hours-{'streamed' if request.param else 'whole'}"
    limits = {"per_session": None, "per_hour": HOUR_FIT * COST}
    return deploy(args("hard_stop", limits=limits), name), request.param


def say(server: Server, session: str, text: str, *, stream: bool, model: str = "auto") -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 14, "stream": stream}
    return server.post(body, headers={"x-mlx-stack-session": session})


def test_warn_and_continue_warns_and_continues(warned, stream):
    """From 80 % on each answer says so in its header, beyond the limit too, and none is refused."""
    session = f"warned-{stream}"
    first, second, third, fourth = (say(warned, session, text, stream=stream) for text in ("big", "hi", "big", "hi"))
    books = until(Ledger(warned, session).settled, "nothing is reserved")

    assert [each.status_code for each in (first, second, third, fourth)] == [200] * 4
    assert "x-mlx-stack-budget-warning" not in first.headers
    assert {each.headers["x-mlx-stack-budget-warning"] for each in (second, third, fourth)} == {"80%"}
    assert books["spent_tokens"] == 2 * (LIMIT * 4 // 5 + COST)


def test_hard_stop_stops(stopped, stream):
    """The warning comes first; then a 400 without a `Retry-After`, since waiting doesn't help a session. It says what
    happened and what does. Another session isn't touched, and an operator's reset lets this one go on."""
    session = f"stopped-{stream}"
    answers = [say(stopped, session, text, stream=stream) for text in ("big", "big", "hi")]
    refused = answers[-1]

    assert [each.status_code for each in answers] == [200, 200, 400]
    assert answers[1].headers["x-mlx-stack-budget-warning"] == "80%"
    assert refused.json()["error"]["code"] == "budget_exceeded"
    assert refused.json()["error"]["type"] == "budget_exceeded"
    assert refused.json()["error"]["message"].startswith("this session has used 1,600 of its 1,000 tokens (")
    assert f"POST /v1/reliability/sessions/{session}/reset" in refused.json()["error"]["message"]
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
    assert say(stopped, f"other-{stream}", "hi", stream=stream).status_code == 200
    assert reset(stopped, session).status_code == 200
    assert say(stopped, session, "hi", stream=stream).status_code == 200


def test_the_way_out_names_the_session_that_was_found(stopped):
    """A conversation whose client names no session is reset by the name in the message, which is that of the header;
    where the name that was made for it reads like a status (`503`), it stands in the header alone."""
    messages = [{"role": "user", "content": "a big conversation"}]
    for _ in range(2):
        answer = stopped.post({"messages": messages, "model": "auto", "max_tokens": 14}).json()
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "big"}]
    refused = stopped.post({"messages": messages, "model": "auto", "max_tokens": 14})
    session = refused.headers["x-mlx-stack-session"]

    assert refused.status_code == 400
    named = "{id}" if LIKE_A_STATUS.search(session) else session
    assert f"POST /v1/reliability/sessions/{named}/reset" in refused.json()["error"]["message"]
    assert reset(stopped, session).status_code == 200
    assert stopped.post({"messages": messages, "model": "auto", "max_tokens": 14}).status_code == 200


def reset(server: Server, session: str) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/reliability/sessions/{session}/reset", timeout=30.0)


def test_a_client_is_not_sent_into_a_storm_of_retries(stopped):
    """The openai client retries what passes, as often as it is told to, and doesn't retry this."""
    for _ in range(2):
        say(stopped, "storm", "big", stream=False)
    with stopped.client(max_retries=5) as client, pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="auto", messages=[{"role": "user", "content": "hi"}], user="storm")

    assert caught.value.response.request.headers.get("x-stainless-retry-count") == "0"
    assert caught.value.code == "budget_exceeded"


@pytest.mark.parametrize("model", ["auto", "cheap", "dear"])
def test_escalate_goes_on_with_the_cheap_tier(cheaper, model, stream):
    """Over its budget a session is answered by the head of the chain, also where it asked for a dearer tier, and the
    headers say from where it came and that the budget is why."""
    session = f"cheaper-{model}-{stream}"
    before = say(cheaper, session, "hi", stream=stream, model=model)
    for _ in range(2):
        say(cheaper, session, "big", stream=stream, model=model)
    after = say(cheaper, session, "hi", stream=stream, model=model)

    assert (before.status_code, after.status_code) == (200, 200)
    assert before.headers["x-mlx-stack-tier"] == ("dear" if model == "dear" else "cheap")
    assert after.headers["x-mlx-stack-tier"] == "cheap"
    assert after.headers["x-mlx-stack-retries"] == "0"
    assert after.headers["x-mlx-stack-budget-warning"] == "80%"
    moved = (after.headers.get("x-mlx-stack-escalated-from"), after.headers.get("x-mlx-stack-escalation-reason"))
    assert moved == (("dear", "budget") if model == "dear" else (None, None))


def test_the_hour_of_all_sessions_is_exact(hours):
    """Sixty sessions, twice as many requests as fit: exactly as many are answered as the hour holds, and those that ran
    without a grant, as their reports say, because the state wasn't heard in time. The others are told when to come
    back."""
    server, stream = hours
    outcomes = asyncio.run(many(server, 2 * HOUR_FIT, stream=stream))
    answered = [each for each in outcomes if each.how is How.ANSWERED]
    refused = [each for each in outcomes if each.how is How.REFUSED]
    until(lambda: settled(server), "nothing is reserved")

    reports = [server.get(f"/v1/reliability/requests/{each.headers['x-request-id']}").json() for each in answered]
    assert len(answered) - sum(report["state_silent"] for report in reports) <= HOUR_FIT <= len(answered)
    assert len(answered) + len(refused) == 2 * HOUR_FIT
    told = {(each.status, each.code, each.headers.get("x-should-retry")) for each in refused}
    assert told == {(429, "rate_limit_exceeded", None)}
    assert all(1 <= int(each.headers["retry-after"]) <= 3700 for each in refused)


async def many(server: Server, count: int, *, stream: bool) -> list[Outcome]:
    async with openai_client(server) as client:
        return list(await asyncio.gather(*(ask(client, f"hour-{n % 60}", stream=stream) for n in range(count))))


def settled(server: Server) -> bool:
    stats = server.ask_state("stats")
    return bool(stats["grants"] == stats["reserved_tokens"] == 0)
