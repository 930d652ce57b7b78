"""The OpenAPI description: a valid one, of all there is, that is the same for everybody."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.applications import Starlette
from starlette.testclient import TestClient

from deployments.api.access import Access
from deployments.api.api_keys import ApiKey
from deployments.api.openai_responses.response_events import RESPONSES
from deployments.api.openapi import openapi_document
from deployments.api.openapi.openapi_document import ASSETS, SCHEMAS, _write_document, list_docs_routes
from deployments.api.openapi.operations import OPERATIONS
from deployments.api.responses import build_error_handlers
from deployments.errors import TABLE
from tests.unit.deployments.api.test_access import AGENT
from tests.unit.deployments.api.test_api_keys import GOOD

DOCUMENT = json.loads(_write_document(""))


def operations() -> list[dict[str, Any]]:
    return [operation for path in DOCUMENT["paths"].values() for operation in path.values()]


def test_it_is_valid():
    """By the schema of OpenAPI 3.1 itself, references included."""
    assert [error.message for error in OpenAPIV31SpecValidator(json.loads(_write_document(""))).iter_errors()] == []


def test_every_operation_is_there_under_a_name_of_its_own():
    """As many as rows of the table; generators of clients make a method of each name."""
    names = [operation["operationId"] for operation in operations()]

    assert len(set(names)) == len(names) == len(OPERATIONS)


def test_every_error_of_the_table_can_be_met_somewhere():
    """But for what breaks inside of a stream, and what only a wrong method gets."""
    words = "".join(answer["description"] for operation in operations() for answer in operation["responses"].values())

    assert {code for code in TABLE if f"`{code}`" not in words} == {"stream_broken", "method_not_allowed"}


@pytest.mark.parametrize("operation", operations(), ids=lambda o: o["operationId"])
def test_an_error_stands_under_its_status(operation):
    """Each code is named under the status that its answer has."""
    for status, answer in operation["responses"].items():
        named = [code for code in TABLE if f"- `{code}`" in answer["description"]]
        own = set(RESPONSES.statuses) if operation["operationId"].startswith("post_v1_responses") else set()
        assert all(TABLE[code].status == int(status) or code in own for code in named)


def test_examples_are_what_their_schemas_say():
    """An example that the description itself refuses would teach nobody."""
    for operation in operations():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            schema = content["schema"] | {"components": DOCUMENT["components"]}
            assert list(Draft202012Validator(schema).iter_errors(content["example"])) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one_and_is_used(name):
    """No schema stands there for nobody, or under a name of this code's alone."""
    assert not name.startswith("_")
    Draft202012Validator.check_schema(SCHEMAS[name])

    assert f'"#/components/schemas/{name}"' in json.dumps(DOCUMENT)


PATHS = ["/openapi.json", "/docs", *(f"/docs/{name}" for name in ASSETS)]
KEYED = Access((ApiKey(name="agent", sha256=GOOD),))


def client(access: Access | None = None, host: str = "127.0.0.1", root: str = "") -> TestClient:
    """A browser at this address."""
    routes = list_docs_routes(lambda: access or Access(()))
    app = Starlette(routes=routes, exception_handlers=build_error_handlers({}))
    return TestClient(app, base_url="http://127.0.0.1:8000", client=(host, 1), root_path=root)


@pytest.mark.parametrize("path", PATHS)
def test_each_is_there_for_whoever_may_ask(path):
    """A server without keys answers only to its own machine, and to no page from elsewhere; one with keys shows it to
    all, since it holds no secret. With no type that a browser would guess."""
    for answer in (client().get(path), client(KEYED, host="10.0.0.1").get(path)):
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff")
        assert answer.content
        assert AGENT not in answer.text
    assert client(host="10.0.0.1").get(path).status_code == 403
    for header in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        assert client().get(path, headers=header).status_code == 403


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
    monkeypatch.setattr(openapi_document, "PACKAGE", "no_such_package")
    openapi_document._read_file.cache_clear()
    answer = client().get("/docs/swagger-ui.css")
    openapi_document._read_file.cache_clear()

    assert answer.status_code == 404
    assert "no_such_package isn't installed" in answer.json()["error"]["message"]
    assert json.loads(client().get("/openapi.json").content)["openapi"] == "3.1.0"
