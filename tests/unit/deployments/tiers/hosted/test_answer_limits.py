"""Upstreams whose model writes fewer tokens than it is asked for, over real HTTP."""

import json
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.hosted.answer_limits import ROOM_TOKENS, asks_for_fewer, find_cap, find_room
from reliability.types import Event, Failed, Fault, Finish, FinishReason
from tests.support.plays import SSE, Head, Seen, Send, good, status, whole
from tests.support.tier_asking import ask, exchange, failed, text_of

OURS = 16_384
# DeepSeek, OpenAI, Groq, Groq again, Anthropic, DashScope, Together, Volcengine, Gemini, Bedrock, MiMo, FastAPI,
# Cohere, Cohere again, Zhipu in three ways, Nova, Titan.
WORDS = [
    "Invalid max_tokens value, the valid range of max_tokens is [1, {cap}]",
    "max_tokens is too large: {asked}. This model supports at most {cap} completion tokens, whereas you gave {asked}.",
    "`max_tokens` must be less than or equal to `{cap}`, the maximum value for `max_tokens` is less than the "
    "`context_window` for this model",
    "max_tokens for `llama-3.1-8b-instant` must be less than or equal to {cap}",
    "max_tokens: {asked} > {cap}, which is the maximum allowed number of output tokens for claude-3-5-haiku-20241022",
    "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, {cap}]",
    "max_tokens must be at most {cap:,}",
    "Invalid 'max_completion_tokens': integer above maximum value. Expected a value <= {cap}, but got {asked} instead.",
    "Unable to submit request because it has a maxOutputTokens value of {asked} but the supported range is from 1 "
    "(inclusive) to {beyond} (exclusive).",
    "The maximum tokens you requested exceeds the model limit of {cap}.",
    "field MaxTokens invalid, should be in [1, {cap}]",
    "['body', 'max_tokens']: Input should be less than or equal to {cap}",
    "too many tokens: max tokens must be less than or equal to {cap}, the maximum output length for this model - "
    "received {asked}.",
    "Max tokens cannot exceed {cap}",
    "max_tokens参数非法：取值范围 [1, {cap}]",
    "max_tokens 参数非法。最大值为{cap}个",
    "参数max_tokens超出范围，最大 {cap}",
    "Malformed input request: #/maxTokens: {asked} is not less or equal to {cap}, please reformat your input and retry",
    "Malformed input request: #/textGenerationConfig/maxTokenCount: {asked} is not less or equal to {cap}, please",
]
# Of the prompt, of the context, of another limit, or of what is too small.
OTHERS = [
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
    "'max_tokens' is too large: 16384. This model's maximum context length is 8192 tokens and you have 900.",
    "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead.",
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "Prompt tokens and max_tokens must not exceed 8192",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try a shorter prompt",
    "The request's text exceeds max tokens 8192",
    "temperature参数非法：取值范围 [1, 8192]",
    "Invalid 'tools': array too long. Expected an array with maximum length 128, but got length 200.",
]


def say(words: str, asked: int, cap: int) -> str:
    return words.format(asked=asked, cap=cap, beyond=cap + 1)


def told(player: Any, *requests: Any) -> tuple[list[list[Event]], list[int | None]]:
    """What requests are answered, and for how many tokens the upstream was asked each time."""
    events, seen = exchange(player, *requests)
    return events, [each.body.get("max_tokens") for each in seen]


def writes_at_most(cap: int, refusal: Callable[[int], Any]) -> Any:
    """Play a model that writes so many tokens, and refuses to be asked for more."""

    def play(seen: Seen) -> Any:
        asked = seen.body.get("max_tokens")
        return good("Fine.") if asked is None or asked <= cap else refusal(asked)

    return play


def refuse_in(words: str, cap: int = 8192, code: int = 400) -> Any:
    return writes_at_most(cap, lambda asked: status(code, say(words, asked, cap)))


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("words", WORDS)
def test_a_model_that_writes_less_is_asked_for_that(words: str, named: bool) -> None:
    """Law: where a model writes fewer tokens than it is asked for, it is asked once more for as many as it writes; the
    next request at once; a smaller answer is asked for as it was."""
    request = ask(max_tokens=OURS, max_tokens_named=named)
    events, asked = told(refuse_in(words), request, request, ask(max_tokens=99))

    assert [text_of(one) for one in events] == ["Fine."] * 3
    assert asked == [OURS, 8192, 8192, 99]


@pytest.mark.parametrize("words", WORDS)
@given(asked=st.integers(1_000, 200_000), part=st.floats(0, 1))
def test_the_limit_is_read_whatever_it_is(words: str, asked: int, part: float) -> None:
    """Law: the limit that was named is read, if it is below what was asked for and leaves enough for a call."""
    cap = 1 + int(part * (asked - 3))
    found = find_cap(say(words, asked, cap), asked)

    assert found == (cap if cap >= ROOM_TOKENS else None)


