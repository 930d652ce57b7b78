"""Where a stop string cuts a text, however the text is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deployments.tiers.stream_matchers import StopCut
from tests.support.cut_texts import cut_texts


class TestStop:
    @given(cut_texts(), st.lists(st.sampled_from(["stop", "op", "a st", "né", " \n"]), min_size=1, max_size=3))
    def test_the_first_complete_one_cuts(self, cut: tuple[str, list[str]], stops: list[str]) -> None:
        """Law: the answer ends before the stop string that is complete first; without one it is whole."""
        text, pieces = cut
        ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
        wanted = text[: min(ends)[1]] if ends else text
        machine = StopCut(stops)
        assert "".join(machine.feed(piece) for piece in pieces) + machine.flush() == wanted
        assert (machine.found is not None) == bool(ends)
        assert (machine.found in stops) is bool(ends)

    def test_nothing_is_held_without_need(self) -> None:
        """Law: text that can't begin a stop string leaves at once."""
        assert StopCut(["END"]).feed("a tale of") == "a tale of"
