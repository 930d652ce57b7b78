"""A bug while a stream is made: before its first frame it is an HTTP error, behind it an error frame."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.api.anthropic.messages_render import MESSAGES
from deployments.api.dialect import Dialect, StreamWriter
from deployments.api.exchange import PROGRESS_S, Exchange, _insert_silences
from deployments.api.openai_chat import _ChatWanted
from deployments.api.openai_render import CHAT, KEEP_ALIVE
from deployments.api.openai_responses.response_events import RESPONSES
from reliability.types import Event, Finish, FinishReason, Prefilled, Text, Usage
from tests.contract.documents.openai_document import find_faults
from tests.support.response_wire import ask, check_events, read_frames
from tests.support.run_values import request_of, run_of


class Client:
    """A client's exchange over a run that breaks after `after` lists of events."""

    def __init__(self, after: int) -> None:
        self.closed = 0
        self.exchange = Exchange(
            dialect=CHAT,
            call=SimpleNamespace(stream=True, wanted=_ChatWanted()),  # type: ignore[arg-type]
            run=run_of(request_of("hi"), tier="fast"),
            events=breaking(after),
            report=dict,
            close=self._close,
            keepalive_s=10.0,
        )

    def _close(self) -> None:
        self.closed += 1


async def breaking(after: int) -> AsyncGenerator[list[Event], None]:
    for _ in range(after):
        yield [Text("word ")]
    raise ZeroDivisionError("a bug")


def test_before_the_first_frame_it_is_an_http_error():
    """No byte has left, so the bug reaches the app's handler, which answers 500; the books are closed."""
    client = Client(after=0)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(client.exchange.respond())

    assert client.closed


async def test_behind_the_first_frame_it_is_an_error_frame():
    """The stream ends with one error that names the server, and without `[DONE]`; the books are closed."""
    client = Client(after=2)
    response: Any = await client.exchange.respond()
    *words, last = [frame async for frame in response.body_iterator]
    error = json.loads(last.removeprefix(b"data: "))["error"]

    assert len(words) == 2
    assert error["code"] == "internal_error"
    assert "bug" not in error["message"]
    assert client.closed


async def source(delays, closed):
    try:
        for i, delay in enumerate(delays):
            await asyncio.sleep(delay)
            yield [i]
    finally:
        closed.append(True)


async def test_batches_pass_in_order_and_silence_is_marked():
    """Every batch arrives once and in order; None stands where nothing came for the time of silence."""
    closed: list[bool] = []
    out = [batch async for batch in _insert_silences(source([0, 0.2, 0], closed), 0.05)]

    assert [batch for batch in out if batch is not None] == [[0], [1], [2]]
    assert None in out
    assert closed == [True]


@pytest.mark.parametrize("delay", [0, 60])
async def test_closing_closes_the_source_even_while_it_is_silent(delay):
    """A reader that leaves ends the work behind, at once."""
    closed: list[bool] = []
    batches = _insert_silences(source([0, delay], closed), 0.01)
    await anext(batches)
    async with asyncio.timeout(5):
        await batches.aclose()

    assert closed == [True]


@given(st.lists(st.integers(0, 2), max_size=12), st.lists(st.integers(0, 3), max_size=12), st.booleans())
def test_every_batch_once_whatever_the_two_sides_do(turns_between, turns_read, breaks):
    """However many turns of the loop the source takes for a batch and the reader for a look at it: each arrives once,
    in order, the source is never more than one ahead, and what it raises at its end comes after its batches."""
    made = 0

    async def source():
        nonlocal made
        for turns in turns_between:
            for _ in range(turns):
                await asyncio.sleep(0)
            made += 1
            yield [made]
        if breaks:
            raise RuntimeError("broken")

    async def go():
        seen = []
        with pytest.raises(RuntimeError, match="broken") if breaks else contextlib.nullcontext():
            async for batch in _insert_silences(source(), 60):
                seen.append(batch)
                assert made <= len(seen) + 1
                for _ in range(turns_read[len(seen) - 1] if len(seen) <= len(turns_read) else 0):
                    await asyncio.sleep(0)
        return seen

    assert asyncio.run(go()) == [[i + 1] for i in range(len(turns_between))]


async def test_a_reader_that_is_cancelled_ends_the_source():
    """While it waits in silence, too."""
    closed, begun = list[bool](), asyncio.Event()

    async def silent():
        try:
            begun.set()
            await asyncio.Event().wait()
            yield [1]
        finally:
            closed.append(True)

    reading = asyncio.ensure_future(anext(_insert_silences(silent(), 30)))
    await begun.wait()
    reading.cancel()
    await asyncio.wait([reading], timeout=5)

    assert closed == [True]


