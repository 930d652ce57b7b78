"""Reminders that moved stay where the model has read them, and cost the prompt cache no more than themselves."""

import asyncio
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.mlx.job_builder import JobBuilder
from deployments.tiers.mlx.mlx_tier import MlxTier
from deployments.tiers.moved_reminders import _SHARE, RemindedMessages, _split, find_reminded, keep_moved
from tests.support import tiny_model
from tests.support.agent_sessions import SESSIONS
from tests.support.mlx_rig import ready
from tests.support.tier_asking import answer, ask, usage_of

PLAN = "<system-reminder>\nPlan only.\n</system-reminder>"
LONG, SHORT = ("what a tool said " * times for times in (40, 12))
Messages = list[dict[str, Any]]


def user(text: str, *reminders: str) -> dict[str, Any]:
    return {"role": "user", "content": "\n\n".join([text, *reminders])}


def loop(*results: str) -> Messages:
    """Calls and their results, in one message each."""
    found: Messages = []
    for n, result in enumerate(results):
        found += [{"role": "assistant", "content": f"call {n}"}, {"role": "tool", "content": result}]
    return found


def turn_on(*, first: str = "Do it.", old: tuple[str, ...] = (), new: tuple[str, ...] = (PLAN,)) -> Messages:
    return [user(first, *old), *loop(LONG, LONG), {"role": "assistant", "content": "Done."}, user("And that.", *new)]


BEFORE = find_reminded([user("Do it.", PLAN), *loop(LONG, LONG)])


def test_what_moved_stays_and_is_where_it_moved():
    """Law: the old place is as the model has read it, to the letter; the new one as the client sends it."""
    sent = turn_on()
    kept = keep_moved(sent, BEFORE)

    assert kept is not None
    assert list(kept) == [user("Do it.", PLAN), *sent[1:]]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(turn_on(new=()), id="gone"),
        pytest.param(turn_on(new=(PLAN.replace("only", "now"),)), id="another text"),
        pytest.param(turn_on(first="Do it now."), id="other words"),
        pytest.param(turn_on(old=(PLAN.replace("only", "now"),)), id="another reminder in its place"),
        pytest.param([user("Do it."), user("And that.", PLAN)], id="nothing was read behind it"),
        pytest.param([user("Do it."), *loop(LONG, LONG), {"role": "assistant", "content": PLAN}], id="the model's"),
        pytest.param(turn_on(old=(PLAN,)), id="never moved"),
        pytest.param([*turn_on()[1:-1], user("And that.", PLAN)], id="another history"),
    ],
)
def test_nothing_stays_that_did_not_merely_move(sent):
    """Law: what the client changed, dropped or rewrote is as the client sends it."""
    assert keep_moved(sent, BEFORE) is None


def test_one_of_two_that_is_gone_takes_the_other_along():
    """The old place would differ anyway."""
    todo = PLAN.replace("Plan only", "The list is empty")
    known = find_reminded([user("Do it.", PLAN, todo), *loop(LONG, LONG)])

    assert keep_moved(turn_on(), known) is None
    assert keep_moved(turn_on(new=(PLAN, todo)), known) is not None


def test_what_stays_is_a_small_part_of_the_conversation():
    """Law: in a session of any length, what stays is at most its share; the oldest stay, so that their prefix does."""
    skills = f"<system-reminder>\n{'a skill, ' * 30}\n</system-reminder>"
    told: Messages = []
    known, shares = RemindedMessages(), []
    for n in range(20):
        sent = [*told, user(f"Step {n}.", skills), *loop(LONG, LONG)]
        kept = keep_moved(sent, known) or tuple(sent)
        count = sum(message["content"].count(skills) for message in kept) - 1
        shares.append(count * len(skills) * _SHARE / sum(len(m["content"]) for m in sent))
        known = find_reminded(kept)
        told += [user(f"Step {n}."), *loop(LONG, LONG), {"role": "assistant", "content": "Done."}]

    assert 0.7 < max(shares) <= 1
    assert keep_moved([user("x"), user("y", skills)], find_reminded([user("x", skills)])) is None


PIECES = st.sampled_from(["a ", "<system-reminder>", "</system-reminder>", "\n", PLAN, "<b>"])
TEXTS = st.lists(PIECES, max_size=8).map("".join)
ROLES = st.sampled_from(["user", "tool", "assistant"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLES, "content": TEXTS}), max_size=8)


