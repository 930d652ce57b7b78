"""A report as HTML loads nothing and runs nothing that a model wrote; as Markdown its tables stay whole."""

import base64
import copy
import hashlib
import re
from html.parser import HTMLParser

import pytest

from deployments.evaluate.figures.comparison import compare_reports
from deployments.evaluate.pages import report_pages
from deployments.evaluate.pages.report_pages import _write_bytes, _write_figure, _write_share, render_page
from tests.support.evaluation_cells import make_cells, make_report, task_cell

REPORT = make_report()
EVIL = "<script>alert(1)</script>"


class Reader(HTMLParser):
    """Which tags and attributes a page has, and whether its tags are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_has_every_part():
    """Verdicts, calls, tasks, the chain, speeds, the checklist and the provenance. An empty evaluation has a page too:
    what was not run is said; so is a busy machine, on which times are worse than they need be."""
    page = render_page(REPORT)
    reader = Reader(page)

    assert reader.open == []
    for words in ("Verdict", "Tool calls", "Whole tasks", "Learned chain", "Speed", "Checklist", "Provenance"):
        assert f"<h2>{words}" in page
    assert page.count("<svg") >= 4
    assert "premium" in page
    assert "no key: export OPENROUTER_API_KEY" in page
    empty = render_page(make_report({}, {"models": {}}))
    assert Reader(empty).open == []
    assert "Not everything was run in the time" in empty
    busy = render_page(REPORT | {"machine": REPORT["machine"] | {"load_average": 9.0}})
    assert ["The machine was busy" in one for one in (busy, page)] == [True, False]


def test_nothing_is_loaded_and_nothing_runs():
    """No script, no address, no style but the one that the policy names by its digest."""
    page = render_page(REPORT)
    reader = Reader(page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()

    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page
    assert not {"script", "link", "img", "iframe", "object", "form", "a"} & set(reader.tags)
    assert not {name for name, _ in reader.attributes if name in ("src", "href", "style") or name.startswith("on")}
    assert "http" not in style


def test_what_a_model_wrote_is_text():
    """In an end of a task, an error, a name, a reason."""
    cells = make_cells() | {"layers/task/fast/buggy_calc": task_cell(passed=False)}
    facts = {"models": {}, "unavailable": {"x": EVIL}, "machine": {}, "versions": {"v": EVIL}}
    for report in (make_report(cells), make_report({}, facts)):
        page = render_page(report)
        assert EVIL not in page
        assert "&lt;script&gt;" in page


@pytest.mark.parametrize("worse", [True, False])
def test_differences_stand_in_front(worse):
    """With the cases that became wrong; or the word that there are none. The summary says what the page says: the
    verdicts, the unavailable tier, the headline rows, what became worse."""
    new = make_report(make_cells(large_right=8)) if worse else copy.deepcopy(REPORT)
    page = render_page(new, compare_reports(REPORT, new))
    text = report_pages.render_summary(new, compare_reports(REPORT, new))

    assert page.index("Since the older report") < page.index("Verdict")
    assert ("became wrong:" in page) is worse
    assert ("Nothing has changed" in page) is not worse
    assert ("- worse: " in text) is worse
    for words in ("| fast |", "| premium | unavailable |", "| the chain | + escalation |", "- [x] "):
        assert words in text


def count_cells(text: str) -> None:
    columns = 0
    for line in text.splitlines():
        columns = 0 if not line.startswith("|") else columns or line.count(" | ")
        assert line.count(" | ") == columns or not line.startswith("|")


def test_what_a_server_says_stays_in_its_cell():
    """Neither a line, nor a cell, nor HTML of its own."""
    words = "no\n\n## Verdict\n\n| fast | fit | <script>alert(1)</script>"
    checklist = [{"item": "provenance", "known": True, "words": words}]
    report = REPORT | {"unavailable": {f"a{words}": words}, "target": words, "checklist": checklist}
    text = report_pages.render_summary(report, [{"kind": "worse", "words": words}])

    assert text.count("\n## Verdict") == 1
    assert "<script>" not in text
    count_cells(text)


def test_figures_are_written_with_what_counts():
    """Counts beside shares, spreads beside medians, and a dash for nothing."""
    assert _write_share({"hits": 3, "runs": 4, "share": 0.75, "low": 0.3, "high": 0.954}) == "75% (3 of 4; 30 to 95%)"
    assert _write_share({"hits": 0, "runs": 0, "share": None, "low": 0, "high": 1}) == "–"
    assert report_pages._write_spread({"median": 1.234, "min": 1, "max": 2, "runs": 3}, "s") == "1.23 s (1 to 2)"
    assert report_pages._write_spread({"median": 1.0, "min": 1, "max": 1, "runs": 1}) == "1 (one run)"
    assert (_write_figure(None), _write_figure(12345.6), _write_figure(0.01234)) == ("–", "12,346", "0.0123")
    assert (_write_bytes(None), _write_bytes(1_230_000_000)) == ("–", "1.23 GB")
