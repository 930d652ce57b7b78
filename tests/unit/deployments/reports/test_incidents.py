"""Incidents: what a request leaves behind, how large it may be, and what must not stand in it."""

import asyncio
import json
from collections import Counter
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.config.tier_config import Timeouts
from deployments.reports.incidents import _GONE_S, _RECORDS_MAX, _ReplicaNotes
from deployments.request.drive import drive
from deployments.request.interfaces import MonotonicClock, Ports
from deployments.request.run_record import Run
from deployments.state.incident_record import _RECORD_BYTES_MAX, IncidentKind
from deployments.tiers.scripted.scripted_tier import ScriptedTier
from reliability.admission.request import BudgetWindow, Load
from reliability.attempt import Attempt
from reliability.types import ChatRequest, Fault, Flaw, TierState, TierStatus
from tests.support.run_values import FIELDS, SECRET, SECRET_CHARS, SLOW, kinds, records_of, request_of, run_of, runs


@SLOW
@given(runs(), st.booleans())
def test_any_run_gives_bounded_json(run, keep_text):
    """Every record is JSON that comes back as it was, of one shape and of a bounded size, and so is their number."""
    status = TierStatus(
        name="fast", kind="mlx", state=TierState.READY, model="m" * 9000, source="\ud800", revision=None
    )
    records = records_of(run, keep_text=keep_text, fast=status)

    assert len(records) <= _RECORDS_MAX
    for one in records:
        encoded = orjson.dumps(one)
        assert len(encoded) <= _RECORD_BYTES_MAX
        assert orjson.loads(encoded) == one
        assert json.loads(json.dumps(one, allow_nan=False)) == one
        assert set(one) == FIELDS
        assert one["kind"] in set(IncidentKind)


def quoted(secret: str, shown: str) -> set[str]:
    """Every stretch of the secret that stands in what is shown."""
    parts = {secret[i : i + SECRET_CHARS] for i in range(len(secret) - SECRET_CHARS + 1)}
    return {part for part in parts if part in shown}


@SLOW
@given(SECRET.flatmap(lambda secret: st.tuples(st.just(secret), runs(secret))))
def test_no_word_of_the_conversation_stands_in_a_record(pair):
    """Whatever quotes the conversation (a violation, a path, a tool's name, a loop, an error's words): without
    `keep_text` none of it is shown."""
    secret, run = pair

    assert not quoted(secret, json.dumps(records_of(run)))


@SLOW
@given(runs())
def test_each_incident_is_told_once(run):
    """One record for each fault, each flaw, each kind of repair of an attempt and each change of tier."""
    records = records_of(run)
    seen = Counter(one["kind"] for one in records)
    wrong = [a for a in run.attempts if a.fault or a.flaw]
    repairs = sum(len({r.kind for r in j.repairs}) for j in run.judgements if j is not None)
    moves = sum(1 for a, b in pairwise(run.attempts) if a.tier != b.tier)

    if not any("left_out" in one["evidence"] for one in records):
        assert seen["fault"] == sum(1 for a in wrong if a.fault not in (None, Fault.BUDGET))
        assert seen["budget"] == sum(1 for a in wrong if a.fault is Fault.BUDGET) + bool(run.warnings)
        loop_flaws = (Flaw.LOOP, Flaw.CIRCUIT_BREAK, Flaw.CYCLE)
        assert seen["flaw"] == sum(1 for a in wrong if not a.fault and a.flaw not in loop_flaws)
        assert seen["repair"] == repairs
        assert seen["escalation"] == moves
        told = [one for one in records if one["attempt"] is not None]
        assert [one["tier"] for one in told] == [run.attempts[one["attempt"]].tier for one in told]


# -- runs that really happened -----------------------------------------------------------------------------------


def driven(scripts: dict[str, list[dict[str, Any]]], request: ChatRequest) -> Run:
    """Drive one request through scripted tiers."""

    async def go() -> Run:
        tiers = {name: ScriptedTier(name=name, script=[{"answer": steps}]) for name, steps in scripts.items()}
        clock = MonotonicClock()
        run = run_of(request, chain=tuple(tiers), deadline_ns=clock.now_ns() + 30 * 10**9)
        limits = dict.fromkeys(tiers, Timeouts(connect_s=1, first_token_s=1, idle_s=1, total_s=5))
        async for _ in drive(run, Ports(tiers=tiers, timeouts=limits, clock=clock, jitter=lambda: 0.0)):
            pass
        return run

    return asyncio.run(go())


