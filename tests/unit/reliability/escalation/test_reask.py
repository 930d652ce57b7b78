"""The request of the next attempt."""

from dataclasses import replace

import pytest

from reliability.escalation.decisions import Call, Reask, RetryStep
from reliability.escalation.reask import RESAMPLE_TEMPERATURE, request_for
from reliability.loops import Kind
from reliability.types import ChatRequest
from tests.support.judgements import BOX, GOOD, USER, lapped, native, ruled

REQUEST = ChatRequest(
    request_id="r", session_id="s", messages=tuple(USER), max_tokens=9, timeout_s=1.0, temperature=0.0, seed=4
)


def test_a_correction_stands_at_the_end_and_names_the_error():
    """The user's wording, with every violation and the tools; the conversation before it is untouched."""
    bad = ruled([native("{}")])
    call = Call(tier="fast", reask=Reask(RetryStep.CORRECT, constrained=False))
    request = request_for(REQUEST, call, attempts=1, failed_text="oops", violations=bad.violations, toolbox=BOX)

    assert request.messages[:1] == REQUEST.messages
    assert request.added == len(request.messages) - 1
    assert [m["role"] for m in request.messages[1:]] == ["assistant", "user"]
    words = request.messages[-1]["content"]
    assert words.startswith("Your previous response contained an invalid tool call. The error was: ")
    assert "'q'" in words or "q" in words
    assert "search(" in words
    assert request.temperature == 0.0


def test_a_correction_shows_the_model_its_own_call_and_no_words_of_ours():
    """A weak model copies what it is shown as its own: a native call is shown as a call, and nothing is made up."""
    bad = ruled([native("{}")])
    call = Call(tier="fast", reask=Reask(RetryStep.CORRECT, constrained=False))
    shown = request_for(REQUEST, call, attempts=1, failed_text=bad.written, violations=bad.violations, toolbox=BOX)
    nothing = request_for(REQUEST, call, attempts=1, failed_text="", violations=bad.violations, toolbox=BOX)
    assert shown.messages[-2]["content"] == '<tool_call>\n{"name": "search", "arguments": {}}\n</tool_call>'
    assert [m["role"] for m in nothing.messages[1:]] == ["user"]


def test_a_resample_has_the_clean_prompt_and_some_chance():
    """The same messages, warm enough for another answer, and another seed that follows from the client's."""
    call = Call(tier="fast", reask=Reask(RetryStep.RESAMPLE, constrained=False))
    request = request_for(REQUEST, call, attempts=2)
    assert request.messages == REQUEST.messages
    assert (request.temperature, request.seed) == (RESAMPLE_TEMPERATURE, 6)
    assert request_for(replace(REQUEST, temperature=1.5), call, attempts=1).temperature == 1.5


@pytest.mark.parametrize("failed_text", ["", " \n", "words"])
def test_who_said_nothing_has_to_say_something(failed_text):
    """After silence the answer must not be silent again; after words it may be as it will."""
    call = Call(tier="fast", reask=Reask(RetryStep.RESAMPLE, constrained=False))
    assert request_for(REQUEST, call, attempts=1, failed_text=failed_text).must_speak == (not failed_text.strip())


@pytest.mark.parametrize(("queries", "tried"), [([], 0), (["a"], 1), (["a", "b", "c"], 3), (["a", "a"], 1)])
def test_a_constrained_re_ask_says_how_many_calls_were_tried(queries, tried):
    """The tier is asked to decode under the grammar. Several may be written again where several were; the same one
    twice is one."""
    call = Call(tier="fast", reask=Reask(RetryStep.CONSTRAIN, constrained=True))
    written = "\n".join(f'<tool_call>{{"name": "search", "arguments": {{"q": "{q}"}}}}</tool_call>' for q in queries)
    request = request_for(REQUEST, call, attempts=1, failed_text=written or "I'll search.", toolbox=BOX)
    assert (request.constrained, request.calls_tried) == (True, tried)


def test_a_nudge_tells_of_the_loop():
    """Law: the nudge is the last message. Who repeats a call takes the next step without chance, which finds wrong
    ones (a refund, a restart); who repeats words says others with chance. Without a loop, or without being asked to,
    nothing is added."""
    loop = ruled([native(GOOD)], messages=lapped(2)).loop
    request = request_for(REQUEST, Call(tier="fast", nudge=True), attempts=1, loop=loop)
    assert "You have called this already" in request.messages[-1]["content"]
    assert len(request.messages) == len(REQUEST.messages) + 1
    assert request.added == 1
    again = Call(tier="fast", nudge=True, reask=Reask(RetryStep.RESAMPLE, constrained=False))
    asked = request_for(REQUEST, again, attempts=1, failed_text="x", loop=loop)
    assert (asked.messages, asked.temperature) == (request.messages, 0.0)
    warm = replace(REQUEST, temperature=1.0)
    chances = {kind: request_for(warm, again, attempts=1, loop=replace(loop, kind=kind)).temperature for kind in Kind}
    assert {kind for kind, chance in chances.items() if chance} == {Kind.TEXTS, Kind.UNSEEN}
    assert request_for(REQUEST, Call(tier="fast", nudge=True), attempts=1) == REQUEST
    assert request_for(REQUEST, Call(tier="fast"), attempts=1, loop=loop) == REQUEST


def test_where_no_tool_was_wanted_the_request_has_none():
    """Law: the tools and the choice among them are gone, and one message at the end says why."""
    asked = replace(REQUEST, tools=({"type": "function", "function": {"name": "f"}},), tool_choice="auto")
    request = request_for(asked, Call(tier="fast", words=True), attempts=2)
    assert (request.tools, request.tool_choice) == ((), None)
    assert request.messages[:-1] == REQUEST.messages
    assert (request.messages[-1]["role"], request.added) == ("user", 1)
