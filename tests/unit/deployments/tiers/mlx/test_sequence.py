"""What one sequence of a batch tells of its tokens."""

import math
import random
from typing import Any

import mlx.core as mx
import pytest

from deployments.tiers.logprobs import LogprobReader
from deployments.tiers.mlx.sequence import _COUNT_EVERY_S, _LEAD_MAX, _UNSURE_MAX, EngineJob, SequenceState
from deployments.tiers.stream_matchers import AnswerReader, CallFormat, merge_events
from reliability.loops.in_answer import PATIENCE_BYTES
from reliability.tools.format_reasoning import Thought
from reliability.types import Counted, Event, FinishReason, Logprobs, Prefilled
from tests.support.tier_asking import text_of

LETTERS = "abcdefghijklmnopqrstuvwxyz<> "


def letter(token: int) -> bytes:
    return LETTERS[token].encode()


class Spelling:
    """A detokenizer whose tokens are letters."""

    last_segment = ""

    def add_token(self, token: int) -> None:
        self.last_segment = LETTERS[token]

    def finalize(self) -> None:
        self.last_segment = ""


def events_of(tokens: list[int], detokenizer: Any, bytes_of: Any, **reader: Any) -> list[Event]:
    """The events of a sequence of these tokens, each with its number."""
    told = {"reader": AnswerReader(**reader), "logprob_reader": LogprobReader(bytes_of, 0)}
    job = EngineJob(prompt=[0], max_tokens=len(tokens), sink=lambda _: None, **told)
    row = SequenceState(1, job, detokenizer)
    for place, token in enumerate(tokens, 1):
        if row.take(token, "length" if place == len(tokens) else None, mx.zeros(1000)) is not None:
            break
    return merge_events(row.outbox.pending)


def told_in(events: list[Event]) -> str:
    return "".join(token.raw.decode() for event in events if isinstance(event, Logprobs) for token in event.tokens)


CALL = CallFormat("<c>", "</c>", lambda body: [("f", body)])


def state_of(max_tokens: int, sink: Any = lambda _: None, **fields: Any) -> SequenceState:
    return SequenceState(1, EngineJob(**{"prompt": [0], **fields}, max_tokens=max_tokens, sink=sink), Spelling())


def open_call(out: list[Event]) -> SequenceState:
    """A sequence that has begun to write a call."""
    row = state_of(100_000, out.extend, reader=AnswerReader(calls=CALL))
    for char in "<c>":
        row.take(LETTERS.index(char), None)
    return row


class TestOpenCall:
    """A model may write one call for minutes, and until its end nothing of it leaves."""

    def test_a_tier_that_writes_a_long_call_is_not_silent(self) -> None:
        """Law: while nothing may leave, the tokens so far are told once a second, from the first token on."""
        out: list[Event] = []
        row, now_s = open_call(out), 10.0
        for step in range(1, 401):
            row.take(step % 26, None)
            row.flush(now_s + step / 20)

        assert {type(event) for event in out} == {Counted}
        counted = [event.usage.completion_tokens for event in out if isinstance(event, Counted)]
        assert len(counted) == int((400 - 1) / 20 / _COUNT_EVERY_S)
        assert counted == sorted(counted)

    def test_a_call_that_repeats_itself_is_ended(self) -> None:
        """Law: a call that runs away ends like one that was cut, where text would, and leaves as text; a long call that
        doesn't repeat itself goes on."""
        row = open_call([])
        line = "echo it once again "
        ended = [row.take(LETTERS.index(line[at % len(line)]), None) for at in range(2 * PATIENCE_BYTES)]
        ends = [at for at, reason in enumerate(ended) if reason is not None]
        assert PATIENCE_BYTES < ends[0] < PATIENCE_BYTES + 2_000
        assert ended[ends[0]] is FinishReason.LENGTH
        assert text_of(row.outbox.pending).startswith(f"<c>{line}")

        row, draw = open_call([]), random.Random(1)
        assert not any(row.take(draw.randrange(26), None) for _ in range(2 * PATIENCE_BYTES))


class TestRow:
    @pytest.mark.parametrize(
        ("text", "reader", "told"),
        [
            ("plain", {}, "plain"),
            ("onestoptwo", {"stops": ("stop",)}, "one"),
            ("onestostop", {"stops": ("stop",)}, "onesto"),
            ("<t>deep<z>said", {"think": Thought("tests", ("<t>",), ("<z>",))}, "said"),
        ],
    )
    def test_only_the_text_is_told(self, text: str, reader: dict[str, Any], told: str) -> None:
        """Law: the tokens that are told spell the text that leaves: no thinking, no stop string."""
        events = events_of(list(map(LETTERS.index, text)), Spelling(), letter, **reader)

        assert told_in(events) == told
        assert text_of(events) == told
        assert len([event for event in events if isinstance(event, Logprobs)]) == 1

    @pytest.mark.parametrize(
        "tokens",
        [("Ġa", "!"), ("Ġ", "a", "!"), ("Ġ", "Ġa", "!"), ("Ġ", "Ġ", "a", "!"), ("Ċ", "Ġa", "!"), ("a", "Ġa", "!")],
    )
    def test_nothing_is_taken_off_the_head(self, tokenizer, constraints, tokens):
        """Law: the text is what its tokens spell, white space at its head too, and each token's number leaves."""
        numbers = [tokenizer.get_vocab()[token] for token in tokens]
        events = events_of(numbers, tokenizer.detokenizer, constraints.speller())
        text = "".join(tokens).translate({ord("Ġ"): " ", ord("Ċ"): "\n"})

        assert text_of(events) == told_in(events) == text


@pytest.mark.parametrize("lead", [-math.inf, -50.0, 0.0, 2.9, 3.0, math.inf, math.nan])
def test_a_token_that_was_hardly_ahead_is_told(lead: float) -> None:
    """Law: each such token with -ln of its probability against the next one; written tokens and sure ones are not."""
    row = state_of(9)
    row.take(0, None)
    row.take(1, "length", None, lead)
    (*told,) = row.build_finish(FinishReason.LENGTH, "m").unsure or ()
    assert [text for text, _ in told] == ["b"] * (lead < _LEAD_MAX)
    assert all(value >= 0.0 for _, value in told)
    assert lead != 0.0 or told[0][1] == pytest.approx(math.log(2))


def test_an_answer_tells_so_many_unsure_tokens_at_most() -> None:
    """Law: an answer of any length tells at most `_UNSURE_MAX` of them."""
    row = state_of(999)
    for _ in range(_UNSURE_MAX + 9):
        row.take(0, None, None, 0.5)
    assert len(row.unsure) == _UNSURE_MAX


def test_a_prefill_that_is_long_is_reported() -> None:
    """Law: nothing in the first two seconds, then once a second at most. What is left takes as long for each token as
    those that were read, the latest foremost; what the cache held took no time."""
    told: list[Event] = []
    row = state_of(9, told.extend, prompt=range(1000))
    row.begin_prefill(600, 50.0)
    for tokens, now_s in ((650, 51.9), (700, 52.0), (710, 52.9), (740, 53.0), (740, 54.5)):
        row.report_prefill(tokens, now_s)

    assert told == [
        Prefilled(tokens=700, of_tokens=1000, left_s=300 * 2 / 100),
        Prefilled(tokens=740, of_tokens=1000, left_s=pytest.approx(260 * (0.7 * 2 / 100 + 0.3 * 1 / 40))),
    ]
