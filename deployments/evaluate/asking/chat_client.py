"""One chat completion over HTTP, with its cost: the only way by which an evaluation reaches a model.

Any OpenAI-compatible URL will do; what this server adds (`/ready`, reports, `X-MLX-Stack-*`) is read where it exists.
Nothing is retried: a retry would hide what is measured. A malformed answer is an error of that answer, in words. No
answer within the deadline, no server, or a 429 is `late`: it says nothing of the model.
Invariants: the API key is never shown or written; each request ends, by its deadline and `BODY_BYTES_MAX`, and holds
no more than that.
"""

from __future__ import annotations

import contextlib
import json
import math
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

_CONNECT_S = 10.0
_GET_S = 30.0
# Our own server ends a request at its deadline, and says so: it has these seconds for that.
GRACE_S = 10.0
BODY_BYTES_MAX = 32 * 1024 * 1024
ERROR_CHARS_MAX = 400
COUNT_MAX = 1_000_000_000
_REQUEST_ID_CHARS_MAX = 200
KEY_CHARS_MIN = 12


class _Usage(msgspec.Struct):
    total_tokens: int


class _Attempt(msgspec.Struct):
    tier: Any
    ran: Any
    flaw: Any
    fault: Any
    elapsed_ms: float
    native_calls: int
    usage: _Usage | None


class _Report(msgspec.Struct):
    """What is read here of a report: another server's, or another version's, may have another form."""

    attempts: list[_Attempt]
    tier: str | None = None
    repairs: list[Any] | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """One answer. `error` says why there is none; `late` that it took longer than it may, or that the server has no
    time for it. `attempts` are those of this server's report. `first_s`: when the first piece of a stream came."""

    message: Mapping[str, Any] = field(default_factory=dict)
    first_s: float | None = None
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
        """Name and arguments of each call."""
        functions = [_take_object(call.get("function")) for call in self.tool_calls]
        return [(str(one.get("name", "")), str(one.get("arguments", ""))) for one in functions]

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return _list_objects(self.message.get("tool_calls"))

    @property
    def text(self) -> str:
        return str(self.message.get("content") or "")

    @property
    def tokens(self) -> int:
        """All tokens of all attempts, where they are known; else those of the answer."""
        used = [attempt["usage"]["total_tokens"] for attempt in self.attempts or () if attempt.get("usage")]
        return sum(used) if used else self.prompt_tokens + self.completion_tokens

    @property
    def tokens_s(self) -> float | None:
        if self.first_s is None or self.completion_tokens < 2 or self.seconds <= self.first_s:
            return None
        return (self.completion_tokens - 1) / (self.seconds - self.first_s)


