"""A conversation that has grown too long is summarized before it is answered."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.reports.report import report_of
from deployments.request.compacting import drive_compacted
from deployments.request.run_record import Run
from reliability.answer.estimate import prompt_bytes
from reliability.answer.judgement import Expected, expect
from reliability.context_edits import STUB
from reliability.summaries import NEWEST_END, NEWEST_HEAD, SUMMARY_HEAD, SUMMARY_ORDER, Compaction
from reliability.tools import CheckConfig, build_toolbox
from reliability.types import Event, RefuseCode
from tests.support.driving import TOOLS, calls_of, drive_once, scripted, text_of
from tests.unit.deployments.request.test_drive_shortening import grow

ORDERED = {"last_user": "Summarize this conversation"}
CALL = {"tool_call": {"name": "f", "arguments": {"a": 1}}}
WRITES = [{"when": ORDERED, "answer": "They read files."}, {"answer": "It is done."}]
FAILS = [{"when": ORDERED, "answer": [{"status": 500}]}, {"answer": "It is done."}]
LONG = grow(20)
ASKED = Compaction(bytes_over=8000)


def ask(
    script: Any,
    messages: tuple[dict[str, Any], ...] = LONG,
    compaction: Compaction = ASKED,
    *,
    expected: Expected | None = None,
    **contexts: int,
) -> tuple[Run, list[Event]]:
    """Ask a tier, with a context of so many tokens."""

    def change(run: Run) -> None:
        run.expected = expected or run.expected
        run.compaction = compaction
        run.request = replace(run.request, messages=messages, max_tokens=100)
        run.prompt_bytes = prompt_bytes(messages, TOOLS)

    return drive_once(scripted({"fast": script}), change, walk=drive_compacted, context_tokens=contexts)


def test_the_summary_stands_for_the_conversation():
    """Law: what is answered is the summary, with the user's newest words behind it; both attempts are in the report,
    and the answer has no word of the summary."""
    run, events = ask(WRITES)

    assert run.summary == "They read files." + NEWEST_HEAD + "Read all of it." + NEWEST_END
    assert run.request.messages == ({"role": "user", "content": SUMMARY_HEAD + run.summary},)
    assert text_of(events) == "It is done."
    assert [(attempt.ran, attempt.fault) for attempt in run.attempts] == [(True, None)] * 2
    assert "the conversation was summarized" in str(report_of(run)["notes"])
    assert run.prompt_bytes < 1000


@pytest.mark.parametrize(
    ("messages", "compaction", "contexts", "due"),
    [
        (LONG, ASKED, {}, True),
        (LONG, Compaction(bytes_over=80_000), {}, False),
        (LONG, Compaction(bytes_over=80_000), {"fast": 7000}, True),
        (LONG, Compaction(bytes_over=80_000), {"fast": 80_000}, False),
        (LONG[:1], Compaction(bytes_over=8), {}, False),
        (LONG[:1], Compaction(bytes_over=0), {}, True),
        (({"role": "system", "content": "x" * 9000}, *grow(2, 10)), ASKED, {}, False),
    ],
)
def test_it_is_due_by_the_trigger_or_the_context(messages, compaction, contexts, due):
    """Law: it is made where the prompt is over the client's trigger or over three quarters of the context, there is a
    conversation, and leaving that out makes room; or where it alone is asked for."""
    assert bool(ask(WRITES, messages, compaction, **contexts)[0].summary) is due


def test_a_prompt_that_no_tier_could_hold_is_summarized():
    """Law: before it is refused; the oldest results are left out of what the model summarizes, as they must be."""
    run, events = ask(WRITES, grow(20, 4000), Compaction(bytes_over=10**6), fast=4000)

    assert text_of(events) == "It is done."
    assert run.summary.startswith("They read files.")
    assert STUB not in str(run.request.messages)
    assert run.shortened == 0


def test_a_conversation_that_could_not_be_summarized_goes_on_whole():
    """Law: a fault of the summary is none of the request; where its prompt is too long, that is what is told."""
    run, events = ask(FAILS)
    assert (text_of(events), run.summary, run.request.messages) == ("It is done.", "", LONG)
    assert "no tier wrote a summary" in str(run.notes)

    run, _ = ask(FAILS, grow(20, 4000), Compaction(bytes_over=10**6), fast=4000)
    assert run.refusal.code is RefuseCode.CONTEXT_LENGTH


def test_an_answer_that_pauses_is_the_summary_alone():
    """Law: no tier is asked again."""
    run, events = ask(WRITES, LONG, replace(ASKED, pauses=True))

    assert (events, len(run.attempts), run.finish is not None) == ([], 1, True)


def test_calls_are_made_behind_a_summary_and_not_in_it():
    """Law: the summary is asked for without calls, the answer as the client asked for it."""
    told = {"when": {"transcript": ORDERED["last_user"]}, "answer": "They read files."}
    calls = [{"when": ORDERED, "answer": [CALL]}, told, {"answer": [CALL]}]
    run, events = ask(calls)

    assert run.summary.startswith("They read files.")
    assert calls_of(events) == [("f", '{"a": 1}')]


def test_a_summary_that_runs_in_circles_is_cut():
    """Law: small models repeat themselves in a summary; what is worth keeping of it stands."""
    circles = "They read files. " + "And it goes on like this. " * 500
    run, events = ask([{"when": ORDERED, "answer": circles}, WRITES[1]])

    assert text_of(events) == "It is done."
    assert run.summary.startswith("They read files.")
    assert len(run.summary) < 1000


def test_a_forced_tool_is_no_matter_of_the_summary():
    """Law: a summary that looks like the tool's arguments stays words; the call is made behind it."""
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}
    box = build_toolbox([{"type": "function", "function": tool}])
    expected = expect(LONG, box, id_seed="r", tool_choice="required", checks=CheckConfig())
    told = [{"when": ORDERED, "answer": '{"a": 5}'}, {"answer": [CALL]}]
    run, events = ask(told, expected=expected)

    assert run.summary.startswith('{"a": 5}')
    assert calls_of(events) == [("f", '{"a": 1}')]


def test_the_newest_words_stay_the_user_s_through_many_summaries():
    """Law: a second summary ends with the same words once, and the order for it is the client's where it has one."""
    first, _ = ask(WRITES)
    again = (*first.request.messages, *LONG[1:])
    orders = [{"when": {"last_user": "Names alone."}, "answer": "f"}, {"answer": "It is done."}]
    run, _ = ask(orders, again, replace(ASKED, order="Names alone."))

    assert run.summary == "f" + NEWEST_HEAD + "Read all of it." + NEWEST_END
    assert SUMMARY_ORDER not in str(run.request.messages)
