"""One chat completion over HTTP, with what it cost: the only way in which an evaluation reaches a model.

    ask       a whole answer, and this server's report of it where there is one
    stream    the same as a stream: when the first piece came, when the last one
    models    what the server says of its models

Any OpenAI-compatible URL will do. What this server adds (`/ready`, reports, `X-MLX-Stack-*`) is read where it is there,
and None elsewhere. Nothing is retried here: a retry would hide what is to be measured.

What must never happen: the API key in what is shown or written down, or a request that has no end (`TIMEOUT_S`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["ChatClient", "Reply", "Timing"]

# A request that the server itself would have ended by then.
TIMEOUT_S = 1200.0
CONNECT_S = 10.0
ERROR_CHARS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One answer. `error` says why there is none; `late` that it took longer than it may. `attempts` are those of this
    server's report."""

    message: Mapping[str, Any] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    late: bool = False
    tier: str = ""
    repairs: tuple[str, ...] = ()
    attempts: tuple[Mapping[str, Any], ...] | None = None
    cost_usd: float | None = None

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each call, as they were delivered."""
        found = []
        for call in self.message.get("tool_calls") or ():
            function = call.get("function") or {}
            found.append((str(function.get("name", "")), str(function.get("arguments", ""))))
        return found

    @property
    def text(self) -> str:
        """The text of the answer."""
        return str(self.message.get("content") or "")

    @property
    def tokens(self) -> int:
        """All tokens of all attempts, where they are known; else those of the answer."""
        used = [attempt["usage"]["total_tokens"] for attempt in self.attempts or () if attempt.get("usage")]
        return sum(used) if used else self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a streamed answer took. `first_s` is None where nothing came."""

    first_s: float | None
    total_s: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""

    @property
    def tokens_s(self) -> float | None:
        """Tokens a second once the first one was there."""
        if self.first_s is None or self.completion_tokens < 2 or self.total_s <= self.first_s:
            return None
        return (self.completion_tokens - 1) / (self.total_s - self.first_s)


class ChatClient:
    """Asks one server. `key` is sent and shown nowhere; `local_only` keeps every request on the server's machine."""

    def __init__(self, url: str, *, key: str = "", local_only: bool = True) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if local_only:
            headers["x-mlx-stack-local-only"] = "true"
        # A proxy of the environment must not see what goes to this machine.
        local = self.url.partition("://")[2].startswith(("127.", "localhost", "[::1]"))
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_S)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=not local)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: str) -> dict[str, Any] | None:
        """Get a JSON object; None where there is none."""
        try:
            response = self._http.get(path, timeout=30.0)
            body = response.json()
        except (httpx.HTTPError, ValueError):
            return None
        return body if isinstance(body, dict) and response.status_code in (200, 503) else None

    def models(self) -> list[dict[str, Any]]:
        """List the server's models."""
        page = self.get("/v1/models") or {}
        return [one for one in page.get("data") or () if isinstance(one, dict)]

    def ask(self, body: Mapping[str, Any], *, session: str, within_s: float) -> Reply:
        """Ask for a whole answer."""
        headers = {"x-mlx-stack-session": session, "x-mlx-stack-deadline": f"{max(within_s, 1.0):.1f}"}
        began_s = time.monotonic()
        try:
            response = self._http.post("/v1/chat/completions", json=dict(body), headers=headers, timeout=within_s + 10)
            seconds = time.monotonic() - began_s
            answer = response.json()
        except httpx.TimeoutException:
            return Reply(error="no answer in time", late=True, seconds=time.monotonic() - began_s)
        except (httpx.HTTPError, ValueError) as error:
            return Reply(error=f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX], seconds=time.monotonic() - began_s)
        report = self._find_report(response.headers)
        if response.status_code != 200 or not answer.get("choices"):
            return _read_error(response.status_code, answer, report, seconds)
        return _read_answer(answer, report, seconds)

    def _find_report(self, headers: Mapping[str, str]) -> dict[str, Any] | None:
        name = headers.get("x-request-id")
        if not name or "x-mlx-stack-session" not in headers:
            return None
        return self.get(f"/v1/reliability/requests/{name}")

    def stream(self, body: Mapping[str, Any], *, session: str, within_s: float) -> Timing:
        """Ask for a stream, and time it."""
        headers = {"x-mlx-stack-session": session, "x-mlx-stack-deadline": f"{max(within_s, 1.0):.1f}"}
        asked = dict(body) | {"stream": True, "stream_options": {"include_usage": True}}
        began_s, first_s, error = time.monotonic(), None, ""
        usage: Mapping[str, Any] = {}
        try:
            with self._http.stream(
                "POST", "/v1/chat/completions", json=asked, headers=headers, timeout=within_s + 10
            ) as response:
                for line in response.iter_lines():
                    chunk = _read_chunk(line)
                    error = error or _find_error(chunk)
                    usage = chunk.get("usage") or usage
                    if first_s is None and _carries_text(chunk):
                        first_s = time.monotonic() - began_s
        except httpx.HTTPError as failed:
            error = f"{type(failed).__name__}: {failed}"[:ERROR_CHARS_MAX]
        return Timing(
            first_s=first_s,
            total_s=time.monotonic() - began_s,
            prompt_tokens=usage.get("prompt_tokens", 0),
            completion_tokens=usage.get("completion_tokens", 0),
            cached_tokens=_count_cached(usage),
            error=error or ("" if first_s is not None else "nothing came"),
        )


def _read_answer(answer: Mapping[str, Any], report: Mapping[str, Any] | None, seconds: float) -> Reply:
    usage = answer.get("usage") or {}
    known = report or {}
    return Reply(
        message=answer["choices"][0].get("message") or {},
        prompt_tokens=usage.get("prompt_tokens", 0),
        completion_tokens=usage.get("completion_tokens", 0),
        cached_tokens=_count_cached(usage),
        seconds=seconds,
        tier=known.get("tier") or "",
        repairs=tuple(known.get("repairs") or ()),
        attempts=tuple(known["attempts"]) if "attempts" in known else None,
        cost_usd=known.get("cost_usd"),
    )


def _read_error(status: int, answer: Mapping[str, Any], report: Mapping[str, Any] | None, seconds: float) -> Reply:
    error = answer.get("error")
    words = error.get("message", "") if isinstance(error, dict) else str(error or answer)
    code = error.get("code", "") if isinstance(error, dict) else ""
    known = report or {}
    return Reply(
        seconds=seconds,
        error=f"{status} {code}: {words}"[:ERROR_CHARS_MAX],
        # A tier that has met its own timeouts has failed as it is configured; what has met our deadline says nothing.
        late=code == "deadline_exceeded" or (status in (408, 504) and code != "timeout"),
        attempts=tuple(known["attempts"]) if "attempts" in known else None,
    )


def _count_cached(usage: Mapping[str, Any]) -> int:
    return int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def _read_chunk(line: str) -> dict[str, Any]:
    if not line.startswith("data:") or line.strip() == "data: [DONE]":
        # An error before the stream began is one line of JSON.
        text = line if line.startswith("{") else "{}"
    else:
        text = line.removeprefix("data:")
    try:
        chunk = json.loads(text)
    except ValueError:
        return {}
    return chunk if isinstance(chunk, dict) else {}


def _find_error(chunk: Mapping[str, Any]) -> str:
    error = chunk.get("error")
    return str(error.get("message", error) if isinstance(error, dict) else error or "")[:ERROR_CHARS_MAX]


def _carries_text(chunk: Mapping[str, Any]) -> bool:
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        if delta.get("content") or delta.get("tool_calls") or delta.get("reasoning_content"):
            return True
    return False
