"""The OpenAPI description: a valid one, of all there is, that is the same for everybody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from deployments.api.openai_responses.response_events import RESPONSES
from deployments.api.openapi.openapi_document import SCHEMAS, build_document, write_document
from deployments.api.openapi.operations import OPERATIONS
from deployments.errors import TABLE

DOCUMENT = build_document()


def operations() -> list[dict[str, Any]]:
    return [operation for path in DOCUMENT["paths"].values() for operation in path.values()]


def test_it_is_valid():
    """By the schema of OpenAPI 3.1 itself, references included."""
    assert [error.message for error in OpenAPIV31SpecValidator(json.loads(write_document(""))).iter_errors()] == []


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
    """No schema stands there for nobody."""
    Draft202012Validator.check_schema(SCHEMAS[name])

    assert f'"#/components/schemas/{name}"' in json.dumps(DOCUMENT)


def test_the_server_is_where_the_app_is():
    """Under the prefix that it is served under, so that whoever tries a route asks there."""
    assert build_document("/apps/one")["servers"] == [{"url": "/apps/one"}]
    assert DOCUMENT["servers"] == [{"url": "/"}]
