"""The thought of a local answer, on a real model of a few kilobytes: it ends, and never before it has to."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from deployments.tiers.lazy_mlx import mx
from deployments.tiers.mlx.job_builder import _forbid_silence
from deployments.tiers.mlx.sampling import Processor, Sampling
from deployments.tiers.stream_matchers import AnswerReader
from deployments.tiers.thinking import find_opened
from deployments.tiers.thought_watch import _CIRCLING_BYTES, ThoughtLimit, ThoughtWatch
from reliability import loops
from reliability.loops.in_answer import PATIENCE_BYTES
from reliability.thinking import ThoughtEnd
from reliability.types import Event, Finish, Reasoning
from tests.support import tiny_model as tiny
from tests.support.engine_rig import PROMPT, Rig, text_of
from tests.support.repeating_texts import HONEST, paragraph

BUDGET, GRACE, FULL = 40, 64, 200
CLOSE = [tiny.TOKENS.index(letter) for letter in "</think>"]
ENDS = [tiny.TOKENS.index(end) for end in ("<|im_end|>", "<|endoftext|>")]
SAMPLED = Sampling(temperature=1.0, seed=7)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    made = Rig(tiny.write_folder(tmp_path_factory.mktemp("models") / "tiny"))
    yield made
    made.engine.close()


def never(banned: Sequence[int], behind: int) -> Processor:
    """A model that doesn't write these tokens before its answer has so many."""

    def process(record: Any, logits: Any) -> Any:
        if record.size < len(PROMPT) + behind:
            logits[:, mx.array(banned)] = -mx.inf
        return logits

    return process


def always(token: int, behind: int) -> Processor:
    """A model that writes this token once its answer has so many, if nothing keeps it from that."""

    def process(record: Any, logits: Any) -> Any:
        if record.size >= len(PROMPT) + behind:
            logits[:, token] += 1_000.0
        return logits

    return process


def writes(text: str) -> Processor:
    """A model that begins with this text."""
    wanted = [tiny.TOKENS.index(tiny.byte_alphabet()[byte]) for byte in text.encode()]

    def process(record: Any, logits: Any) -> Any:
        at = record.size - len(PROMPT)
        if at < len(wanted):
            logits = mx.full(logits.shape, -mx.inf)
            logits[:, wanted[at]] = 0.0
        return logits

    return process


def think(rig: Rig, processors: Sequence[Processor], *, tokens_max: int = FULL, **fields: Any) -> list[Event]:
    """An answer that begins within a thought."""
    loaded = rig.engine.phase.loaded
    assert loaded is not None
    limit = ThoughtLimit(fields.pop("budget", BUDGET), CLOSE, partial(_forbid_silence, loaded.tokenizer, ENDS))
    usual = {"sampling": SAMPLED, "reader": AnswerReader(inside=find_opened("<think>"))}
    return rig.answer(max_tokens=tokens_max, processors=processors, thought=limit, **{**usual, **fields})


def end_of(events: Sequence[Event]) -> tuple[ThoughtEnd | None, int]:
    """What has ended the thought, and its tokens."""
    last = events[-1]
    assert isinstance(last, Finish), last
    assert last.usage is not None
    return last.thought, last.usage.reasoning_tokens


def test_a_thought_without_end_is_answered_from(rig: Rig) -> None:
    """Law: a model that thinks without end answers within its budget and 64 tokens, 50 times of 50, though it would
    rather end there without a word."""
    thinks, silent = never([*ENDS, *CLOSE[:1]], BUDGET), always(ENDS[0], BUDGET + len(CLOSE))
    for seed in range(50):
        sampling = Sampling(temperature=1.0, seed=seed)
        events = think(rig, [thinks, silent], tokens_max=BUDGET + GRACE, sampling=sampling)

        assert end_of(events) == (ThoughtEnd.BUDGET, BUDGET + len(CLOSE))
        assert text_of(events).strip()


def test_a_thought_goes_on_from_its_kept_cache(rig: Rig) -> None:
    """Law: behind a thought that was closed only its end is read anew, and not the prompt."""
    rig.model.shapes.clear()
    think(rig, [never([*ENDS, *CLOSE[:1]], BUDGET)], tokens_max=BUDGET + GRACE)

    read = [tokens for _, tokens in rig.model.shapes if tokens > 1]
    assert sum(read[1:]) <= len(CLOSE) + 2


