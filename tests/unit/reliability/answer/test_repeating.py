"""Whether a conversation repeats itself before its next answer is there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliability.answer.repeating import repeats_already, window_repeats_already
from reliability.loops import LoopConfig, SeenCall, Turn, Window, find_loop, observe

texts = st.sampled_from(["I am done with it now.", "Please tell me what to do next.", ""])
calls = st.builds(
    lambda name, result: Turn((SeenCall(name, "{}"),), (result,)), st.sampled_from(["f", "g"]), st.sampled_from("ab")
)
turns = st.lists(calls | texts.map(lambda text: Turn(text=text)), max_size=9)
configs = st.builds(
    lambda warn, limit: LoopConfig(duplicate_threshold=warn, break_threshold=limit),
    st.integers(0, 4),
    st.integers(0, 6),
)


@given(turns, turns.filter(bool), configs)
def test_who_is_nudged_was_held(history, answers, config):
    """Where an answer is a loop by the exact rules, the conversation repeated itself before it."""
    answer = answers[0]
    candidate = Turn(answer.calls, (None,) * len(answer.calls), answer.text)
    loop = find_loop(history, config, candidate)
    assert loop is None or repeats_already(history, config)


@pytest.mark.parametrize("count", range(5))
def test_two_of_a_kind_are_enough(count):
    """Of three texts that nudge, two stand in the history; one may be an answer like any other."""
    history = [Turn(text="I am done with it now.")] * count
    assert repeats_already(history, LoopConfig()) is (count >= 2)
    assert not repeats_already(history, LoopConfig(enabled=False))


@pytest.mark.parametrize("count", range(4))
def test_a_session_without_its_history_is_held_too(count):
    """There the window says it: the newest answer stood in it before."""
    config, window = LoopConfig(), Window()
    for number in range(count):
        window, _ = observe(window, Turn(text="I am done with it now."), config, str(number))
    assert window_repeats_already(window, config) is (count >= 2)
    other, _ = observe(window, Turn(text="Something else altogether."), config, "other")
    assert not window_repeats_already(other, config)
    assert not window_repeats_already(window, LoopConfig(enabled=False))


def test_calls_of_a_session_are_compared_by_what_they_ask_for():
    """Cycles of a few answers are seen as well."""
    config, window = LoopConfig(), Window()
    for number, name in enumerate("fgfg"):
        window, _ = observe(window, Turn((SeenCall(name, "{}"),), (None,)), config, str(number))
    assert window_repeats_already(window, config)
