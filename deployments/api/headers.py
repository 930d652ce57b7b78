"""The terms that a client sets: how long it waits, whether its request may leave the machine, its name, its session,
and whether what is computed for its prompt may be kept on disk.

The first name of a session counts: a header, in the order of `SESSION_HEADERS`, else what the body carries. One that
says nothing (`undefined`) is passed over; one that can't go out in a header is replaced by its hash. Without one the
conversation is named by how it begins, until the state finds it. A helper that an agent starts (Claude Code, Codex,
opencode) has a session of its own below its agent's (`split_helper`).
"""

from __future__ import annotations

import hashlib
import math
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from deployments.errors import refuse
from deployments.listener.listening import is_request_id
from deployments.work.json_text import load_object, write_json
from reliability.types import SYSTEM_ROLES

DEADLINE = "X-MLX-Stack-Deadline"
LOCAL_ONLY = "X-MLX-Stack-Local-Only"
_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no", ""})
# A number as a person or a program writes one: `float` takes `inf`, `1_0` and digits without end, too.
SECONDS = re.compile(r"\+?([0-9]{1,12}(\.[0-9]{0,20})?|\.[0-9]{1,20})([eE][+-]?[0-9]{1,2})?")
_SECONDS_MAX = 31_536_000  # a year: what is longer is a mistake


def deadline_of(headers: Mapping[str, str], most_s: float) -> float:
    """Return how many seconds the request may take, at most `most_s`. Raises `ApiError`: it is no positive number."""
    text = headers.get(DEADLINE.lower())
    if text is None:
        return most_s
    asked_s = float(text) if SECONDS.fullmatch(text.strip()) else math.nan
    if not 0 < asked_s <= _SECONDS_MAX:
        raise refuse(DEADLINE, f"a positive number of seconds is needed, at most {_SECONDS_MAX:,}")
    return min(asked_s, most_s)


def is_local_only(headers: Mapping[str, str]) -> bool:
    """Tell whether the request must stay on this machine: any of its headers says so. Raises `ApiError`: it is neither
    true nor false. A typing error must not send a private prompt away."""
    given = [value for name, value in headers.items() if name.lower() == LOCAL_ONLY.lower()]
    said = {text.strip().lower() for value in given for text in value.split(",")}
    if not said <= _TRUE | _FALSE:
        raise refuse(LOCAL_ONLY, "true or false is needed")
    return bool(said & _TRUE)


def request_id_of(headers: Mapping[str, str]) -> str:
    """Return the client's `x-request-id`, else the one that Serve has put in its place; Serve also sends it back."""
    given = headers.get("x-request-id", "")
    return given if is_request_id(given) else str(uuid.uuid4())


def may_keep(headers: Mapping[str, str], body: Mapping[str, Any]) -> bool:
    """Return whether the request lets its prompt be kept on disk. Total: the body is whatever a client sent."""
    retention = body.get("prompt_cache_retention")
    if isinstance(retention, str):
        return retention.replace("-", "_") != "in_memory"
    if body.get("store") is False or body.get("cache_prompt") is False:
        return False
    controls = (value for name, value in headers.items() if name.lower() == "cache-control")
    return not any("no-store" in value.lower() for value in controls)


SESSION_CHARS_MAX = 256
# A thread is narrower than a session: an agent's helper has a thread of its own in its agent's session.
SESSION_HEADERS = (
    "x-mlx-stack-session", "thread-id", "thread_id", "x-thread-id", "conversation_id", "conversation-id",
    "x-conversation-id", "x-claude-code-session-id", "session-id", "session_id", "x-litellm-session-id",
    "x-opencode-session", "x-session-id", "x-session-affinity", "x-hermes-session-id", "helicone-session-id",
)  # fmt: skip
_RANKS = {name: rank for rank, name in enumerate(SESSION_HEADERS)}
_METADATA = ("thread_id", "conversation_id", "session_id")
NOTHING = frozenset({"", "undefined", "null", "none", "nil", "nan", "[object object]"})
# Claude Code names its session at the end of its user, or in an object there.
_IN_USER = re.compile(r"_session_([0-9A-Za-z-]{8,64})$")
_USER_CHARS_MAX = 4_096


def find_session(headers: Mapping[str, str], body: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Return the session's name, None where the request has none, and whether many tasks may bear it (a user's, a
    prompt's)."""
    sent = sorted((_RANKS[low], value) for name, value in headers.items() if (low := name.lower()) in _RANKS)
    for _, value in sent:
        if (name := _clean(value)) is not None:
            return name, False
    carried = ((_clean(value), shared) for value, shared in _list_carried(body))
    return next(((name, shared) for name, shared in carried if name is not None), (None, False))


def split_helper(headers: Mapping[str, str], session: str) -> tuple[str, str]:
    """Return the session of the request itself, and the session that it helps, "" where it is no agent's helper.

    Claude Code's helper sends its agent's session and an id of its own; opencode's its own session and the one above;
    Codex's its own thread, the thread above, and the tree's first thread as the session, below which all helpers stand.
    """
    agent = _clean(headers.get("x-claude-code-agent-id"))
    if agent is not None:
        return _clean(f"{session}.{agent}") or session, session
    parent = _clean(headers.get("x-codex-parent-thread-id"))
    if parent is not None:
        parent = _clean(headers.get("session-id")) or parent
    parent = parent or _clean(headers.get("x-parent-session-id"))
    if parent is None or parent == session or _clean(headers.get("x-mlx-stack-session")) is not None:
        return session, ""
    return session, parent


def name_beginning(headers: Mapping[str, str], messages: Sequence[Mapping[str, Any]]) -> str:
    """Name a conversation by its key, its system prompt and its first user message."""
    key = headers.get("authorization", "")
    system = next((m.get("content") for m in messages if m.get("role") in SYSTEM_ROLES), None)
    first = next((m.get("content") for m in messages if m.get("role") == "user"), None)
    return "c-" + _digest(write_json([key, system, first], option=orjson.OPT_SORT_KEYS))


def _list_carried(body: Mapping[str, Any]) -> Iterator[tuple[Any, bool]]:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    conversation = body.get("conversation")
    yield conversation.get("id") if isinstance(conversation, Mapping) else conversation, False
    yield from ((metadata.get(name), False) for name in _METADATA)
    yield body.get("prompt_cache_key"), True
    user = metadata.get("user_id")
    named = _read_user(user)
    yield named, named == user
    yield body.get("user"), True


def _read_user(user: Any) -> Any:
    """Read the session that Anthropic's `metadata.user_id` names in it, else all of it."""
    if not isinstance(user, str) or len(user) > _USER_CHARS_MAX:
        return user
    if user.startswith("{"):
        return (load_object(user) or {}).get("session_id") or user
    found = _IN_USER.search(user)
    return user if found is None else found[1]


def _clean(value: Any) -> str | None:
    if not isinstance(value, str) or (name := value.strip()).lower() in NOTHING:
        return None
    fits = len(name) <= SESSION_CHARS_MAX and name.isascii() and name.isprintable()
    return name if fits else "h-" + _digest(name.encode("utf-8", "surrogatepass"))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]
