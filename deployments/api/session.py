"""Which session a request names.

The first name counts: a header, in the order of `SESSION_HEADERS`, else what the body carries. One that says nothing
(`undefined`) is passed over; one that can't go out in a header is replaced by its hash. Where there is none the
conversation is followed by whoever owns the state; until then it is named by how it begins.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from deployments.work.json_text import write_json

SESSION_CHARS_MAX = 256
SESSION_HEADERS = (
    "x-mlx-stack-session",
    # A thread is the narrower one: an agent's helper has a thread of its own in its agent's session.
    "thread-id",
    "thread_id",
    "x-thread-id",
    "conversation_id",
    "conversation-id",
    "x-conversation-id",
    "x-claude-code-session-id",
    "session-id",
    "session_id",
    "x-litellm-session-id",
    "x-opencode-session",
    "x-session-id",
    "x-session-affinity",
    "x-hermes-session-id",
    "helicone-session-id",
)
RANKS = {name: rank for rank, name in enumerate(SESSION_HEADERS)}
METADATA = ("thread_id", "conversation_id", "session_id")
NOTHING = frozenset({"", "undefined", "null", "none", "nil", "nan", "[object object]"})
# Claude Code names its session at the end of its user, or in an object there.
IN_USER = re.compile(r"_session_([0-9A-Za-z-]{8,64})$")
USER_CHARS_MAX = 4_096


def read_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> str | None:
    """Read the session's name; None where the request has none."""
    sent = sorted((RANKS[low], value) for name, value in headers.items() if (low := name.lower()) in RANKS)
    for _, value in sent:
        if (name := _clean(value)) is not None:
            return name
    return next((name for value in _list_carried(body) if (name := _clean(value)) is not None), None)


def name_beginning(headers: Mapping[str, str], messages: Sequence[Mapping[str, Any]]) -> str:
    """Name a conversation by its key, its system prompt and its first user message."""
    key = headers.get("authorization", "")
    system = next((m.get("content") for m in messages if m.get("role") in ("system", "developer")), None)
    first = next((m.get("content") for m in messages if m.get("role") == "user"), None)
    return "c-" + _digest(write_json([key, system, first], option=orjson.OPT_SORT_KEYS))


def _list_carried(body: Mapping[str, Any]) -> Iterator[Any]:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    conversation = body.get("conversation")
    yield conversation.get("id") if isinstance(conversation, Mapping) else conversation
    yield from (metadata.get(name) for name in METADATA)
    yield body.get("prompt_cache_key")
    yield _read_user(metadata.get("user_id"))
    yield body.get("user")


def _read_user(user: Any) -> Any:
    """Read the session that Anthropic's `metadata.user_id` names in it, else all of it."""
    if not isinstance(user, str) or len(user) > USER_CHARS_MAX:
        return user
    if user.startswith("{"):
        try:
            fields = orjson.loads(user)
        except orjson.JSONDecodeError:
            return user
        return fields.get("session_id") or user if isinstance(fields, dict) else user
    found = IN_USER.search(user)
    return user if found is None else found[1]


def _clean(value: Any) -> str | None:
    if not isinstance(value, str) or (name := value.strip()).lower() in NOTHING:
        return None
    fits = len(name) <= SESSION_CHARS_MAX and name.isascii() and name.isprintable()
    return name if fits else "h-" + _digest(name.encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]