GOOD = [{"text": "done"}]


def bad_calls(word: str) -> list[list[dict[str, Any]]]:
    """Answers that are refused, each quoting `word` in another place."""
    arguments: list[Any] = [
        {"city": word},
        {"city": "Paris", "when": word},
        {"city": "Paris", word: 1},
        {"city": "Paris", "notes": {word: word}},
    ]
    calls = [[{"tool_call": {"name": "book", "arguments": value}}] for value in arguments]
    return [
        *calls,
        [{"tool_call": {"name": word, "arguments": {}}}],
        [{"raw": f'<tool_call>{{"name": "book", "arguments": {{"city": "{word}'}],
        [{"status": 500, "message": word}],
        [{"status": 400, "message": word, "param": word}],
        [{"text": f"{word} and so on. " * 90}],
    ]


@settings(SLOW, max_examples=40)
@given(SECRET, st.integers(0, 8), st.booleans())
def test_what_the_checks_quote_is_not_shown(secret, which, keep_text):
    """The real checks, faults and loop rules on answers that repeat the prompt: nothing of it without `keep_text`,
    and with it what was said."""
    run = driven({"fast": bad_calls(secret)[which], "standard": GOOD}, request_of(secret))
    records = records_of(run, keep_text=keep_text)

    assert records
    assert bool(quoted(secret, json.dumps(records))) is keep_text


def test_a_loop_in_the_history_is_told_without_its_words():
    """A call that is repeated, and its result: the record says which tool, how often and by which rule."""
    call = {"id": "c", "type": "function", "function": {"name": "book", "arguments": '{"city": "Paris"}'}}
    lap = ({"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "QXZJKVWYQX"})
    again = [{"tool_call": {"name": "book", "arguments": {"city": "Paris"}}}]
    request = request_of("QXZJKVWYQX", messages=({"role": "user", "content": "go"}, *lap, *lap))
    first, *_ = records_of(driven({"fast": again, "standard": GOOD}, request))

    assert (first["kind"], first["reason"], first["tier"], first["attempt"]) == ("loop", "loop", "fast", 0)
    assert {k: first["evidence"][k] for k in ("loop", "stage", "laps", "period", "tools")} == {
        "loop": "calls",
        "stage": "warn",
        "laps": 3,
        "period": 1,
        "tools": ["book"],
    }
    assert len(first["evidence"]["digest"]) == 12
    assert "QXZJ" not in json.dumps(first)


def test_a_bad_call_is_told_by_its_places():
    """Kinds, paths and declared names stand in the record; the value, and a key that the model made up, don't."""
    call = [{"tool_call": {"name": "book", "arguments": {"city": "Atlantis", "made_up": 1, "notes": {"mine": "x"}}}}]
    run = driven({"fast": call, "standard": GOOD}, request_of("hi", temperature=0.5, stop=("a", "b")))
    known: dict[str, Any] = {"model": "m", "revision": "1", "sha256": "ab12", "versions": {"mlx": "0.32.4"}}
    records = records_of(run, fast=TierStatus(name="fast", kind="mlx", state=TierState.READY, **known))
    flaw = records[0]

    assert kinds(records) == [
        ("flaw", "tool_call_invalid"),
        ("flaw", "tool_call_invalid"),
        ("escalation", "tool_validation_failure"),
    ]
    assert {(v["kind"], v["path"], v["tool"]) for v in flaw["evidence"]["violations"]} == {
        ("schema", "/0/arguments/city", "book"),
        ("schema", "/0/arguments/*", "book"),
        ("schema", "/0/arguments/notes/*", "book"),
    }
    unknown = dict.fromkeys(("source", "quantization", "adapter", "context_tokens"))
    assert flaw["model"] == unknown | known
    assert flaw["generation"] == {
        "temperature": 0.5,
        "top_p": None,
        "seed": None,
        "max_tokens": 400,
        "stops": 2,
        "tools": 1,
        "tool_choice": None,
    }
    assert records[-1]["evidence"] == {"to": "standard", "how": "escalation", "after": "tool_call_invalid"}


def test_an_invented_name_is_told_by_its_length_and_a_repair_by_its_place():
    """A sentence where a name belongs is the model's words; how long it was isn't."""
    run = driven({"fast": [{"tool_call": {"name": "book_flights", "arguments": {}}}], "standard": GOOD}, request_of(""))
    violation = records_of(run)[0]["evidence"]["violations"][0]
    assert violation == {"kind": "unknown_tool", "path": "/0/name", "tool": "undeclared (12 characters)"}

    call = [{"tool_call": {"name": "book", "arguments": {"city": "paris"}}}]
    (one,) = records_of(driven({"fast": call}, request_of("")))

    assert (one["kind"], one["reason"]) == ("repair", "enum_case")
    assert one["evidence"] == {"count": 1, "delivered": True, "paths": ["/0/arguments/city"]}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{"status": 503}], ["fault server_error", "fault server_error", "escalation server_error"]),
        ([{"silence": True}], ["fault first_token_timeout", "escalation timeout"]),
        ([{"unavailable": "no model"}], ["fault unavailable", "escalation server_error"]),
    ],
)
def test_a_fault_and_the_way_past_it_are_told(steps, expected):
    """Each call that failed, and the tier that was asked instead: a fallback."""
    records = records_of(driven({"fast": steps, "standard": GOOD}, request_of("hi")))

    assert [" ".join(pair) for pair in kinds(records)] == expected
    assert records[-1]["evidence"]["how"] == "fallback"


