"""Every route of this server, a row each: what it is for, who may ask, what goes in and comes out, how it may fail.

`openapi_document.py` makes the OpenAPI description of it. A test holds the table against the routes that the app really
has, so neither has one that the other lacks, and another sends the examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from deployments.api.anthropic.messages_body import MessagesBody
from deployments.api.openai_chat import ChatBody
from deployments.api.openai_passthrough import CompletionBody, EmbeddingBody
from deployments.api.openai_responses.response_body import ResponseBody
from deployments.dialects import COUNTED, DIALECTS
from deployments.errors import TABLE

__all__ = ["OPERATIONS", "Access", "Operation"]


class Access(StrEnum):
    """Who may ask, where the server has API keys."""

    ANYBODY = "anybody"
    KEY = "key"
    ADMIN = "admin"


# What may go wrong anywhere, whatever is asked.
ANYWHERE = frozenset({"forbidden", "headers_too_large", "internal_error", "server_restarting", "server_starting"})
KEYED = frozenset({"invalid_api_key"})
BODY = frozenset({"invalid_json", "invalid_request", "body_too_large", "request_timeout", "overloaded"})
STATE = frozenset({"no_tier_available"})  # the state actor doesn't answer
# What the core may refuse, in words of the table; what happens inside of a stream has no status.
REFUSALS = frozenset(code for code, row in TABLE.items() if row.refusal is not None) - {"stream_broken"}
ANSWERS = BODY | REFUSALS | {"model_not_found", "invalid_tools"}
CHAT_ANSWERS = ANSWERS | {"idempotency_key_reused"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path. `answer` names a schema of `schemas.py`; `errors`: codes of the table. `example` is a
    body that works as it stands. `stream`: the answer may be a stream of events. `query`: its parameters, in words."""

    method: str
    path: str
    summary: str
    answer: str
    tag: str
    access: Access = Access.KEY
    body: type[BaseModel] | None = None
    example: Mapping[str, Any] | None = None
    stream: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    errors: frozenset[str] = frozenset()
    media: str = "application/json"

    @property
    def codes(self) -> frozenset[str]:
        """All errors that it may answer with."""
        return self.errors | ANYWHERE | (frozenset() if self.access is Access.ANYBODY else KEYED)

    def find_status(self, code: str) -> int:
        """Find the status of an error of this operation: a dialect may have another one than the table."""
        spoken = DIALECTS.get(self.path) or COUNTED.get(self.path)
        return (spoken.statuses if spoken else {}).get(code, TABLE[code].status)


QUESTION = "What is the capital of France?"
ASKED = [{"role": "user", "content": QUESTION}]

