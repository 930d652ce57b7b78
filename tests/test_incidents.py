"""Incidents: what a request leaves behind, how large it may be, and what must not stand in it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.config import Timeouts
from deployments.drive import Run, drive
from deployments.evidence import EVIDENCE_BYTES_MAX, cut, plain, within
from deployments.incidents import RECORD_BYTES_MAX, RECORDS_MAX, IncidentKind, incidents_of, record
from deployments.ports import Ports
from deployments.telemetry import MonotonicClock
from deployments.tiers.scripted import ScriptedTier
from reliability.answer import Judged, expect
from reliability.budget import Load, Window
from reliability.escalation import Limits, Refuse, RefuseCode
from reliability.loops import Kind, Loop, LoopConfig, Stage
from reliability.tools import CheckConfig, Repair, Violation, build_toolbox
from reliability.tools.verdicts import Flaws, RepairKind
from reliability.types import (
    Attempt,
    ChatRequest,
    Fault,
    Finish,
    FinishReason,
    Flaw,
    Reason,
    TierState,
    TierStatus,
    Usage,
)

AT_S = 1_795_000_000.25
# Letters that no field's own words are made of.
SECRET = st.text("QXZJKVWY", min_size=12, max_size=40)
SECRET_CHARS = 8
TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "book",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "enum": ["Paris", "Rome"]},
                    "when": {"type": "string", "format": "date"},
                    "notes": {"type": "object", "additionalProperties": {"type": "integer"}},
                },
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    },
)
TOOLBOX = build_toolbox(TOOLS)
FIELDS = {
    *("at", "kind", "request_id", "session", "key", "tier", "model", "generation", "prompt_tokens"),
    *("completion_tokens", "ttft_ms", "elapsed_ms", "attempt", "reason", "evidence"),
}


def request_of(text: str, **changes: Any) -> ChatRequest:
    keys: dict[str, Any] = {
        "request_id": "r",
        "session_id": "s",
        "messages": ({"role": "system", "content": text}, {"role": "user", "content": text}),
        "max_tokens": 400,
        "timeout_s": 30.0,
        "tools": TOOLS,
    }
    return ChatRequest(**(keys | changes))


def run_of(request: ChatRequest, **changes: Any) -> Run:
    keys: dict[str, Any] = {
        "request": request,
        "expected": expect(request.messages, TOOLBOX, id_seed="r", checks=CheckConfig(), loops=LoopConfig()),
        "chain": ("fast", "standard"),
        "limits": Limits(retries_max=1, reasks_max=1, attempts_max=16, escalate_on=frozenset(Reason)),
        "deadline_ns": 0,
    }
    return Run(**(keys | changes))


def records_of(run: Run, *, keep_text: bool = False, **statuses: TierStatus) -> list[dict[str, Any]]:
    return incidents_of(run, at_s=AT_S, key="default", statuses=statuses, keep_text=keep_text)


def kinds(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["kind"], one["reason"]) for one in records]


# -- runs of every shape -----------------------------------------------------------------------------------------

# What a model, an upstream and a client can put into a string: halves of surrogates, controls, everything wide.
words = st.text(max_size=20) | st.text(st.characters(codec=None), max_size=12)
long = st.builds(lambda char, n: char * n, st.sampled_from('\x00a€\U0001f600"\ud800'), st.sampled_from([90, 300, 2000]))


def texts(marker: str | None) -> st.SearchStrategy[str]:
    """Texts that quote the conversation: they hold the marker, in whole or behind other words."""
    if marker is None:
        return words | long
    return st.sampled_from([marker, f"must be one of [1], not {json.dumps(marker)}", f"{marker}: {marker}"])


def violations(marker: str | None) -> st.SearchStrategy[Violation]:
    quote = texts(marker)
    paths = st.lists(st.sampled_from(["0", "arguments", "city", "17"]) | quote, max_size=20).map(
        lambda parts: "".join("/" + part for part in parts)
    )
    return st.builds(Violation, st.sampled_from(Flaws), paths, quote, st.none() | st.sampled_from(["book"]) | quote)


def loops(marker: str | None) -> st.SearchStrategy[Loop]:
    return st.builds(
        Loop,
        kind=st.sampled_from(Kind),
        stage=st.sampled_from(Stage),
        laps=st.integers(0, 10**6),
        period=st.integers(1, 9),
        tool=st.sampled_from(["", "book", "book → book"]) | texts(marker),
        evidence=texts(marker),
        key=st.just("0123456789ab"),
    )


def judgements(marker: str | None) -> st.SearchStrategy[Judged]:
    repairs = st.builds(Repair, st.sampled_from(RepairKind), texts(marker).map(lambda text: f"/0/arguments/{text}"))
    return st.builds(
        Judged,
        events=st.just(()),
        finish=st.builds(Finish, reason=st.sampled_from(FinishReason)),
        detail=texts(marker),
        repairs=st.lists(repairs, max_size=3).map(tuple),
        violations=st.lists(violations(marker), max_size=9).map(tuple),
        loop=st.none() | loops(marker),
        dropped_calls=st.integers(0, 3),
        written=texts(marker),
    )


counts = st.integers(0, 2**70)
loads = st.builds(Load, st.sampled_from(Window), counts, counts, counts)
usages = st.builds(Usage, prompt_tokens=counts, completion_tokens=counts)


def attempts(marker: str | None) -> st.SearchStrategy[Attempt]:
    return st.builds(
        Attempt,
        tier=st.sampled_from(["fast", "standard", "premium"]),
        ran=st.booleans(),
        fault=st.none() | st.sampled_from(Fault),
        flaw=st.none() | st.sampled_from(Flaw),
        detail=texts(marker),
        status=st.none() | st.integers(100, 599),
        param=st.none() | texts(marker),
        retry_after_s=st.none() | st.floats(),
        usage=st.none() | usages,
        ttft_ns=st.none() | counts,
        elapsed_ns=counts,
    )


@st.composite
def runs(draw: st.DrawFn, marker: str | None = None) -> Run:
    pairs = draw(st.lists(st.tuples(attempts(marker), st.none() | judgements(marker)), max_size=6))
    quote = texts(marker)
    request = request_of(
        draw(quote),
        request_id=draw(words | long) if marker is None else "r",
        session_id=draw(words | long) if marker is None else "s",
        tool_choice=draw(st.none() | quote | st.builds(dict, type=quote)),
        stop=draw(st.lists(quote, max_size=3).map(tuple)),
        temperature=draw(st.none() | st.floats()),
        seed=draw(st.none() | st.integers()),
    )
    return run_of(
        request,
        attempts=[attempt for attempt, _ in pairs],
        judgements=[judged for _, judged in pairs],
        loop=draw(st.none() | loops(marker)),
        warnings=draw(st.lists(loads, max_size=3).map(tuple)),
        tier=pairs[-1][0].tier if pairs else None,
        judged=pairs[-1][1] if pairs else None,
        finish=draw(st.none() | st.builds(Finish, reason=st.sampled_from(FinishReason))),
        refusal=draw(st.none() | st.builds(Refuse, code=st.sampled_from(RefuseCode), message=quote)),
    )


SLOW = settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@SLOW
@given(runs(), st.booleans())
def test_any_run_gives_bounded_json(run, keep_text):
    """Every record is JSON that comes back as it was, of one shape and of a bounded size, and so is their number."""
    status = TierStatus(
        name="fast", kind="mlx", state=TierState.READY, model="m" * 9000, source="\ud800", revision=None
    )
    records = records_of(run, keep_text=keep_text, fast=status)

    assert len(records) <= RECORDS_MAX
    for one in records:
        encoded = orjson.dumps(one)
        assert len(encoded) <= RECORD_BYTES_MAX
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
        [{"text": f"{word} and so on. " * 60}],
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
    unknown = dict.fromkeys(("source", "quantization", "adapter", "draft", "context_tokens"))
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


def test_an_invented_name_is_told_by_its_length():
    """A sentence where a name belongs is the model's words; how long it was isn't."""
    run = driven({"fast": [{"tool_call": {"name": "book_flights", "arguments": {}}}], "standard": GOOD}, request_of(""))
    violation = records_of(run)[0]["evidence"]["violations"][0]

    assert violation == {"kind": "unknown_tool", "path": "/0/name", "tool": "undeclared (12 characters)"}


def test_a_repair_is_told():
    """What was mended in the answer that was delivered, with its place."""
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
        request_of("hi"), attempts=attempts, judgements=[None] * 64, warnings=(Load(Window.HOUR, 80, 100, 80),)
    )
    records = records_of(run)

    assert len(records) == RECORDS_MAX
    assert kinds(records)[-1] == ("budget", "warning")
    assert records[-1]["evidence"] == {"left_out": 64 + 63 + 1 - RECORDS_MAX, "spent": ["hour 80%"]}


# -- bounds ------------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | long | st.binary() | st.just(object()),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(words, inner, max_size=20),
    max_leaves=20,
)


@SLOW
@given(values, st.dictionaries(words | long, values, max_size=8))
def test_a_record_of_anything_is_bounded(value, evidence):
    """Whoever makes a record, and of whatever: it is JSON, and it fits."""
    one = record(
        IncidentKind.OPERATOR, at_s=AT_S, reason="isolate", evidence=evidence, model=value, session="\x00" * 9000
    )

    assert len(orjson.dumps(one)) <= RECORD_BYTES_MAX
    assert len(orjson.dumps(one["evidence"])) <= EVIDENCE_BYTES_MAX
    assert orjson.loads(orjson.dumps(one)) == one
    assert set(one) == FIELDS


@given(words | long, st.integers(8, 300))
def test_a_cut_text_is_the_longest_beginning_that_fits(text, bytes_max):
    """It fits, it is a beginning, and a mark shows where something is missing."""
    shown = cut(text, bytes_max)
    size = len(orjson.dumps(shown)) - 2

    assert size <= bytes_max
    if not shown.endswith("…"):
        assert len(shown) == len(text) or "\ud800" <= max(text, default="") <= "\udfff"
    elif not any("\ud800" <= c <= "\udfff" for c in text):
        assert text.startswith(shown[:-1])
        assert size > bytes_max - 9


@given(values)
def test_plain_is_idempotent(value):
    """What is plain already stays as it is."""
    assert plain(plain(value)) == plain(value)


def test_what_does_not_fit_is_left_out_with_a_mark():
    """The first entries are the ones that stay."""
    shown = within({"a": 1, "b": "x" * 500, "c": None, "d": 2}, 100)

    assert shown == {"a": 1, "cut": True, "d": 2}


def test_a_record_has_no_other_fields():
    """A misspelt fact is an error of the caller, not a new column."""
    with pytest.raises(TypeError, match="ttft_s"):
        record(IncidentKind.BREAKER, at_s=AT_S, reason="opened", ttft_s=1)
