"""The persistent mapping beneath the reducers."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.admission.persistent_map import Shards


@given(st.lists(st.tuples(st.sampled_from("pd"), st.text(max_size=3), st.integers()), max_size=80))
def test_shards_are_a_mapping(steps: list[tuple[str, str, int]]) -> None:
    """A persistent mapping agrees with a dict after any puts and drops, and older versions don't change."""
    shards: Shards[int] = Shards()
    plain: dict[str, int] = {}
    versions = [(shards, dict(plain))]
    for verb, key, value in steps:
        shards = shards.put(key, value) if verb == "p" else shards.drop(key)
        plain = {**plain, key: value} if verb == "p" else {k: v for k, v in plain.items() if k != key}
        versions.append((shards, plain))
    for version, expected in versions:
        assert dict(version.items()) == expected
        assert version.count == len(expected)
        assert all(version.get(key) == value for key, value in expected.items())
    assert shards.without(list(plain)).count == 0


def test_any_name_is_a_key() -> None:
    """Even a lone surrogate, as JSON may carry it, is a name."""
    shards: Shards[int] = Shards()
    assert shards.put("\ud800", 1).get("\ud800") == 1
