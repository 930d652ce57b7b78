"""Evaluations: listed, opened in a sandbox, and nothing else of this machine."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from deployments.api.access import Access
from deployments.api.api_keys import ApiKey, digest
from deployments.evaluate.kept_reports import find_kept_folder, keep_report
from deployments.evaluate.pages.report_pages import render_page
from tests.support.browser import NEEDS_CHROMIUM, chromium, find_faults, open_visitor  # noqa: F401
from tests.support.evaluation_cells import make_cells, make_report
from tests.support.room_rig import Rig, browse

REPORT = make_report(make_cells(fast_right=24)) | {"target": "<b>the server</b>"}
KEYS = Access((ApiKey(name="boss", sha256=digest("sk-boss-0123456789abcdef"), admin=True),))


@contextlib.contextmanager
def serve_app(app: Any) -> Iterator[str]:
    """The app over a real socket; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def name(tmp_path, monkeypatch) -> str:
    """A report that was kept."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    return keep_report(find_kept_folder(), REPORT, render_page(REPORT), "# a summary").name


def test_a_report_is_listed_and_opened(tmp_path, name, monkeypatch):
    """With its verdicts, escaped, and the ways to its files; every page leads there. Before the first report the page
    names the command."""
    with browse(Rig(tmp_path)) as client:
        home, listed = client.get("/").text, client.get("/ui/evaluations").text
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "none"))
        page = client.get("/ui/evaluations")

    assert page.status_code == 200
    assert "mlx-stack-serve evaluate" in page.text
    assert 'href="/ui/evaluations"' in home
    assert f'href="/ui/evaluations/{name}/report.html"' in listed
    assert all(one["verdict"] in listed for one in REPORT["verdicts"].values())
    assert "&lt;b&gt;the server&lt;/b&gt;" in listed
    assert f"/ui/evaluations/{name}/report.json" in listed


def test_the_report_itself_is_in_a_sandbox(tmp_path, name):
    """No script and no origin, whatever is in the file; no page may frame it. Its other files are never pages."""
    with browse(Rig(tmp_path)) as client:
        page, data, text = (client.get(f"/ui/evaluations/{name}/report.{kind}") for kind in ("html", "json", "md"))
    policy = page.headers["content-security-policy"].split("; ")

    assert page.text == render_page(REPORT)
    assert "<svg" in page.text
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not any(rule.startswith("script-src") for rule in policy)
    assert page.headers["x-content-type-options"] == "nosniff"
    for answer, kind, begin in ((data, "application/json", "{"), (text, "text/plain", "# a summary")):
        assert answer.headers["content-type"].startswith(kind)
        assert answer.text.startswith(begin)


@pytest.mark.parametrize(
    "path",
    [
        "{name}/summary.json", "{name}/..%2f..%2fsecret", "..%2f{name}/report.html", "%2e%2e/report.html",
        "nothing/report.html", "{name}/%2fetc%2fpasswd", "{name}/report.html%00",
    ],
)  # fmt: skip
def test_no_path_leads_elsewhere(tmp_path, name, path):
    """Each is a page that says that there is no such report."""
    (find_kept_folder().parent / "secret").write_text("secret")
    with browse(Rig(tmp_path)) as client:
        answer = client.get(f"/ui/evaluations/{path.format(name=name)}")

    assert answer.status_code == 404
    assert "secret" not in answer.text.replace(path, "")


def test_with_keys_it_is_an_admins(tmp_path, name):
    """Whoever has no cookie is led to the way in, and sees nothing."""
    with browse(Rig(tmp_path, access=KEYS)) as client:
        for path in ("", f"/{name}/report.html", f"/{name}/report.json"):
            answer = client.get(f"/ui/evaluations{path}")
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/ui/sign-in")


@NEEDS_CHROMIUM
def test_a_browser_shows_the_plots_and_complains_of_nothing(tmp_path, name, chromium):  # noqa: F811
    """The report has its own looks and no origin, and axe finds no serious fault in the list."""
    with serve_app(Rig(tmp_path).app) as url, open_visitor(chromium, url) as visitor:
        listed = find_faults(visitor.go("/ui/evaluations"))
        page = visitor.go(f"/ui/evaluations/{name}/report.html")
        page.wait_for_selector("svg")
        plots, origin = page.locator("svg").count(), page.evaluate("self.origin")
        shown = page.evaluate("getComputedStyle(document.querySelector('table')).borderCollapse")

    assert listed == []
    assert plots >= 2
    assert origin == "null"
    assert shown == "collapse"
    assert visitor.complaints == []
    assert visitor.elsewhere == []