class ChatClient:
    """Asks one server. `key` is shown nowhere; `local_only` keeps requests on its machine; `named`: the models that are
    wanted (none: all that the server lists)."""

    def __init__(self, url: str, *, key: str = "", local_only: bool = True, named: Sequence[str] = ()) -> None:
        self.url, self._named = url.rstrip("/").removesuffix("/v1"), tuple(dict.fromkeys(named))
        self._key = key
        headers = {"accept-encoding": "identity"} | ({"authorization": f"Bearer {key}"} if key else {})
        if local_only:
            headers["x-mlx-stack-local-only"] = "true"
        # A proxy of the environment must not see what goes to this machine.
        local = self.url.partition("://")[2].startswith(("127.", "localhost", "[::1]"))
        timeout = httpx.Timeout(_GET_S, connect=_CONNECT_S)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=not local)

    def close(self) -> None:
        self._http.close()

    def get(self, path: str) -> dict[str, Any] | None:
        status, body, _ = self._get(path)
        return body if status in (200, 503) else None

    def find_obstacle(self) -> str:
        """Say why this server can't be measured; empty where it can. Without `named` models it has to list some."""
        status, body, error = self._get("/v1/models")
        if status is None:
            return f"no server answers at {self.url}: {error}"
        if status in (401, 403):
            return f"{self.url} answers {status}: it wants another key"
        if (status != 200 or not _list_objects((body or {}).get("data"))) and not self._named:
            return f"no server with /v1/models answers at {self.url} (it says {status}): name one with --model"
        return ""

    def _get(self, path: str) -> tuple[int | None, dict[str, Any] | None, str]:
        """Return the status, the body where it is an object, and why there is no status."""
        try:
            with self._http.stream("GET", path) as response:
                text = _read_body(response, time.monotonic() + _GET_S)
        except (httpx.HTTPError, _NoBody) as error:
            return None, None, _shorten(f"{type(error).__name__}: {error}")
        return response.status_code, _parse_object(text), ""

    def models(self) -> list[dict[str, Any]]:
        """List the server's models: those that are named, where some are."""
        page = self.get("/v1/models") or {}
        known = {one["id"]: one for one in _list_objects(page.get("data")) if isinstance(one.get("id"), str)}
        return [known.get(name, {"id": name}) for name in self._named or known]

    def ask(self, body: Mapping[str, Any], *, session: str, within_s: float) -> ChatReply:
        """Ask for a whole answer, and for this server's report of it."""
        began_s = time.monotonic()
        try:
            with self._post(body, session, within_s) as response:
                text = _read_body(response, began_s + within_s + GRACE_S)
        except (httpx.HTTPError, _NoBody) as failed:
            words, late = _explain(failed)
            return ChatReply(error=words, late=late, seconds=time.monotonic() - began_s)
        seconds = time.monotonic() - began_s
        report, status = self._find_report(response.headers) or {}, response.status_code
        known: dict[str, Any] = {"attempts": tuple(report["attempts"]) if report else None, "seconds": seconds}
        if status != 200:
            text = self._hide_key(text)
        answer = _parse_object(text) or {}
        if status != 200 or not _list_objects(answer.get("choices")):
            words, late = _read_error(status, answer, text)
            return ChatReply(error=words, late=late, **known)
        return ChatReply(
            message=_take_object(_list_objects(answer["choices"])[0].get("message")),
            **_count_tokens(_take_object(answer.get("usage"))),
            tier=report.get("tier") or "",
            repairs=tuple(report.get("repairs") or ()),
            cost_usd=report.get("cost_usd"),
            **known,
        )

    def _hide_key(self, text: str) -> str:
        """Take out the key, which a refusal may repeat; one that is a common word is no secret."""
        return text.replace(self._key, "(key)") if len(self._key) >= KEY_CHARS_MIN else text

    def _post(
        self, body: Mapping[str, Any], session: str, within_s: float
    ) -> contextlib.AbstractContextManager[httpx.Response]:
        named = quote(session, safe=string.punctuation, errors="replace")  # a model's name may have any letter
        headers = {"x-mlx-stack-session": named, "x-mlx-stack-deadline": f"{max(within_s, 1.0):.1f}"}
        timeout = httpx.Timeout(within_s + GRACE_S, connect=_CONNECT_S)
        return self._http.stream("POST", "/v1/chat/completions", json=dict(body), headers=headers, timeout=timeout)

    def _find_report(self, headers: Mapping[str, str]) -> dict[str, Any] | None:
        name = headers.get("x-request-id")
        if not name or len(name) > _REQUEST_ID_CHARS_MAX or "x-mlx-stack-session" not in headers:
            return None
        report = self.get(f"/v1/reliability/requests/{quote(name, safe='')}")
        with contextlib.suppress(msgspec.ValidationError):
            msgspec.convert(report, _Report)
            return report
        return None

    def stream(self, body: Mapping[str, Any], *, session: str, within_s: float) -> ChatReply:
        """Ask for a stream, and time it; its text is not kept."""
        asked = dict(body) | {"stream": True, "stream_options": {"include_usage": True}}
        began_s, first_s, error = time.monotonic(), None, ""
        usage: Mapping[str, Any] = {}
        try:
            with self._post(asked, session, within_s) as response:
                if response.status_code != 200:
                    error = f"{response.status_code}"
                for line in _read_lines(response, began_s + within_s + GRACE_S):
                    # An error before the stream began is one line of JSON.
                    text = (line if response.status_code == 200 else self._hide_key(line)).removeprefix("data:").strip()
                    chunk = (_parse_object(text) if text.startswith("{") else None) or {}
                    if words := _find_error(chunk):
                        error = f"{error}: {words}" if error.isdigit() else error or words
                    usage = _take_object(chunk.get("usage")) or usage
                    if first_s is None and _carries_text(chunk):
                        first_s = time.monotonic() - began_s
        except (httpx.HTTPError, _NoBody) as failed:
            error, _ = _explain(failed)
        if first_s is None:
            error = error or "nothing came that is of a chat completion's stream"
        seconds = time.monotonic() - began_s
        late = bool(error) and seconds >= within_s - 1
        return ChatReply(first_s=first_s, seconds=seconds, error=error, late=late, **_count_tokens(usage))


