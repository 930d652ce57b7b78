"""The auxiliary judge over a socket: asked once, heard, counted; and the firm note where nobody speaks.

Both the agent's tier and the judge's are HTTP servers, so their logs say what each was asked and how often.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import plays, scripts
from tests.support.agent import Agent
from tests.support.http_asking import ask, incidents_of, report_of, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.plays import Player
from tests.support.serving import Deploy, Server, until
from tests.support.upstream import Upstream

AGENT, JUDGE = "agent/model", "judge/model"
ADVICE = "Look at the forecast of the whole week in one call."
FIRM = "Stop and reflect before the next call"
CALLS = [plays.tools(("get_weather", {"city": f"city {n}"})) for n in range(1, 13)]


@pytest.fixture(scope="module")
def server(deploy, upstream):
    return run(deploy, upstream, "judge", judge_tier="judge")


def run(deploy: Deploy, upstream: Upstream, name: str, **judge: Any) -> Server:
    tiers = {"fast": scripts.hosted(upstream, AGENT), "judge": scripts.hosted(upstream, JUDGE, cloud=True)}
    timeouts = scripts.QUICK | {"connect_s": 5.0, "first_token_s": 5.0}
    breaker = {"enabled": True, "timeout_s": 3.0, **judge}
    server = deploy(scripts.graph(tiers, ["fast"], timeouts=timeouts, circuit_breaker=breaker), name)
    upstream.plays(AGENT, plays.good())
    upstream.plays(JUDGE, plays.good())
    for tier in tiers:  # a first call may take long: it isn't the judge's silence that is tested here
        until(lambda model=tier: ask(server, user("hi"), model=model, stream=False).status == 200, f"{tier} answers")
    return server


def work(
    server: Server,
    upstream: Upstream,
    judge: Player,
    name: str,
    *,
    stream: bool,
    tool: Callable[[int], str] = lambda lap: f"{lap * 7} degrees",
    **options: Any,
) -> tuple[Agent, list[Any], list[Any]]:
    """Six laps of one tool whose arguments and results differ; the prompts that the agent's tier and the judge saw."""
    upstream.plays(AGENT, *CALLS)
    upstream.plays(JUDGE, judge)
    before = len(upstream.log)
    headers = {"X-MLX-Stack-Session": name} | options.pop("headers", {})
    agent = Agent(server, "work", stream, tool=tool, options={"headers": headers})
    agent.run(6)
    assert [lap.status for lap in agent.laps] == [200] * 6
    seen = upstream.log[before:]
    prompts = [[s.body["messages"] for s in seen if s.model == model] for model in (AGENT, JUDGE)]
    return agent, *prompts


def test_the_judge_is_asked_once_in_five_calls_and_heard(server, upstream, stream):
    """At the sixth request the history holds five calls: the judge sees the task and the calls, and what it says stands
    at the end of that prompt, where the client's own history never has it."""
    agent, prompts, judged = work(server, upstream, plays.good(ADVICE), f"heard-{stream}", stream=stream)

    assert len(prompts) == 6
    assert len(judged) == 1
    assert "work" in judged[0][-1]["content"]
    assert "35 degrees" in judged[0][-1]["content"]
    assert [prompt[-1]["role"] for prompt in prompts] == ["user", "tool", "tool", "tool", "tool", "user"]
    assert ADVICE in prompts[5][-1]["content"]
    assert ADVICE not in str(prompts[:5]) + str(agent.messages)
    report = report_of(server, agent.laps[5])
    assert (report["judge"]["by"], report["judge"]["count"], report["judge"]["trouble"]) == ("judge", 5, "consecutive")
    assert (report["retries"], report["loop"]) == (0, None)


def test_the_tokens_of_the_judge_are_counted_in_the_session(server, upstream, stream):
    """Seven calls of tiers, seven times the upstream's usage."""
    name = f"counted-{stream}"
    work(server, upstream, plays.good(ADVICE), name, stream=stream)
    path, names = f"/v1/reliability/sessions/{name}", ("spent_tokens", "prompt_tokens", "completion_tokens")
    usage = plays.USAGE
    whole = [7 * usage["total_tokens"], 7 * usage["prompt_tokens"], 7 * usage["completion_tokens"]]

    def spent() -> list[Any]:
        return [server.get(path).json().get(name) for name in names]

    until(lambda: spent() == whole, f"{whole} tokens are spent", wait_s=20.0)


