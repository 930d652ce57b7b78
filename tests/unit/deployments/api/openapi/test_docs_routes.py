"""The page in a browser: files of this server alone, no script in the page, the guard of every route."""

from __future__ import annotations

import json
import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from deployments.api.access import Access
from deployments.api.api_keys import ApiKey
from deployments.api.openapi import docs_routes
from deployments.api.openapi.docs_routes import ASSETS, DocsRoutes
from deployments.api.responses import build_error_handlers
from tests.unit.deployments.api.test_access import AGENT
from tests.unit.deployments.api.test_api_keys import GOOD

PATHS = ["/openapi.json", "/docs", *(f"/docs/{name}" for name in ASSETS)]
KEYED = Access((ApiKey(name="agent", sha256=GOOD),))


def client(access: Access | None = None, host: str = "127.0.0.1", root: str = "") -> TestClient:
    """A browser at this address."""
    docs = DocsRoutes(lambda: access or Access(()))
    app = Starlette(routes=docs.routes(), exception_handlers=build_error_handlers({}))
    return TestClient(app, base_url="http://127.0.0.1:8000", client=(host, 1), root_path=root)


@pytest.mark.parametrize("path", PATHS)
def test_each_is_there_for_this_machine(path):
    """Without a key; and with no type that a browser would guess."""
    answer = client().get(path)

    assert answer.status_code == 200
    assert answer.content
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PATHS)
def test_none_is_there_for_others_without_keys(path):
    """A server without keys answers only to its own machine, and to no page from elsewhere."""
    assert client(host="10.0.0.1").get(path).status_code == 403
    assert client().get(path, headers={"origin": "http://evil.example"}).status_code == 403
    assert client().get(path, headers={"host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("path", PATHS)
def test_with_keys_it_needs_none(path):
    """The description holds no secret: whoever reaches a server that asks for keys may read how to ask."""
    answer = client(KEYED, host="10.0.0.1").get(path)

    assert answer.status_code == 200
    assert AGENT not in answer.text


@pytest.mark.parametrize("root", ["", "/apps/one"])
def test_the_page_names_only_files_of_this_server(root):
    """Under the app's own prefix, each of them there; no script and no style stands in the page."""
    browser = client(root=root)
    page = browser.get(f"{root}/docs").text
    named = re.findall(r'(?:src|href|data-description)="([^"]*)"', page)

    assert len(named) == 5
    assert all(browser.get(path).status_code == 200 for path in named)
    assert all(path.startswith(f"{root}/") for path in named)
    assert not re.search(r"<script(?! src)|<style|\son\w+=|style=|https?:", page)


def test_the_policy_lets_nothing_else_in():
    """No script in the page, nothing from another host, no frame around it."""
    policy = client().get("/docs").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize("name", ["x", "..%2f__init__.py", "main.py", "swagger-ui.css%00"])
def test_no_other_file_is_there(name):
    """Names are looked up in the list, and nowhere else."""
    answer = client().get(f"/docs/{name}")

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_without_the_package_the_rest_works(monkeypatch):
    """The description is there all the same, and the page's files say what is missing."""
    monkeypatch.setattr(docs_routes, "PACKAGE", "no_such_package")
    docs_routes._read_file.cache_clear()
    answer = client().get("/docs/swagger-ui.css")
    docs_routes._read_file.cache_clear()

    assert answer.status_code == 404
    assert "no_such_package isn't installed" in answer.json()["error"]["message"]
    assert json.loads(client().get("/openapi.json").content)["openapi"] == "3.1.0"
