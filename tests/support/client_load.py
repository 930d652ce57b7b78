"""Many clients at once: real openai clients on one event loop, what became of each, and the ledger meanwhile.

Prices are made so that what a call reserves is what it uses: the prompt is as many tokens as the estimate says, an
answer is `WORDS` words of one token each, and `COST` is both together. So the number of calls that fit a budget is
exact.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx
import openai
import psutil

from deployments.running.actor_calls import NAMESPACE
from deployments.state.client import _actor_name
from reliability.answer.estimate import prompt_bytes, tokens_max
from tests.support.plays import SSE, Act, Head, Play, Seen, Wait, tail, words
from tests.support.serving import Server

PROMPT = "hi"
PROMPT_TOKENS = tokens_max(prompt_bytes([{"role": "user", "content": PROMPT}]))
WORDS = 14
COST = PROMPT_TOKENS + WORDS
ANSWER = " ".join(["ok"] * WORDS)
USAGE = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": WORDS, "total_tokens": COST}
# Nobody is to time out here because the machine is busy.
PATIENT = {"connect_s": 30.0, "first_token_s": 30.0, "idle_s": 30.0, "total_s": 60.0}
LOOK_S = 0.05


def paced(word_s: float = 0.02, usage: dict[str, int] | None = USAGE) -> Play:
    """The answer, a word at a time."""
    acts: list[Act] = [Head(headers=SSE)]
    for word in words(ANSWER):
        acts += [word, Wait(word_s)]
    return (*acts, *tail(usage=usage))


def scripted(word_s: float = 0.02) -> dict[str, Any]:
    """The same answer as a rule of a scripted tier."""
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": WORDS}
    return {"token_delay_s": word_s, "usage": usage, "answer": ANSWER}


class How(StrEnum):
    """How an answer ended, as the client sees it."""

    ANSWERED = "answered"
    REFUSED = "refused"  # an HTTP error
    FRAME = "frame"  # an error frame after the first bytes
    BROKEN = "broken"  # the connection was refused, reset or broke off
    LEFT = "left"  # the client went
    TRUNCATED = "truncated"  # a clean end without a finish reason: must never happen


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One request. `tokens`: of its usage. `retries`: what the openai client did on its own."""

    how: How
    status: int = 0
    code: str = ""
    tokens: int = 0
    text: str = ""
    tier: str = ""
    retries: int = 0
    headers: dict[str, str] = field(default_factory=dict)


def openai_client(server: Server, *, key: str = "sk-test", retries: int = 0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=retries, timeout=90.0)


async def ask(
    client: openai.AsyncOpenAI, session: str, *, stream: bool, model: str = "auto", leave_s: float | None = None
) -> Outcome:
    """One request. With `leave_s` the client goes: after the first piece of a stream, or after so many seconds."""
    try:
        async with asyncio.timeout(None if stream else leave_s):
            return await _asked(client, session, stream=stream, model=model, leaves=leave_s is not None)
    except TimeoutError:
        return Outcome(how=How.LEFT)
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        return Outcome(
            how=How.REFUSED,
            status=error.status_code,
            code=str(body.get("code")),
            retries=int(error.response.request.headers.get("x-stainless-retry-count", "0")),
            headers=dict(error.response.headers),
        )
    except (openai.APIConnectionError, httpx.HTTPError) as error:
        return Outcome(how=How.BROKEN, code=type(error).__name__)
    except openai.APIError as error:
        return Outcome(how=How.FRAME, status=200, code=str(error.body.get("code")))  # type: ignore[attr-defined]


