"""The table of routes against the app: neither has one that the other lacks."""

import pytest

from deployments.api.openai_responses.stored_responses import AT
from deployments.api.openapi.openapi_document import SCHEMAS
from deployments.api.openapi.operations import OPERATIONS
from deployments.app.router_parts import DIALECTS
from deployments.errors import TABLE
from tests.support.bare_router import list_routes


def routes_of_the_app() -> set[tuple[str, str]]:
    """Method and path of every route that a Router has, but for those that only say that they aren't offered."""
    routes = {(method.lower(), path.replace(":path}", "}")) for method, path in list_routes()}
    return routes - {("post", f"{AT}/cancel")}


def test_every_route_is_described_and_every_description_is_a_route():
    """What the app answers is what the table says, and nothing else."""
    assert {(operation.method, operation.path) for operation in OPERATIONS} == routes_of_the_app()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda o: f"{o.method} {o.path}")
def test_a_row_names_what_is_there(operation):
    """Its answer is a schema, its errors are rows of the table, and whoever may need a key may lack it."""
    assert operation.answer in SCHEMAS
    assert operation.codes <= set(TABLE)
    assert ("invalid_api_key" in operation.codes) is (operation.access != "anybody" or operation.path == "/ready")


@pytest.mark.parametrize("path", DIALECTS)
def test_every_dialect_has_a_body_and_an_example(path):
    """So that a person sees what to send; the example is a body that the dialect takes."""
    (operation,) = [each for each in OPERATIONS if (each.path, each.method) == (path, "post")]

    assert operation.body is not None
    assert operation.example is not None
    operation.body.model_validate(operation.example)


@pytest.mark.parametrize(("path", "status"), [("/v1/responses", 400), ("/v1/chat/completions", 422)])
def test_an_error_has_the_status_of_its_dialect(path, status):
    """Where a dialect has another status than the table, the description has it too."""
    (operation,) = [each for each in OPERATIONS if (each.path, each.method) == (path, "post")]

    assert operation.find_status("loop_detected") == status
