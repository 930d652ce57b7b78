"""What a draft model would gain is reckoned from which of its guesses stand."""

from hypothesis import given
from hypothesis import strategies as st

from loadtests.draft_bench import count_steps


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 8))
def test_steps_are_those_of_a_draft(stands: list[bool], count: int) -> None:
    """Law: each step gives the guesses that stand, up to the first that doesn't, and a token of the model's own: so
    they are as many as there are tokens without guesses, and no fewer than tokens by the most that a step gives."""
    steps = count_steps(stands, count)
    assert count_steps(stands, 0) == len(stands)
    assert -(-len(stands) // (count + 1)) <= steps <= len(stands)
    assert count_steps([True] * len(stands), count) == -(-len(stands) // (count + 1))
    assert count_steps([False] * len(stands), count) == len(stands)


def test_a_wrong_guess_ends_its_step():
    """Law: behind a wrong guess the next step begins."""
    assert count_steps([True, False, True, True, True], 2) == 2
    assert count_steps([False, False, True, True, True], 2) == 3
