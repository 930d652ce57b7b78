"""Prompts that an upstream refuses with the answer that is asked for, and hasn't counted: vLLM; or with their sum."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.answer_limits import ROOM_TOKENS, find_room
from reliability.types import Event, Fault
from tests.support.plays import Seen, good, status
from tests.support.tier_asking import ask, failed, text_of
from tests.unit.deployments.tiers.hosted.test_answer_limits import OTHERS, OURS, WRAPPED, told

# What vLLM says of a prompt that it has read no further than to where it doesn't fit, or not at all.
REDUCE = " Please reduce the length of the input prompt or the number of requested output tokens."
READ = (
    "This model's maximum context length is {context} tokens. However, you requested {asked} output tokens and your "
    "prompt contains at least {least} input tokens, for a total of at least {sum} tokens." + REDUCE
)
UNREAD = (
    "This model's maximum context length is {context} tokens. However, you requested {asked} output tokens and your "
    "prompt contains {chars} characters (more than {most} characters, which is the upper bound for {left} input "
    "tokens)." + REDUCE
)
OVER = (
    "max_tokens={asked} cannot be greater than max_model_len=max_total_tokens={context}. Please request fewer output "
    "tokens."
)


def say_as_vllm(context: int, asked: int, prompt: int, chars: int) -> str:
    """Say what vLLM says; nothing where all fits."""
    left = context - asked
    if left < 0:
        words = OVER
    elif chars > left * 10:
        words = UNREAD
    else:
        words = READ if prompt > left else ""
    return words.format(
        context=context, asked=asked, least=left + 1, sum=context + 1, chars=chars, most=left * 10, left=left
    )


def told_by_vllm(context: int, prompt: int, request: Any) -> tuple[list[Event], list[int | None]]:
    """What vLLM answers to a prompt of so many tokens, and for how many it was asked each time."""

    def play(seen: Seen) -> Any:
        words = say_as_vllm(context, seen.body.get("max_tokens", 1), prompt, 4 * prompt)
        return status(400, words) if words else good("Fine.")

    (events,), asked = told(play, request)
    return events, asked


CONTEXTS = [8_192, 16_384, 32_768, 131_072]
SHARES = [0.01, 0.3, 0.5, 0.61, 0.7, 0.85, 0.9]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("asked", [2_000, OURS, 32_000])
@pytest.mark.parametrize(("context", "share"), list(product(CONTEXTS, SHARES)))
def test_a_prompt_that_nobody_has_counted_is_answered(
    context: int, share: float, asked: int, named: bool, known: bool
) -> None:
    """Law: where vLLM doesn't say how long the prompt is, the answer gets fewer tokens, at most twice, and a quarter of
    what is free or of what was asked for at least, also where the request's size isn't `known`; the rest of the context
    where the client has named no number."""
    known = known or share > 0.7
    prompt = int(share * context)
    size = 4 * prompt if known else 0
    events, sent = told_by_vllm(context, prompt, ask(max_tokens=asked, max_tokens_named=named, body_bytes=size))

    assert text_of(events) == "Fine."
    assert sent[0] == asked
    assert len(sent) <= (3 if named else 2)
    assert sent[-1] is None or sent[-1] >= min(asked, context - prompt) / 4
    assert (sent[-1] is None) is (len(sent) > 1 and not named)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("asked", [OURS, 32_000])
@pytest.mark.parametrize("context", CONTEXTS)
def test_a_prompt_that_does_not_fit_is_too_long(context: int, asked: int, named: bool) -> None:
    """Law: a prompt that is longer than the context costs three requests, and the client learns that it is."""
    request = ask(max_tokens=asked, max_tokens_named=named, body_bytes=4 * (context + 1))
    events, sent = told_by_vllm(context, context + 1, request)

    assert failed(events).fault is Fault.CONTEXT_LENGTH
    assert len(sent) <= 3


@pytest.mark.parametrize("wrapped", ["{words}", *WRAPPED])
@pytest.mark.parametrize("words", [READ, UNREAD, OVER])
@given(context=st.integers(4_096, 300_000), part=st.floats(0, 0.9), more=st.integers(0, 100_000))
def test_a_guess_leaves_room_for_the_prompt(words: str, wrapped: str, context: int, part: float, more: int) -> None:
    """Law: a guess is less than what was asked for, and what is left behind a prompt of a token for 3.6 bytes, or for
    three, where anything is; a part of it else; however it is handed on. None is made where the client has named no
    number."""
    asked = context + more if words is OVER else int(part * context) + 1_024
    said = words.format(context=context, asked=asked, least=1, sum=1, chars=1, most=1, left=1)
    handed_on, size = wrapped.format(words=said), 3 * int(part * context)
    room = find_room(handed_on, asked, body_bytes=size)

    assert room is not None
    assert ROOM_TOKENS <= room < asked
    left = [one for one in (context - int(size / 3.6), context - size // 3) if ROOM_TOKENS <= one < asked]
    parts = [min(context, asked) // 2, min(context, asked) // 4]
    assert room in (left[:1] if left and size else parts)
    assert find_room(handed_on, asked, named=False, body_bytes=size) == 0


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens. However, your prompt contains at least 8193 input tokens.",
        "Expected at least 16384 characters in the prompt",
        *OTHERS,
    ],
)
def test_words_without_the_answer_s_number_leave_it(words: str) -> None:
    """Law: only a refusal of this number of tokens lowers it."""
    assert find_room(words, 9_999) is None
