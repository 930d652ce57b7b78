"""Who loses what where all keys together store too much."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.key_shares import KeyShares, find_fullest, find_level

HELD = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 100))


@given(HELD, st.integers(-5, 400))
def test_who_holds_less_than_the_level_keeps_all(held: dict[str, int], most: int) -> None:
    """Law: with at most the level each, all are within the bound; one more each is too much, or nobody has more."""
    level = find_level(held, most)

    assert sum(min(count, level) for count in held.values()) <= max(0, most)
    assert level >= max(held.values(), default=0) or sum(min(count, level + 1) for count in held.values()) > most


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans())))
def test_the_oldest_of_the_fullest_key_leaves(done: list[tuple[str, int, bool]]) -> None:
    """Law: what is put anew is the newest; what was dropped is no longer counted."""
    shares: KeyShares[int] = KeyShares()
    model: dict[str, list[int]] = {}
    for key, name, put in done:
        names = model.setdefault(key, [])
        if name in names:
            names.remove(name)
        if put:
            names.append(name)
            shares.put(key, name, name)
        else:
            shares.drop(key, name)
        assert dict(shares.counts) == {each: len(names) for each, names in model.items() if names}
        assert dict(shares.held) == {each: sum(names) for each, names in model.items() if names}
    for key, count in shares.counts.items():
        assert shares.find_oldest({key: count}) == model[key][0]
    if shares.counts:
        fullest = find_fullest(shares.counts)
        assert shares.counts[fullest] == max(shares.counts.values())
        assert shares.find_oldest() == model[fullest][0]