def prefilling(dialect: Dialect, call: Any, keepalive_s: float = 10.0) -> tuple[Exchange, StreamWriter]:
    """An exchange whose tier is reading a long prompt."""
    run = run_of(request_of("hi"), tier="fast")
    given = {"dialect": dialect, "call": call, "run": run, "keepalive_s": keepalive_s}
    return Exchange(**given, events=breaking(0), report=dict, close=list), dialect.writer(call, run)


def read_to(exchange: Exchange, tokens: int, left_s: float) -> None:
    prefill = Prefilled(tokens=tokens, of_tokens=40_000, left_s=left_s)
    exchange.run.current = SimpleNamespace(prefilling=prefill)  # type: ignore[assignment]


CHAT_CALL: Any = SimpleNamespace(stream=True, wanted=_ChatWanted())
CALLS: dict[str, tuple[Dialect, Any]] = {
    "chat": (CHAT, CHAT_CALL),
    "messages": (MESSAGES, SimpleNamespace(wanted=SimpleNamespace(thinking=False), edits=None)),
    "responses": (RESPONSES, ask(tools=[])),
}


def test_a_stream_begins_early_only_for_a_prompt_that_takes_long():
    """Law: a prompt that will be read before the first keep-alive is due writes nothing: its headers can still say who
    answers. Another one begins the stream; what was written isn't written again, and keep-alives come as ever."""
    exchange, writer = prefilling(CHAT, CHAT_CALL)
    read_to(exchange, 9_000, 7.9)
    assert exchange._fill_silence(writer, 5, begun=False) == b""
    read_to(exchange, 12_288, 43.2)
    assert exchange._fill_silence(writer, 5, begun=False) == b": prefill 12,288 of 40,000 tokens, about 43 s left\n\n"
    assert exchange._fill_silence(writer, 5, begun=True) == b""
    read_to(exchange, 39_000, 1.0)
    assert exchange._fill_silence(writer, 5, begun=True).startswith(b": prefill 39,000")
    assert exchange._fill_silence(writer, 5, begun=True) == KEEP_ALIVE


@pytest.mark.parametrize("keepalive_s", [0.05, 1.9, 2.0, 2.1, 10.0, 300.0])
async def test_a_hosted_tier_s_silence_is_what_it_was(keepalive_s):
    """Law: where no tier reports a prefill, a keep-alive comes each `keepalive_s`, and nothing else."""
    exchange, writer = prefilling(CHAT, CHAT_CALL, keepalive_s)
    parts = math.ceil(keepalive_s / PROGRESS_S)
    frames = [exchange._fill_silence(writer, parts, begun=False) for _ in range(3 * parts)]

    assert keepalive_s / parts <= PROGRESS_S
    assert [at % parts for at, frame in enumerate(frames, 1) if frame] == [0, 0, 0]


@pytest.mark.parametrize("name", CALLS)
def test_official_clients_read_on_behind_a_report_of_prefill(name):
    """Law: an unmodified client gets the answer, with reports before its first event and between later ones."""
    dialect, call = CALLS[name]
    exchange, writer = prefilling(dialect, call)
    sent = b""
    for word in ("one ", "two"):
        for tokens in (1_000, 2_000):
            read_to(exchange, tokens, 90.0)
            sent += exchange._fill_silence(writer, 5, begun=bool(sent))
        sent += writer.chunks("fast", [Text(word)])
    sent += writer.last("fast", Finish(reason=FinishReason.STOP, usage=Usage(completion_tokens=2)), {})

    assert sent.count(b"1,000 of 40,000" if name == "chat" else b'"tokens":1000,"of_tokens":40000') >= 2
    assert ask_official(name, sent) == "one two"
    if name == "responses":
        events = read_frames(sent)
        check_events(events)
        assert not [fault for event in events for fault in find_faults("ResponseStreamEvent", event)]


def ask_official(name: str, sent: bytes) -> str:
    """Read a stream with the official client of its dialect."""
    http: Any = httpx2 if name == "messages" else httpx
    answer = http.Response(200, content=sent, headers={"content-type": "text/event-stream"})
    client: Any = http.Client(transport=http.MockTransport(lambda _: answer))
    options: Any = {"api_key": "k", "base_url": "http://127.0.0.1:1", "http_client": client}
    said: Any = [{"role": "user", "content": "hi"}]
    if name == "messages":
        with anthropic.Anthropic(**options).messages.stream(model="m", max_tokens=9, messages=said) as stream:
            return stream.get_final_text()
    official = openai.OpenAI(**options)
    if name == "responses":
        with official.responses.stream(model="m", input="hi") as events:
            return events.get_final_response().output_text
    with official.chat.completions.stream(model="m", messages=said) as chunks:
        return chunks.get_final_completion().choices[0].message.content or ""