@given(MESSAGES, MESSAGES)
def test_no_word_is_lost_and_none_is_new(old, sent):
    """Law, for any two requests: each message has all its words, only those that the client sent, and its role."""
    kept = keep_moved(sent, find_reminded(old))
    everything = {reminder for message in sent for reminder in _split(message["content"])[1]}
    for mine, theirs in zip(kept or sent, sent, strict=True):
        words, reminders = _split(mine["content"])
        assert words == _split(theirs["content"])[0]
        assert set(_split(theirs["content"])[1]) <= set(reminders) <= everything
        assert mine["role"] == theirs["role"]


def test_a_long_row_of_openings_is_read_once():
    """A hostile text of a megabyte costs one pass."""
    text = "<system-reminder>" * 60_000

    assert _split(text) == ([text], [])


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxTier]:
    """A real model of a few kilobytes, with room for a session: its tokens are bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_model, "CONTEXT", 65_536)
        folder = tiny_model.write_folder(tmp_path_factory.mktemp("mlx") / "tiny")
    made = ready(model=f"path:{folder}", prompt_cache_bytes=1 << 28)
    yield made
    asyncio.run(made.close())


def read_again(tier: MlxTier, name: str, requests: list[Messages]) -> list[tuple[int, int]]:
    """Ask in one session; return of each request the tokens of its prompt, and those that weren't in the cache."""

    found = []
    for messages in requests:
        request = ask(messages=tuple(messages), max_tokens=1, temperature=0.0, session_id=name, key=name)
        usage = usage_of(asyncio.run(answer(tier, request)))
        found.append((usage.prompt_tokens, usage.prompt_tokens - usage.cached_tokens))
    return found


def play(reminder: str, turns: int = 4) -> list[Messages]:
    """A session whose last message of the user's has the reminder, with a loop of calls behind it."""
    told: Messages = []
    requests = []
    for n in range(turns):
        asked = user(f"Step {n}.", *filter(None, [reminder]))
        requests += [[*told, asked, *loop(*[SHORT] * calls)] for calls in range(4)]
        told = [*told, user(f"Step {n}."), *loop(*[SHORT] * 3), {"role": "assistant", "content": "Done."}]
    return requests


def test_a_moved_reminder_costs_its_own_tokens(tier):
    """Law: over 16 requests, a reminder on the user's last message costs its own tokens each time it moves, and a few
    more, by the engine's count."""
    plain, moved = read_again(tier, "plain", play("")), read_again(tier, "moved", play(PLAN))
    more = [with_it[1] - without[1] for without, with_it in zip(plain, moved, strict=True)]

    assert max(more) <= len(PLAN) + 10
    assert sum(more) <= 4 * (len(PLAN) + 10)


def test_what_would_not_fit_does_not_stay(tier):
    """Law: the answer's place isn't given to what only spares time: all that the client asks for, and of a client that
    asks for more than fits an eighth of the context."""
    requests = play(PLAN, turns=2)
    (alone, _) = read_again(tier, "alone", requests[4:5])[0]
    extra, asked = len("\n\n" + PLAN), 1_000_000
    eighth = (alone + extra) // 7 + 1
    for context, tokens, kept in (
        (65_536, 1, True),
        (alone + 1, 1, False),
        (65_536, asked, True),
        (alone + extra + eighth, asked, True),
        (alone + extra + eighth - 8, asked, False),
    ):
        loaded = dataclasses.replace(tier._engine.phase.loaded, context_tokens=context)
        jobs, found = JobBuilder(loaded, temperature=None, reasoning_tokens_max=None), 0
        for messages in requests[3:5]:
            request = ask(messages=tuple(messages), max_tokens=tokens, session_id="one")
            found = len(jobs.build(request, list)[0].prompt)
        assert found == alone + extra * kept, (context, tokens)


@pytest.mark.parametrize("agent", sorted(SESSIONS))
def test_agents_that_only_append_read_nothing_again(tier, agent):
    """Law: of each request of Claude Code and of Codex, as they were recorded, only what is new is read."""
    histories = [[_bare(m) for m in request.messages] for request in SESSIONS[agent]]
    found = read_again(tier, agent, histories)
    opening = len("<|im_start|>assistant\n")

    for (before, _), (now, read) in itertools.pairwise(found):
        assert read <= now - before + opening


def _bare(message: Any) -> dict[str, Any]:
    """What the template of the tiny model can write."""
    content = message.get("content") or ""
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return {"role": message["role"], "content": text}
