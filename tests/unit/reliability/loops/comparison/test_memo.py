"""The memo of the loop rules: it spares work, and nobody sees it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reliability.loops import Memo, Turn, find_loop
from reliability.loops.comparison.canonical import parse
from tests.support.conversation import CONFIG
from tests.support.loop_histories import acting, asks, histories, law, steps


@law
@given(histories, steps, st.integers(0, 6), st.lists(acting.map(asks), max_size=3))
def test_a_memo_changes_no_verdict(before: tuple[Turn, ...], lap: list[Turn], laps: int, others: list[Turn]) -> None:
    """Each tier's answer to one request is judged as it would be alone, whatever was judged before it."""
    turns, memo = (*before, *lap * laps), Memo()

    for answer in (asks(lap[0]), *others, None, asks(lap[-1]), asks(lap[0])):
        assert find_loop(turns, CONFIG, answer, memo) == find_loop(turns, CONFIG, answer)


def test_what_is_known_is_not_asked_again() -> None:
    """One question is answered once, whatever its answer is."""
    memo, asked = Memo(), []
    for key in ("a", ("a", 1), "a", ("a", 1)):
        assert memo.once(key, lambda: asked.append(1)) is None

    assert len(asked) == 2


@given(st.lists(st.integers(0, 20), max_size=40))
def test_a_text_is_read_as_without_a_memo(numbers: list[int]) -> None:
    """Also when more texts are read than are kept, in any order."""
    memo = Memo()
    for text in [f'{{"n": {number}' + "}" * (number % 3) for number in numbers]:
        assert memo.parse(text) == parse(text)
