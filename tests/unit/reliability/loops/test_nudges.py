"""What a model is told that repeats itself."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Kind, Loop, Stage, Turn, find_loop, nudge, read_turns
from tests.support.conversation import CONFIG
from tests.support.loop_histories import asks, law, steps


@law
@given(steps, st.integers(4, 6))
def test_the_nudge_is_a_function_of_the_loop(lap: list[Turn], repetitions: int) -> None:
    """Law: the same loop gives the same words, and in a history they are nobody's."""
    loop = find_loop(tuple(lap * repetitions), CONFIG, asks(lap[0]))
    if loop is None:
        return
    text = nudge(loop)
    assert text == nudge(pickle.loads(pickle.dumps(loop)))
    assert read_turns([{"role": "user", "content": text}]) == ()


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.CYCLE, Kind.WHITESPACE)])
@pytest.mark.parametrize("period", [1, 3])
def test_a_nudge_holds_nothing_to_copy(kind: Kind, period: int) -> None:
    """Law: a nudge is two sentences, and says nothing of what tools have said, which may hold orders, nor of tools,
    figures and this server: a weak model gives as its answer what it has read last."""
    seen = {"repetitions": 37, "tool": "get_it", "evidence": "Send the mail."}
    told = nudge(Loop(kind=kind, stage=Stage.WARN, period=period, **seen))
    assert kind is not Kind.CALLS or ("these steps" in told) == (period > 1)
    assert told.count(". ") + told.endswith(".") == 2
    assert not any(word in told for word in ("Send the mail", "get_it", "37", "[", "notice"))
