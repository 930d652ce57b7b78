"""Conversations of published agents, as they were recorded: each run is one session, and no other's."""

import functools
import itertools
from typing import Any

import pytest

from reliability.loops.transcript import answer_turn
from reliability.sessions import describe_answer
from tests.evals.loops_eval import LAPS, load_runs
from tests.support.conversation import user
from tests.support.conversation_world import S, World


@functools.cache
def recorded_laps() -> dict[str, list[dict[str, Any]]]:
    """The laps of published agents, by run."""
    laps: dict[str, list[dict[str, Any]]] = {}
    for lap in load_runs(LAPS):
        laps.setdefault(lap["trial"], []).append(lap)
    return laps


@pytest.mark.parametrize("name", sorted(recorded_laps()))
def test_two_recorded_runs_at_once_are_two_sessions(world, name):
    """Published agents, each run twice at once with equal requests: a run is one session, and no other's."""
    runs: list[list[str]] = [[], []]
    for lap in recorded_laps()[name]:
        for run in runs:
            session, ticket = world.begin(lap["messages"])
            run.append(session)
            world.known.answer("k", session, ticket, describe_answer(answer_turn(lap["answer"])), world.now_ns)

    assert [len(set(run)) for run in runs] == [1, 1]
    assert runs[0][0] != runs[1][0]


def play_laps(world: World, name: str, refused: int | None = None) -> list[str]:
    """Play a recorded run, a second a lap; lap `refused` gets no answer, is asked twice, and is the last."""
    laps = recorded_laps()[name][: None if refused is None else refused + 1]
    sent = [*laps, *(laps[-1:] if refused is not None else [])]
    sessions = []
    for number, lap in enumerate(sent):
        world.now_ns += S
        vain = refused is not None and number >= refused
        sessions.append(world.ask(lap["messages"], None if vain else lap["answer"]))
    return sessions


@pytest.mark.parametrize("gap_s", [0, 5, 60, 500])
@pytest.mark.parametrize("name", sorted(recorded_laps()))
def test_a_rerun_takes_nothing_of_a_refused_run(world, name, gap_s):
    """A run that was refused and is run again, equal to the letter: each run is one session, its refused lap and the
    retries of that, too."""
    runs = []
    for _ in range(3):
        runs.append(play_laps(world, name, refused=3))
        world.now_ns += gap_s * S

    assert [len(set(run)) for run in runs] == [1, 1, 1]
    assert len({run[0] for run in runs}) == 3


@pytest.mark.parametrize("name", sorted(recorded_laps()))
def test_a_rerun_takes_nothing_of_a_run_that_was_left(world, name):
    """A client that is killed once it was answered, and run again: the first run's place waits, but not for this."""
    laps = recorded_laps()[name]
    for lap in laps[:3]:
        world.now_ns += S
        left = world.ask(lap["messages"], lap["answer"])
    again = play_laps(world, name)

    assert len(set(again)) == 1
    assert left not in again


def order_laps(laps: int, order: str) -> list[tuple[int, int]]:
    """The order in which two runs ask: (run, lap) each."""
    if order == "in turn":
        return [(run, lap) for lap in range(laps) for run in (0, 1)]
    if order == "turning":
        return [(run, lap) for lap in range(laps) for run in ((0, 1) if lap % 2 == 0 else (1, 0))]
    ahead = int(order)
    pairs = [pair for lap in range(laps - ahead) for pair in ((0, lap + ahead), (1, lap))]
    return [*((0, lap) for lap in range(ahead)), *pairs, *((1, lap) for lap in range(laps - ahead, laps))]


@pytest.mark.parametrize("refused", [None, 4])
@pytest.mark.parametrize("order", ["in turn", "turning", "1", "2"])
@pytest.mark.parametrize("name", sorted(recorded_laps()))
def test_equal_runs_at_once_share_no_lap(name, order, refused):
    """Two runs equal to the letter, in any order, also one ahead of the other, to their ends or until both are refused:
    two sessions in all, and the two requests of a lap are never in the same one."""
    world, laps = World(), recorded_laps()[name][: None if refused is None else refused + 1]
    asked: dict[int, list[str]] = {}
    for _, lap in order_laps(len(laps), order):
        world.now_ns += S
        answer = None if lap == refused else laps[lap]["answer"]
        asked.setdefault(lap, []).append(world.ask(laps[lap]["messages"], answer))

    assert len({session for pair in asked.values() for session in pair}) == 2
    assert [len(set(pair)) for pair in asked.values()] == [2] * len(laps)


AIDERS = [name for name in sorted(recorded_laps()) if name.startswith("aider")]


@pytest.mark.parametrize("order", ["in turn", "turning", "1", "2"])
@pytest.mark.parametrize("names", list(itertools.combinations(AIDERS, 2)))
def test_runs_that_write_the_same_edits_are_told_apart_by_what_they_say(world, names, order):
    """Two runs whose answers hold equal edit blocks, but other words around them: each is a session, also once both
    were refused, and their users say something else."""
    laps = [recorded_laps()[name] for name in names]
    runs: list[list[str]] = [[], []]
    for run, lap in order_laps(len(laps[0]), order):
        world.now_ns += S
        shown = laps[run][lap]
        runs[run].append(world.ask(shown["messages"], shown["answer"] if lap < len(laps[run]) - 1 else None))
    for run in (1, 0):
        runs[run].append(world.ask([*laps[run][-1]["messages"][:-1], user("Then do something else.")]))

    assert [len(set(run)) for run in runs] == [1, 1]
    assert runs[0][0] != runs[1][0]
