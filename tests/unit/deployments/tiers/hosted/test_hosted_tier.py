"""The tier kind `hosted` against a real server: what is sent, what faults become, that no key leaks."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from deployments.tiers.hosted import upstream_errors
from deployments.tiers.hosted.hosted_tier import OPENROUTER_HEADERS, OPENROUTER_URL, HostedTier
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, read_retry_after_s, translate_complaint
from reliability.types import CallDelta, Fault, Finish, FinishReason, Reasoning, Started, Text, TierState, Usage
from tests.support import plays
from tests.support.plays import Play, Send
from tests.support.tier_asking import WEATHER_TOOL, answer, ask, exchange, failed, play, text_of
from tests.support.upstream import Upstream


def test_a_good_answer_with_reasoning_and_usage(upstream: Upstream) -> None:
    """Law: reasoning, text, finish reason, model and all four counts arrive."""
    events = play(upstream, plays.good("Hello there.", reasoning="They greet."))
    assert events[:2] == [Started(), Reasoning("They greet.")]
    assert text_of(events) == "Hello there."
    usage = Usage(prompt_tokens=11, completion_tokens=7, cached_tokens=4, reasoning_tokens=2, exact=True)
    assert events[-1] == Finish(reason=FinishReason.STOP, usage=usage, model="up/stream")


def test_the_body_holds_what_is_set_and_nothing_else() -> None:
    """Law: unset fields are not sent. (`test_chat_body.py` has what a client adds.)"""
    full: dict[str, Any] = {"seed": 0, "temperature": 0.0, "top_p": 0.5, "response_format": {"type": "json_object"}}
    full |= {"tools": (WEATHER_TOOL,), "tool_choice": "required", "parallel_tool_calls": False}
    requests = ask("hi", max_tokens=9), ask("hi", extra={"top_k": 5}, max_tokens=9, stop=("\n",), **full)
    _, (bare, whole) = exchange(plays.good(), *requests, headers={"X-Title": "Tried"})
    ours = {"model": "m", "max_tokens": 9, "stream": True, "stream_options": {"include_usage": True}}
    ours["messages"] = [{"role": "user", "content": "hi"}]
    assert bare.body == ours
    assert whole.body == ours | {"top_k": 5, "stop": ["\n"]} | full | {"tools": [WEATHER_TOOL]}
    assert (whole.method, whole.path, whole.headers["x-title"]) == ("POST", "/api/v1/chat/completions", "Tried")
    assert "authorization" not in whole.headers


LEGACY: dict[str, Any] = {"route": "/completions"}
BY_STATUS = {
    **dict.fromkeys((401, 402, 403), Fault.AUTH),
    **dict.fromkeys((408, 504), Fault.FIRST_TOKEN_TIMEOUT),
    **dict.fromkeys((500, 502, 503), Fault.SERVER_ERROR),
    404: Fault.UNAVAILABLE,
    413: Fault.CONTEXT_LENGTH,
    422: Fault.REFUSED,
    **dict.fromkeys((429, 498, 529), Fault.OVERLOADED),
}


@pytest.mark.parametrize(
    ("played", "fault"),
    [
        (plays.status(400, "no", error_code="context_length_exceeded"), Fault.CONTEXT_LENGTH),
        (plays.status(404, "No endpoints found that support tool use"), Fault.UNSUPPORTED),
        (plays.status(307, headers={"Location": "http://127.0.0.1:9/"}), Fault.UNAVAILABLE),
        *((plays.status(code), fault) for code, fault in BY_STATUS.items()),
        (plays.status(429, error_code="insufficient_quota"), Fault.AUTH),
        (plays.status(503, headers={"Retry-After": "3"}), Fault.OVERLOADED),
        (plays.status(529, headers={"Retry-After": "3"}), Fault.OVERLOADED),
        (plays.whole(b"<html>Bad gateway</html>", status_code=502), Fault.SERVER_ERROR),
        (plays.cut(), Fault.CRASHED),
    ],
)
def test_a_refusal_is_one_fault_and_nothing_else(upstream: Upstream, played: Play, fault: Fault) -> None:
    """Law: what fails before a 200 is Started and one Failed with the fault of the table, after exactly one request."""
    before = len(upstream.log)
    events = play(upstream, played)
    assert events[:-1] == [Started()]
    assert failed(events).fault is fault
    assert len(upstream.log) == before + 1
    assert "<" not in failed(events).message


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://user:secret@api.example/v2/chat?key=secret#secret", " it redirects to https://api.example/v2/chat: "),
        ("/v2/chat?key=secret", "/v2/chat: "),
        ("//api.example:8443", "api.example:8443/: "),
        ("/sk-abcdefgh/chat", "/[redacted]/chat: "),
        *((none, "(308)") for none in ("", "mailto:a@b.example", "http://[", "http://a:b/")),
    ],
)
def test_a_redirect_is_told_by_where_it_leads(upstream: Upstream, location: str, told: str) -> None:
    """Law: its scheme, host and path, and nothing that may be secret; a target that can't be read isn't named."""
    message = failed(play(upstream, plays.whole(b"", status_code=308, headers={"Location": location}))).message

    assert told in message
    assert ("redirects" in message) is (told != "(308)")
    assert "secret" not in message
    assert "sk-" not in message


@pytest.mark.parametrize(
    ("played", "fault"),
    [
        (plays.cut(2), Fault.CRASHED),
        (plays.ends_early(2), Fault.CRASHED),
        ((*plays.malformed(2)[:4], Send(b"data: [DONE]\n\n")), Fault.PROTOCOL),
        (plays.error_frame(2, 502), Fault.SERVER_ERROR),
        (plays.error_frame(2, 429), Fault.OVERLOADED),
        (plays.error_frame(2, "rate_limit_exceeded"), Fault.OVERLOADED),
        (plays.error_frame(2, "context_length_exceeded"), Fault.CONTEXT_LENGTH),
        (plays.error_frame(2, "anything"), Fault.SERVER_ERROR),
        (plays.hang(2), Fault.IDLE_TIMEOUT),
    ],
)
def test_a_broken_answer_keeps_what_came(upstream: Upstream, played: Play, fault: Fault) -> None:
    """Law: after the first words, a break is a Failed behind them; they are neither lost nor called finished."""
    events = play(upstream, played, idle_s=0.3)
    assert events[0] == Started()
    assert text_of(events) == "w0 w1"
    assert failed(events).fault is fault


def test_a_refusal_speaks_with_the_upstreams_words(upstream: Upstream) -> None:
    """Law: of a refused request the client gets the upstream's message and the field's name, bounded in length."""
    last = failed(play(upstream, plays.status(400, "x" * 9000, param="temperature")))
    assert (
        last.message == ("tier premium refused the request (400): " + "x" * 9000)[: upstream_errors.MESSAGE_CHARS_MAX]
    )
    assert (last.param, last.status) == ("temperature", 400)


def test_an_upstreams_inner_life_stays_there(upstream: Upstream) -> None:
    """Law: of a 5xx neither paths nor the lines of a stack reach the message."""
    last = failed(play(upstream, plays.status(500, "no file /srv/app/model.py\n  File x, line 3")))
    assert last.message == "tier premium failed (500): no file [path]"


def test_no_done_and_no_stream_are_understood(upstream: Upstream) -> None:
    """Law: a missing [DONE] after a finish reason is no fault, nor is one JSON body in place of a stream."""
    assert isinstance(play(upstream, plays.no_done())[-1], Finish)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    events = play(upstream, plays.plain_json("Hello.", reasoning="hm", tool_calls=[call]))
    assert events[:3] == [Started(), Reasoning("hm"), Text("Hello.")]
    assert events[3:-1] == [CallDelta(index=0, id="c", name="f", arguments="{}")]
    assert events[-1].reason is FinishReason.TOOL_CALLS


def test_json_that_is_no_answer(upstream: Upstream) -> None:
    """Law: a 200 with an error inside is that error; other JSON and an empty body are faults."""
    assert failed(play(upstream, plays.whole(b'{"error": {"code": 429}}'))).fault is Fault.OVERLOADED
    assert failed(play(upstream, plays.whole(b'{"choices": []}'))).fault is Fault.PROTOCOL
    assert failed(play(upstream, plays.whole(b'{"choices": [{"mess'))).fault is Fault.PROTOCOL
    assert failed(play(upstream, plays.whole(b""))).fault is Fault.CRASHED


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "text/plain", "application/json", "text/event-stream"])
@pytest.mark.parametrize("fields", [{}, LEGACY, LEGACY | {"extra": {"stream": True}}])
@pytest.mark.parametrize("head", [b"", b"\r\n\n"])
def test_a_content_type_decides_nothing(upstream: Upstream, kind: str, fields: dict[str, Any], head: bytes) -> None:
    """Law: the first character says what an answer is, whatever its content type: Flask names a stream `text/html`, and
    a web page is one under any name."""
    headers, chat = {"Content-Type": kind}, not fields
    piece = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "text": "Hi", "finish_reason": "stop"}]}
    streamed = (plays.Head(headers=headers), plays.Send(head + plays.frame(piece)))
    whole = plays.whole(head + json.dumps(piece).encode(), headers=headers)
    said = play(upstream, streamed if chat or "extra" in fields else whole, ask(**fields))
    page = failed(play(upstream, plays.whole(head + b"<html>", headers=headers), ask(**fields)))

    assert isinstance(said[-1], Finish)
    assert page.fault is Fault.PROTOCOL
    assert "web page" in page.message


@pytest.mark.parametrize("url", ["", "no address", "ftp://127.0.0.1/", "http://", "http://[::1", "http://[]@/v1"])
async def test_an_address_that_is_none_makes_the_tier_unavailable(url: str) -> None:
    """Law: a base_url that can't be used is a reason in the status, not an exception."""
    tier = HostedTier(name="premium", base_url=url, model="m")
    assert (await tier.status()).state is TierState.UNAVAILABLE
    assert failed(await answer(tier, ask())).fault is Fault.UNAVAILABLE


