"""Plots: well-formed SVG within its frame, whatever the figures and the names are."""

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.pages.plots import WIDTH, _draw_bars, _draw_chart, draw_plots
from tests.support.evaluation_cells import make_report

figures = st.floats(0, 1e7, allow_nan=False)
points = st.lists(st.tuples(figures, figures), max_size=6)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
SVG = "{http://www.w3.org/2000/svg}"


def read(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


@given(st.dictionaries(names, points, max_size=7))
def test_lines_and_points_are_well_formed_and_within_the_frame(series):
    """Any series, empty ones too; a plot of nothing is nothing."""
    for joined in (True, False):
        svg = _draw_chart("T <&>", series, across="x", up="y", joined=joined)
        assert bool(svg) is any(series.values())
        if svg:
            circles = [one for one in read(svg).iter() if one.tag.endswith("circle")]
            assert all(0 <= float(one.get("cx", "")) <= WIDTH for one in circles)
            assert all(float(one.get("cy", "")) >= -1 for one in circles)


@given(st.lists(st.tuples(names, st.floats(0, 1)), max_size=9))
def test_bars_are_within_their_track(rows):
    """A share never leaves its scale."""
    svg = _draw_bars("shares", [(name, share, share / 2, (1 + share) / 2, name) for name, share in rows])
    widths = [float(one.get("width", "")) for one in read(svg).iter() if one.tag.endswith("rect")]

    assert all(bar <= track + 1e-6 for track, bar in zip(widths[::2], widths[1::2], strict=True))


def test_a_plot_has_no_style_of_its_own_and_loads_nothing():
    """So that the page's policy can forbid both; and a title for those who can't see it."""
    plots = draw_plots(make_report())

    assert [name for name, picture in plots.items() if not picture] == ["confidence"]
    for picture in filter(None, plots.values()):
        assert not re.search(r"style=|href=|<script|url\(|on\w+=", picture)
        assert "<title>" in picture
