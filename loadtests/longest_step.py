"""The longest time for which one case of the fuzz holds the event loop, without Ray and without a network.

    python -m loadtests.longest_step [kind ...]

A case runs through the functions that the Router and a hosted tier run it through, in the same order and with the same
turns of the loop: body, request, drive, gate, judge, answer, report, and the upstream's bytes through `ChatReader`.
Beside it a task wakes up every millisecond; the longest time between two of its turns is what any other request would
have waited. So this finds culprits; what a client really sees is measured by `loadtests.bystander`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any

from deployments.api.openai_chat import ChatCall, parse_chat
from deployments.api.openai_render import CHAT
from deployments.config.app_config import AppConfig, RouterConfig, load
from deployments.errors import ApiError
from deployments.reports.account import Account
from deployments.reports.incidents import incidents_of
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.policy import build_expected, chain_for, hold_of, limits_of
from deployments.request.run_record import Run
from deployments.tiers.hosted.chat_body import chat_body
from deployments.tiers.hosted.chat_reader import ChatReader
from deployments.tiers.hosted.connection import Redactor
from deployments.work.large_work import large
from loadtests.hostile import BODIES, MODEL, SCHEMAS, Case, build_case, encode_body
from loadtests.hostile_answers import ANSWERS, build_request_for, make_pieces
from reliability.answer.estimate import prompt_bytes
from reliability.types import ChatRequest, Event, Started, TierState, TierStatus

NS_PER_S = 1_000_000_000
LOOK_S = 0.001


def build_config() -> AppConfig:
    """Build the server's configuration of these runs."""
    hosted = {"kind": "hosted", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    return load({"tiers": {MODEL: hosted}, "reliability": {"escalation": {"chain": [MODEL]}}})


class Upstream:
    """A tier (`deployments.request.interfaces.Tier`) that reads an upstream's bytes as the hosted one does."""

    def __init__(self, pieces: Callable[[], Iterator[bytes]]) -> None:
        self._pieces = pieces

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        """Stream as the protocol says."""
        await large(request.body_bytes, chat_body, request, "m")
        yield [Started()]
        reader = ChatReader(MODEL, Redactor(["sk-secret"]))
        for piece in self._pieces():
            await asyncio.sleep(0)
            if events := await large(len(piece), reader.feed, piece):
                yield events
            if reader.over:
                return
        yield await large(reader.held_bytes, reader.end)

    async def status(self) -> TierStatus:
        """Report as the protocol says."""
        return TierStatus(name=MODEL, kind="hosted", state=TierState.READY)

    async def close(self) -> None:
        """Free nothing: there is nothing."""


async def measure_longest_step(raw: bytes, pieces: Callable[[], Iterator[bytes]]) -> tuple[float, float, str]:
    """Return (the longest time without a turn of the loop, the whole time, how it ended)."""
    worst, ended = 0.0, asyncio.Event()

    async def look() -> None:
        nonlocal worst
        before = time.perf_counter()
        while not ended.is_set():
            await asyncio.sleep(LOOK_S)
            now = time.perf_counter()
            worst, before = max(worst, now - before), now

    looking = asyncio.create_task(look())
    begun = time.perf_counter()
    try:
        outcome = await _serve(raw, pieces)
    finally:
        ended.set()
        await looking
    return worst, time.perf_counter() - begun, outcome


async def _serve(raw: bytes, pieces: Callable[[], Iterator[bytes]]) -> str:
    """Serve one request as the Router does."""
    config, clock = RouterConfig(reliability=build_config().reliability), MonotonicClock()
    try:
        call, run = await large(len(raw), _read_request, raw, config, clock)
    except ApiError as error:
        return f"{error.status} {error}"[:100]
    ports = Ports(
        tiers={MODEL: Upstream(pieces)},
        timeouts={MODEL: config.server.timeouts},
        clock=clock,
        jitter=random.Random(1).random,
        large=large,
    )
    answer, writer = CHAT.collector(call, run), CHAT.writer(call, run)
    async with aclosing(drive(run, ports)) as batches:
        async for batch in batches:
            writer.chunks(MODEL, batch) if call.stream else answer.take(batch)
    account = Account(run=run, state=None, started_ns=0)  # type: ignore[arg-type]
    report = account.report(clock.now_ns(), {})
    incidents_of(run, at_s=1.0, statuses={}, keep_text=False)
    if run.finish is not None:
        answer.body(MODEL, run.finish)
    flaws = ",".join(str(a.fault or a.flaw or "good").split(".")[-1] for a in run.attempts)
    return f"{report['outcome']} {flaws}"


def _read_request(raw: bytes, config: RouterConfig, clock: MonotonicClock) -> tuple[ChatCall, Run]:
    """Read the request as the Router does."""
    call = parse_chat(raw, {}, request_id="r1", tokens_max=16_384, timeout_s=60)
    request = call.request
    expected = build_expected(config, request, call.toolbox)
    run = Run(
        request=request,
        expected=expected,
        chain=chain_for(config, [MODEL], call.model),
        limits=limits_of(config),
        deadline_ns=clock.now_ns() + 60 * NS_PER_S,
        hold=hold_of(config, expected, stream=call.stream),
        prompt_bytes=prompt_bytes(request.messages, request.tools),
    )
    return call, run


def iterate_cases(seed: str, wanted: list[str]) -> Iterator[tuple[Case, Callable[[], Iterator[bytes]]]]:
    """Yield every kind once, or those that are wanted, with the answer that its upstream gives."""
    for kind in [*BODIES, *SCHEMAS, *ANSWERS]:
        if wanted and not any(word in kind for word in wanted):
            continue
        if kind in ANSWERS:
            raw = encode_body({"model": MODEL, "max_tokens": 16_384} | build_request_for(kind, seed))
            yield Case(kind, raw), partial(make_pieces, kind, seed)
        else:
            yield build_case(kind, seed), partial(make_pieces, find_answer_kind(build_case(kind, seed).raw), seed)


def find_answer_kind(raw: bytes) -> str:
    """Find the kind of answer that a body asks its upstream for."""
    _, mark, rest = raw.rpartition(b"answer-kind:")
    return rest.partition(b'"')[0].decode() if mark else "a text"


class Over(Exception):
    """The case has taken long enough."""


def _raise_over(*_: Any) -> None:
    raise Over


def main() -> int:
    """Print every kind with its longest step."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.longest_step", description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--cut-s", type=int, default=20)
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _raise_over)
    for case, pieces in iterate_cases(given.seed, given.kinds):
        begun = time.perf_counter()
        signal.alarm(given.cut_s)
        try:
            worst, whole, outcome = asyncio.run(measure_longest_step(case.raw, pieces))
        except (Over, Exception) as error:
            worst = whole = time.perf_counter() - begun
            outcome = f"!! {type(error).__name__} {error}"[:80]
        signal.alarm(0)
        print(f"{worst * 1000:9.0f} ms  of {whole * 1000:8.0f} ms  {case.kind:34s} {outcome}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
