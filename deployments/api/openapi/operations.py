"""Every route of this server, a row each: what it is for, who may ask, what goes in and comes out, how it may fail.

Tests hold the table against the app's routes, and send the examples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from deployments.api.anthropic.messages_body import MessagesBody
from deployments.api.openai_chat import ChatBody
from deployments.api.openai_passthrough import CompletionBody, EmbeddingBody
from deployments.api.openai_responses.response_body import ResponseBody
from deployments.api.openai_responses.response_events import STATUSES
from deployments.errors import TABLE
from deployments.state.history import RequestQuery, SessionQuery
from deployments.state.records import Query

_NONE: frozenset[str] = frozenset()
# Errors that any route may answer with.
_ANYWHERE = frozenset({"forbidden", "headers_too_large", "internal_error", "server_restarting", "server_starting"})
KEYED = frozenset({"invalid_api_key"})
_BODY = frozenset({"invalid_json", "invalid_request", "body_too_large", "request_timeout", "overloaded"})
_STATE = frozenset({"no_tier_available"})  # the state actor doesn't answer
_LISTED = _STATE | {"invalid_request"}
_FOUND = _STATE | {"not_found"}
_NAMED = _LISTED | _FOUND
# What the core may refuse, in words of the table; what happens inside of a stream has no status.
_REFUSALS = frozenset(code for code, row in TABLE.items() if row.refusal is not None) - {"stream_broken"}
ANSWERS = _BODY | _REFUSALS | {"model_not_found"}
_CHAT_ANSWERS = ANSWERS | {"invalid_tools", "idempotency_key_reused"}
_COUNTS = _BODY | {"invalid_tools", "unsupported", "model_not_found"}
_PREVIOUS = frozenset({"previous_response_not_found"})


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `answer`: a schema of the document; `errors`: codes of the table. `example`: a body that
    works. `stream`: the answer may be a stream. `query`: its parameters, in words. `access`: who may ask, with API
    keys. `statuses`: of errors, where a dialect's differ."""

    method: str
    path: str
    answer: str
    summary: str
    errors: frozenset[str] = _NONE
    body: type[BaseModel] | None = None
    example: Mapping[str, Any] | None = None
    stream: bool = False
    query: Mapping[str, str] = field(default_factory=dict)
    access: Literal["anybody", "key", "admin"] = "key"
    media: str = "application/json"
    tag: str = ""
    statuses: Mapping[str, int] = field(default_factory=dict)

    @property
    def codes(self) -> frozenset[str]:
        """All errors that it may answer with."""
        return self.errors | _ANYWHERE | (_NONE if self.access == "anybody" else KEYED)

    def find_status(self, code: str) -> int:
        return self.statuses.get(code, TABLE[code].status)


_get, _post = partial(Operation, "get"), partial(Operation, "post")
_get_open = partial(Operation, "get", access="anybody")
_get_admin, _post_admin = partial(Operation, "get", access="admin"), partial(Operation, "post", access="admin")

