"""What one attempt has cost, where its tier never says; and what of it is told beside its text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.request.attempt import Reading
from deployments.request.event_sizes import OVERRUN_BYTES, TOKEN_BYTES_MOST
from reliability.admission.admit import PROGRESS_TOKENS
from reliability.answer.estimate import text_bytes, tokens_max, tokens_min, tokens_near
from reliability.answer.gate import Hold
from reliability.answer.judgement import expect
from reliability.answer.logprobs import WaitingLogprobs
from reliability.faults import TRAITS, Ran
from reliability.loops import LoopConfig
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import (
    CallDelta,
    Counted,
    Event,
    Failed,
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

MESSAGES = ({"role": "user", "content": "hi"},)
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def reading(output_cap: int, prompt_bytes: int = 18, events: Sequence[Event] = (Started(),), **more: Any) -> Reading:
    """An attempt whose tier has taken the request, or has said what `events` are."""
    made = Reading(
        tier="fast",
        number=0,
        expected=expect(MESSAGES, build_toolbox(()), id_seed="r", checks=CheckConfig()),
        hold=Hold.TOOL_CALLS,
        text_committed=False,
        started_ns=0,
        prompt_bytes=prompt_bytes,
        output_cap=output_cap,
        logprobs=WaitingLogprobs(),
        **more,
    )
    made.take(events, 0)
    return made


@given(st.lists(st.text(max_size=40).map(Text) | st.text(max_size=40).map(Reasoning), max_size=8), st.integers(1, 200))
@example([Text("ok " * 14)], 14)
def test_an_estimate_stays_within_what_the_tier_was_allowed(events, cap):
    """A reader that leaves before the tier has counted is charged for what was written, a token a piece at least, and
    for no more than was reserved for it; only a tier that has provably written more than it was allowed is charged
    more."""
    made = reading(cap)
    made.take(events, 1)
    written = made.spending.written_bytes
    usage = made.record(2).usage

    assert usage is not None
    assert not usage.exact
    assert usage.prompt_tokens == tokens_max(18)
    assert usage.completion_tokens <= max(cap, tokens_min(written))
    assert usage.completion_tokens >= min(cap, len([event for event in events if event.text]))
    assert usage.completion_tokens >= min(cap, tokens_near("".join(e.text for e in events)) if len(events) == 1 else 0)


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
@pytest.mark.parametrize(("text", "cap"), [("and so on " * 100, 100), ("and so on " * 50, 5)])
def test_what_a_tier_has_counted_is_known_though_it_was_stopped(text, cap, count):
    """The rest of a piece is not read any more, where the answer is over its cap or goes round in circles, but for the
    tier's own count in it."""
    made = reading(cap)
    made.expected = expect(MESSAGES, build_toolbox(()), id_seed="r", loops=LoopConfig() if cap == 100 else None)
    made.take([Text(text), Text("more"), count(Usage(prompt_tokens=5, completion_tokens=77))], 1)
    made.finish()

    assert made.record(2).usage == Usage(prompt_tokens=5, completion_tokens=77)
    assert made.end.reason is FinishReason.LENGTH


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("count", [None, Usage(prompt_tokens=5, completion_tokens=15)])
def test_a_replica_that_died_is_charged_what_it_gave_out(count, lost):
    """What left is charged and not what it might have gone on to write: as it had counted, else a token a piece. Where
    it wasn't even taken, nothing is."""
    died = Failed(fault=Fault.CRASHED, message="", lost=lost)
    made = reading(200)
    for word in range(15):
        made.take([Text(f"word{word} ")], 1)
    made.take([*([Counted(count)] if count else []), died], 1)
    spent = made.record(2).usage

    assert spent.completion_tokens == 15
    assert spent.exact is (count is not None)
    never = reading(200)
    never.accepted = False
    never.take([died], 1)
    assert never.record(2).usage.total_tokens == 0


@pytest.mark.parametrize("counts", [True, False])
@given(sizes=st.lists(st.integers(1, 40), max_size=30))
def test_what_leaves_has_been_said(counts, sizes):
    """While an attempt runs, what it has written and not yet said is less than one step, whatever comes in one piece,
    and it is said before it leaves; nothing is said of what is over."""
    said, made, written = [], reading(10_000), 0
    made.spending.progress = said.append
    for size in sizes:
        written += size
        count = [Counted(Usage(prompt_tokens=9, completion_tokens=written))] if counts else []
        made.take([*[Text(f"word{n} ") for n in range(size)], *count], 1)
        known = said[-1].completion_tokens if said else 0
        assert known <= written < known + PROGRESS_TOKENS
    assert [u.completion_tokens for u in said] == sorted({u.completion_tokens for u in said})
    before = len(said)
    made.take([*[Text(f"word{n} ") for n in range(99)], Finish(reason=FinishReason.STOP)], 1)
    assert len(said) == before


