"""What one attempt has cost, where its tier never says."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.request.accounting import ANSWER_BYTES_MAX, EVENT_CHARS, compute_bytes_max, count_chars, cut_event
from deployments.request.attempt import record_attempt
from reliability.admission.ledger import PROGRESS_TOKENS
from reliability.answer.estimate import tokens_max, tokens_min, tokens_near
from reliability.types import (
    CallDelta,
    Counted,
    Event,
    Failed,
    Fault,
    Finish,
    FinishReason,
    Reasoning,
    Started,
    Text,
    Usage,
)
from tests.support.readings import reading


@given(st.lists(st.text(max_size=40).map(Text) | st.text(max_size=40).map(Reasoning), max_size=8), st.integers(1, 200))
@example([Text("ok " * 14)], 14)
def test_an_estimate_stays_within_what_the_tier_was_allowed(events, cap):
    """A reader that leaves before the tier has counted is charged for what was written, a token a piece at least, and
    for no more than was reserved for it; only a tier that has provably written more than it was allowed is charged
    more."""
    made = reading(cap)
    made.take(events, 1)
    written = made.spending.written_bytes
    usage = record_attempt(made, 2).usage

    assert usage is not None
    assert not usage.exact
    assert usage.prompt_tokens == tokens_max(18)
    assert usage.completion_tokens <= max(cap, tokens_min(written))
    assert usage.completion_tokens >= min(cap, len([event for event in events if event.text]))
    assert usage.completion_tokens >= min(cap, tokens_near("".join(e.text for e in events)) if len(events) == 1 else 0)


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
    spent = record_attempt(made, 2).usage

    assert spent.completion_tokens == 15
    assert spent.exact is (count is not None)
    never = reading(200)
    never.spending.accepted = False
    never.take([died], 1)
    assert record_attempt(never, 2).usage.total_tokens == 0


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
    record = record_attempt(made, 2)

    assert record.usage == Usage(prompt_tokens=tokens_max(18), completion_tokens=2, exact=False)
    assert record.reported == lie
    assert made.judged is None or made.judged.finish.usage == record.usage


@pytest.mark.parametrize("end", [None, Failed(fault=Fault.CONNECT_TIMEOUT, message="")])
def test_who_leaves_before_the_tier_has_said_a_word_pays_for_the_prompt(end):
    """The call was on its way, and a tier that has just taken it may have sent it on: that can't be known any more, and
    the books never hold too little. Where the tier had its whole time to say so and didn't, nobody took it."""
    made = reading(100)
    made.spending.accepted = False
    made.take([end] if end else [], 1)

    assert record_attempt(made, 2).usage == Usage(
        prompt_tokens=tokens_max(18) if end is None else 0, exact=end is not None
    )


SIZES = st.integers(0, 3 * EVENT_CHARS) | st.sampled_from([EVENT_CHARS - 1, EVENT_CHARS, EVENT_CHARS + 1])


def written(event: Event) -> str:
    """What a model has written with it."""
    return (
        event.arguments if isinstance(event, CallDelta) else event.text if isinstance(event, Text | Reasoning) else ""
    )


@pytest.mark.parametrize("make", [Text, Reasoning, lambda text: CallDelta(index=2, id="c", name="f", arguments=text)])
@given(size=SIZES, left_bytes=st.integers(0, 3 * EVENT_CHARS))
def test_what_is_cut_still_ends_the_answer(make, size, left_bytes):
    """Law: a cut event is a beginning of what came, of the same kind, and longer than what was left: so the answer ends
    at the same place as if it were whole. What is small is not touched."""
    event = make("é" * size)
    shown = cut_event(event, left_bytes)

    assert type(shown) is type(event)
    assert written(event).startswith(written(shown))
    assert count_chars(shown) == min(size, max(EVENT_CHARS, left_bytes + 1))
    assert shown == event or count_chars(shown) > left_bytes


def test_what_has_no_text_has_no_size():
    """Law: marks of the way of an answer cost nothing and pass."""
    assert count_chars(Started()) == 0
    assert cut_event(Started(), 0) == Started()


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_a_larger_cap_is_never_less_room(one, other):
    """Law: room grows with the cap, is more than a byte a token below the bound of all answers, and ends at it."""
    small, large = sorted((one, other))

    assert compute_bytes_max(small) <= compute_bytes_max(large) <= ANSWER_BYTES_MAX
    assert compute_bytes_max(small) == ANSWER_BYTES_MAX or compute_bytes_max(small) > small
