"""Answers that are kept for a repeat: bounded, forgotten in time, whole, and nobody else's."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state import idempotent_answers as module
from deployments.state.idempotent_answers import _KEPT_S, KeptAnswers, KeptItem, KeptName, Piece, RepeatKind, Standing
from reliability.types import CallDelta, Finish, FinishReason, Reasoning, Refusal, Text

S = 1_000_000_000
NAME = KeptName("k", "chat", "name n")
END = module.KeptEnd(finish=Finish(reason=FinishReason.STOP), request_id="r")


def item(ticket: str = "a", at: int = 0, *pieces: Piece, **more: Any) -> KeptItem:
    made = {"name": NAME, "tier": "fast", "session": "s"} | more
    return KeptItem(ticket=ticket, at=at, pieces=pieces, **made)


def question(ticket: str = "b", **more: Any) -> module.KeptQuestion:
    made = {"name": NAME, "digest": "d", "client": "other"} | more
    return module.KeptQuestion(ticket=ticket, **made)


def begun(*pieces: Piece, now_ns: int = 0, **more: Any) -> KeptAnswers:
    """One record, of the Router `router`, that has been told these pieces."""
    kept = KeptAnswers()
    kept.take(item("a", 0, *pieces, digest="d", **more), "router", now_ns)
    return kept


def test_a_finished_answer_is_told_from_its_start():
    """Law: whole, with its end, as often as it is asked for, whether its Router lives or not."""
    pieces = (Reasoning("hm"), Text("words"), CallDelta(index=0, id="c", name="f", arguments="{}"))
    kept = begun(*pieces, standing=Standing.FINISHED, end=END)

    for at_s in (0, 5, 59):
        reply = kept.ask(question(), at_s * S)
        assert (reply.found, reply.pieces, reply.end, reply.tier) == (RepeatKind.REPLAY, pieces, END, "fast")


def test_a_running_answer_is_followed_as_long_as_its_router_lives():
    """Law: each question brings what has come since; of a call nothing before the end."""
    kept = begun(Text("one"))
    first = kept.ask(question(), S)
    kept.take(item("a", 1, Text("two"), CallDelta(index=0, id="c", name="f")), "router", 2 * S)
    second = kept.ask(question(story=first.story, at=1), 4 * S)

    assert (first.found, first.pieces) == (RepeatKind.FOLLOW, (Text("one"),))
    assert (second.found, second.pieces) == (RepeatKind.FOLLOW, (Text("two"),))


def test_what_a_dead_router_ran_is_taken_over_once():
    """Law: silent for `_ALIVE_S`, its answer is the next asker's, and another one follows that one; what the dead one
    told late is passed over."""
    kept = begun(Text("one"))
    kept.hear("router", 10 * S)
    now_ns = 10 * S + int(module._ALIVE_S * S)

    assert kept.ask(question("b"), now_ns - 1).found is RepeatKind.FOLLOW
    assert kept.ask(question("b"), now_ns).found is RepeatKind.CONTINUE
    assert kept.ask(question("c"), now_ns).found is RepeatKind.FOLLOW
    kept.take(item("a", 1, Text("late")), "router", now_ns)
    kept.take(item("b", 1, Text("two"), standing=Standing.FINISHED, end=END), "other", now_ns)
    assert kept.ask(question("c"), now_ns).pieces == (Text("one"), Text("two"))


def test_what_runs_for_long_is_kept_as_long_as_its_router_lives():
    """Law: a model that thinks for ten minutes before its first word is still followed."""
    kept = begun()
    for at_s in range(600):
        kept.hear("router", at_s * S)

    assert kept.ask(question(), 600 * S).found is RepeatKind.FOLLOW


@pytest.mark.parametrize(
    ("pieces", "found"),
    [
        ((Text("words"),), RepeatKind.CONTINUE),
        ((Reasoning("hm"), Text("words")), RepeatKind.CONTINUE),
        ((), RepeatKind.ANEW),
        ((Reasoning("hm"),), RepeatKind.ANEW),
        ((Text(" \n"),), RepeatKind.ANEW),
        ((Text("words"), CallDelta(index=0, id="c", name="f")), RepeatKind.ANEW),
        ((Refusal("No."),), RepeatKind.ANEW),
        ((Text("words"), Refusal("No.")), RepeatKind.ANEW),
    ],
)
def test_only_a_text_is_gone_on_with(pieces, found):
    """Law: reasoning alone is no answer, and of calls and refusals that had left nobody knows whether they were all;
    and without seams a text that had stopped is no help."""
    kept = begun(*pieces, standing=Standing.INTERRUPTED)

    assert begun(*pieces, standing=Standing.INTERRUPTED).ask(question(continues=False), 0).found is RepeatKind.ANEW
    assert kept.ask(question(), 0).found is found
    assert kept.ask(question("c"), 0).found is RepeatKind.FOLLOW  # it is the asker's now


@pytest.mark.parametrize("standing", [Standing.RUNNING, Standing.FINISHED, Standing.INTERRUPTED])
def test_another_body_and_another_key_are_told_nothing(standing):
    """Law: the name alone opens nothing."""
    kept = begun(Text("secret"), standing=standing, end=END)

    reply = kept.ask(question(digest="other"), 0)
    assert (reply.found, reply.pieces) == (RepeatKind.OTHER_BODY, ())
    for name in (NAME._replace(key="other"), NAME._replace(route="messages"), NAME._replace(name="name m")):
        assert kept.ask(question(name=name), 0).found is RepeatKind.ANEW


def test_a_follower_is_never_told_the_rest_of_another_answer():
    """Law: where the answer that it follows has gone, or has begun anew, it hears so."""
    kept = begun(Text("one"))
    story = kept.ask(question(), 0).story
    kept.take(item("z", digest="d"), "third", 0)  # the same request, begun anew

    assert kept.ask(question(story=story, at=1), 0).found is RepeatKind.LOST
    kept.take(item("z", standing=Standing.DROPPED), "third", 0)
    assert kept.ask(question(story=story, at=1), 0).found is RepeatKind.LOST


def test_a_failed_answer_and_one_with_a_gap_are_dropped():
    """Law: the repeat runs anew, and no piece is left out."""
    failed, gap = begun(Text("x")), begun(Text("x"))
    failed.take(item("a", 1, standing=Standing.DROPPED), "router", 0)
    gap.take(item("a", 2, Text("z")), "router", 0)

    assert (len(failed), len(gap), failed.size, gap.size) == (0, 0, 0, 0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "tell", "again", "finish", "stop", "drop", "ask", "hear"]),
        st.integers(0, 5),  # which name
        st.integers(0, 3),  # which body
        st.sampled_from([0, 0, 1, 2, 5, 40, 70]),  # seconds before it
        st.integers(0, 900),  # characters
    ),
    max_size=60,
)


@given(steps)
def test_it_is_bounded_and_tells_what_it_was_told(drawn):
    """Law: whatever comes in whatever order, it holds no more than its bounds, counts exactly, tells each answer as its
    Routers told it, to the same body, and nothing after its minute."""
    kept, now_ns = KeptAnswers(records_max=4, bytes_max=3_000), 0
    told: dict[str, list[Piece]] = {}  # by ticket
    owners: dict[KeptName, tuple[str, str, int]] = {}  # ticket, body, when it changed last
    for number, (what, which, body, wait_s, size) in enumerate(drawn):
        now_ns += wait_s * S
        name, ticket = KeptName("k", "chat", str(which)), f"t{number}"
        mine, digest, _ = owners.get(name, ("", "", 0))
        if what == "begin":
            owners[name], told[ticket] = (ticket, str(body), now_ns), []
            kept.take(item(ticket, name=name, digest=str(body)), "router", now_ns)
        elif what == "hear":
            kept.hear("router", now_ns)
        elif what == "ask":
            reply = kept.ask(question(ticket, name=name, digest=str(body), client="router"), now_ns)
            if reply.found is RepeatKind.OTHER_BODY:
                assert digest != str(body)
            elif reply.found is RepeatKind.ANEW:
                owners[name], told[ticket] = (ticket, str(body), now_ns), []
            else:
                assert digest == str(body)
                assert list(reply.pieces) == told[mine]
                assert reply.found is not RepeatKind.REPLAY or now_ns - owners[name][2] < _KEPT_S * S
            if reply.found is RepeatKind.CONTINUE:
                owners[name], told[ticket] = (ticket, digest, now_ns), list(told[mine])
        elif mine:
            before = len(told[mine])
            new = [Text(f"{number}" + "x" * size)] if what in ("tell", "finish") else []
            at = 0 if what == "again" else before
            standing = {"finish": Standing.FINISHED, "stop": Standing.INTERRUPTED, "drop": Standing.DROPPED}
            pieces, then = told[mine][at:] + new, standing.get(what, Standing.RUNNING)
            sent = item(mine, at, *pieces, name=name, standing=then, end=END)
            told[mine] += new
            kept.take(sent, "router", now_ns)
            owners[name] = (mine, digest, now_ns)
        assert len(kept) <= 4
        assert kept.size <= 3_000
        assert kept.size == sum(record.size for record in kept._records.values())
    kept.hear("last", now_ns + int((_KEPT_S + 1) * S))
    assert (len(kept), kept.size) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400)), max_size=60))
def test_a_key_that_holds_little_loses_nothing_to_another(puts: list[tuple[str, int]]) -> None:
    """Law: within both bounds at each moment, and a key that holds less than its share of both loses nothing."""
    kept, mine = KeptAnswers(records_max=12, bytes_max=3_000), 0
    for number, (key, length) in enumerate(puts):
        small = key == "a"
        if small and mine == 2:
            continue
        mine += small
        name = KeptName(key, "chat", str(number))
        text = Text("x" * (10 if small else length))
        kept.take(item("t", 0, text, digest="d", name=name, standing=Standing.FINISHED, end=END), "router", 0)

        assert kept.size <= 3_000
        assert len(kept) <= 12
    names = [KeptName("a", "chat", str(n)) for n, (key, _) in enumerate(puts) if key == "a"]
    found = [kept.ask(question(name=name, anew=True), 0).found for name in names]
    assert found.count(RepeatKind.REPLAY) == mine
