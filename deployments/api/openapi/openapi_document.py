"""The description of all routes as an OpenAPI 3.1 document (`/openapi.json`), and its page in a browser (`/docs`).

Swagger UI's files come from the package `fastapi-swagger`, of which nothing is imported. Invariants: the document is
the same for everybody, since it is shown without a key; only the files of `ASSETS` are served; the page has no inline
script.
"""

from __future__ import annotations

import asyncio
import functools
import html
import importlib.util
import re
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments import __version__
from deployments.api.access import Access
from deployments.api.openapi.operations import OPERATIONS, Operation
from deployments.errors import TABLE, ApiError

_REF = "#/components/schemas/{model}"
_INTRO = (
    "An OpenAI- and Anthropic-compatible server that makes weak local models reliable for autonomous agents. "
    "`model` is a tier, an alias or `auto`. Without API keys it answers only to its own machine, and to anybody there."
)
_HEADERS = {
    "X-MLX-Stack-Session": "which session the request belongs to",
    "X-MLX-Stack-Deadline": "seconds for the whole request",
    "X-MLX-Stack-Local-Only": "true: the request never leaves this machine",
}
_KEPT = {"Idempotency-Key": "the request's name: who repeats it within a minute is told the same answer, charged once"}

_STRING, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
_ANY: dict[str, Any] = {"type": "object"}
_OPTIONAL_TEXT: dict[str, Any] = {"type": ["string", "null"]}
_TEXTS, _OBJECTS = {"type": "array", "items": _STRING}, {"type": "array", "items": _ANY}


def _describe(
    words: str,
    texts: str = "",
    counts: str = "",
    optional: str = "",
    nullable: str = "",
    kind: str = "",
    **fields: Any,
) -> dict[str, Any]:
    """Describe an object by the names of its texts and counts, and its other fields; `kind` is its one `object`."""
    properties = dict.fromkeys(texts.split(), _STRING) | dict.fromkeys(counts.split(), COUNT) | fields
    properties |= dict.fromkeys(nullable.split(), _OPTIONAL_TEXT)
    if kind:
        properties["object"] = _fix(kind)
    required = [name for name in properties if name not in optional.split()]
    return {"type": "object", "description": words, "properties": properties, "required": required}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _fix(value: str) -> dict[str, Any]:
    return {"type": "string", "const": value}


