"""The three accounts of a run of chaos (`loadtests.chaos`): what the clients saw, and what the server says of it
afterwards, its ledger, its reports and its incidents."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

HEAD, TOLD = "fast", "told"
TOLD_WORDS, TOLD_WORD_S = 100, 0.04
ATTEMPTS_MAX = 4
PROMPT_TOKENS_MAX = 32  # of a prompt here, as it is estimated
TOKENS_MAX = 128  # of an answer
# What the calls of one try without a report may have cost: prompt and answer, for each call that it may make.
UNREPORTED_MAX = ATTEMPTS_MAX * (PROMPT_TOKENS_MAX + TOKENS_MAX)
UNCOUNTED_MAX = 64  # tokens of an answer that had left, and weren't in the ledger yet when its Router died


@dataclass
class Accounts:
    """What the clients saw. `lost`: the last answer of requests that never got a good one; `frames`: the errors that
    ended a stream which had begun; `continued`: answers whose text is of more than one attempt."""

    answered: int = 0
    retried: int = 0
    lost: list[str] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)
    tried: dict[str, list[str]] = field(default_factory=dict)  # the request ids of a session that a server has taken
    answers: dict[str, tuple[str, int]] = field(default_factory=dict)  # tier and tokens, by request id
    killed: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)  # victims that weren't there
    unreported: int = 0
    tiers: Counter[str] = field(default_factory=Counter)
    frames: list[str] = field(default_factory=list)
    continued: int = 0

    def note_stream(self, name: str, text: str) -> None:
        """Note how a stream was gone on with, and how it ended."""
        if not text.startswith("data: ") and not text.startswith(":"):
            return
        self.continued += '"continued":true' in text
        *_, end = text.rstrip().rpartition("\n")
        if '"error":' in end:
            self.frames.append(f"{name}: {end[:300]}")


@dataclass(frozen=True)
class ServerRecords:
    """What the server reports afterwards. It may still be coming back: each question is asked until patience ends."""

    http: httpx.AsyncClient
    quiet_at: float

    async def get(self, path: str, **query: str) -> dict[str, Any] | None:
        """Return the answer; None where there is no such thing."""
        while True:
            with contextlib.suppress(httpx.TransportError):
                response = await self.http.get(f"/v1/reliability/{path}", params=query)
                if response.status_code in (200, 404):
                    return dict(response.json()) if response.status_code == 200 else None
            if time.monotonic() > self.quiet_at:
                raise TimeoutError(f"no answer to {path}")
            await asyncio.sleep(0.2)

    async def read_ledger(self, session: str, tokens: int) -> dict[str, Any] | None:
        """Return the session's ledger once no call is open and so many tokens are booked, or as it is when patience
        ends: what was answered while the state actor was away is booked when it is back."""
        while True:
            ledger = await self.get(f"sessions/{session}")
            wait_for_load = ledger is not None and not ledger["open_calls"] and ledger["spent_tokens"] >= tokens
            if wait_for_load or time.monotonic() > self.quiet_at:
                return ledger
            await asyncio.sleep(0.2)


async def compare_session(found: ServerRecords, session: str, seen: Accounts) -> list[str]:
    """Return what doesn't agree about one session."""
    saw = {request_id: seen.answers.get(request_id, ("", 0))[1] for request_id in seen.tried[session]}
    ledger = await found.read_ledger(session, sum(saw.values()) - UNCOUNTED_MAX)
    if ledger is None or ledger["open_calls"]:
        return [f"the ledger of {session} isn't closed: {ledger}"]
    reports = {request_id: await found.get(f"requests/{request_id}") for request_id in saw}
    wrong = []
    for request_id, report in reports.items():
        if request_id in seen.answers and report is None:
            seen.unreported += 1
        elif request_id in seen.answers and report is not None:
            wrong += await check_report(found, request_id, report, *seen.answers[request_id])
    reported = sum(map(sum_spent, filter(None, reports.values())))
    unreported = [saw[request_id] for request_id, report in reports.items() if report is None]
    least = reported + sum(max(0, tokens - UNCOUNTED_MAX) for tokens in unreported)
    if not least <= ledger["spent_tokens"] <= reported + UNREPORTED_MAX * len(unreported):
        wrong.append(
            f"reports of {session} have {reported} tokens, its clients saw {sum(unreported)} without a report, in"
            f" {len(unreported)} tries, and its ledger has {ledger['spent_tokens']}"
        )
    return wrong


def sum_spent(report: dict[str, Any]) -> int:
    """Sum up all that a request has cost, in tokens."""
    return sum(attempt["usage"]["total_tokens"] for attempt in report["attempts"] if attempt["usage"])


async def check_report(
    found: ServerRecords, request_id: str, report: dict[str, Any], tier: str, tokens: int
) -> list[str]:
    """Return what is wrong with the report and the incidents of one answered request."""
    if report["outcome"] != "answered" or report["tier"] != tier or sum_spent(report) < tokens:
        return [f"{request_id}: the client saw {tokens} tokens of {tier}, its report says {report}"]
    if tier in (HEAD, TOLD):
        return []
    incidents = await found.get("incidents", request_id=request_id, kind="escalation")
    return [] if incidents and incidents["data"] else [f"{request_id}: {tier} answered, and no incident says why"]
