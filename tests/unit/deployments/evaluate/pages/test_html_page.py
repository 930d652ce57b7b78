"""The page: one file, nothing from elsewhere, and nothing of what a model wrote that could run."""

from __future__ import annotations

import base64
import copy
import hashlib
import re
from html.parser import HTMLParser

import pytest

from deployments.evaluate.figures.comparison import compare_reports
from deployments.evaluate.pages.html_page import render_page
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
    """Verdicts, calls, tasks, the chain, speeds, the checklist and the provenance."""
    page = render_page(REPORT)
    reader = Reader(page)

    assert reader.open == []
    for words in ("Verdict", "Tool calls", "Whole tasks", "Learned chain", "Speed", "Checklist", "Provenance"):
        assert f"<h2>{words}" in page
    assert page.count("<svg") >= 5
    assert "premium" in page
    assert "no key: export OPENROUTER_API_KEY" in page


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


def test_an_empty_evaluation_has_a_page_too():
    """What was not run is said."""
    page = render_page(make_report({}, {"models": {}}))

    assert Reader(page).open == []
    assert "Not everything was run in the time" in page


@pytest.mark.parametrize("worse", [True, False])
def test_differences_stand_in_front(worse):
    """With the cases that became wrong; or the word that there are none."""
    new = make_report(make_cells(large_right=8)) if worse else copy.deepcopy(REPORT)
    page = render_page(new, compare_reports(REPORT, new))

    assert page.index("Since the older report") < page.index("Verdict")
    assert ("became wrong:" in page) is worse
    assert ("Nothing has changed" in page) is not worse


def test_a_busy_machine_is_said():
    """Times on it are worse than they need be."""
    busy = REPORT | {"machine": REPORT["machine"] | {"load_average": 9.0}}

    assert "The machine was busy" in render_page(busy)
    assert "The machine was busy" not in render_page(REPORT)