@pytest.mark.parametrize("words", ["max_tokens is too large for this model", "max_tokens参数非法。请检查文档。"])
@pytest.mark.parametrize(("named", "sent"), [(False, [OURS, None, None]), (True, [OURS, OURS])])
def test_a_limit_that_nobody_named_goes_where_it_is_refused(named: bool, sent: list[int | None], words: str) -> None:
    """Law: a refusal that names no number is answered without this server's own limit; the client's stays."""
    request = ask(max_tokens=OURS, max_tokens_named=named)
    events, asked = told(refuse_in(words), request, request)

    assert asked == sent
    assert [isinstance(one[-1], Failed) for one in events] == [named] * 2


@pytest.mark.parametrize(("named", "sent"), [(False, [OURS, OURS - 1, None]), (True, [OURS, OURS - 1])])
def test_an_upstream_that_refuses_each_limit_is_not_asked_for_ever(named: bool, sent: list[int | None]) -> None:
    """Law: the tokens are lowered once a request, and once left out where nobody named them."""

    def refuse(seen: Seen) -> Any:
        return status(400, say(WORDS[0], 0, seen.body.get("max_tokens", OURS) - 1))

    (events,), asked = told(refuse, ask(max_tokens=OURS, max_tokens_named=named))
    assert (asked, failed(events).fault) == (sent, Fault.REFUSED)


RENAMED = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
# A gateway's own words around its upstream's, as the SDKs write them.
WRAPPED = [
    "Error code: 400 - {{'error': {{'message': \"{words}\", 'type': 'invalid_request_error'}}}}",
    "litellm.BadRequestError: OpenAIException - Error code: 400 - {{'error': {{'message': \"{words}\"}}}}",
    "HTTP 400: {words}",
    "HTTP/1.1 400 {words}",
    "400 {words}",
    "status_code=422, {words} (request id: 2026033012)",
    "<400> InternalError.Algo.InvalidParameter: {words}",
    "{words} (deployment 2024, region eu-2)",
    "{words} (version 2024, id: 12345)",
]


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("words", [RENAMED, "max_tokens is too large", "max_tokens exceeds the limit"])
@pytest.mark.parametrize("asked", [500, OURS, 2_000_000_000])
def test_a_number_that_is_no_limit_is_none(asked: int, words: str, wrapped: str) -> None:
    """Law: a status, a version and an identifier limit no answer."""
    assert find_cap(wrapped.format(words=words), asked) is None


@pytest.mark.parametrize(("words", "wrapped"), list(product(WORDS, WRAPPED)))
def test_a_limit_is_read_within_other_words(words: str, wrapped: str) -> None:
    """Law: the numbers of a gateway change nothing of the limit that its upstream names."""
    if "<400>" not in words:
        assert find_cap(wrapped.format(words=say(words, OURS, 300)), OURS) == 300
        assert find_cap(wrapped.format(words=say(words, OURS, 8192)), OURS) == 8192


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_field_that_is_named_anew_costs_no_answer(wrapped: str) -> None:
    """Law: where `max_tokens` goes by another name, the answer may have as many tokens as before."""
    refused, request = status(400, wrapped.format(words=RENAMED)), ask(max_tokens=OURS, max_tokens_named=False)
    events, seen = exchange(lambda seen: refused if "max_tokens" in seen.body else good("Fine."), request, request)

    sent = [(each.body.get("max_tokens"), each.body.get("max_completion_tokens")) for each in seen]
    assert [text_of(one) for one in events] == ["Fine."] * 2
    assert sent == [(OURS, None), (None, OURS), (None, OURS)]
    assert events[0][-1].notes == ()


TOO_FEW = [
    "Invalid 'max_tokens': integer below minimum value. Expected a value >= 100000, but got {asked} instead.",
    "max_tokens must be at least 100000",
    "['body', 'max_tokens']: Input should be greater than or equal to 100000",
]


@pytest.mark.parametrize("words", TOO_FEW)
def test_an_answer_that_may_have_too_few_tokens_teaches_nothing(words: str) -> None:
    """Law: a refusal of too few tokens is no reason to leave the limit out, now or later."""
    (events,), asked = told(status(400, words.format(asked=OURS)), ask(max_tokens=OURS, max_tokens_named=False))

    assert not asks_for_fewer(words)
    assert (asked, failed(events).fault) == ([OURS], Fault.REFUSED)


# The limit of prompt and answer together: vLLM, SGLang, TGI, Anthropic, SiliconFlow.
SUMS = [
    "This model's maximum context length is {limit} tokens. However, you requested {sum} tokens ({prompt} in the "
    "messages, {asked} in the completion). Please reduce the length of the messages or completion.",
    "Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total of {sum}"
    " tokens: {prompt} tokens from the input messages and {asked} tokens for the completion.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= {limit}. Given: {prompt} `inputs` tokens "
    "and {asked} `max_new_tokens`",
    "input length and `max_tokens` exceed context limit: {prompt} + {asked} > {limit}, decrease input length",
    "max_total_tokens ({sum}) must be less than or equal to max_seq_len ({limit})",
]