@pytest.mark.parametrize("tokens", [1, BUDGET // 2, BUDGET - 1])
def test_a_turn_that_ends_within_its_thought_is_answered_from(rig: Rig, tokens: int) -> None:
    """Law: a model that ends its turn and not its thought has its thought closed there, and answers from it."""
    thinks, ends = never([*ENDS, *CLOSE[:1]], tokens), always(ENDS[0], tokens)
    for seed in range(5):
        sampling = Sampling(temperature=1.0, seed=seed)
        events = think(rig, [thinks, ends], tokens_max=BUDGET + GRACE, sampling=sampling)

        ended, counted = end_of(events)
        assert ended is ThoughtEnd.MODEL
        assert 0 <= counted - tokens - len(CLOSE) < 4  # the first bytes of a letter count until it is whole
        assert text_of(events).strip()


def test_a_turn_that_ends_behind_its_thought_is_gone_on_with(rig: Rig) -> None:
    """Law: a model that closes its thought and ends without a word answers all the same; behind a word it ends."""
    for said, ends_with in (("", ""), ("\n\n", ""), ("\n\nFour.", "Four.")):
        text = f"x</think>{said}"
        written = [never([*ENDS, *CLOSE[:1]], 0), writes(text), always(ENDS[0], len(text))]
        events = think(rig, written, tokens_max=BUDGET + GRACE)

        assert text_of(events).strip()
        assert ends_with in ("", text_of(events).strip())


@pytest.mark.parametrize("tokens", [1, BUDGET - len(CLOSE) - 1])
def test_a_thought_that_ends_by_itself_is_left_alone(rig: Rig, tokens: int) -> None:
    """Law: up to its budget the answer is the one without a limit, and the model has ended its thought."""
    processors = [never([*ENDS, *CLOSE[:1]], 0), writes("x" * tokens + "</think>And that is it.")]
    limited, free = (think(rig, processors, tokens_max=BUDGET, budget=budget) for budget in (BUDGET, None))

    assert text_of(limited) == text_of(free)
    assert end_of(limited) == end_of(free) == (ThoughtEnd.MODEL, tokens + len(CLOSE))


def test_what_ends_within_its_thought_has_no_end_of_it(rig: Rig) -> None:
    """Law: an answer that is cut within its thought names no end of it; one without a thought has none."""
    cut = think(rig, [never([*ENDS, *CLOSE[:1]], BUDGET)], tokens_max=BUDGET - 1)

    assert end_of(cut) == (None, BUDGET - 1)
    assert end_of(rig.answer()) == (None, 0)


def test_a_thought_that_opens_another_is_closed_again() -> None:
    """Law: behind its limit each thought is due at once, and the report has the first reason."""
    watch = ThoughtWatch(ThoughtLimit(1, CLOSE))
    watch.note([Reasoning("a")])
    for why in (ThoughtEnd.BUDGET, ThoughtEnd.CIRCLING):
        assert watch.due is ThoughtEnd.BUDGET
        watch.close(why, 9)

    assert watch.find_end(thinking=False) is ThoughtEnd.BUDGET
    assert watch.find_end(thinking=True) is None


def note_text(text: str) -> tuple[ThoughtWatch, int]:
    """The watch of a thought of this text, in tokens of four characters, and how many came before it was due."""
    watch = ThoughtWatch(ThoughtLimit(None, CLOSE))
    for at in range(0, len(text), 4):
        if watch.due is not None:
            break
        watch.note([Reasoning(text[at : at + 4])])
    return watch, watch.tokens


@pytest.mark.parametrize(
    "circle", ["Wait, let me think again. ", "But what if it is the other way round? No. " + paragraph(200, 3)]
)
def test_a_thought_that_circles_is_closed_before_its_answer_is_stopped(circle: str) -> None:
    """Law: what says the same again and again is due without a budget, and earlier than a Router stops the answer."""
    watch, tokens = note_text(paragraph(2_000, 1) + circle * 200)
    assert watch.due is ThoughtEnd.CIRCLING

    so_far = (paragraph(2_000, 1) + circle * 200)[: 4 * tokens]
    assert loops.step(loops.open_scan(calls=False, patient=True), so_far)[1] is None
    assert _CIRCLING_BYTES < PATIENCE_BYTES


@pytest.mark.parametrize(
    "text", [paragraph(20_000, 2), *(HONEST[name] for name in ("bottles", "pages", "cases", "log"))]
)
def test_a_thought_that_gets_on_is_not_closed(text: str) -> None:
    """Law: without a budget a long thought goes on as long as it says something new."""
    assert note_text(text)[0].due is None


def test_without_an_end_mark_nothing_is_due() -> None:
    """Law: where it isn't known how a model ends its thoughts, none is closed."""
    watch = ThoughtWatch(ThoughtLimit(1, ()))
    watch.note([Reasoning("a")])
    assert watch.due is None
