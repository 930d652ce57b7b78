"""Tokens as bytes: what begins alike, and the names of beginnings."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.packed_tokens import WIDTH, count_common, hash_beginnings, pack

rows = st.lists(st.integers(0, 3), max_size=12)


@given(rows, rows)
def test_the_common_beginning_is_counted(one: list[int], other: list[int]) -> None:
    """Law: it is what comparing token by token gives."""
    differs = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert count_common(pack(one), pack(other)) == differs


@given(rows, rows, st.integers(0, 14))
def test_equal_beginnings_have_equal_names(one: list[int], other: list[int], length: int) -> None:
    """Law: two beginnings have the same name just where they are the same tokens; a longer one than there is has none,
    and what else is asked for changes nothing."""
    first, second = hash_beginnings(pack(one), [length]), hash_beginnings(pack(other), range(15))
    assert (length in first) is (length <= len(one))
    if length in first and length in second:
        assert (first[length] == second[length]) is (one[:length] == other[:length])


def test_each_token_has_its_own_bytes() -> None:
    """Law: tokens are told apart up to the largest vocabulary."""
    assert len(pack([0, 1, 2**32 - 1])) == 3 * WIDTH
    assert len({pack([token]) for token in (0, 1, 256, 65_536, 2**32 - 1)}) == 5
