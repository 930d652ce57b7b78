"""The report of a request; what it says of attempts and outcomes is tested where they are made (`test_drive.py`)."""

import asyncio
import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from deployments.reports.report import (
    _NOTE_CHARS_MAX,
    _REPORT_BYTES_MAX,
    describe_running,
    prefill_json,
    report_of,
    write_headers,
    write_prefill,
)
from deployments.request.accounting import Accounting
from deployments.request.attempt import NOT_TAKEN
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock
from deployments.request.run_record import Run
from reliability.attempt import Attempt
from reliability.prefix import LostPrefix, PrefixChange
from reliability.types import (
    ChatRequest,
    Event,
    Fault,
    Finish,
    FinishReason,
    Flaw,
    Prefilled,
    Started,
    Text,
    TierStatus,
    Usage,
)
from tests.support import room_rig
from tests.support.driving import make_ports, make_run
from tests.support.run_values import request_of, run_of

DETAIL = "the system prompt changed"


class Losing:
    """A tier that says what of the session's last prompt it can't go on from."""

    def __init__(self, lost: LostPrefix | None) -> None:
        self.lost = lost

    async def stream(self, request: ChatRequest) -> AsyncGenerator[list[Event], None]:
        yield [Started(self.lost)]
        yield [Text("Hello."), Finish(reason=FinishReason.STOP)]

    async def status(self) -> TierStatus:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def report_with(lost: LostPrefix | None) -> dict[str, Any]:
    """The report of a request that one tier answered, after it lost this."""

    async def go() -> Run:
        clock = MonotonicClock()
        run = make_run(("fast",), clock)
        async for _ in drive(run, make_ports({"fast": Losing(lost)}, clock)):
            pass
        return run

    return report_of(asyncio.run(go()))


def test_a_lost_cache_is_told_with_its_place_and_its_reason() -> None:
    """Law: the attempt has where and why as fields, and the notes as a sentence that a person reads."""
    report = report_with(LostPrefix(token=412, of=5210, changes=(PrefixChange.SYSTEM_PROMPT,), detail=DETAIL))

    assert report["attempts"][0]["cache_lost"] == {
        "at_token": 412,
        "of_tokens": 5210,
        "changed": ["system_prompt"],
        "detail": DETAIL,
    }
    assert report["notes"] == ["tier fast: cache lost at token 412 of 5,210: the system prompt changed"]
    assert orjson.dumps(report)


def test_where_nothing_is_lost_nothing_is_told() -> None:
    """Law: a prompt that goes on has no note, and neither has a conversation that begins, which has the field."""
    assert report_with(None)["attempts"][0]["cache_lost"] is None
    assert report_with(None)["notes"] == []
    anew = report_with(LostPrefix(token=1, of=2, changes=(PrefixChange.NEW_CONVERSATION,), detail="begins"))
    assert anew["attempts"][0]["cache_lost"]["changed"] == ["new_conversation"]
    assert anew["notes"] == []


def test_a_note_is_short() -> None:
    """Law: however long the reason is, the note isn't."""
    (note,) = report_with(LostPrefix(token=1, of=2, changes=(PrefixChange.TOOLS,), detail="x" * 5000))["notes"]
    assert len(note) == _NOTE_CHARS_MAX


def test_headers_are_those_of_the_answer():
    """What a client is shown, and nothing that wasn't there."""
    left = {"escalated_from": "fast", "escalation_reason": "loop_detected", "loop": "nudged", "retries": 1}
    away = room_rig.report(tier="standard", **left)

    assert write_headers(room_rig.report(), 1) == {
        "X-MLX-Stack-Session": "s",
        "X-MLX-Stack-Tier": "fast",
        "X-MLX-Stack-Retries": "0",
        "X-MLX-Stack-Attempts": "1",
    }
    assert write_headers(away, 2)["X-MLX-Stack-Escalation-Reason"] == "loop_detected"
    assert "X-MLX-Stack-Loop" not in write_headers(room_rig.report(loop="detected"), 1)
    short = write_headers(room_rig.report(shortened=3, memory_pressure="warn", budget=[{}]), 1)
    assert short["X-MLX-Stack-Shortened"] == "3"
    assert short["X-MLX-Stack-Memory-Pressure"] == "warning"
    assert short["X-MLX-Stack-Budget-Warning"] == "80%"