def test_retry_after_is_read_in_all_its_forms(upstream: Upstream) -> None:
    """Law: seconds, milliseconds and dates are understood; nonsense is not; the past is now; a year is a day."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    date = format_datetime(now + timedelta(seconds=90), usegmt=True)
    told = {"7": 7.0, "1.5": 1.5, date: 90.0, format_datetime(now - timedelta(days=1)): 0.0, "99999999": 86400.0}
    told |= dict.fromkeys(["soon", "-3", "", "nan"])
    assert {value: read_retry_after_s({"retry-after": value}, now) for value in told} == told
    assert read_retry_after_s({"retry-after-ms": "250", "retry-after": "9"}, now) == 0.25
    last = failed(play(upstream, plays.status(429, headers={"Retry-After": "2"})))
    assert (last.retry_after_s, last.status) == (2.0, 429)


def test_every_status_has_a_fault() -> None:
    """Law: the table is total, and only a 4xx blames the request."""
    for status in range(300, 1000):
        fault = translate_complaint("t", UpstreamComplaint(), status=status).fault
        assert fault is not Fault.REFUSED or 400 <= status < 500
    refused = UpstreamComplaint(message="flagged", moderated=True)
    assert translate_complaint("t", refused, status=403).fault is Fault.BAD_REQUEST


async def test_the_openrouter_preset(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: the preset makes a tier for OpenRouter, which is told which application asks."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-v1-0123456789abcdef")
    upstream.plays("m", plays.good("hi"))
    given = {"name": "premium", "model": "m", "api_key_env": "OPENROUTER_API_KEY", "headers": OPENROUTER_HEADERS}
    preset, tier = (HostedTier(base_url=url, **given) for url in (OPENROUTER_URL, upstream.base_url))
    assert (await preset.status()).source == "openrouter.ai"
    assert str(preset._endpoint.url) == "https://openrouter.ai/api/v1/chat/completions"
    assert text_of(await answer(tier, ask())) == "hi"
    await tier.close()
    assert upstream.log[-1].headers["x-title"] == "MLX Stack Serve"