_QUESTION = "What is the capital of France?"
_COUNTED = {"model": "auto", "messages": [{"role": "user", "content": _QUESTION}]}
CHAT = _COUNTED | {"max_tokens": 32}
_RESPONSE = {"model": "auto", "input": _QUESTION, "max_output_tokens": 32}
TEXT = {"model": "auto", "prompt": "Once upon a time", "max_tokens": 16}
ANSWER = "Answer a chat, streamed or not"
COUNT = "Count the tokens of a prompt, by the tier's own tokenizer where it has one"
PAGES = {"after": "the item that the page begins behind", "limit": "how many, 1 to 100", "order": "asc or desc"}
_STREAM = {"stream": "refused: a stored response isn't streamed again"}
_STORED = "/v1/responses/{response_id}"
_CHATTED, _RESPONDED = f"{ANSWER} (OpenAI's chat completions)", f"{ANSWER} (OpenAI's Responses)"
_SAID = f"{ANSWER} (Anthropic's Messages)"
_COMPLETED, _EMBEDDED = (
    "Complete a text, streamed or not; hosted tiers only",
    "Make vectors of texts; hosted tiers only",
)
_INPUT = {"model": "auto", "input": _QUESTION}
_COMPACTED = "Summarize a conversation, so that its summary can stand for it (OpenAI's Responses)"
_post_response = partial(Operation, "post", body=ResponseBody, statuses=STATUSES)
_ANSWERING = (
    _post("/v1/chat/completions", "ChatCompletion", _CHATTED, _CHAT_ANSWERS, ChatBody, CHAT, True),
    _post("/v1/messages", "AnthropicMessage", _SAID, _CHAT_ANSWERS, MessagesBody, CHAT, True),
    _post("/v1/messages/count_tokens", "TokenCount", COUNT, _COUNTS, MessagesBody, _COUNTED),
    _post_response("/v1/responses", "Response", _RESPONDED, _CHAT_ANSWERS | _PREVIOUS, example=_RESPONSE, stream=True),
    _post_response("/v1/responses/compact", "Compaction", _COMPACTED, _CHAT_ANSWERS | _PREVIOUS, example=_INPUT),
    _post_response("/v1/responses/input_tokens", "TokenCount", COUNT, _COUNTS | _STATE | _PREVIOUS, example=_INPUT),
    _get(_STORED, "Response", "Read a stored response", _FOUND | {"unsupported"}, query=_STREAM),
    Operation("delete", _STORED, "Deleted", "Forget a stored response", _FOUND),
    _get(f"{_STORED}/input_items", "List", "List the input of a stored response, in pages", _NAMED, query=PAGES),
)
_ONCE = {"model": "auto", "input": "Once upon a time"}
_PASSED_ON = (
    _post("/v1/completions", "Completion", _COMPLETED, ANSWERS, CompletionBody, TEXT, True),
    _post("/v1/embeddings", "Embeddings", _EMBEDDED, ANSWERS, EmbeddingBody, _ONCE),
)
ROOT = "Tell that somebody is here, and where the rest is; `/` is the control room in a browser"
_MODELS = "List tiers, aliases and `auto`, with what stands behind each"
MODEL = "Read one of them, or what a pattern of the aliases makes of a name"
_READY = "Tell which tiers can answer, and why the others can't; 503 while none of the chain can"
_METRICS = "Read what was counted on all nodes, and how things stand, for Prometheus"
_PAGE_FILE = "Read a file of that page"
_SERVING = (
    _get("/v1/models", "Models", _MODELS),
    _get("/v1/models/{model}", "Model", MODEL, frozenset({"model_not_found"})),
    _get_open("/ready", "Ready", _READY, KEYED),
    _get_open("/health", "Health", "Tell that the server is alive"),
    _get_open("/", "Root", ROOT),
    _get_open("/api/hello", "Root", ROOT),
    _get_admin("/metrics", "Page", _METRICS, _STATE, media="text/plain"),
    _get_open("/openapi.json", "Description", "Read this description"),
    _get_open("/docs", "Page", "Show this description in a browser", media="text/html"),
    _get_open("/docs/{asset}", "Page", _PAGE_FILE, frozenset({"not_found"}), media="*/*"),
)
AT = "/v1/reliability"
_FILTERS = {
    "since": "seconds since the epoch",
    "until": "seconds since the epoch",
    "key": "whose, for an admin",
    "before": "the `next` of the page before",
    "after": "only those behind this id",
    "limit": "how many, 1 to 500",
}


def _list_filters(query: type[Query | RequestQuery | SessionQuery]) -> dict[str, str]:
    """List the filters of a list, which are the fields of its query, in words."""
    names = [field.name.removesuffix("_s") for field in fields(query)]
    return {name: _FILTERS.get(name, "only those of this one") for name in names}


_REQUESTS, _SESSIONS, _INCIDENTS = map(_list_filters, (RequestQuery, SessionQuery, Query))
_LIVE = "Read the server at this moment: tiers, what runs, what has just finished, memory"
SESSION = "Read what a session of one's own has asked for, spent and reserved"
_REPORT_KEY = {"key": "whose request, for an admin, where several keys have this id"}
_WHOSE = {"key": "whose session, for an admin, where several keys have this name"}
_RELIABILITY = (
    _get(f"{AT}/requests", "List", "List finished requests of one's own, the newest first", _LISTED, query=_REQUESTS),
    _get(f"{AT}/sessions", "List", "List sessions of one's own, the last used first", _LISTED, query=_SESSIONS),
    _get_admin(f"{AT}/live", "Live", _LIVE),
    _get(
        f"{AT}/requests/{{request_id}}",
        "Report",
        "Read the report of a finished request of one's own",
        _NAMED,
        query=_REPORT_KEY,
    ),
    _get(f"{AT}/sessions/{{session}}", "Session", SESSION, _NAMED, query=_WHOSE),
    _post_admin(f"{AT}/sessions/{{session}}/reset", "Done", "Forget what a session has spent", _NAMED, query=_WHOSE),
    _get_admin(
        f"{AT}/incidents", "List", "List what went wrong, or was repaired, the newest first", _LISTED, query=_INCIDENTS
    ),
    _get_admin(f"{AT}/tiers", "List", "List the tiers with their breakers"),
    _post_admin(f"{AT}/tiers/{{tier}}/isolate", "Done", "Keep all calls off a tier", _FOUND),
    _post_admin(f"{AT}/tiers/{{tier}}/restore", "Done", "Let calls through again", _FOUND),
    _post_admin(f"{AT}/tiers/{{tier}}/close", "Done", "Close a tier's circuit breaker", _FOUND),
)
_GROUPS = {"answers": _ANSWERING, "passed on": _PASSED_ON, "server": _SERVING, "reliability": _RELIABILITY}
OPERATIONS = tuple(replace(operation, tag=tag) for tag, group in _GROUPS.items() for operation in group)
