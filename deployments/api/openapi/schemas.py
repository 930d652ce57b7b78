"""What comes out of the routes, as JSON Schemas: the fields that a client may rely on. Others may stand beside them."""

from __future__ import annotations

from typing import Any

__all__ = ["SCHEMAS"]

TEXT, COUNT, YES_NO = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
ANY: dict[str, Any] = {"type": "object"}
NULLABLE = {"type": ["string", "null"]}


def _describe(words: str, *, optional: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """Describe an object. Its fields are always there, but for those that are optional."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "description": words, "properties": fields, "required": required}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _fix(value: str) -> dict[str, Any]:
    return {"type": "string", "const": value}


ERROR = _describe(
    "what went wrong, the figures, and the way out",
    message=TEXT,
    type=TEXT,
    param=NULLABLE | {"description": "the field that is wrong"},
    code=TEXT | {"description": "the name of the error: docs/errors.md"},
    retry_after=COUNT,
    optional=("retry_after",),
)
USAGE = _describe("tokens", prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT)
SCHEMAS: dict[str, dict[str, Any]] = {
    "Error": _describe("an error, in OpenAI's shape", error=ERROR),
    "AnthropicError": _describe(
        "an error, in Anthropic's shape",
        type=_fix("error"),
        error=ANY | {"required": ["type", "message"]},
        request_id=TEXT,
    ),
    "ChatCompletion": _describe(
        "one answer; `model` is the tier that gave it",
        id=TEXT,
        object=_fix("chat.completion"),
        created=COUNT,
        model=TEXT,
        choices=_list(_describe("the answer", index=COUNT, message=ANY, finish_reason=TEXT)),
        usage=USAGE,
    ),
    "AnthropicMessage": _describe(
        "one answer; `model` is the tier that gave it",
        id=TEXT,
        type=_fix("message"),
        role=_fix("assistant"),
        model=TEXT,
        content=_list(ANY),
        stop_reason=NULLABLE,
        usage=_describe("tokens", input_tokens=COUNT, output_tokens=COUNT),
    ),
    "TokenCount": _describe("the tokens of a prompt", input_tokens=COUNT),
    "Response": _describe(
        "one response; `model` is the tier that gave it",
        id=TEXT,
        object=_fix("response"),
        status=TEXT,
        model=TEXT,
        output=_list(ANY),
        usage={"type": ["object", "null"]},
    ),
    "Completion": _describe(
        "what the tier answered; `model` is the tier",
        id=TEXT,
        object=TEXT,
        model=TEXT,
        choices=_list(_describe("the text", index=COUNT, text=TEXT, finish_reason=NULLABLE)),
        usage=ANY,
        optional=("id", "object", "usage"),
    ),
    "Embeddings": _describe(
        "what the tier answered; `model` is the tier",
        object=TEXT,
        model=TEXT,
        data=_list(_describe("a vector: figures, or base64", index=COUNT, embedding={"type": ["array", "string"]})),
        usage=ANY,
        optional=("object", "usage"),
    ),
    "Model": _describe(
        "a tier, an alias or `auto`; the state is that of the tier that it starts at",
        id=TEXT,
        object=_fix("model"),
        kind=TEXT,
        state=TEXT,
        reason=NULLABLE,
        context_length={"type": ["integer", "null"]},
        starts_at=TEXT,
        optional=("starts_at",),
    ),
    "Models": _describe("all of them", object=_fix("list"), data=_list({"$ref": "#/components/schemas/Model"})),
    "Ready": _describe(
        "whether a tier of the chain can answer; more for whoever has a key",
        ready=YES_NO,
        chain=_list(TEXT),
        tiers={"type": "object", "additionalProperties": ANY},
        optional=("chain", "tiers"),
    ),
    "Health": _describe("the server is alive", status=_fix("ok")),
    "Root": _describe("somebody is here", name=_fix("mlx-stack-serve")),
    "Report": _describe(
        "how an answer came about: docs/http.md",
        request_id=TEXT,
        session=TEXT,
        outcome=TEXT,
        tier=NULLABLE,
        retries=COUNT,
        repairs=_list(TEXT),
        notes=_list(TEXT),
        attempts=_list(ANY),
    ),
    "Session": _describe("what a session has spent", session=TEXT, key=TEXT, spent_tokens=COUNT, open_calls=COUNT),
    "List": _describe("a page", object=_fix("list"), data=_list(ANY)),
    "Live": _describe(
        "the server at this moment, and the sums of the last day",
        at={"type": "number"},
        state_actor=TEXT,
        tiers=_list(_describe("a tier", name=TEXT, state=TEXT, breaker=TEXT, asked=COUNT, writing=COUNT)),
        running=_list(ANY),
        finished=_list(ANY),
        memory={"type": ["object", "null"]},
        day=ANY,
    ),
    "Deleted": _describe("it is forgotten", id=TEXT, object=TEXT, deleted=YES_NO),
    "Done": ANY | {"description": "what was done, and to whom"},
    "Description": ANY | {"description": "an OpenAPI description", "required": ["openapi", "info", "paths"]},
    "Page": {"type": "string"},
}