_PARAM = _OPTIONAL_TEXT | {"description": "the field that is wrong"}
_CODE = _STRING | {"description": "the name of the error: docs/errors.md"}
_FAILED, _LATER = "what went wrong, the figures, and the way out", "retry_after"
_ERROR = _describe(_FAILED, "message type", _LATER, _LATER, param=_PARAM, code=_CODE)
_USAGE = _describe("tokens", counts="prompt_tokens completion_tokens total_tokens")
_CHOICE = _describe("the answer", "finish_reason", "index", message=_ANY)
_SPENT = _describe("tokens", counts="input_tokens output_tokens")
_COMPLETED = _describe("the text", "text", "index", nullable="finish_reason")
_VECTOR = _describe("a vector: figures, or base64", counts="index", embedding={"type": ["array", "string"]})
_LIVE_TIER = _describe("a tier", "name state breaker", "asked writing")
_MESSAGE: Any = {"type": _fix("message"), "role": _fix("assistant"), "content": _OBJECTS, "usage": _SPENT}
_OPTIONAL_OBJECT = {"type": ["object", "null"]}
_ANSWER, _PASSED_ON = "one answer; `model` is the tier that gave it", "what the tier answered; `model` is the tier"
_MODEL = "a tier, an alias or `auto`; the state is that of the tier that it starts at"
_COMPACTED = "the user's messages, and the summary that stands for the rest"
_READY = "whether a tier of the chain can answer; more for whoever has a key"
_TIERS = _ANY | {"additionalProperties": _ANY}
_REPORT, _NOW = "how an answer came about: docs/http.md", "the server at this moment, and the sums of the last day"
_SUMS: Any = {"at": {"type": "number"}, "tiers": _list(_LIVE_TIER), "memory": _OPTIONAL_OBJECT, "day": _ANY}
SCHEMAS: dict[str, dict[str, Any]] = {
    "Error": _describe("an error, in OpenAI's shape", error=_ERROR),
    "AnthropicError": _describe(
        "an error, in Anthropic's shape",
        "request_id",
        type=_fix("error"),
        error=_ANY | {"required": ["type", "message"]},
    ),
    "ChatCompletion": _describe(
        _ANSWER, "id model", "created", kind="chat.completion", choices=_list(_CHOICE), usage=_USAGE
    ),
    "AnthropicMessage": _describe(_ANSWER, "id model", nullable="stop_reason", **_MESSAGE),
    "TokenCount": _describe("the tokens of a prompt", counts="input_tokens"),
    "Response": _describe(_ANSWER, "id status model", kind="response", output=_OBJECTS, usage=_OPTIONAL_OBJECT),
    "Compaction": _describe(_COMPACTED, "id", "created_at", kind="response.compaction", output=_OBJECTS, usage=_SPENT),
    "Completion": _describe(
        _PASSED_ON, "id object model", optional="id object usage", choices=_list(_COMPLETED), usage=_ANY
    ),
    "Embeddings": _describe(_PASSED_ON, "object model", optional="object usage", data=_list(_VECTOR), usage=_ANY),
    "Model": _describe(
        _MODEL,
        "id kind state starts_at",
        optional="starts_at",
        nullable="reason",
        kind="model",
        context_length={"type": ["integer", "null"]},
    ),
    "Models": _describe("all of them", kind="list", data=_list({"$ref": _REF.format(model="Model")})),
    "Ready": _describe(_READY, optional="chain tiers", ready={"type": "boolean"}, chain=_TEXTS, tiers=_TIERS),
    "Health": _describe("the server is alive", status=_fix("ok")),
    "Root": _describe("somebody is here", name=_fix("mlx-stack-serve")),
    "Report": _describe(
        _REPORT,
        "request_id session outcome",
        "retries",
        nullable="tier",
        repairs=_TEXTS,
        notes=_TEXTS,
        attempts=_OBJECTS,
    ),
    "Session": _describe("what a session has spent", "session key", "spent_tokens open_calls"),
    "List": _describe("a page", kind="list", data=_OBJECTS),
    "Live": _describe(_NOW, "state_actor", running=_OBJECTS, finished=_OBJECTS, **_SUMS),
    "Deleted": _describe("it is forgotten", "id object", deleted={"type": "boolean"}),
    "Done": _ANY | {"description": "what was done, and to whom"},
    "Description": _ANY | {"description": "an OpenAPI description", "required": ["openapi", "info", "paths"]},
    "Page": _STRING,
}


