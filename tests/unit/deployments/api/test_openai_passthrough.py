"""Completions and embeddings at the boundary: what is checked, what goes on as it came, what leaves."""

import json
from typing import Any

import pytest

from deployments.api.openai_chat import ChatCall
from deployments.api.openai_passthrough import COMPLETIONS, EMBEDDINGS
from deployments.api.openai_render import CHAT, KEEP_ALIVE
from deployments.errors import ApiError
from reliability.answer.estimate import prompt_bytes
from reliability.types import Finish, FinishReason, Passed
from tests.support.refusing import refusal_of
from tests.support.run_values import request_of, run_of

BOTH = [COMPLETIONS, EMBEDDINGS]
END = Finish(reason=FinishReason.STOP)


def parse(dialect: Any, headers: dict[str, str] | None = None, **fields: Any) -> ChatCall:
    raw = json.dumps(fields).encode()
    return dialect.parse(raw, headers or {}, request_id="r", tokens_max=100, timeout_s=60.0)


def test_a_completion_goes_on_as_it_came():
    """Every field is kept for the upstream, also those that nobody here knows."""
    fields = {"prompt": "Once", "suffix": "!", "echo": True, "best_of": 2, "logprobs": 5, "stop": ["."], "top_k": 4}
    call = parse(COMPLETIONS, model="premium", stream=True, **fields)

    assert call.request.extra == fields | {"stream": True}
    assert (call.model, call.stream, call.request.route) == ("premium", True, "/completions")


@pytest.mark.parametrize(
    ("asked", "best_of", "given"), [(None, 1, 16), (0, 1, 0), (5, None, 5), (1000, 1, 100), (10, 3, 30), (90, 3, 99)]
)
def test_the_output_is_capped(asked, best_of, given):
    """OpenAI's default where nothing is said, nothing at all for who only wants probabilities, and never more than this
    server allows. With `best_of` the upstream generates several: together they are the output."""
    assert parse(COMPLETIONS, prompt="Once", max_tokens=asked, best_of=best_of).request.max_tokens == given


@pytest.mark.parametrize("dialect", BOTH)
def test_a_model_that_is_null_is_none(dialect):
    """As in a chat, null is as good as no field."""
    assert parse(dialect, prompt="a", input="a", model=None).model == "auto"


@pytest.mark.parametrize("dialect", BOTH)
def test_what_is_changed_is_noted(dialect):
    """Half a character can't be written; the report says that another one stands for it."""
    assert parse(dialect, prompt="a\ud83d", input="a\ud83d").notes == parse_chat_notes("a\ud83d") != ()


def parse_chat_notes(text: str) -> tuple[str, ...]:
    """The notes of a chat that says the same."""
    return parse(CHAT, messages=[{"role": "user", "content": text}]).notes


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_a_list_of_one_prompt_is_a_prompt(prompt):
    """It goes on as text."""
    assert parse(COMPLETIONS, prompt=prompt).request.extra["prompt"] == "Once"


@pytest.mark.parametrize(
    ("dialect", "fields", "code", "param"),
    [
        (COMPLETIONS, {}, "invalid_request", "prompt"),
        (COMPLETIONS, {"prompt": [1, 2]}, "unsupported", "prompt"),
        (COMPLETIONS, {"prompt": [[1, 2]]}, "unsupported", "prompt"),
        (COMPLETIONS, {"prompt": ["a", "b"]}, "unsupported", "prompt"),
        (COMPLETIONS, {"prompt": []}, "unsupported", "prompt"),
        (COMPLETIONS, {"prompt": 5}, "invalid_request", "prompt"),
        (COMPLETIONS, {"prompt": "a", "n": 2}, "invalid_request", "n"),
        (COMPLETIONS, {"prompt": "a", "best_of": 21}, "invalid_request", "best_of"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": -1}, "invalid_request", "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": "5"}, "invalid_request", "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "stream": 1}, "invalid_request", "stream"),
        (EMBEDDINGS, {}, "invalid_request", "input"),
        (EMBEDDINGS, {"input": []}, "invalid_request", "input"),
        (EMBEDDINGS, {"input": [[]]}, "invalid_request", "input"),
        (EMBEDDINGS, {"input": ["a"] * 2049}, "invalid_request", "input"),
        (EMBEDDINGS, {"input": {"a": 1}}, "invalid_request", "input"),
        (EMBEDDINGS, {"input": "a", "encoding_format": "hex"}, "invalid_request", "encoding_format"),
        (EMBEDDINGS, {"input": "a", "dimensions": 0}, "invalid_request", "dimensions"),
    ],
)
def test_what_cannot_be_is_refused(dialect, fields, code, param):
    """By the field's name."""
    refused = refusal_of(parse, dialect, **fields)
    assert (refused.code, str(refused.param).partition(".")[0]) == (code, param)


