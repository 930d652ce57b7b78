"""The summary: tables that Markdown reads, with what the page says."""

from __future__ import annotations

from deployments.evaluate.figures.comparison import compare_reports
from deployments.evaluate.pages.markdown_page import render_summary
from deployments.evaluate.pages.wording import write_bytes, write_figure, write_share, write_spread
from tests.support.evaluation_cells import make_cells, make_report

REPORT = make_report()


def test_every_row_of_a_table_has_as_many_cells():
    """Whatever stands in them."""
    count_cells(render_summary(REPORT))


def count_cells(text: str) -> None:
    columns = 0
    for line in text.splitlines():
        columns = 0 if not line.startswith("|") else columns or line.count(" | ")
        assert line.count(" | ") == columns or not line.startswith("|")


def test_it_says_what_the_page_says():
    """The verdicts, the unavailable tier, the headline rows, what became worse."""
    new = make_report(make_cells(large_right=8))
    text = render_summary(new, compare_reports(REPORT, new))

    for words in ("| fast |", "| premium | unavailable |", "| the chain | + escalation |", "- worse: ", "- [x] "):
        assert words in text


def test_what_a_server_says_stays_in_its_cell():
    """Neither a line, nor a cell, nor HTML of its own."""
    words = "no\n\n## Verdict\n\n| fast | fit | <script>alert(1)</script>"
    checklist = [{"item": "provenance", "known": True, "words": words}]
    report = REPORT | {"unavailable": {f"a{words}": words}, "target": words, "checklist": checklist}
    text = render_summary(report, [{"kind": "worse", "words": words}])

    assert text.count("\n## Verdict") == 1
    assert "<script>" not in text
    count_cells(text)


def test_figures_are_written_with_what_counts():
    """Counts beside shares, spreads beside medians, and a dash for nothing."""
    assert write_share({"hits": 3, "runs": 4, "share": 0.75, "low": 0.3, "high": 0.954}) == "75% (3 of 4; 30 to 95%)"
    assert write_share({"hits": 0, "runs": 0, "share": None, "low": 0, "high": 1}) == "–"
    assert write_spread({"median": 1.234, "min": 1, "max": 2, "runs": 3}, "s") == "1.23 s (1 to 2)"
    assert write_spread({"median": 1.0, "min": 1, "max": 1, "runs": 1}) == "1 (one run)"
    assert (write_figure(None), write_figure(12345.6), write_figure(0.01234)) == ("–", "12,346", "0.0123")
    assert (write_bytes(None), write_bytes(1_230_000_000)) == ("–", "1.23 GB")