@functools.lru_cache(maxsize=8)
def _write_document(root: str) -> bytes:
    models = list(dict.fromkeys(operation.body for operation in OPERATIONS if operation.body is not None))
    refs, bodies = models_json_schema([(model, "validation") for model in models], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        ref = None if operation.body is None else refs[operation.body, "validation"]
        paths.setdefault(operation.path, {})[operation.method] = _build_operation(operation, ref)
    info = {"title": "MLX Stack Serve", "version": __version__, "description": _INTRO}
    bearer, header = {"type": "http", "scheme": "bearer"}, {"type": "apiKey", "in": "header", "name": "x-api-key"}
    document = {
        "openapi": "3.1.0",
        "info": info | {"license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": root or "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(operation.tag for operation in OPERATIONS)],
        "paths": paths,
        "components": {"schemas": bodies["$defs"] | SCHEMAS, "securitySchemes": {"bearer": bearer, "header": header}},
    }
    return orjson.dumps(document)


def _build_operation(operation: Operation, body: Any) -> dict[str, Any]:
    words = "the answer" if operation.access != "admin" else "the answer; an admin's key is needed"
    answer: dict[str, Any] = {operation.media: {"schema": {"$ref": _REF.format(model=operation.answer)}}}
    if operation.stream:
        answer["text/event-stream"] = {"schema": _STRING}
        words += ", or with `stream` its events one by one"
    built: dict[str, Any] = {
        "operationId": "_".join([operation.method, *re.findall(r"\w+", operation.path)]),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": list(_build_parameters(operation)),
        "responses": {"200": {"description": words, "content": answer}, **_build_errors(operation)},
        # A server without keys asks nobody for one, hence the empty choice.
        "security": [{}] if operation.access == "anybody" else [{}, {"bearer": []}, {"header": []}],
    }
    if operation.body is not None:
        content = {"schema": body, "example": operation.example}
        built["requestBody"] = {"required": True, "content": {"application/json": content}}
    return built


def _build_parameters(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)\}", operation.path):
        yield {"name": name, "in": "path", "required": True, "schema": _STRING}
    for name, words in operation.query.items():
        yield {"name": name, "in": "query", "description": words, "schema": _STRING}
    if operation.body is not None:
        headers = _HEADERS | (_KEPT if "idempotency_key_reused" in operation.errors else {})
        for name, words in headers.items():
            yield {"name": name, "in": "header", "description": words, "schema": _STRING}


def _build_errors(operation: Operation) -> dict[str, Any]:
    codes: dict[int, list[str]] = {}
    for code in TABLE:
        if code in operation.codes:
            codes.setdefault(operation.find_status(code), []).append(code)
    model = "AnthropicError" if operation.path.startswith("/v1/messages") else "Error"
    content = {"application/json": {"schema": {"$ref": _REF.format(model=model)}}}
    built: dict[str, Any] = {}
    for status in sorted(codes):
        words = "\n".join(f"- `{code}`: {TABLE[code].meaning}" for code in codes[status])
        built[str(status)] = {"description": f"{HTTPStatus(status).phrase}\n\n{words}", "content": content}
    if operation.path == "/ready":
        ready = {"schema": {"$ref": _REF.format(model="Ready")}}
        built["503"] = {"description": "no tier of the chain can answer", "content": {"application/json": ready}}
    return built


PACKAGE = "fastapi_swagger"
ASSETS = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
    "start.js": "text/javascript",
}
_HERE = Path(__file__).parent
# Pictures in the style sheet are `data:`; the rest comes from this server. Swagger UI sets styles from its script.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDED = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


def list_docs_routes(access: Callable[[], Access]) -> list[Route]:
    """List the routes for the Router's app. `access` is called at each request, since a `user_config` may change it."""

    def guard(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer_caller(request: Request) -> Response:
            access().guard(request.client.host if request.client else None, request.headers)
            return await answer(request)

        return answer_caller

    answers = {"/openapi.json": _describe_api, "/docs": _show_page, "/docs/{asset}": _read_asset}
    return [Route(path, guard(answer)) for path, answer in answers.items()]


async def _describe_api(request: Request) -> Response:
    return Response(_write_document(_find_root(request)), media_type="application/json", headers=_GUARDED)


async def _show_page(request: Request) -> Response:
    page = (_HERE / "docs.html").read_text(encoding="utf-8").format(root=html.escape(_find_root(request)))
    return Response(page, media_type="text/html", headers=_GUARDED | {"content-security-policy": _POLICY})


async def _read_asset(request: Request) -> Response:
    name = request.path_params["asset"]
    if name not in ASSETS:
        raise ApiError("not_found", f"there is no file {name[:100]!r} here")
    return Response(
        await asyncio.to_thread(_read_file, name),
        media_type=ASSETS[name],
        headers=_GUARDED | {"cache-control": "max-age=3600"},
    )


def _find_root(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


@functools.cache
def _read_file(name: str) -> bytes:
    if (_HERE / name).exists():
        return (_HERE / name).read_bytes()
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ApiError("not_found", f"the package {PACKAGE} isn't installed, which brings Swagger UI")
    return (Path(found.origin).parent / "resources" / name).read_bytes()
