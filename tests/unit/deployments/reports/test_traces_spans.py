"""The spans of a report: in order, within one another, and without a word of what was said."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from deployments.reports.traces import NS_PER_MS, _Span, find_spans
from deployments.telemetry import session_tag
from reliability.types import Fault, Flaw, TierState, TierStatus
from tests.support.room_rig import attempt, report

ENDED_NS = 1_795_000_000_000_000_000
SECRET = "QXZJKVWY"
STATUSES = {"fast": TierStatus(name="fast", kind="mlx", state=TierState.READY, model="SmolLM2-135M")}

ATTEMPTS = st.builds(
    attempt,
    tier=st.sampled_from(["fast", "standard"]),
    ran=st.booleans(),
    fault=st.none() | st.sampled_from([fault.value for fault in Fault]),
    flaw=st.none() | st.sampled_from([flaw.value for flaw in Flaw]),
    cancelled=st.booleans(),
    at_ms=st.none() | st.integers(0, 10_000),
    elapsed_ms=st.integers(0, 10_000),
    ttft_ms=st.none() | st.integers(0, 10_000),
    detail=st.just(SECRET),
)
JUDGES = st.none() | st.builds(
    lambda attempts: {"trouble": "stuck", "tool": SECRET, "attempts": attempts}, st.lists(ATTEMPTS, max_size=2)
)
REPORTS = st.builds(
    report,
    attempts=st.lists(ATTEMPTS, max_size=5),
    total_ms=st.floats(0, 20_000),
    judge=JUDGES,
    notes=st.just([SECRET]),
    session=st.just(SECRET),
    repairs=st.lists(st.sampled_from(["fence", "name"]), max_size=2),
)


def walk(span: _Span) -> Iterator[tuple[_Span, _Span | None]]:
    """Each span with the one that it is in."""
    yield span, None
    for child in span.children:
        yield from ((one, other or span) for one, other in walk(child))


@given(REPORTS, st.booleans())
def test_a_span_lies_within_the_one_that_it_belongs_to(made, checked):
    """Whatever the report's figures are: no span ends before it begins, and none reaches out of its parent's."""
    root = find_spans(made, ended_ns=ENDED_NS, statuses=STATUSES, checked=checked)

    assert root.end_ns == ENDED_NS
    for span, parent in walk(root):
        assert span.start_ns <= span.end_ns
        if parent is not None:
            assert parent.start_ns <= span.start_ns
            assert span.end_ns <= parent.end_ns


@given(REPORTS, st.booleans())
def test_nothing_that_was_said_is_in_a_span(made, checked):
    """Details, notes and a judge's tool may quote a conversation, and a session's name a person."""
    root = find_spans(made, ended_ns=ENDED_NS, statuses=STATUSES, checked=checked)

    assert all(SECRET not in f"{span.name} {span.error} {dict(span.attributes)}" for span, _ in walk(root))
    assert root.attributes["gen_ai.conversation.id"] == session_tag(SECRET)


@given(REPORTS, st.booleans())
def test_every_attempt_that_ran_has_a_span(made, checked):
    """And of the others the request's span says why they didn't."""
    root = find_spans(made, ended_ns=ENDED_NS, statuses=STATUSES, checked=checked)
    judged = made["judge"]["attempts"] if made["judge"] else []
    ran = [one for one in (*made["attempts"], *judged) if one["ran"] and one["at_ms"] is not None]

    assert len(root.children) == len(ran)
    assert len(root.attributes.get("mlx_stack.skipped", ())) == sum(not one["ran"] for one in made["attempts"])
    assert sorted(str(child.error) for child in root.children) == sorted(str(o["fault"] or o["flaw"]) for o in ran)


@given(REPORTS)
def test_only_an_answer_is_checked(made):
    """One that came whole, of a request with tools."""
    unchecked = find_spans(made, ended_ns=ENDED_NS, statuses=STATUSES, checked=False)
    checked = find_spans(made, ended_ns=ENDED_NS, statuses=STATUSES, checked=True)
    whole = [
        one
        for one in made["attempts"]
        if one["ran"] and one["at_ms"] is not None and not one["fault"] and not one["cancelled"]
    ]

    assert all(not child.children for child in unchecked.children)
    assert sum(len(child.children) for child in checked.children) == len(whole)


def test_an_attempt_says_who_answered_with_what():
    """In the words of the conventions: tokens, the first chunk in seconds, the model behind the tier."""
    one = attempt(tier="fast", at_ms=2, elapsed_ms=5, ttft_ms=3)
    (span,) = find_spans(
        report(attempts=[one], total_ms=10.0), ended_ns=ENDED_NS, statuses=STATUSES, checked=False
    ).children

    assert span.name == "chat SmolLM2-135M"
    assert span.start_ns == ENDED_NS - 8 * NS_PER_MS
    assert span.end_ns == ENDED_NS - 3 * NS_PER_MS
    assert span.attributes["gen_ai.provider.name"] == "mlx"
    assert span.attributes["gen_ai.request.model"] == "SmolLM2-135M"
    assert span.attributes["gen_ai.usage.input_tokens"] == one["usage"]["prompt_tokens"]
    assert span.attributes["gen_ai.response.time_to_first_chunk"] == 0.003