@pytest.mark.parametrize("wrapped", ["{words}", *WRAPPED])
@pytest.mark.parametrize("words", SUMS)
@given(limit=st.integers(1_000, 300_000), part=st.floats(0, 0.9), asked=st.integers(1_000, 200_000))
def test_the_room_behind_a_prompt_is_read(words: str, wrapped: str, limit: int, part: float, asked: int) -> None:
    """Law: what the prompt leaves of the context is the answer's room, whoever says so, however it is handed on."""
    prompt = 1 + int(part * limit)
    said = words.format(limit=limit, prompt=prompt, asked=asked, sum=prompt + asked)
    room, least = limit - prompt, min(asked, ROOM_TOKENS)
    wanted = room if least <= room < asked else None

    if prompt + asked > limit and asked not in (limit, prompt):  # else the words don't tell which is which
        assert find_room(wrapped.format(words=said), asked) == wanted


CREDITS = (
    "This request requires more credits, or fewer max_tokens. You requested up to {asked} tokens, but can only afford "
    "{left}. To increase, visit https://openrouter.ai/settings/credits and upgrade to a paid account"
)


@pytest.mark.parametrize("left", [1, ROOM_TOKENS - 1, ROOM_TOKENS, 3_919, OURS - 1])
def test_an_answer_is_as_long_as_can_be_paid(left: int) -> None:
    """Law: OpenRouter is asked once more, for what can be afforded, where that is enough for an answer; the next
    request is sent as it was."""
    limited = writes_at_most(left, lambda asked: status(402, CREDITS.format(asked=asked, left=left)))
    events, asked = told(limited, *[ask(max_tokens=OURS, max_tokens_named=False)] * 2)

    enough = left >= ROOM_TOKENS
    assert asked == ([OURS, left] * 2 if enough else [OURS] * 2)
    assert [isinstance(one[-1], Failed) for one in events] == [not enough] * 2


DASHSCOPE = (
    'id:1\nevent:error\n:HTTP_STATUS/400\ndata:{"code":"InvalidParameter","message":"<400> InternalError.Algo.'
    'InvalidParameter: Range of max_tokens should be [1, 8192]","request_id":"fc65a002"}\n\n'
)


@pytest.mark.parametrize(
    "body",
    [
        DASHSCOPE,
        DASHSCOPE.replace("data:", "data: ").removeprefix("id:1\n"),
        DASHSCOPE.replace("\n", "\r\n"),
        DASHSCOPE[DASHSCOPE.index("data:") :],
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
    ],
)
def test_a_refusal_is_read_from_a_frame(body: str) -> None:
    """Law: an error that is sent as an event, or as words that begin with its status, is read as any other."""
    refusal = whole(body.encode(), status_code=400)
    (events,), _ = told(writes_at_most(8192, lambda _: refusal), ask(max_tokens=OURS))
    (refused,), _ = told(refusal, ask(max_tokens=99))

    assert text_of(events) == "Fine."
    assert "Range of max_tokens" in failed(refused).message


@pytest.mark.parametrize("body", ["<html>data: x</html>", "<!doctype html>", "</p>", "oops <b>", "event:error\n<p>"])
def test_a_page_is_no_words_of_an_error(body: str) -> None:
    """Law: nothing of a page reaches the client."""
    (events,), _ = told(whole(body.encode(), status_code=400), ask())

    assert "<" not in failed(events).message


@pytest.mark.parametrize("frame", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_an_answer_that_ran_out_of_tokens_has_ended(named: bool, frame: bool) -> None:
    """Law: OpenAI's refusal of an answer whose thought took all tokens is its end, and teaches nothing."""
    words = "Could not finish the message because max_tokens or model output limit was reached. Please try again."
    said = json.dumps({"error": {"message": words, "type": "invalid_request_error"}}).encode()
    refusal = (Head(headers=SSE), Send(b"data: " + said + b"\n\n")) if frame else status(400, words)
    events, asked = told(refusal, *[ask(max_tokens=OURS, max_tokens_named=named)] * 2)

    assert [one[-1] for one in events] == [Finish(reason=FinishReason.LENGTH)] * 2
    assert asked == [OURS] * 2


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
    words = OVER if left < 0 else UNREAD if chars > left * 10 else READ if prompt > left else ""
    counts = {"least": left + 1, "sum": context + 1, "chars": chars, "most": left * 10, "left": left}
    return words.format(context=context, asked=asked, **counts)


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
def test_a_prompt_that_nobody_has_counted_is_answered(context, share, asked, named, known) -> None:
    """Law: where vLLM doesn't say how long the prompt is, the answer gets fewer tokens, at most twice, and a quarter of
    what is free or of what was asked for at least, also where the request's size isn't `known`; the rest of the context
    where the client has named no number."""
    prompt = int(share * context)
    size = 4 * prompt if known or share > 0.7 else 0
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
    """Law: only a refusal of this number of tokens lowers it: the limit of a prompt, of the context, or of something
    else is no model's limit of an answer."""
    assert find_cap(words, OURS) is None
    assert find_room(words, 9_999) is None
