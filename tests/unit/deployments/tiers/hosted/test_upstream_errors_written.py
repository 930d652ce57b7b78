"""Answers that Ollama and llama.cpp can't read as calls, and send as errors."""

from itertools import product

import pytest

from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, read_written
from reliability.types import Fault, Finish, FinishReason
from tests.support.judgements import GOOD, ruled
from tests.support.plays import SSE, Head, Send, chunk, frame
from tests.support.refusal_places import BODIES, BROKEN, LATE
from tests.support.tier_asking import WEATHER_TOOL, answers, ask, failed, hosted_tier, play, text_of
from tests.support.upstream import Upstream

CALL = '{"name": "get_weather", "arguments": {"city": "Paris"}}'
OLLAMA = "error parsing tool call: raw='{}', err=invalid character ']' after object key:value pair"
LLAMA = "Failed to parse input at pos 395: {}"
# What the model wrote, and what is made of it.
SAID = {
    OLLAMA.replace("{}", CALL): f"<tool_call>{CALL}</tool_call>",
    OLLAMA.replace("{}", '{"city": "Paris"]}'): '<tool_call>{"city": "Paris"]}</tool_call>',
    OLLAMA.replace("{}", "ls -R\n"): "<tool_call>ls -R\n</tool_call>",
    OLLAMA.replace("{}", "it's', err=x {"): "<tool_call>it's', err=x {</tool_call>",
    LLAMA.replace("{}", f"<tool_call>\n{CALL}\n</tool_call>"): f"<tool_call>\n{CALL}\n</tool_call>",
    LLAMA.replace("{}", '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>'): (
        '<|tool_call_start|>[get_weather(city="Paris")]<|tool_call_end|>'
    ),
    LLAMA.replace("{}", "</tool_call>"): "</tool_call>",
    LLAMA.replace("{}", "words without a call"): "",
    LLAMA.removesuffix(" {}"): "",
}
BEFORE = ["", "500: ", "500 ", "litellm.InternalServerError: InternalServerError: OpenAIException - "]
REQUEST = ask(tools=(WEATHER_TOOL,))


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(("said", "place"), list(product(SAID, BROKEN | LATE)))
def test_what_a_server_can_t_read_as_a_call_is_the_answer(upstream, said, place, before) -> None:
    """Law: what a model wrote is its answer, behind the words that have come, wherever the error stands: a call in it
    is repaired or asked for again, and no breaker hears of it. Where no tool is declared the answer has no more than
    the words that have come."""
    upstream.plays("m", (BROKEN | LATE)[place](before + said))
    with_tools, without = answers(hosted_tier(upstream), REQUEST, ask())

    begun = "Let me look. " if place in LATE else ""
    assert (text_of(with_tools), text_of(without)) == (begun + SAID[said], begun)
    assert with_tools[-1] == without[-1] == Finish(reason=FinishReason.TOOL_CALLS)


@pytest.mark.parametrize("said", SAID)
def test_a_call_that_has_begun_is_not_told_twice(upstream: Upstream, said: str) -> None:
    """Law: where a call has left already, the error stays one: its end is not known."""
    begun = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "get_weather", "arguments": "{"}}]})
    error = frame({"error": {"message": said, "type": "server_error"}})

    assert failed(play(upstream, (Head(headers=SSE), Send(begun), Send(error)), REQUEST)).fault is Fault.SERVER_ERROR


OTHERS = [
    "Invalid value: 'error parsing tool call: raw='{}', err=invalid character'",
    "Invalid value: 'Failed to parse input at pos 3: <tool_call>'",
    "Failed to parse input at position 3: <tool_call>",
    "error parsing tool call: invalid character 'c' looking for beginning of value",
    "Failed to parse tool call arguments as JSON: [json.exception.parse_error.101] parse error at line 1, column 131",
    "Failed to parse grammar",
    "The server had an error while processing your request",
    "",
]


@pytest.mark.parametrize("said", OTHERS)
def test_another_error_holds_no_answer(said: str) -> None:
    """Law: an error that quotes such words, or holds nothing that the model wrote, is one."""
    assert UpstreamComplaint(message=said).redact(str).rest is None


@pytest.mark.parametrize("place", BODIES | BROKEN)
def test_a_quoted_error_is_a_refusal(upstream: Upstream, place: str) -> None:
    """Law: nothing that a client wrote is the model's answer."""
    events = play(upstream, (BODIES | BROKEN)[place](OTHERS[1]), REQUEST)

    assert text_of(events) == ""
    assert failed(events).fault in (Fault.REFUSED, Fault.SERVER_ERROR)


@pytest.mark.parametrize("length", [10, 20_000])
def test_a_long_call_is_whole(upstream: Upstream, length: int) -> None:
    """Law: of a call that stands in an error no piece is missing, though the words of errors are cut."""
    call = f'<tool_call>{{"name": "get_weather", "arguments": {{"city": "{"x" * length}"}}}}</tool_call>'

    assert text_of(play(upstream, BROKEN["500"](LLAMA.replace("{}", call)), REQUEST)) == call


CALLS = [f'{{"name": "search", "arguments": {GOOD}}}', f'{{"name": "search", "parameters": {GOOD}}}']


@pytest.mark.parametrize("words", [OLLAMA, LLAMA])
@pytest.mark.parametrize("written", [*CALLS, '{"q": "cats"]}', "We need to search. " + GOOD, "ls -R", ""])
def test_what_was_written_is_a_call_or_asked_for_again(words: str, written: str) -> None:
    """Law: a call is delivered; anything else is a flaw of the answer."""
    *held, end = read_written(UpstreamComplaint(message=words.replace("{}", written)).redact(str))
    assert isinstance(end, Finish)
    judged = ruled(held, end)

    assert (judged.flaw is None) is (written in CALLS)
    assert [call.name for call in judged.calls] == ["search"] * (written in CALLS)
