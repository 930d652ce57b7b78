"""A text that broke off before the client goes on in the same answer, by the loop that answers every request."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deployments.reports.report import report_of
from deployments.request.accounting import compute_bytes_max
from deployments.request.run_record import Run
from reliability.types import CallDelta, ChatRequest, Event, Fault, FinishReason, RefuseCode, Usage
from tests.support.driving import CALL, CHAIN, calls_of, drive_once, say, tell_in_turn, text_of
from tests.support.renderings import ALL

# What the gate holds back for a while, and what it lets go: code, braces, tags, quotes, half a delimiter.
TEXTS = [
    "The valve opens slowly, and then it closes again; nothing else happens for an hour.",
    "Use `f` as in\n```python\nprint({'a': 1})\n```\nand not <b>g</b>. {\"x\": [1, 2]} is no call.",
    '<tool_ is no tag, {"name" is no call, f( is none either, and [TOOL is not one.\n\nf(1) neither?',
    "  leading blanks\n\n\nand blank lines\n\n",
    "Zażółć gęślą jaźń 日本語 😀 naïve",
]
BREAKS: dict[str, list[dict[str, Any]]] = {"cut": [{"cut": True}], "stall": [{"silence": True}]}


def drive_through(
    answers: list[list[dict[str, Any]]], *, chain: int = 2, continuations: int = 1, obeys: bool = True, **fields: Any
) -> tuple[Run, list[Event], list[ChatRequest]]:
    """Drive one request over a chain; its tiers give these answers, one after another, whoever is asked."""
    tiers, asked = tell_in_turn(CHAIN[:chain], [*answers, [{"status": 500}]], obeys=obeys)

    def change(run: Run) -> None:
        run.limits = replace(run.limits, continuations_max=continuations)
        run.request = replace(run.request, **fields)

    return *drive_once(tiers, change), asked


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TEXTS), st.floats(0, 1), st.sampled_from(sorted(BREAKS)), st.booleans())
@example(TEXTS[0], 0.5, "stall", True)
def test_two_pieces_are_the_whole(text, share, broke, calls):
    """Law: wherever the text broke off, and however, what the client gets is what one attempt would have written, to
    the letter, with the calls behind it, once."""
    tail = [CALL] if calls else []
    whole, whole_events, _ = drive_through([[*say(text), *tail]])
    cut = int(share * len(text))
    run, events, asked = drive_through([[*say(text[:cut]), *BREAKS[broke]], [*say(text), *tail]])

    assert text_of(events) == text_of(whole_events)
    assert calls_of(events) == calls_of(whole_events)
    assert whole.finish is not None
    assert run.finish.reason == whole.finish.reason
    assert [request.begun for request in asked][:1] == [""]
    told = asked[1].begun
    assert text.startswith(told)
    assert report_of(run)["continued"] is bool(told and text_of(events) != told)


def test_a_break_that_a_second_call_may_cure_is_asked_on_the_same_tier():
    """Law: first the same tier, which may have another replica; a stall means the next one, if there is one."""
    cut, _, asked = drive_through([[{"text": "half "}, {"cut": True}], [{"text": "half of it"}]])
    stall = [[{"text": "half "}, {"silence": True}], [{"text": "half of it"}]]
    (stalled, *_), (lone, events, _) = drive_through(stall), drive_through(stall, chain=1)

    assert [a.tier for a in cut.attempts] == ["fast", "fast"]
    assert [a.tier for a in stalled.attempts] == ["fast", "standard"]
    assert (lone.refusal, text_of(events)) == (None, "half of it")
    assert [a.seam for a in cut.attempts] == [None, 5]
    assert (asked[1].begun, asked[1].messages) == ("half ", asked[0].messages)


@pytest.mark.parametrize("seams", [0, 1, 2])
def test_there_are_at_most_so_many_seams(seams):
    """Law: each break behind a seam costs one more; the next one ends the answer with its fault, and nothing is said
    twice."""
    answers = [[{"text": "one "}, {"cut": True}], [{"text": "one two "}, {"cut": True}]]
    answers += [[{"text": "one two three "}, {"cut": True}], [{"text": "one two three four"}]]
    run, events, asked = drive_through(answers, continuations=seams)

    assert text_of(events) == "one two three "[: [4, 8, 14][seams]]
    assert run.refusal.code is RefuseCode.BROKEN_STREAM
    assert len(asked) == seams + 1


def test_a_tier_that_does_not_go_on_is_no_seam():
    """Law: words that don't join never leave, the next tier may try, and the tier's breaker hears nothing of it."""
    answers = [[{"text": "half of"}, {"silence": True}], [{"text": "Sorry, "}], [{"text": "half of it"}]]
    run, events, _ = drive_through(answers, chain=3)

    assert text_of(events) == "half of it"
    assert [a.fault for a in run.attempts] == [Fault.IDLE_TIMEOUT, Fault.SEAM, None]


HALF_CALL = {"tool_call": {"name": "f", "arguments": '{"a": "ma'}}


@pytest.mark.parametrize(
    ("answers", "chain"),
    [
        ([[{"text": "half "}, {"cut": True}]], 1),
        ([[{"text": "half "}, HALF_CALL, {"cut": True}], [{"text": "Words alone."}]], 2),
    ],
    ids=["nobody goes on", "no attempt calls"],
)
def test_what_is_not_gone_on_with_ends_in_one_error(answers, chain):
    """Law: in one refusal, with all that left still standing; a call that was begun and never came is no clean end."""
    run, events, _ = drive_through(answers, chain=chain)

    assert text_of(events) == "half "
    assert run.refusal.code is RefuseCode.BROKEN_STREAM
    assert chain == 2 or len(run.attempts) <= 3


def test_what_was_written_counts():
    """Law: the rest may have what is left of the client's tokens, and the cost is the sum."""
    run, _, asked = drive_through([[{"text": "one two three "}, {"cut": True}], [{"text": "one two three four"}]])
    written = run.attempts[0].usage

    assert written is not None
    assert asked[1].max_tokens == asked[0].max_tokens - written.completion_tokens
    assert all(a.usage is not None for a in run.attempts)


