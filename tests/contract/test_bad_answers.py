"""What weak models send in place of a tool call, at once or after good text, from a scripted tier and over raw SSE.

Whatever it is, the client gets a valid call or one clear error, never the bad one. The tier is asked again once, then
the next one is. `fast` says what the conversation names; `weak` is an HTTP server that sends what a weak model would.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support import plays, scripts
from tests.support.http_asking import WEATHER_TOOLS, Outcome, ask, report_of, user
from tests.support.matrices import STREAMS, take_turns
from tests.support.plays import Play
from tests.support.serving import Deploy, Server
from tests.support.upstream import Upstream

GOOD_CALL = [("get_weather", {"city": "Paris"})]
SAID = "I'll look that up. "
CORRECTED = "Your previous response contained an invalid tool call"
KEEP_ALIVE = ": keep-alive\n\n"


@dataclass(frozen=True)
class Bad:
    """One way to be bad: a native call, or text. `mark` is what must not reach the client."""

    mark: str
    call: tuple[str, Any] | None = None
    text: str = ""
    finish: str = "stop"
    corrected: bool = True

    def steps(self, said: str) -> list[dict[str, Any]]:
        steps = [{"raw": said}] if said else []
        if self.call is not None:
            return [*steps, {"tool_call": {"name": self.call[0], "arguments": self.call[1]}}]
        return [*steps, {"raw": self.text}]

    def play(self, said: str) -> Play:
        if self.call is not None:
            return plays.tools(self.call, text=said.strip())
        sends = plays.words(said.strip()) if said else []
        sends += [plays.Send(plays.chunk({"content": self.text}))] if self.text else []
        return (plays.Head(headers=plays.SSE), *sends, *plays.tail(self.finish))


BAD: dict[str, Bad] = {
    "malformed": Bad("{'city': ", call=("get_weather", "{'city': Paris")),
    "wrong-field": Bad("town", call=("get_weather", {"town": "Paris"})),
    "wrong-type": Bad('["Paris"]', call=("get_weather", {"city": ["Paris"]})),
    "placeholder": Bad("<your_city>", call=("get_weather", {"city": "<your_city>"})),
    "invented": Bad("fetch_rainfall", call=("fetch_rainfall", {"city": "Paris"})),
    "written-wrong": Bad("town", text='<tool_call>{"name": "get_weather", "arguments": {"town": "P"}}</tool_call>'),
    "truncated": Bad("<tool_call>", text='<tool_call>{"name": "get_weather", "argum', finish="length", corrected=False),
    "announced-only": Bad("<announced", finish="tool_calls", corrected=False),
}
EMPTY = Bad("", corrected=False)


def rules() -> list[dict[str, Any]]:
    """`fast`: bad as told."""
    found: list[dict[str, Any]] = []
    for name, bad in (BAD | {"empty": EMPTY}).items():
        for said in ("", SAID):
            mark = f"<{name}{'-after-text' if said else ''}>"
            finish = {"finish": bad.finish} if bad.call is None else {}
            found.append({"when": {"transcript": mark}, "answer": bad.steps(said)} | finish)
    return [*found, scripts.CALLS, {"answer": "Hello from fast."}]


def run(deploy: Deploy, upstream: Upstream, name: str, **streaming: Any) -> Server:
    tiers = {
        "weak": scripts.hosted(upstream, "weak/model"),
        "fast": scripts.scripted(*rules()),
        "standard": scripts.scripted(scripts.CALLS, {"answer": "Hello."}),
        "last": scripts.hosted(upstream, "last/model"),
    }
    told: Any = {"timeouts": scripts.QUICK | {"first_token_s": 5.0}, "server": {"keepalive_s": 1.0}}
    return deploy(scripts.graph(tiers, ["weak", "fast", "standard"], streaming=streaming, **told), name)


@pytest.fixture(scope="module")
def server(deploy, upstream):
    return run(deploy, upstream, "bad-answers")


@pytest.fixture(scope="module")
def held(deploy, upstream):
    return run(deploy, upstream, "bad-answers-held", hold="all")


def calling(server: Server, text: str, *, model: str, stream: bool, **options: Any) -> Outcome:
    outcome = ask(server, user(text), model=model, stream=stream, tools=WEATHER_TOOLS, **options)
    assert outcome.ends_as_it_should, outcome.wire
    return outcome


def is_good(outcome: Outcome, bad: Bad) -> bool:
    unseen = outcome.wire.partition('"mlx_stack"')[0] if outcome.stream else outcome.wire
    return outcome.calls == GOOD_CALL and outcome.choice.finish_reason == "tool_calls" and bad.mark not in unseen


@pytest.mark.parametrize(("model", "name", "said", "stream"), take_turns(("fast", "weak"), BAD, ("", SAID), STREAMS))
def test_a_tier_that_stays_bad_is_left_for_the_next(server, upstream, model, name, said, stream):
    """Asked twice, then the next tier gives the call; text that has left stands, and is the only text."""
    bad = BAD[name]
    upstream.plays("weak/model", bad.play(said))
    before = len(upstream.log)
    text = f"<{name}{'-after-text' if said else ''}>" if model == "fast" else "weather?"
    outcome = calling(server, text, model=model, stream=stream)

    assert is_good(outcome, bad), outcome.wire
    assert outcome.text == (SAID.strip() if said and stream and model == "weak" else said if said and stream else "")
    report = report_of(server, outcome)
    assert [a["tier"] for a in report["attempts"]] == [model, model, "standard" if model == "fast" else "fast"]
    assert (report["escalation_reason"], report["retries"]) == ("tool_validation_failure", 2)
    assert len(upstream.log) - before == (2 if model == "weak" else 0)


@pytest.mark.parametrize(("name", "said", "stream"), take_turns(BAD, ("", SAID), STREAMS))
def test_a_tier_that_does_better_when_told_is_kept(server, upstream, name, said, stream):
    """The second request to the same tier says what was wrong, where there was a call at all; its call is taken."""
    bad = BAD[name]
    upstream.plays("weak/model", bad.play(said), plays.tools(*GOOD_CALL))
    before = len(upstream.log)
    outcome = calling(server, "weather?", model="weak", stream=stream)

    first, second = (seen.body["messages"] for seen in upstream.log[before:])
    assert outcome.calls == GOOD_CALL
    assert report_of(server, outcome)["tier"] == "weak"
    assert (CORRECTED in str(second[-1]["content"])) == bad.corrected
    assert second[: len(first)] == first


@pytest.mark.parametrize("model", ["fast", "weak"])
def test_an_empty_answer_is_no_answer(server, upstream, model, stream):
    """Where nothing was said the tier is sampled again, and then the next one answers."""
    upstream.plays("weak/model", EMPTY.play(""))
    outcome = calling(server, "<empty>", model=model, stream=stream)

    assert outcome.calls == GOOD_CALL
    assert outcome.trail["Retries"] == ("2" if model == "fast" else "4")
    assert outcome.trail["Escalated-From"] == model
    assert outcome.trail["Escalation-Reason"] == "tool_validation_failure"


WRITTEN = {
    "fenced": '```json\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n```',
    "bare": '{"name": "get_weather", "arguments": {"city": "Paris"}}',
    "literal": "{'name': 'get_weather', 'arguments': {'city': 'Paris'}}",
    "tagged": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "pythonic": '[get_weather(city="Paris")]',
}


@pytest.mark.parametrize(("form", "said", "stream"), take_turns(WRITTEN, ("", SAID), STREAMS))
def test_a_call_in_plain_text_is_a_call(server, upstream, form, said, stream):
    """However it is cut into deltas: the call leaves as a call, and none of its text as text."""
    written = f"{said}\n{WRITTEN[form]}" if said else WRITTEN[form]
    pieces = [plays.Send(plays.chunk({"content": written[i : i + 3]})) for i in range(0, len(written), 3)]
    upstream.plays("weak/model", (plays.Head(headers=plays.SSE), *pieces, *plays.tail()))
    outcome = calling(server, "weather?", model="weak", stream=stream)

    assert outcome.calls == GOOD_CALL
    assert outcome.text.strip() == said.strip()
    assert report_of(server, outcome)["retries"] == 0
    if form == "literal" and not stream:
        assert "literal" in (outcome.header("Repaired") or "")


@pytest.mark.parametrize(("name", "said", "stream"), take_turns(BAD, ("", SAID), STREAMS))
def test_with_no_tier_left_there_is_one_clear_error(server, upstream, name, said, stream):
    """No call at all: a 400, or an error frame where text stands before the client already."""
    upstream.plays("last/model", BAD[name].play(said))
    outcome = calling(server, "weather?", model="last", stream=stream)

    broken = bool(said) and stream
    assert (outcome.status, outcome.code) == ((200, "stream_broken") if broken else (400, "invalid_answer"))
    assert outcome.calls == []
    assert outcome.text == (SAID.strip() if broken else "")
    assert "tier last" in outcome.error["message"]


@pytest.mark.parametrize("said", ["", SAID], ids=["at-once", "after-text"])
def test_comments_keep_the_stream_alive_while_the_tier_is_asked_again(server, upstream, said):
    """Seconds of silence between a bad call and a good one: comments come, and nothing else."""
    good = plays.tools(*GOOD_CALL)
    upstream.plays("weak/model", BAD["wrong-field"].play(said), (good[0], plays.Wait(2.5), *good[1:]))
    outcome = calling(server, "weather?", model="weak", stream=True)

    assert outcome.wire.count(KEEP_ALIVE) >= 1
    assert outcome.wire.index(KEEP_ALIVE) < outcome.wire.index("get_weather")
    assert outcome.calls == GOOD_CALL
    assert outcome.text == said.strip()


@pytest.mark.parametrize("name", BAD)
def test_a_stream_that_holds_all_shows_nothing_of_a_bad_answer(held, upstream, name):
    """`streaming.hold: all`: also the good text before a bad call is taken back, and the headers know the outcome."""
    upstream.plays("weak/model", BAD[name].play(SAID))
    outcome = calling(held, "weather?", model="weak", stream=True)

    assert (outcome.calls, outcome.text) == (GOOD_CALL, "")
    assert SAID.strip() not in outcome.wire
    assert outcome.frames[-1]["mlx_stack"]["tier"] == "fast"