@pytest.mark.parametrize("given", ["one", ["one", "two"], [1, 2, 3], [[1, 2], [3]]])
def test_every_kind_of_input_goes_on(given):
    """Texts and tokens, one or many; never streamed."""
    call = parse(EMBEDDINGS, input=given, encoding_format="base64", dimensions=8, stream=True)

    assert call.request.extra == {"input": given, "encoding_format": "base64", "dimensions": 8}
    assert (call.stream, call.request.max_tokens) == (False, 0)


@pytest.mark.parametrize(
    ("given", "least"), [("a" * 100, 100), (["a" * 50] * 2, 100), ([7] * 50, 100), ([[7] * 25] * 2, 100)]
)
def test_what_is_read_is_measured(given, least):
    """A budget reserves for texts by their size, and for tokens by their number."""
    request = parse(EMBEDDINGS, input=given).request

    assert least <= prompt_bytes(request.messages) <= least + 32


@pytest.mark.parametrize("dialect", BOTH)
def test_a_session_is_named_as_in_a_chat(dialect):
    """By its header, else by the body, else by what it begins with."""
    fields = {"prompt": "a", "input": "a"}

    assert parse(dialect, {"x-mlx-stack-session": "s"}, **fields).request.session_id == "s"
    assert parse(dialect, user="u", **fields).request.session_id == "u"
    assert parse(dialect, **fields).request.session_id.startswith("c-")


def open_writer() -> Any:
    return COMPLETIONS.writer(parse(COMPLETIONS, prompt="a", stream=True), run_of(request_of("hi")))


def frame(text: str, finish: str | None = None) -> Passed:
    choice = {"text": text, "finish_reason": finish}
    return Passed(json.dumps({"choices": [choice]}, separators=(",", ":")).encode())


def test_a_stream_leaves_as_it_came_with_the_report_in_its_last_frame():
    """Texts leave at once, also one that looks like a finish reason; the report stands in the last frame before
    `[DONE]`."""
    writer, tricky = open_writer(), '"finish_reason":"stop"'
    first = writer.chunks("premium", [frame("Once"), frame(tricky)])
    held = writer.chunks("premium", [frame("", "stop"), Passed(b'{"choices":[],"usage":{}}')])
    rest = writer.last("premium", END, {"outcome": "answered"}).split(b"\n\n")

    assert first.count(b"data: ") == 2
    assert held == b""
    assert json.loads(rest[0][6:])["choices"][0]["finish_reason"] == "stop"
    assert json.loads(rest[1][6:]) == {"choices": [], "usage": {}, "mlx_stack": {"outcome": "answered"}}
    assert rest[2:] == [b"data: [DONE]", b""]


def test_a_stream_that_breaks_off_ends_in_an_error():
    """The frame is an error's body with the report, and no `[DONE]` follows; silence is a comment."""
    writer = open_writer()

    assert writer.silence("fast") == KEEP_ALIVE
    error = json.loads(writer.error(ApiError("stream_broken", "cut"), {"outcome": "broken"})[6:])
    assert (error["error"]["code"], error["mlx_stack"]) == ("stream_broken", {"outcome": "broken"})


@pytest.mark.parametrize("dialect", BOTH)
def test_a_whole_answer_is_its_pieces(dialect):
    """Byte for byte."""
    answer = dialect.collector(parse(dialect, prompt="a", input="a"), run_of(request_of("hi")))
    answer.take([Passed(b'{"a":')])
    answer.take([Passed(b"1}")])

    assert answer.body("premium", END) == b'{"a":1}'