def test_reasoning_is_not_repeated():
    """Law: what was reasoned is shown to whoever goes on; the answer's own text is all that is joined."""
    answers = [[{"reasoning": "hm "}, {"text": "half "}, {"cut": True}], [{"text": "half of it"}]]
    run, events, asked = drive_through(answers)

    assert (asked[1].begun, asked[1].begun_reasoning) == ("half ", "hm ")
    assert text_of(events) == "half of it"
    assert run.finish.reason is FinishReason.STOP


def test_a_break_before_the_first_word_begins_anew():
    """Law: nothing stands, so nothing has to be gone on with."""
    run, events, asked = drive_through([[{"reasoning": "hm"}, {"cut": True}], [{"text": "whole"}]])

    assert text_of(events) == "whole"
    assert [request.begun for request in asked] == ["", ""]
    assert [a.seam for a in run.attempts] == [None, None]


def test_a_flawed_call_behind_a_seam_is_asked_for_again():
    """Law: the text stands, and its calls are still open, as behind any text."""
    bad = {"tool_call": {"name": "f", "arguments": "{"}}
    first, second = [{"text": "I call. "}, {"cut": True}], [{"text": "I call. Now. "}, bad]
    run, events, asked = drive_through([first, second, [{"text": "Once more."}, CALL]])

    assert text_of(events) == "I call. Now. "
    assert [e.name for e in events if isinstance(e, CallDelta)] == ["f"]
    assert run.finish is not None
    assert asked[2].begun == ""


LEADS = ["Let me check.", "Here is", "I will look at the valve first, and then we will see.\n"]
#: Their arguments come before the name, or are over where the value is.
LATE_NAMES = {"arguments first", "tool name in brackets", "python alone"}


@pytest.mark.parametrize("lead", LEADS)
@pytest.mark.parametrize("own", ["", "Sure, one moment.", "{lead}", "And now I call it. "])
@pytest.mark.parametrize(("broke", "chain"), [("cut", 1), ("cut", 2), ("stall", 1), ("stall", 2)])
@pytest.mark.parametrize("continuations", [0, 1])
def test_an_answer_that_breaks_off_in_a_call_has_said_its_text(lead, own, broke, chain, continuations):
    """Law: the text stands, once, and its calls are open: the next attempt is asked as anew, its calls are taken, and
    its own words are dropped."""
    answers = [[{"text": lead}, HALF_CALL, *BREAKS[broke]], [{"text": own.format(lead=lead)}, CALL][not own :]]
    run, events, asked = drive_through(answers, chain=chain, continuations=continuations)

    assert (text_of(events), calls_of(events)) == (lead, [("f", '{"a": 1}')])
    assert (run.refusal, [request.begun for request in asked]) == (None, ["", ""])
    assert asked[1].messages == asked[0].messages


@pytest.mark.parametrize("kind", sorted(ALL.keys() - LATE_NAMES))
@settings(max_examples=8, deadline=None)
@given(st.sampled_from(LEADS[::2]), st.floats(0, 1))
def test_a_call_in_the_text_is_cut_as_a_native_one(kind, lead, share):
    """Law: the same holds for a call that is written into the text, in every notation, from its arguments on."""
    written = ALL[kind]("f", {"a": "mail"})
    first = written.index("mail")
    cut = first + int(share * (len(written) - first - 1))
    told = f"{lead.rstrip()}\n{written[:cut]}"
    run, events, _ = drive_through([[*say(told), {"cut": True}], say(f"Sure, one moment.\n{written}")], chain=1)

    assert text_of(events).rstrip() == lead.rstrip()
    assert [(name, json.loads(arguments)) for name, arguments in calls_of(events)] == [("f", {"a": "mail"})]
    assert run.refusal is None


CIRCLE = "The pump runs and then it stops again. "
BEFORE = "There are three parts. First, open the valve. "


