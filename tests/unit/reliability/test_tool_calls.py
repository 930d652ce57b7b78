"""The nouns of tool calls: the places that they name."""

from hypothesis import given
from hypothesis import strategies as st

from reliability.tool_calls import join

parts = st.lists(st.one_of(st.text("a~/01", max_size=4), st.integers(0, 99)), max_size=5)


@given(parts)
def test_a_place_is_a_json_pointer(path: list[str | int]) -> None:
    """Whoever reads a place by RFC 6901 gets its parts back, whatever stands in a member's name."""
    read = [part.replace("~1", "/").replace("~0", "~") for part in join(*path).split("/")[1:]]
    assert read == [str(part) for part in path]