async def _asked(client: openai.AsyncOpenAI, session: str, *, stream: bool, model: str, leaves: bool) -> Outcome:
    asked: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": WORDS}
    asked |= {"user": session, "stream": stream} | ({"stream_options": {"include_usage": True}} if stream else {})
    raw = await client.chat.completions.with_raw_response.create(**asked)
    told = {"status": raw.status_code, "retries": raw.retries_taken, "headers": dict(raw.headers)}
    told["tier"] = raw.headers.get("x-mlx-stack-tier", "")
    if not stream:
        body = raw.parse()
        return Outcome(
            how=How.ANSWERED if body.choices[0].finish_reason else How.TRUNCATED,
            tokens=body.usage.total_tokens,
            text=body.choices[0].message.content or "",
            **told,
        )
    return await _read(raw.parse(), told, leaves=leaves)


async def _read(chunks: Any, told: dict[str, Any], *, leaves: bool) -> Outcome:
    text, finish, tokens = "", None, 0
    async with chunks:
        async for chunk in chunks:
            tokens = chunk.usage.total_tokens if chunk.usage else tokens
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
            if leaves and text:
                return Outcome(how=How.LEFT, text=text, **told)
    how = How.ANSWERED if finish else How.TRUNCATED
    return Outcome(how=how, tokens=tokens, text=text, **told)


@dataclass
class Ledger:
    """One session's books over HTTP. `looks` holds all that was seen: spent and reserved together."""

    server: Server
    session: str
    key: str = ""
    bearer: str = "sk-test"
    looks: list[int] = field(default_factory=list)

    @property
    def _call(self) -> dict[str, Any]:
        return {
            "url": f"{self.server.url}/v1/reliability/sessions/{self.session}",
            "params": {"key": self.key},
            "headers": {"authorization": f"Bearer {self.bearer}"},
            "timeout": 60.0,
        }

    def now(self) -> dict[str, Any]:
        """The books; nothing is spent by a session that nobody knows. Waits for an actor that is away."""
        while (response := httpx.get(**self._call)).status_code == 503:
            pass
        assert response.status_code in (200, 404), response.text
        books = response.json() if response.is_success else {"spent_tokens": 0, "reserved_tokens": 0, "open_calls": 0}
        self.looks.append(books["spent_tokens"] + books["reserved_tokens"])
        return dict(books)

    def settled(self) -> dict[str, Any] | None:
        books = self.now()
        return books if books["open_calls"] == books["reserved_tokens"] == 0 else None

    async def watch(self) -> None:
        async with httpx.AsyncClient() as client:
            while True:
                response = await client.get(**self._call)
                if response.is_success:
                    books = response.json()
                    self.looks.append(books["spent_tokens"] + books["reserved_tokens"])
                await asyncio.sleep(LOOK_S)


async def crowd(
    ledger: Ledger, asks: Callable[[openai.AsyncOpenAI, int], Awaitable[Outcome]], count: int
) -> list[Outcome]:
    """All at once, while the ledger is looked at."""
    watching = asyncio.create_task(ledger.watch())
    try:
        async with openai_client(ledger.server, key=ledger.bearer) as client:
            return list(await asyncio.gather(*(asks(client, number) for number in range(count))))
    finally:
        watching.cancel()


def state_actor(app: str) -> Any:
    import ray

    return ray.get_actor(_actor_name(app), NAMESPACE)


def state_pid(app: str) -> int:
    import ray

    return int(ray.get(state_actor(app).__ray_call__.remote(_pid)))


def _pid(_: Any) -> int:
    return os.getpid()


def kill_state(app: str) -> int:
    pid = state_pid(app)
    os.kill(pid, signal.SIGKILL)
    return pid


def kill_replica(app: str, deployment: str) -> None:
    """Kill -9 the one replica of a deployment."""
    (process,) = processes(f"ServeReplica:{app}:{deployment}")
    os.kill(process.pid, signal.SIGKILL)


def of_session(log: list[Seen], session: str) -> list[Seen]:
    """The upstream's requests of one session: it rides along as `user`."""
    return [seen for seen in log if seen.body.get("user") == session]


def processes(name: str) -> list[psutil.Process]:
    """This session's own Ray processes whose title holds `name`."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [process] if name in " ".join(process.cmdline()) else []
    return found
