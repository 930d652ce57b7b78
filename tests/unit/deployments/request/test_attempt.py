"""Where one attempt ends, and what of it is told beside its text."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.request.accounting import OVERRUN_BYTES, TOKEN_BYTES_MOST
from deployments.request.attempt import record_attempt
from reliability.answer.estimate import text_bytes
from reliability.answer.gate import Hold
from reliability.answer.judgement import expect
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import (
    CallDelta,
    Counted,
    Fault,
    Finish,
    FinishReason,
    Logprobs,
    Reasoning,
    Started,
    Text,
    TokenLogprob,
    Usage,
)
from tests.support.readings import MESSAGES, TOOLS, reading


@given(st.lists(st.text(max_size=400).map(Text) | st.text(max_size=400).map(Reasoning), max_size=8), st.integers(1, 40))
@example([Text("Unfortunately")], 1)
@example([Text("a" * 100)] * 8, 1)
def test_an_answer_ends_where_it_is_surely_longer_than_its_cap(events, cap):
    """A tier that ignores its cap is stopped at the first event that no tokenizer brings under it, as an answer that
    was cut; up to there nothing is touched."""
    made = reading(cap)
    legal = cap * TOKEN_BYTES_MOST + OVERRUN_BYTES
    before = 0
    for event in events:
        if before > legal:
            break
        made.take([event], 1)
        before += text_bytes(event.text)

    assert made.spending.written_bytes == before
    assert made.end == (Finish(reason=FinishReason.LENGTH) if before > legal else None)


def test_a_long_word_is_within_any_cap():
    """One token may be a whole word, and a few of them the whole answer: measured with SmolLM2's tokenizer, formal
    English has 10 bytes a token, deeply indented code 11."""
    formal = "Unfortunately, governmental institutions underestimate infrastructure"
    assert reading(1).take([Text("Internationalization")], 1) == [Text("Internationalization")]
    made = reading(7)
    made.take([Text(formal)], 1)
    assert made.end is None


@pytest.mark.parametrize("count", [Counted, lambda usage: Finish(reason=FinishReason.STOP, usage=usage)])
@pytest.mark.parametrize(("text", "cap"), [("and so on " * 1_000, 1_000), ("and so on " * 50, 5)])
def test_what_a_tier_has_counted_is_known_though_it_was_stopped(text, cap, count):
    """The rest of a piece is not read any more, where the answer is over its cap or goes round in circles, but for the
    tier's own count in it."""
    expected = expect(MESSAGES, build_toolbox(()), id_seed="r", loops=LoopConfig() if cap == 1_000 else None)
    made = reading(cap, expected=expected)
    made.take([Text(text), Text("more"), count(Usage(prompt_tokens=5, completion_tokens=77))], 1)
    made.finish()

    assert record_attempt(made, 2).usage == Usage(prompt_tokens=5, completion_tokens=77)
    assert made.end.reason is FinishReason.LENGTH


@pytest.mark.parametrize("text", ["no call in it", '<tool_call>{"name": "look", "arguments": {}}</tool_call>'])
@pytest.mark.parametrize("native", [True, False])
def test_no_call_of_a_damaged_answer_is_trusted(text, native):
    """Where a piece was lost, a call may be whole and another than was meant, written as text or not: the attempt has
    failed. Text alone is delivered."""
    made = reading(100, expected=expect(MESSAGES, build_toolbox(TOOLS), id_seed="r", checks=CheckConfig()))
    call = CallDelta(index=0, id="c", name="look", arguments="{}")
    made.take([Started(), Text(text), *([call] if native else []), Finish(reason=FinishReason.STOP, damaged=True)], 1)
    made.finish()
    record = record_attempt(made, 2)

    if native or text.startswith("<"):
        assert (record.fault, made.judged) == (Fault.PROTOCOL, None)
        assert record.usage.completion_tokens > 0
    else:
        assert record.good


def told_by(events):
    return [token for event in events if isinstance(event, Logprobs) for token in event.tokens]


def spelled(text):
    """A token of four characters each, with a number of its own."""
    return [TokenLogprob(text[i : i + 4].encode(), -i / 8) for i in range(0, len(text), 4)]


def answered(text, *, hold=Hold.TOOL_CALLS, text_committed=False):
    """What leaves while `text` is read token by token, and what the judgement would deliver."""
    expected = expect(MESSAGES, build_toolbox(TOOLS), id_seed="r", checks=CheckConfig())
    made = reading(100, expected=expected, hold=hold, text_committed=text_committed)
    out = []
    for token in spelled(text):
        out += made.take([Text(token.raw.decode()), Logprobs((token,))], 1)
    made.take([Finish(reason=FinishReason.STOP)], 1)
    out += made.finish()
    return out, made.judged


@pytest.mark.parametrize("hold", list(Hold))
def test_probabilities_leave_with_their_text(hold):
    """Prose is told to the last token, whether it left piece by piece or at the end, and even where it looked like a
    call for a while."""
    text = 'Here is one: {"a": 1} and no more of it.'
    out, judged = answered(text, hold=hold)

    assert told_by([*out, *judged.events]) == spelled(text)
    assert hold is Hold.TOOL_CALLS or not out


def test_the_tokens_of_a_call_are_not_told():
    """What the client is sent as a call has no tokens beside it; the text before it has."""
    call = '<tool_call>{"name": "look", "arguments": {"what": "up"}}</tool_call>'
    out, judged = answered("Good. " + call)
    told = told_by([*out, *judged.events])

    assert [c.name for c in judged.calls] == ["look"]
    assert told == spelled("Good. " + call)[: len(told)]
    assert len(told) <= 2


def test_probabilities_of_text_that_is_dropped_are_dropped():
    """A second attempt's text doesn't leave behind a first one's, and neither do its numbers."""
    out, judged = answered("Something else entirely.", text_committed=True)

    assert told_by([*out, *judged.events]) == []


def test_probabilities_that_nobody_asked_for_stay_here():
    """A tier may send them all the same; the client gets the answer that it asked for."""
    made = reading(100, logprobs=False)
    out = made.take([Text("Hi."), Logprobs(tuple(spelled("Hi."))), Finish(reason=FinishReason.STOP)], 1)
    out += made.finish()

    assert made.judged is not None
    assert [type(event) for event in (*out, *made.judged.events)] == [Text]
