"""Finding finished requests, and reading one."""

from __future__ import annotations

import re

import pytest

from tests.support.room_rig import Rig, attempt, browse

AWAY = {"tier": "standard", "escalated_from": "fast", "escalation_reason": "timeout"}


@pytest.fixture
def rig(tmp_path) -> Rig:
    made = Rig(tmp_path)
    made.finish("plain", session="a")
    made.finish("away", session="b", attempts=[attempt(fault="idle_timeout"), attempt("standard", at_ms=600)], **AWAY)
    made.finish("refused", session="b", outcome="budget", budget=[{"window": "session", "percent": 99}])
    return made


def listed(page: str) -> list[str]:
    return re.findall(r'class="id" title="([^"]*)"', page)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["refused", "away", "plain"]),
        ("session=b", ["refused", "away"]),
        ("tier=standard", ["away"]),
        ("outcome=budget", ["refused"]),
        ("mark=idle_timeout", ["away"]),
        ("mark=escalated&outcome=", ["away"]),
        ("session=nobody", []),
        ("before=2", ["plain"]),
        ("before=x", ["refused", "away", "plain"]),
    ],
)
def test_filters_narrow_the_list(rig, query, found):
    """Each by itself and together; a filter that says nothing is none."""
    with browse(rig) as client:
        page = client.get(f"/ui/requests?{query}").text

    assert listed(page) == found
    assert ("No request matches" in page) is (found == [])


def test_a_long_list_goes_on(rig):
    """A page of fifty, and a link to those before them with the same filters."""
    for n in range(60):
        rig.finish(f"r{n}", session="long")
    with browse(rig) as client:
        first = client.get("/ui/requests?session=long").text
        older = re.search(r'href="(/ui/requests\?[^"]*before=[^"]*)">Older', first)
        assert older is not None
        second = client.get(older[1].replace("&amp;", "&")).text

    assert listed(first) + listed(second) == [f"r{n}" for n in range(59, -1, -1)]
    assert "Older" not in second


@pytest.mark.parametrize("path", ["/ui/requests/2", "/ui/requests/by-id/away"])
def test_one_is_found_by_number_and_by_id(rig, path):
    """And told in steps, with headers, and a command to ask again."""
    with browse(rig) as client:
        page = client.get(path).text

    for words in ("idle timeout", "X-MLX-Stack-Escalated-From: fast", "curl http://127.0.0.1:8000/v1/chat/completions"):
        assert words in page
    assert page.count('class="step ') == 2


@pytest.mark.parametrize("number", ["999", "9" * 18, "9" * 20, "9" * 5000, "-1", "x", "٣"])
def test_a_number_that_no_request_has_is_a_page_that_says_so(rig, number):
    """Whatever its size: SQLite's numbers have an end, and so have Python's."""
    with browse(rig) as client:
        assert client.get(f"/ui/requests/{number}").status_code == 404