ERRORS = ["no such city", "timed out after 3 s", "permission denied", "disk is full", "bad gateway", "unknown key"]


def test_five_failures_in_a_row_are_a_case_too(server, upstream, stream):
    """Five different errors of one tool: no rule convicts, and the judge is asked why it fails."""

    def fail(lap: int) -> str:
        return json.dumps({"error": ERRORS[lap - 1]})

    agent, prompts, judged = work(server, upstream, plays.good(ADVICE), f"failing-{stream}", stream=stream, tool=fail)

    assert len(judged) == 1
    assert ADVICE in prompts[5][-1]["content"]
    told = report_of(server, agent.laps[5])["judge"]
    assert (told["trouble"], told["tool"], told["count"]) == ("failures", "get_weather", 5)


SILENT: dict[str, Player] = {
    "empty": (plays.Head(headers=plays.SSE), *plays.tail()),
    "fault": plays.status(500),
    "timeout": plays.hang(),
}


@pytest.mark.parametrize(("judge", "stream"), take_turns(SILENT, STREAMS))
def test_a_silent_judge_leaves_the_firm_note(server, upstream, judge, stream):
    """Nothing said, a fault, too late: the answer isn't delayed further, and the model is told to reflect."""
    agent, prompts, judged = work(server, upstream, SILENT[judge], f"{judge}-{stream}", stream=stream)

    assert len(judged) == 1
    assert FIRM in prompts[5][-1]["content"]
    assert report_of(server, agent.laps[5])["judge"]["by"] is None
    assert agent.laps[5].elapsed_s < 10.0


def test_the_judges_thoughts_are_read_where_it_says_nothing_else(server, upstream):
    """Some models answer in `reasoning` only."""
    thought = (plays.Head(headers=plays.SSE), plays.Send(plays.chunk({"reasoning": ADVICE})), *plays.tail())
    _, prompts, _ = work(server, upstream, thought, "thoughts", stream=False)

    assert ADVICE in prompts[5][-1]["content"]


def test_a_judge_who_sees_progress_changes_nothing(server, upstream):
    """CONTINUE: no word is added to the prompt."""
    _, prompts, judged = work(server, upstream, plays.good("CONTINUE."), "progress", stream=False)

    assert len(judged) == 1
    assert prompts[5][-1]["role"] == "tool"


def test_a_local_only_request_is_not_shown_to_a_judge_in_the_cloud(server, upstream):
    """The judge's tier is a tier like others: a private prompt doesn't go there, and the firm note stands in."""
    options = {"headers": {"X-MLX-Stack-Local-Only": "true"}}
    _, prompts, judged = work(server, upstream, plays.good(ADVICE), "private", stream=False, **options)

    assert judged == []
    assert FIRM in prompts[5][-1]["content"]


def test_without_a_tier_for_the_judge_there_is_the_firm_note(deploy, upstream):
    """`judge_tier` isn't set: nobody is asked."""
    server = run(deploy, upstream, "judge-nobody")
    agent, prompts, judged = work(server, upstream, plays.good(ADVICE), "nobody", stream=True)

    assert judged == []
    assert FIRM in prompts[5][-1]["content"]
    told = [i for i in incidents_of(server, agent.laps[5]) if i["kind"] != "repair"]
    assert [(i["kind"], i["reason"], i["evidence"].get("by")) for i in told] == [("loop", "judge_consecutive", None)]


def test_the_note_is_not_sent_again_on_the_next_call(server, upstream):
    """Once in five calls: the seventh request is the agent's own again."""
    agent, _, _ = work(server, upstream, plays.good(ADVICE), "next", stream=False)
    before = len(upstream.log)
    agent.lap()
    seen = upstream.log[before:]

    assert [s.model for s in seen] == [AGENT]
    assert seen[0].body["messages"][-1]["role"] == "tool"
