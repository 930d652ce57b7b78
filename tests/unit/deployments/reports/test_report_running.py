"""A running request as it is shown: where it is and what it met, and not a word of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from deployments.reports.report import describe_running
from deployments.request.run_record import Run
from reliability.types import Attempt, Fault, Usage
from tests.support.run_values import request_of, run_of

S = 1_000_000_000
SECRET = "zebra-4711"


def running(**changes: object) -> Run:
    run = run_of(request_of(SECRET), deadline_ns=100 * S)
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def test_it_says_where_it_is_and_for_how_long():
    """Counted from its deadline, which every request has."""
    row = describe_running(running(tier="fast"), now_ns=75 * S, now_s=1e9)

    assert (row["tier"], row["elapsed_ms"], row["at"]) == ("fast", 5000, 1e9 - 5)


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
    spending = SimpleNamespace(counted=counted, written_bytes=28)
    current = SimpleNamespace(ttft_ns=ttft_ns, end=end, spending=spending)
    row = describe_running(running(current=current), now_ns=75 * S, now_s=1e9)

    assert (row["writing"], row["tokens"]) == shown


def test_it_says_what_it_met():
    """The last attempt's fault or flaw; nothing where there was none."""
    met = running(attempts=[Attempt(tier="fast", ran=True, fault=Fault.IDLE_TIMEOUT, detail=SECRET)])

    assert describe_running(met, now_ns=75 * S, now_s=1e9)["met"] == "idle_timeout"
    assert describe_running(running(), now_ns=75 * S, now_s=1e9)["met"] is None


def test_no_word_of_the_conversation_is_shown():
    """Neither of the prompt nor of a detail."""
    run = running(attempts=[Attempt(tier="fast", ran=True, detail=SECRET)])

    assert SECRET not in json.dumps(describe_running(run, now_ns=75 * S, now_s=1e9))
