"""What one attempt has cost, where its tier never says."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deployments.request import accounting
from deployments.request.accounting import EVENT_CHARS, Accounting, compute_bytes_max, count_chars, cut_event
from deployments.request.attempt import record_attempt
from reliability.admission.ledger import PROGRESS_TOKENS
from reliability.answer.estimate import prompt_bytes, prompt_tokens_most, tokens_max, tokens_min, tokens_near
from reliability.types import CallDelta, Counted, Failed, Fault, Finish, FinishReason, Reasoning, Started, Text, Usage
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
    made.spending.count_usage(Finish(reason=FinishReason.STOP, usage=replace(lie, prompt_tokens=10**9)))  # once more
    assert record_attempt(made, 2).reported == lie
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


def written(event: Any) -> str:
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

    assert compute_bytes_max(small) <= compute_bytes_max(large) <= accounting.ANSWER_BYTES_MAX
    assert compute_bytes_max(small) == accounting.ANSWER_BYTES_MAX or compute_bytes_max(small) > small


counts = st.integers(0, 10**12) | st.integers(0, 20_000)
sizes = st.integers(0, 100_000)


def possible(prompt: int = 100, written: int = 60, cap: int = 500) -> Accounting:
    """The account of an attempt whose estimate is 30 tokens, and one for two bytes of the prompt."""
    return Accounting(
        prompt_bytes=prompt,
        prompt_most=lambda: prompt,
        output_cap=cap,
        progress=None,
        accepted=True,
        written_bytes=written,
        near_tokens=30,
    )


def book(told: Usage, known: Accounting) -> tuple[Usage, bool]:
    """What is booked where the tier reports this at its end, and whether it was a lie."""
    account = replace(known, reported=None)
    usage = account.count_usage(Finish(reason=FinishReason.STOP, usage=told))
    return usage, account.reported is not None


@given(counts, counts, counts, counts, sizes, sizes, st.integers(1, 10_000))
@example(10**12, 10**12, 10**12, 10**12, 20, 60, 500)
def test_no_report_costs_more_than_an_answer_can(prompt, completion, cached, reasoning, size, written, cap):
    """Whatever is reported, what is booked is bounded by the request and the answer, and its parts agree; who believes
    it once believes it again."""
    told = Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, reasoning_tokens=reasoning)
    known = possible(size, written, cap)
    usage, lie = book(told, known)

    assert usage.prompt_tokens <= size + accounting.HIDDEN_TOKENS_MAX
    assert usage.completion_tokens <= max(cap, written) + 64 + accounting.REASONING_TOKENS_MAX
    assert usage.cached_tokens <= usage.prompt_tokens
    assert usage.reasoning_tokens <= usage.completion_tokens
    assert not lie or not usage.exact
    assert usage.prompt_tokens > 0 or not size
    again, _ = book(replace(usage, exact=True), known)
    if not lie and usage.prompt_tokens == prompt and usage.completion_tokens == completion:
        assert again.total_tokens == usage.total_tokens


@given(st.lists(st.text(min_size=1, max_size=300), min_size=1, max_size=20), st.data())
def test_what_a_real_tokenizer_counts_is_believed(texts, data):
    """A count between a token for sixteen bytes and one for each byte, within the cap and some hidden words of the
    upstream, is booked as it was told."""
    messages = [{"role": "user", "content": text} for text in texts]
    size, written = prompt_bytes(messages), data.draw(st.integers(1, 4_000))
    prompt = data.draw(st.integers(-(-size // 16), size + accounting.HIDDEN_TOKENS_MAX))
    completion = data.draw(st.integers(-(-written // 16), written))
    told = Usage(prompt_tokens=prompt, completion_tokens=completion)
    assert book(told, possible(size, written, written)) == (told, False)


@pytest.mark.parametrize(
    ("told", "booked", "lie"),
    [
        (Usage(prompt_tokens=10**12, completion_tokens=20), (50, 20), True),
        (Usage(prompt_tokens=40, completion_tokens=10**12), (40, 30), True),
        (Usage(prompt_tokens=0, completion_tokens=20), (50, 20), False),
        (Usage(prompt_tokens=40, completion_tokens=0), (40, 30), False),
        (Usage(prompt_tokens=40, completion_tokens=20_000, reasoning_tokens=19_900), (40, 20_000), False),
        (Usage(prompt_tokens=40, completion_tokens=20_000), (40, 30), True),
        (Usage(prompt_tokens=40, completion_tokens=20, cached_tokens=900), (40, 20), False),
    ],
)
def test_each_count_is_held_for_itself(told, booked, lie):
    """The count that is possible is kept beside the one that isn't; none at all is no lie; reasoning may go beyond the
    cap where the upstream says that it has reasoned."""
    usage, found = book(told, possible())
    assert ((usage.prompt_tokens, usage.completion_tokens), found) == (booked, lie)
    assert usage.exact is (
        (usage.prompt_tokens, usage.completion_tokens) == (told.prompt_tokens, told.completion_tokens)
    )


def test_too_little_is_a_lie_as_well():
    """One token for a long answer, or for a long prompt, is not booked."""
    known = possible(prompt=1_000_000, written=100_000)
    assert book(Usage(prompt_tokens=1, completion_tokens=30_000), known)[0].prompt_tokens == 500_000
    assert book(Usage(prompt_tokens=250_000, completion_tokens=1), known)[0].completion_tokens == 30


def test_media_may_cost_more_than_their_bytes():
    """An image behind an address of thirty bytes may be ten thousands of tokens, a film a million: the request is
    looked through only where a count asks for it."""
    asked = []

    def most() -> int:
        asked.append(1)
        return prompt_tokens_most(parts)

    part = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    parts = [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, part]}]
    known = replace(possible(prompt_bytes(parts)), prompt_most=most)

    assert book(Usage(prompt_tokens=9_000, completion_tokens=9), known)[1] is False
    assert not asked
    assert book(Usage(prompt_tokens=48_000, completion_tokens=9), known)[1] is False
    assert book(Usage(prompt_tokens=80_000, completion_tokens=9), known)[1] is True
    parts.append({"role": "user", "content": [{"type": "video_url", "video_url": {"url": "https://example.com/a"}}]})
    assert book(Usage(prompt_tokens=900_000, completion_tokens=9), known)[1] is False