S = 1_000_000_000
SECRET = "zebra-4711"


def running(**changes: object) -> Run:
    run = run_of(request_of(SECRET), deadline_ns=100 * S)
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def test_it_says_where_it_is_for_how_long_and_what_it_met_and_nothing_that_was_said():
    """Counted from its deadline, which every request has; the last attempt's fault or flaw, if it had one; no word of
    the prompt or of a detail."""
    met = [Attempt(tier="fast", ran=True, fault=Fault.IDLE_TIMEOUT, detail=SECRET)]
    row = describe_running(running(tier="fast", attempts=met), now_ns=75 * S, now_s=1e9)

    assert (row["tier"], row["elapsed_ms"], row["at"], row["met"]) == ("fast", 5000, 1e9 - 5, "idle_timeout")
    assert SECRET not in json.dumps(row)
    assert describe_running(running(), now_ns=75 * S, now_s=1e9)["met"] is None


@pytest.mark.parametrize(
    ("ttft_ns", "counted", "end", "shown"),
    [
        (None, None, None, (False, 0)),
        (1, None, None, (True, 7)),
        (1, Usage(completion_tokens=9), None, (True, 9)),
        (1, Usage(completion_tokens=9), "done", (False, 9)),
    ],
)
def test_it_writes_from_its_first_word_on(ttft_ns, counted, end, shown):
    """What its tier has counted, or an estimate by what came where it counts at the end."""
    spending = Accounting(
        prompt_bytes=0, output_cap=9, prompt_most=int, progress=None, counted=counted, written_bytes=28
    )
    current = SimpleNamespace(ttft_ns=ttft_ns, end=end, spending=spending, prefilling=None)
    row = describe_running(running(current=current), now_ns=75 * S, now_s=1e9)

    assert (row["writing"], row["tokens"]) == shown


@pytest.mark.parametrize(
    ("prefill", "words"),
    [
        (Prefilled(tokens=12288, of_tokens=40000, left_s=43.21), "prefill 12,288 of 40,000 tokens, about 43 s left"),
        (Prefilled(tokens=0, of_tokens=9000, left_s=9.0, waits_behind=2), "prefill of 9,000 tokens waits, 2 before it"),
        (NOT_TAKEN, "waiting for a replica"),
    ],
)
def test_a_prefill_is_written_in_words(prefill, words):
    """How far it is, or what it waits for."""
    assert write_prefill(prefill_json(prefill)) == words


@pytest.mark.parametrize("long", ["x" * 100_000, "\x00" * 100_000, "🙂" * 100_000])
@pytest.mark.parametrize("count", [1, 64])
def test_a_report_is_bounded_whatever_a_request_holds(long: str, count: int) -> None:
    """Law: notes, details and names are cut where they are made, and the report as a whole: however many attempts there
    are, and however long a client's or an upstream's words. Counter-case: of few attempts each detail begins so."""
    lost = LostPrefix(token=1, of=2, changes=(PrefixChange.TOOLS,), detail=long)
    attempts = [Attempt(tier="fast", ran=True, flaw=Flaw.EMPTY, detail=long, lost=lost) for _ in range(count)]
    run = running(attempts=attempts, notes=(long,) * 1_000)
    report = report_of(run)

    assert len(orjson.dumps(report)) <= _REPORT_BYTES_MAX
    assert max(map(len, report["notes"])) <= _NOTE_CHARS_MAX
    assert len(report["notes"]) <= 33
    assert len(report["attempts"]) == count
    assert report["outcome"] == "client_left"
    if count == 1:
        assert report["attempts"][0]["detail"] == long[:1_000]