@pytest.mark.parametrize("chain", [1, 2, 3])
def test_a_text_in_circles_ends_where_it_is_stopped(chain):
    """Law: what the client has can't be taken back, and nothing is put behind it that its writer wasn't shown: it is
    the beginning of what the tier wrote, with the finish reason of an answer that was cut, and a note."""
    circles = [{"raw": BEFORE}, *[{"raw": CIRCLE * 10}] * 60]
    run, events, asked = drive_through([circles, say("Then close it.")], chain=chain)

    assert (BEFORE + CIRCLE * 600).startswith(text_of(events))
    assert 0 < len(text_of(events)) < 10_000
    assert (len(asked), run.refusal) == (1, None)
    assert run.finish.reason is FinishReason.LENGTH
    assert "its answer ends there" in report_of(run)["notes"][0]
    assert not report_of(run)["continued"]


@pytest.mark.parametrize("chain", [1, 2])
def test_a_text_that_repeats_itself_and_ends_is_whole(chain):
    """Law: its tier ended it, so nobody is asked for another one."""
    text = BEFORE + CIRCLE * 40
    run, events, asked = drive_through([say(text), say("Then close it.")], chain=chain)

    assert text_of(events) == text
    assert len(asked) == 1
    assert run.finish.reason is FinishReason.STOP
    assert "delivered whole" in report_of(run)["notes"][0]


@pytest.mark.parametrize("copies", [1, 20, 39])
def test_a_break_in_a_repetition_goes_on_from_its_very_end(copies):
    """Law: whoever goes on is shown all that has left, and what comes of both is what one would have written."""
    whole = BEFORE + CIRCLE * 40 + "Then close it."
    told = BEFORE + CIRCLE * copies
    run, events, asked = drive_through([[*say(told), {"cut": True}], say(whole)])

    assert told.startswith(asked[1].begun)
    assert text_of(events) == whole
    assert run.finish.reason is FinishReason.STOP


def test_probabilities_of_two_models_are_not_one_list():
    """Law: a request that wants them ends in its fault, as before."""
    run, _, asked = drive_through([[{"text": "half "}, {"cut": True}], [{"text": "half of it"}]], top_logprobs=0)

    assert run.refusal is not None
    assert len(asked) == 1


def test_the_cap_of_an_answer_holds_behind_a_seam():
    """Law: two attempts of endless upstreams write no more than one that never broke."""
    endless = "".join(f"word{number} " for number in range(3_000))
    cut = 1_500
    run, events, _ = drive_through([[*say(endless[:cut]), {"cut": True}], say(endless)], obeys=False, max_tokens=100)

    assert len(run.attempts) == 2
    assert cut < len(text_of(events)) <= compute_bytes_max(100) + len(max(say(endless), key=str)["raw"])


@pytest.mark.parametrize("broke", BREAKS)
@pytest.mark.parametrize(("cap", "attempts", "reason"), [(3, 1, "length"), (4, 2, "stop"), (2000, 2, "stop")])
def test_a_text_that_breaks_off_at_its_last_token_is_one_of_that_length(broke, cap, attempts, reason):
    """Law: nobody is asked for the rest of an answer that has all its tokens; the report says how it ended."""
    text = "one two"  # three pieces
    run, events, asked = drive_through([[*say(text), *BREAKS[broke]], say(text)], obeys=False, max_tokens=cap)

    assert (text_of(events), len(asked)) == (text, attempts)
    assert run.finish.reason.value == reason
    assert ("where no tokens were left" in str(report_of(run)["notes"])) is (reason == "length")


def test_an_answer_that_breaks_off_in_a_call_has_tokens_to_make_it_again():
    """Law: at its last token, too, half a call is none: it is asked for again."""
    broken = [*say("one two"), {"raw": '<tool_call>{"name": "f"'}, {"cut": True}]
    for cap in range(1, 20):
        run, events, _ = drive_through([broken, [CALL]], obeys=False, max_tokens=cap)

        assert [call[0] for call in calls_of(events)] == ["f"], cap
        assert run.finish is not None


@pytest.mark.parametrize("seams", [0, 1, 2])
def test_all_of_a_continued_answer_is_counted(seams):
    """Law: its completion is what all attempts wrote whose text stands, and no others; its prompt is the request's, and
    not what stood behind that already."""
    parts = ["one ", "one two ", "one two three "]
    broken = [[{"text": part}, {"cut": True}] for part in parts[:seams]]
    failed = [{"reasoning": "hm " * 50}, {"cut": True}]
    run, _, _ = drive_through([failed, *broken, [{"text": parts[-1]}]], chain=3, continuations=2)
    counts = [one.usage or Usage() for one in run.attempts[1:]]

    assert run.finish.usage.completion_tokens == sum(count.completion_tokens for count in counts)
    assert run.finish.usage.prompt_tokens == min(count.prompt_tokens for count in counts)
    assert len(counts) == seams + 1