def test_a_prompt_that_was_misjudged_is_said_at_once():
    """A prompt is reserved from above; what a tier has really counted is booked if this process dies after its first
    word."""
    said, made = [], reading(100, prompt_bytes=10_000)
    made.spending.progress = said.append
    made.take([Text("word "), Counted(Usage(prompt_tokens=2_500, completion_tokens=1))], 1)
    made.take([Text("word "), Counted(Usage(prompt_tokens=2_500, completion_tokens=2))], 1)

    assert said == [Usage(prompt_tokens=2_500, completion_tokens=1)]


@pytest.mark.parametrize("end", [Finish, lambda **more: Failed(fault=Fault.CRASHED, message="", usage=more["usage"])])
def test_a_count_that_can_not_be_is_not_booked(end):
    """It is replaced by the estimate, the record says what was reported, and so does the end that a client may see."""
    lie = Usage(prompt_tokens=10**12, completion_tokens=10**12)
    made = reading(100)
    made.take([Text("Two "), Text("words "), end(reason=FinishReason.STOP, usage=lie)], 1)
    made.finish()
    record = made.record(2)

    assert record.usage == Usage(prompt_tokens=tokens_max(18), completion_tokens=2, exact=False)
    assert record.reported == lie
    assert made.judged is None or made.judged.finish.usage == record.usage


@pytest.mark.parametrize("text", ["no call in it", '<tool_call>{"name": "look", "arguments": {}}</tool_call>'])
@pytest.mark.parametrize("native", [True, False])
def test_no_call_of_a_damaged_answer_is_trusted(text, native):
    """Where a piece was lost, a call may be whole and another than was meant, written as text or not: the attempt has
    failed. Text alone is delivered."""
    made = reading(100)
    made.expected = expect(MESSAGES, build_toolbox(TOOLS), id_seed="r", checks=CheckConfig())
    made.__post_init__()
    call = CallDelta(index=0, id="c", name="look", arguments="{}")
    made.take([Started(), Text(text), *([call] if native else []), Finish(reason=FinishReason.STOP, damaged=True)], 1)
    made.finish()
    record = made.record(2)

    if native or text.startswith("<"):
        assert (record.fault, made.judged) == (Fault.PROTOCOL, None)
        assert record.usage.completion_tokens > 0
    else:
        assert record.good


@pytest.mark.parametrize("end", [None, Failed(fault=Fault.CONNECT_TIMEOUT, message="")])
def test_who_leaves_before_the_tier_has_said_a_word_pays_for_the_prompt(end):
    """The call was on its way, and a tier that has just taken it may have sent it on: that can't be known any more, and
    the books never hold too little. Where the tier had its whole time to say so and didn't, nobody took it."""
    made = reading(100)
    made.accepted = False
    made.take([end] if end else [], 1)

    assert made.record(2).usage == Usage(prompt_tokens=tokens_max(18) if end is None else 0, exact=end is not None)


ends = st.builds(
    Failed,
    fault=st.sampled_from(Fault),
    message=st.just("x"),
    status=st.sampled_from([None, 429, 500]),
    usage=st.sampled_from([None, Usage(), Usage(prompt_tokens=5, completion_tokens=3)]),
)
events = st.lists(st.just(Started()) | st.just(Text("so far")) | st.just(Reasoning("hm")), max_size=3)


@given(events, ends, st.booleans())
@example([Text("so far")], Failed(fault=Fault.CONNECT_TIMEOUT, message="x"), False)
@example([Started()], Failed(fault=Fault.CONNECT_TIMEOUT, message="x"), True)
@example([], Failed(fault=Fault.UNAVAILABLE, message="x", usage=Usage(prompt_tokens=5)), True)
def test_what_did_not_run_is_not_charged(events, end, trusted):
    """Whatever a tier says and in whatever order: an attempt that costs or writes something has run, and where it does
    neither, the table says whether it has."""
    made = reading(100, events=(), trusted=trusted)
    made.take([*events, end], 1)
    made.finish()
    record = made.record(2)
    spoke = any(isinstance(event, Text | Reasoning) for event in events)

    assert record.ran or not (record.usage.total_tokens or spoke)
    if TRAITS[end.fault].ran is not Ran.RAN and not spoke and end.usage in (None, Usage()):
        assert record.usage.total_tokens == 0
        assert record.ran == (TRAITS[end.fault].ran is Ran.IF_STARTED and Started() in events)


def told_by(events):
    return [token for event in events if isinstance(event, Logprobs) for token in event.tokens]


def spelled(text):
    """A token of four characters each, with a number of its own."""
    return [TokenLogprob(text[i : i + 4].encode(), -i / 8) for i in range(0, len(text), 4)]


def answered(text, *, hold=Hold.TOOL_CALLS, text_committed=False):
    """What leaves while `text` is read token by token, and what the judgement would deliver."""
    made = reading(100)
    made.expected = expect(MESSAGES, build_toolbox(TOOLS), id_seed="r", checks=CheckConfig())
    made.hold, made.text_committed = hold, text_committed
    made.__post_init__()
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
    made = reading(100)
    made.logprobs = None
    out = made.take([Text("Hi."), Logprobs(tuple(spelled("Hi."))), Finish(reason=FinishReason.STOP)], 1)
    out += made.finish()

    assert made.judged is not None
    assert [type(event) for event in (*out, *made.judged.events)] == [Text]