class _NoBody(Exception):
    """The body is too large, or compressed."""


class _Late(_NoBody):
    """The body didn't end in time."""


def _explain(error: Exception) -> tuple[str, bool]:
    """Say why there is no answer, and whether that says nothing of the model."""
    if isinstance(error, httpx.TimeoutException | _Late):
        return "no answer in time", True
    late = isinstance(error, httpx.ConnectError)
    return _shorten(f"{'nobody answers' if late else type(error).__name__}: {error}"), late


def _read_pieces(response: httpx.Response, until_s: float) -> Iterator[bytes]:
    """Read what comes, until its end, the deadline or the bound of its size. Nothing is decompressed: a piece that is
    counted when it has been would have no bound."""
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise _NoBody("it compresses its answer unasked")
    size_bytes = 0
    for piece in response.iter_raw():
        size_bytes += len(piece)
        if time.monotonic() > until_s:
            raise _Late("no end in time")
        if size_bytes > BODY_BYTES_MAX:
            raise _NoBody(f"more than {BODY_BYTES_MAX} bytes")
        yield piece


def _read_body(response: httpx.Response, until_s: float) -> str:
    return b"".join(_read_pieces(response, until_s)).decode("utf-8", "replace")


def _read_lines(response: httpx.Response, until_s: float) -> Iterator[str]:
    rest = b""
    for piece in _read_pieces(response, until_s):
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace").rstrip("\r") for line in lines)
    yield rest.decode("utf-8", "replace")


def _parse_object(text: str) -> dict[str, Any] | None:
    """Parse an object; NaN and infinity become null, and half a pair of surrogates a question mark."""
    try:
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_parse_float)
        if "\\ud" in text.lower():
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _parse_float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _take_object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list_objects(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _count_tokens(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Read the counts of a `usage`, as fields; what is missing, or no count, is 0."""
    details = _take_object(usage.get("prompt_tokens_details"))
    counts = {name: usage.get(name) for name in ("prompt_tokens", "completion_tokens")}
    counts["cached_tokens"] = details.get("cached_tokens")
    return {name: value if isinstance(value, int) and 0 <= value <= COUNT_MAX else 0 for name, value in counts.items()}


def _shorten(words: str) -> str:
    """Cut words that are shown, on one line and without what a terminal would obey."""
    return " ".join("".join(one if one.isprintable() else " " for one in words[:ERROR_CHARS_MAX]).split())


def _read_error(status: int, answer: Mapping[str, Any], text: str) -> tuple[str, bool]:
    """Read why there is no answer, and whether that says nothing of the model."""
    error = answer.get("error")
    code, words = "", error or text
    if isinstance(error, dict):
        code, words = str(error.get("code") or ""), error.get("message", "")
    if status == 200 and not error:
        words = f"this is no chat completion: {text[:100]!r}"
    # A tier that has met its own timeouts has failed as it is configured; what has met our deadline says nothing.
    late = code == "deadline_exceeded" or status == 429 or (status in (408, 504) and code != "timeout")
    return _shorten(f"{status} {code}: {words}".replace(" :", ":")), late


def _find_error(chunk: Mapping[str, Any]) -> str:
    error = chunk.get("error")
    return _shorten(str(error.get("message", error) if isinstance(error, dict) else error or ""))


def _carries_text(chunk: Mapping[str, Any]) -> bool:
    deltas = [_take_object(choice.get("delta")) for choice in _list_objects(chunk.get("choices"))]
    return any(delta.get(name) for delta in deltas for name in ("content", "tool_calls", "reasoning_content"))