CHATS = (
    Operation(
        method="post",
        path="/v1/chat/completions",
        summary="Answer a chat, streamed or not (OpenAI's chat completions)",
        answer="ChatCompletion",
        tag="answers",
        body=ChatBody,
        example={"model": "auto", "messages": ASKED, "max_tokens": 32},
        stream=True,
        errors=CHAT_ANSWERS,
    ),
    Operation(
        method="post",
        path="/v1/messages",
        summary="Answer a chat, streamed or not (Anthropic's Messages)",
        answer="AnthropicMessage",
        tag="answers",
        body=MessagesBody,
        example={"model": "auto", "messages": ASKED, "max_tokens": 32},
        stream=True,
        errors=CHAT_ANSWERS,
    ),
    Operation(
        method="post",
        path="/v1/messages/count_tokens",
        summary="Count the tokens of a prompt, by the tier's own tokenizer where it has one",
        answer="TokenCount",
        tag="answers",
        body=MessagesBody,
        example={"model": "auto", "messages": ASKED},
        errors=BODY | {"invalid_tools", "unsupported", "model_not_found"},
    ),
    Operation(
        method="post",
        path="/v1/responses",
        summary="Answer a chat, streamed or not (OpenAI's Responses)",
        answer="Response",
        tag="answers",
        body=ResponseBody,
        example={"model": "auto", "input": QUESTION, "max_output_tokens": 32},
        stream=True,
        errors=CHAT_ANSWERS | {"previous_response_not_found"},
    ),
    Operation(
        method="post",
        path="/v1/responses/input_tokens",
        summary="Count the tokens of a prompt, by the tier's own tokenizer where it has one",
        answer="TokenCount",
        tag="answers",
        body=ResponseBody,
        example={"model": "auto", "input": QUESTION},
        errors=BODY | STATE | {"invalid_tools", "unsupported", "model_not_found", "previous_response_not_found"},
    ),
    Operation(
        method="get",
        path="/v1/responses/{response_id}",
        summary="Read a stored response",
        answer="Response",
        tag="answers",
        query={"stream": "refused: a stored response isn't streamed again"},
        errors=STATE | {"not_found", "unsupported"},
    ),
    Operation(
        method="delete",
        path="/v1/responses/{response_id}",
        summary="Forget a stored response",
        answer="Deleted",
        tag="answers",
        errors=STATE | {"not_found"},
    ),
    Operation(
        method="get",
        path="/v1/responses/{response_id}/input_items",
        summary="List the input of a stored response, in pages",
        answer="List",
        tag="answers",
        query={"after": "the item that the page begins behind", "limit": "how many, 1 to 100", "order": "asc or desc"},
        errors=STATE | {"not_found", "invalid_request"},
    ),
    Operation(
        method="post",
        path="/v1/completions",
        summary="Complete a text, streamed or not; hosted tiers only",
        answer="Completion",
        tag="passed on",
        body=CompletionBody,
        example={"model": "auto", "prompt": "Once upon a time", "max_tokens": 16},
        stream=True,
        errors=ANSWERS - {"invalid_tools"},
    ),
    Operation(
        method="post",
        path="/v1/embeddings",
        summary="Make vectors of texts; hosted tiers only",
        answer="Embeddings",
        tag="passed on",
        body=EmbeddingBody,
        example={"model": "auto", "input": "Once upon a time"},
        errors=ANSWERS - {"invalid_tools"},
    ),
)
SERVER = (
    Operation(
        method="get",
        path="/v1/models",
        summary="List tiers, aliases and `auto`, with what stands behind each",
        answer="Models",
        tag="server",
    ),
    Operation(
        method="get",
        path="/v1/models/{model}",
        summary="Read one of them, or what a pattern of the aliases makes of a name",
        answer="Model",
        tag="server",
        errors=frozenset({"model_not_found"}),
    ),
    Operation(
        method="get",
        path="/ready",
        summary="Tell which tiers can answer, and why the others can't; 503 while none of the chain can",
        answer="Ready",
        tag="server",
        access=Access.ANYBODY,
        errors=KEYED,
    ),
    Operation(
        method="get",
        path="/health",
        summary="Tell that the server is alive",
        answer="Health",
        tag="server",
        access=Access.ANYBODY,
    ),
    *(
        Operation(
            method="get",
            path=path,
            summary="Tell that somebody is here, and where the rest is; `/` is the control room in a browser",
            answer="Root",
            tag="server",
            access=Access.ANYBODY,
        )
        for path in ("/", "/api/hello")
    ),
    Operation(
        method="get",
        path="/metrics",
        summary="Read what was counted on all nodes, and how things stand, for Prometheus",
        answer="Page",
        tag="server",
        access=Access.ADMIN,
        errors=frozenset({"no_tier_available"}),
        media="text/plain",
    ),
    Operation(
        method="get",
        path="/openapi.json",
        summary="Read this description",
        answer="Description",
        tag="server",
        access=Access.ANYBODY,
    ),
    Operation(
        method="get",
        path="/docs",
        summary="Show this description in a browser",
        answer="Page",
        tag="server",
        access=Access.ANYBODY,
        media="text/html",
    ),
    Operation(
        method="get",
        path="/docs/{asset}",
        summary="Read a file of that page",
        answer="Page",
        tag="server",
        access=Access.ANYBODY,
        errors=frozenset({"not_found"}),
        media="*/*",
    ),
)
AT = "/v1/reliability"
PAGES = {
    **dict.fromkeys(("kind", "tier", "session", "key", "request_id"), "only those of this one"),
    **dict.fromkeys(("since", "until"), "seconds since the epoch"),
    "before": "the `next` of the page before",
    "limit": "how many, 1 to 500",
}
FOUND = {
    **dict.fromkeys(("session", "tier", "outcome", "mark"), "only those of this one"),
    "key": "whose, for an admin",
    **dict.fromkeys(("since", "until"), "seconds since the epoch"),
    "before": "the `next` of the page before",
    "after": "only those behind this id",
    "limit": "how many, 1 to 500",
}
RELIABILITY = (
    Operation(
        method="get",
        path=f"{AT}/requests",
        summary="List finished requests of one's own, the newest first",
        answer="List",
        tag="reliability",
        query=FOUND,
        errors=STATE | {"invalid_request"},
    ),
    Operation(
        method="get",
        path=f"{AT}/sessions",
        summary="List sessions of one's own, the one that was used last first",
        answer="List",
        tag="reliability",
        query={name: FOUND[name] for name in ("key", "before", "limit")},
        errors=STATE | {"invalid_request"},
    ),
    Operation(
        method="get",
        path=f"{AT}/live",
        summary="Read the server at this moment: tiers, what runs, what has just finished, memory",
        answer="Live",
        tag="reliability",
        access=Access.ADMIN,
    ),
    Operation(
        method="get",
        path=f"{AT}/requests/{{request_id}}",
        summary="Read the report of a finished request of one's own",
        answer="Report",
        tag="reliability",
        query={"key": "whose request, for an admin, where several keys have this id"},
        errors=STATE | {"not_found", "invalid_request"},
    ),
    Operation(
        method="get",
        path=f"{AT}/sessions/{{session}}",
        summary="Read what a session of one's own has asked for, spent and reserved",
        answer="Session",
        tag="reliability",
        query={"key": "whose session, for an admin, where several keys have this name"},
        errors=STATE | {"not_found", "invalid_request"},
    ),
    Operation(
        method="post",
        path=f"{AT}/sessions/{{session}}/reset",
        summary="Forget what a session has spent",
        answer="Done",
        tag="reliability",
        access=Access.ADMIN,
        query={"key": "whose session, where several keys have this name"},
        errors=STATE | {"not_found", "invalid_request"},
    ),
    Operation(
        method="get",
        path=f"{AT}/incidents",
        summary="List what went wrong, or was repaired, the newest first",
        answer="List",
        tag="reliability",
        access=Access.ADMIN,
        query=PAGES,
        errors=STATE | {"invalid_request"},
    ),
    Operation(
        method="get",
        path=f"{AT}/tiers",
        summary="List the tiers with their breakers",
        answer="List",
        tag="reliability",
        access=Access.ADMIN,
    ),
    *(
        Operation(
            method="post",
            path=f"{AT}/tiers/{{tier}}/{order}",
            summary=summary,
            answer="Done",
            tag="reliability",
            access=Access.ADMIN,
            errors=STATE | {"not_found"},
        )
        for order, summary in (
            ("isolate", "Keep all calls off a tier"),
            ("restore", "Let calls through again"),
            ("close", "Close a tier's circuit breaker"),
        )
    ),
)
OPERATIONS: tuple[Operation, ...] = (*CHATS, *SERVER, *RELIABILITY)
