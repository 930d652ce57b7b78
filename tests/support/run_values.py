"""Requests, runs and their records, as Hypothesis draws them and as the tests of incidents build them."""

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from deployments.reports.incidents import incidents_of
from deployments.request.run_record import Run
from reliability.admission.request import BudgetWindow, Load
from reliability.answer.judgement import Judged, expect
from reliability.attempt import Attempt
from reliability.escalation.decisions import Limits, Refuse
from reliability.loops import Kind, Loop, LoopConfig, Stage
from reliability.tool_calls import Flaws, RepairKind
from reliability.tools import CheckConfig, Repair, Violation, build_toolbox
from reliability.types import ChatRequest, Fault, Finish, FinishReason, Flaw, Reason, RefuseCode, TierStatus, Usage
from tests.support.renderings import tool

AT_S = 1_795_000_000.25
# Letters that no field's own words are made of.
SECRET = st.text("QXZJKVWY", min_size=12, max_size=40)
SECRET_CHARS = 8
PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Rome"]},
        "when": {"type": "string", "format": "date"},
        "notes": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (tool("book", PARAMETERS),)
TOOLBOX = build_toolbox(TOOLS)
FIELDS = {
    *("at", "kind", "request_id", "session", "key", "tier", "model", "generation", "prompt_tokens"),
    *("completion_tokens", "ttft_ms", "elapsed_ms", "attempt", "reason", "evidence"),
}


def request_of(text: str, **changes: Any) -> ChatRequest:
    keys: dict[str, Any] = {"request_id": "r", "session_id": "s", "max_tokens": 400, "timeout_s": 30.0, "tools": TOOLS}
    keys["messages"] = ({"role": "system", "content": text}, {"role": "user", "content": text})
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
    return incidents_of(run, at_s=AT_S, statuses=statuses, keep_text=keep_text)


def kinds(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["kind"], one["reason"]) for one in records]


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
        repetitions=st.integers(0, 10**6),
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
loads = st.builds(Load, st.sampled_from(BudgetWindow), counts, counts, counts)
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
# What evidence may be made of.
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words | long | st.binary() | st.just(object()),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(words, inner, max_size=20),
    max_leaves=20,
)
