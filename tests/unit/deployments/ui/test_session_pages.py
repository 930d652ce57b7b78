"""Sessions: what they spent of what, and that it can be forgotten."""

from __future__ import annotations

import html
import re

import pytest

from deployments.ui.session_pages import spend_by_tier
from tests.support.room_rig import Rig, attempt, browse, find_token, report

OWN = {"origin": "http://127.0.0.1:8000"}


def test_spend_adds_up_by_tier():
    """Over all calls of all requests; a cost that isn't known is none."""
    reports = [
        report(attempts=[attempt(), attempt("premium", cost_usd=0.25)]),
        report(attempts=[attempt(ran=False, usage=None)]),
    ]
    fast, premium = sorted(spend_by_tier(reports), key=lambda row: row["tier"])

    assert (fast["calls"], fast["prompt_tokens"], fast["completion_tokens"], fast["cost_usd"]) == (1, 100, 20, None)
    assert (premium["calls"], premium["cost_usd"]) == (1, 0.25)


def test_a_session_shows_its_budget_and_its_requests(tmp_path):
    """Listed, opened, and reset by an order that has the token; then there is nothing left of it."""
    rig = Rig(tmp_path)
    rig.finish("r1", session="agents/7 ü")
    with browse(rig) as client:
        assert "agents/7 ü" in client.get("/ui/sessions").text
        page = client.get("/ui/sessions/agents/7 ü?key=").text
        assert "of 10.0 k tokens" in page
        assert "r1" in page

        token = find_token(page)
        done = client.post("/ui/sessions/agents/7 ü/reset", data={"token": token, "key": ""}, headers=OWN)
        assert done.status_code == 303
        assert client.get("/ui/sessions/agents/7 ü").status_code == 404


@pytest.mark.parametrize(
    "name", ["a/../b", "../tiers", "https://h/x/", "/home/me/./x", "a//b", "50%", "a?b#c", "x/reset"]
)
def test_every_session_s_link_leads_to_it(tmp_path, name):
    """A browser resolves `..` in an address: a name with one must not be another page's, or another session's."""
    rig = Rig(tmp_path)
    rig.finish("../r/1", session=name)
    with browse(rig) as client:
        (link,) = re.findall(r'href="(/ui/sessions/[^"]*)"', client.get("/ui/sessions").text)
        page = client.get(html.unescape(link)).text
        assert f'<h1 class="id">{html.escape(name)}</h1>' in page
        (order,) = re.findall(r'hx-post="([^"]*)"', page)
        assert link in client.get("/ui/requests/1").text
        assert client.post(order, data={"token": find_token(page), "key": ""}, headers=OWN).status_code == 303
        assert client.get(html.unescape(link)).status_code == 404
