"""Finding finished requests, and reading one."""

import html
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.state.history import TimeSpan
from deployments.ui.history_pages import _spend_by_tier, _stack_counts
from tests.support.room_rig import Rig, attempt, browse, find_token, report

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
        *(("", ["refused", "away", "plain"]), ("session=b", ["refused", "away"]), ("tier=standard", ["away"])),
        *(("outcome=budget", ["refused"]), ("mark=idle_timeout", ["away"]), ("mark=escalated&outcome=", ["away"])),
        *(("session=nobody", []), ("before=2", ["plain"]), ("before=x", ["refused", "away", "plain"])),
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

    curl = "curl http://127.0.0.1:8000/v1/chat/completions"
    for words in ("idle timeout", "X-MLX-Stack-Escalated-From: fast", curl, "<dt>ended</dt>"):
        assert words in page
    assert page.count('class="step ') == 2


@pytest.mark.parametrize("number", ["999", "9" * 18, "9" * 20, "9" * 5000, "-1", "x", "٣"])
def test_a_number_that_no_request_has_is_a_page_that_says_so(rig, number):
    """Whatever its size: SQLite's numbers have an end, and so have Python's."""
    with browse(rig) as client:
        assert client.get(f"/ui/requests/{number}").status_code == 404


OWN = {"origin": "http://127.0.0.1:8000"}


def test_spend_adds_up_by_tier():
    """Over all calls of all requests; a cost that isn't known is none."""
    reports = [
        report(attempts=[attempt(), attempt("premium", cost_usd=0.25)]),
        report(attempts=[attempt(ran=False, usage=None)]),
    ]
    fast, premium = sorted(_spend_by_tier(reports), key=lambda row: row["tier"])

    assert (fast["calls"], fast["prompt_tokens"], fast["completion_tokens"], fast["cost_usd"]) == (1, 100, 20, None)
    assert (premium["calls"], premium["cost_usd"]) == (1, 0.25)


def test_helpers_stand_below_their_agent(tmp_path):
    """However late a helper was used it is listed below its agent; its page names the agent, and shows the budget that
    both spend. Where its agent is on no page it is named beside it."""
    rig = Rig(tmp_path)
    rig.finish("r1", session="lone", parent="gone")
    rig.finish("r2", session="main")
    rig.finish("r3", session="other")
    rig.finish("r4", session="main.a1", parent="main")
    with browse(rig) as client:
        page = client.get("/ui/sessions").text
        assert re.findall(r'/ui/sessions/([^"?]*)\?', page) == ["other", "main", "main.a1", "lone"]
        assert page.count('class="helper"') == 1
        assert "helper of gone" in page
        assert "Helper of" in client.get("/ui/sessions/main.a1").text
        assert "Helper of" not in client.get("/ui/sessions/main").text


@pytest.mark.parametrize(
    "name", ["agents/7 ü", "a/../b", "../tiers", "https://h/x/", "/home/me/./x", "a//b", "50%", "a?b#c", "x/reset"]
)
def test_every_session_s_link_leads_to_it(tmp_path, name):
    """Listed, opened with its budget and its requests, and reset by an order that has the token; then there is nothing
    left of it. A browser resolves `..` in an address: a name with one must not be another page's, or another
    session's."""
    rig = Rig(tmp_path)
    rig.finish("../r/1", session=name)
    with browse(rig) as client:
        (link,) = re.findall(r'href="(/ui/sessions/[^"]*)"', client.get("/ui/sessions").text)
        page = client.get(html.unescape(link)).text
        assert f'<h1 class="id">{html.escape(name)}</h1>' in page
        assert "of 10.0 k tokens" in page
        assert "../r/1" in page
        (order,) = re.findall(r'hx-post="([^"]*)"', page)
        assert link in client.get("/ui/requests/1").text
        assert client.post(order, data={"token": find_token(page), "key": ""}, headers=OWN).status_code == 303
        assert client.get(html.unescape(link)).status_code == 404


COUNTS = st.lists(st.tuples(st.integers(-2, 12), st.sampled_from(["loop", "flaw", "fault"]), st.integers(1, 9)))


@given(COUNTS)
def test_series_hold_every_count_once(counts):
    """In its piece; what is outside of the span isn't shown, and a kind that never occurs has no series."""
    made = _stack_counts(counts, TimeSpan(since_s=0, until_s=100, piece_s=10))
    inside = [one for one in counts if 0 <= one[0] < 10]

    assert len(made["at"]) == 10
    assert {one["name"] for one in made["series"]} == {kind for _, kind, _ in inside}
    assert sum(sum(one["values"]) for one in made["series"]) == sum(count for *_, count in inside)


def incident(n: int, **changes: Any) -> dict[str, Any]:
    one = {"at": time.time() - n, "kind": "loop", "tier": "fast", "session": "s", "key": "", "request_id": f"r{n}"}
    return one | {"reason": "loop", "attempt": 0, "evidence": {}} | changes


@pytest.fixture
def many(tmp_path) -> Rig:
    made = Rig(tmp_path)
    made.finish("r", tuple(incident(n, kind="loop" if n % 2 else "fault") for n in range(500 + 20)))
    made.finish("q", (incident(0, kind="flaw", session="=HYPERLINK(1)"),))
    return made


@pytest.mark.parametrize(("kind", "linked"), [("fault", True), ("scaling", False), ("memory", False)])
def test_only_a_request_is_linked(many, kind, linked):
    """What stands in the place of a request's id, where a machine or a replica is told of, leads nowhere."""
    many.finish("p", (incident(0, kind=kind, request_id="named-so", session=None),))
    with browse(many) as client:
        page = client.get(f"/ui/incidents?kind={kind}").text

    assert ("by-id/named-so" in page) is linked


def test_the_chart_s_figures_are_those_of_the_list(many):
    """The day's counts add up to what was written in it."""
    with browse(many) as client:
        figures = client.get("/ui/incidents/counts?span=day").json()

    assert sum(sum(one["values"]) for one in figures["series"]) == 500 + 21
    assert [one["name"] for one in figures["series"]] == ["loop", "flaw", "fault"]