def test_an_answer_without_incidents_leaves_none():
    """A good answer at the first call, and a client that left."""
    run = driven({"fast": GOOD}, request_of("hi"))
    left = run_of(request_of("hi"), attempts=[Attempt(tier="fast", ran=True, cancelled=True)], judgements=[None])

    assert records_of(run) == records_of(left) == []


def test_what_is_left_out_is_counted():
    """Of a long walk the first records and the last one are kept."""
    attempts = [Attempt(tier=f"t{i}", ran=True, fault=Fault.SERVER_ERROR) for i in range(64)]
    run = run_of(
        request_of("hi"), attempts=attempts, judgements=[None] * 64, warnings=(Load(BudgetWindow.HOUR, 80, 100, 80),)
    )
    records = records_of(run)

    assert len(records) == _RECORDS_MAX
    assert kinds(records)[-1] == ("budget", "warning")
    assert records[-1]["evidence"] == {"left_out": 64 + 63 + 1 - _RECORDS_MAX, "spent": ["hour 80%"]}


def hold(replica: str, since_s: float = 3.0, *, held: bool = True) -> dict[str, Any]:
    """A line of `MemoryView.list_holders`."""
    return {
        "node": "host 12345678",
        "tier": "standard",
        "replica": replica,
        "held": held,
        "bytes": 1000,
        "since_s": since_s,
        "why": None,
    }


def look(notes: _ReplicaNotes, now_s: float, *holders: dict[str, Any]) -> list[tuple[str, float]]:
    """What has changed: the id of each record, and its moment."""
    return [(one["request_id"], one["at"]) for one in notes.look(holders, now_s)]


def test_a_replica_begins_once_and_ends_once():
    """Law: whoever holds memory has one record of its beginning, at the moment of its lease, and one of its end, at the
    moment when it was last seen, with what the page of the memory shows; who waits for memory has none."""
    notes = _ReplicaNotes()

    assert look(notes, 99.0, hold("a", held=False)) == []
    (record,) = notes.look([hold("a")], 100.0)
    assert (record["request_id"], record["at"]) == ("replica-a-started", 97.0)
    assert (record["kind"], record["tier"], record["reason"]) == ("scaling", "standard", "started")
    assert record["evidence"] == {"node": "host 12345678", "replica": "a", "bytes": 1000}
    assert look(notes, 101.0, hold("a", 4.0)) == []
    assert look(notes, 101.0 + _GONE_S) == []
    assert look(notes, 101.5 + _GONE_S) == [("replica-a-ended", 101.0)]
    assert look(notes, 200.0) == []


def test_a_monitor_that_begins_anew_ends_nobody():
    """Law: holders that are missing for less than it takes to renew a lease are still there."""
    notes = _ReplicaNotes()
    look(notes, 100.0, hold("a"), hold("b"))

    assert look(notes, 101.0) == []
    assert look(notes, 102.0 + _GONE_S / 2, hold("b", 9.0), hold("a", 9.0)) == []


def test_two_routers_write_the_same_records():
    """Law: the ids are those of the replica, so that the journal keeps what two Routers have seen once."""
    one, other = _ReplicaNotes(), _ReplicaNotes()

    assert look(one, 100.0, hold("a")) == look(other, 140.0, hold("a", 43.0))
