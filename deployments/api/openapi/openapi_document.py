"""The description of all routes, as an OpenAPI 3.1 document.

    OPERATIONS ──▶ paths       bodies ◀── the pydantic models that check them
    TABLE      ──▶ the errors of each status
    SCHEMAS    ──▶ what comes out

What must never happen: a word in it that isn't the same for everybody: it is shown without a key.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import orjson
from pydantic.json_schema import models_json_schema

from deployments import __version__
from deployments.api.openapi.operations import OPERATIONS, Access, Operation
from deployments.api.openapi.schemas import SCHEMAS
from deployments.errors import TABLE

__all__ = ["build_document", "write_document"]

REF = "#/components/schemas/{model}"
INTRO = (
    "An OpenAI- and Anthropic-compatible server that makes weak local models reliable for autonomous agents. "
    "`model` is a tier, an alias or `auto`. Without API keys it answers only to its own machine, and to anybody there."
)
HEADERS = {
    "X-MLX-Stack-Session": "which session the request belongs to",
    "X-MLX-Stack-Deadline": "seconds for the whole request",
    "X-MLX-Stack-Local-Only": "true: the request never leaves this machine",
}
KEPT = {"Idempotency-Key": "the request's name: who repeats it within a minute is told the same answer, charged once"}
ANTHROPIC = "/v1/messages"


@functools.lru_cache(maxsize=8)
def write_document(root: str) -> bytes:
    """Write the document for an app that is served under `root`."""
    return orjson.dumps(build_document(root))


def build_document(root: str = "") -> dict[str, Any]:
    """Build the document."""
    names, schemas = _build_bodies()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _build_operation(operation, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "MLX Stack Serve",
            "version": __version__,
            "description": INTRO,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": root or "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in OPERATIONS)],
        "paths": paths,
        "components": {
            "schemas": schemas | SCHEMAS,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _build_bodies() -> tuple[dict[type, str], dict[str, Any]]:
    """Build the schemas of the bodies, and the name of each in the document."""
    models = list(dict.fromkeys(operation.body for operation in OPERATIONS if operation.body is not None))
    found, document = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    names = {model: found[model, "validation"]["$ref"].rpartition("/")[2] for model in models}
    return names, document["$defs"]


def _build_operation(operation: Operation, names: dict[type, str]) -> dict[str, Any]:
    built: dict[str, Any] = {
        "operationId": _name_operation(operation),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": list(_build_parameters(operation)),
        "responses": {"200": _build_answer(operation), **_build_errors(operation)},
        "security": _build_security(operation),
    }
    if operation.body is not None:
        content: dict[str, Any] = {"schema": {"$ref": REF.format(model=names[operation.body])}}
        if operation.example is not None:
            content["example"] = operation.example
        built["requestBody"] = {"required": True, "content": {"application/json": content}}
    return built


def _name_operation(operation: Operation) -> str:
    return "_".join([operation.method, *re.findall(r"\w+", operation.path)])


def _build_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for name, words in operation.query.items():
        yield {"name": name, "in": "query", "description": words, "schema": {"type": "string"}}
    headers = HEADERS | (KEPT if "idempotency_key_reused" in operation.errors else {})
    for name, words in headers.items() if operation.body is not None else ():
        yield {"name": name, "in": "header", "description": words, "schema": {"type": "string"}}


def _build_security(operation: Operation) -> list[dict[str, list[str]]]:
    """Build who may ask. A server without keys asks nobody for one, hence the empty choice."""
    return [{}] if operation.access is Access.ANYBODY else [{}, {"bearer": []}, {"header": []}]


def _build_answer(operation: Operation) -> dict[str, Any]:
    words = "the answer" if operation.access is not Access.ADMIN else "the answer; an admin's key is needed"
    content = {operation.media: {"schema": {"$ref": REF.format(model=operation.answer)}}}
    if operation.stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
        words += ", or with `stream` its events one by one"
    return {"description": words, "content": content}


def _build_errors(operation: Operation) -> dict[str, Any]:
    """Build an answer for each status, with the errors that have it."""
    codes: dict[int, list[str]] = {}
    for code in TABLE:
        if code in operation.codes:
            codes.setdefault(operation.find_status(code), []).append(code)
    model = "AnthropicError" if operation.path.startswith(ANTHROPIC) else "Error"
    content = {"application/json": {"schema": {"$ref": REF.format(model=model)}}}
    built: dict[str, Any] = {}
    for status in sorted(codes):
        words = "\n".join(f"- `{code}`: {TABLE[code].meaning}" for code in codes[status])
        built[str(status)] = {"description": f"{HTTPStatus(status).phrase}\n\n{words}", "content": content}
    if operation.path == "/ready":
        ready = {"schema": {"$ref": REF.format(model="Ready")}}
        built["503"] = {"description": "no tier of the chain can answer", "content": {"application/json": ready}}
    return built
