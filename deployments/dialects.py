"""The dialects by their paths, and by the paths that count a prompt's tokens. A path's errors have its dialect's
shape."""

from __future__ import annotations

from deployments.api.anthropic.messages_render import MESSAGES
from deployments.api.dialect import Dialect
from deployments.api.openai_passthrough import COMPLETIONS, EMBEDDINGS
from deployments.api.openai_render import CHAT
from deployments.api.openai_responses.response_events import RESPONSES

DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": RESPONSES,
    "/v1/completions": COMPLETIONS,
    "/v1/embeddings": EMBEDDINGS,
}
COUNTED: dict[str, Dialect] = {"/v1/messages/count_tokens": MESSAGES, "/v1/responses/input_tokens": RESPONSES}
WORKER_IMPORTS = ("deployments.request.attempt", *(spoken.parse.__module__ for spoken in DIALECTS.values()))
