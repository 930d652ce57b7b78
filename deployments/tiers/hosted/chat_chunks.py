"""Chat-completion chunks as events: parsed JSON in, events out. Its objects are asked for as plain dicts: `Mapping`
answers ten times more slowly. Finish reason and usage wait here for the end of the stream.

Invariants: an answer that was broken off never counts as finished; one that is told again, complete, at its end
(MiniMax) isn't told twice; a second choice is never mixed in; no half character leaves; the numbers of reasoning's or a
call's tokens never count as the text's; a count that lacks a part of the answer isn't taken for complete; text that
can't be read is noted (`damaged`), and a chunk whose frame has another shape ends the answer (`UnreadableStream`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from deployments.tiers.hosted.call_deltas import CallDeltas
from deployments.tiers.hosted.sse_reader import UnreadableStream
from deployments.tiers.hosted.upstream_errors import UpstreamComplaint, read_complaint
from deployments.tiers.logprobs import read_logprobs
from reliability.answer.estimate import estimate_written_tokens
from reliability.surrogates import Halves, join_surrogates
from reliability.types import CallDelta, Event, FinishReason, Logprobs, Reasoning, Refusal, Text, Usage

# What words in a finish reason mean, in order: upstreams have some forty, and an answer that didn't end is no `stop`.
_ENDS: tuple[tuple[re.Pattern[str], FinishReason | None], ...] = tuple(
    (re.compile(words), reason)
    for words, reason in (
        (r"malformed", None),
        (r"filter|safety|refus|sensitive|recitation|prohibited|blocklist|spii|moderat|guardrail|toxic|polic|violat",
         FinishReason.CONTENT_FILTER),
        (r"error|abort|cancel|timeout|timed_out|insufficient|interrupt|fail|killed|disconnect|too_many|unexpected"
         r"|\bnot_|abnormal|un(?:finish|success|complete)", None),
        (r"length|max_|token_limit|context|time_limit|incomplete|pause|truncat", FinishReason.LENGTH),
        (r"tool|function_call", FinishReason.TOOL_CALLS),
        (r"stop|\bend|_end|eos|complete|finish|done|success|normal|^ok$", FinishReason.STOP),
    )
)  # fmt: skip
_NOT_ENDED = frozenset({"", "null", "none"})  # as iFlytek and KoboldCpp write that there is no finish reason
_WROTE_NO_CALL = re.compile(r"malformed|(unexpected|too_many)_tool_call", re.IGNORECASE)  # Gemini
# Where a chunk without an answer says that something went wrong, in the words of FastAPI, MiniMax, Baidu, RFC 9457, ...
_PROBLEM_KEYS = ("error", "errors", "detail", "error_msg", "error_message", "error_code", "msg", "message", "title")
# What a delta may hold that is no text of the answer.
_REASONING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
_NO_TEXT = _REASONING_FIELDS | {"tool_calls", "function_call", "refusal"}
# No answer has as many tokens: beyond it a count is nonsense, and JSON libraries and databases end at 64 bits.
COUNT_MAX = 10**12
_MODEL_CHARS_MAX, _REASON_CHARS_MAX = 200, 80
_TEXT_PARTS = frozenset({"text", "output_text"})
_PARTS = _TEXT_PARTS | {"thinking", "reasoning", "refusal"}
# A chunk of these alone keeps the connection open.
_IDLE_KEYS = frozenset(
    {"id", "object", "created", "model", "type", "choices", "usage", "provider", "system_fingerprint"}
)
_OTHER = object()  # a choice that isn't the answer's
_UNKNOWN = object()  # a finish reason


class ChunkReader:
    """One answer, chunk by chunk. `names`: those of the declared tools."""

    def __init__(self, *, logprobs: bool = False, names: Collection[str] = ()) -> None:
        self._logprobs = logprobs
        self.finish: FinishReason | None = None
        self.stop: str | None = None
        self.usage: Usage | None = None
        self.model: str | None = None
        self.complaint: UpstreamComplaint | None = None
        self.written = 0  # tokens, by an estimate
        self.damaged = False  # something that may have been part of the answer could not be read
        self._told_chars: int | None = None  # of its text, where it came in pieces
        self._choice: int | None = None  # the number of the choice that is the answer
        self._others = False  # something else has come, so that only a finish reason says that the answer is complete
        self.unknown_reason = ""
        self.strange = 0  # chunks of an unknown kind, which held nothing of an answer
        self.named = bool(names)
        self._answered = False  # something else than reasoning has come
        self._calls = CallDeltas(names)
        self._text = Halves()
        self._reasoning = Halves()
        self._refusal = Halves()

    def read(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Return the events of a chunk; an error chunk gives none and sets `complaint`. Raises `UnreadableStream`."""
        if chunk.get("error") or chunk.get("object") == "error":
            self.complaint = read_complaint(chunk)
            return []
        model = chunk.get("model")
        if model != self.model and isinstance(model, str) and model:
            self.model = join_surrogates(model[:_MODEL_CHARS_MAX])
        choices = chunk.get("choices")
        choice = self._find_choice(choices) if isinstance(choices, list) and choices else None
        events: list[Event] = []
        if isinstance(choice, dict):
            events = self._read_choice(choice)
        elif choice is not _OTHER:
            self._note_no_choice(chunk, choices)
        for event in events:
            self.written += estimate_written_tokens(event)
        usage = read_usage(counts) if (counts := _find_usage(chunk, choice)) else None
        if usage is not None or events:  # a count from before these words is not theirs
            self.usage = usage
        return events

    def _find_choice(self, choices: list[Any]) -> Any:
        """Find the choice that goes on with the answer: of several, the one that began. `_OTHER` where none does."""
        first = choices[0]
        if len(choices) == 1 and isinstance(first, dict) and first.get("index") == self._choice:  # nearly always
            return first
        numbers = [_read_number(choice) for choice in choices]
        if self._choice is None:
            known = [number for number in numbers if number is not None]
            self._choice = min(known, default=None)
        for choice, number in zip(choices, numbers, strict=True):
            if number is None or number == self._choice:
                return choice
        self._others = True
        return _OTHER

    def _note_no_choice(self, chunk: Mapping[str, Any], choices: Any) -> None:
        if choices:
            self._note_shape("choices")
        elif choices is None and self.finish is None and _tells_problem(chunk):
            self.complaint = read_complaint(chunk)
        elif choices is None and not chunk.get("usage"):
            self.strange += 1
            self._others |= not _IDLE_KEYS.issuperset(chunk)

    def _note_shape(self, name: str) -> None:
        """Refuse a chunk with another shape: its text would be a gap. Behind the finish reason it held none."""
        self.damaged = True
        if self.finish is None:
            raise UnreadableStream(f"sent a chunk whose {name} can't be read")

    @property
    def ends_well(self) -> bool:
        """Whether what has come is an answer that nothing is missing of, as far as it shows."""
        return self.written > 0 and not self.damaged and not self._others and self._calls.complete

    @property
    def has_call(self) -> bool:
        return self._calls.count > 0

    def end(self) -> list[Event]:
        """Return what was held and will get no other half."""
        events: list[Event] = [Reasoning(text)] if (text := self._reasoning.end()) else []
        events += [Text(text)] if (text := self._text.end()) else []
        return [*events, *self._calls.end()]

    def _read_choice(self, choice: Mapping[str, Any]) -> list[Event]:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            if delta:
                self._note_shape("delta")
            delta = choice.get("message")
            if delta and not isinstance(delta, dict):
                self._note_shape("message")
            if isinstance(delta, dict) and self._told_chars is not None:
                whole = join_surrogates(_read_content(delta.get("content"))).strip()
                self.damaged |= len(whole) > self._told_chars
                # Told again. Its calls are new where none came in pieces.
                delta = None if self._calls.count else {"tool_calls": delta.get("tool_calls")}
        events = self._read_delta(delta) if isinstance(delta, dict) else []
        if events and "delta" in choice:
            self._told_chars = self._told_chars or 0
            for event in events:
                self._told_chars += len(event.text) if isinstance(event, Text) else 0
        wanted = self._logprobs and isinstance(delta, dict) and _counts_as_text(delta)
        if wanted and (tokens := read_logprobs(choice.get("logprobs"))):
            events.append(Logprobs(tokens))
        if choice.get("error"):
            self.complaint = read_complaint(choice["error"])
        self._answered = self._answered or any(isinstance(event, Text | CallDelta | Refusal) for event in events)
        reason, native = choice.get("finish_reason"), choice.get("native_finish_reason")
        if isinstance(reason, str) and reason.lower() not in _NOT_ENDED:
            if isinstance(native, str) and _WROTE_NO_CALL.search(native[:_REASON_CHARS_MAX]):
                reason = native
            self._take_reason(reason)
            stop = choice.get("stop_reason")  # vLLM says here which stop sequence it was
            self.stop = stop if isinstance(stop, str) else None
        return events

    def _take_reason(self, reason: str) -> None:
        """Take how the answer ended. An unknown reason is noted. A call that the upstream can't read is what the model
        wrote, where that is all."""
        words = reason[:_REASON_CHARS_MAX].lower().removeprefix("finish_reason_").replace("-", "_")
        found = next((end for pattern, end in _ENDS if pattern.search(words)), _UNKNOWN)
        if found is None and not self._answered and _WROTE_NO_CALL.search(words):
            found = FinishReason.TOOL_CALLS
            self._calls.read([{"function": {}}] if self.named else [])  # the check of calls says that it has no name
        if found is None and self.complaint is None:
            self.complaint = UpstreamComplaint(message=f"finish_reason {reason[:_REASON_CHARS_MAX]}")
        if found is _UNKNOWN:
            self.unknown_reason = join_surrogates(reason[:_REASON_CHARS_MAX])
        self.finish = found if isinstance(found, FinishReason) else self.finish or FinishReason.STOP

    def _read_delta(self, delta: Mapping[str, Any]) -> list[Event]:
        events: list[Event] = []
        content = delta.get("content")
        reasoned = not _REASONING_FIELDS.isdisjoint(delta) or isinstance(content, list)
        reasoning = _read_reasoning(delta) if reasoned else ""
        text = _read_content(content)
        if content and not isinstance(content, str) and not _is_readable(content):
            self.damaged = True
        if reasoning and (reasoning := self._reasoning.take(reasoning)):
            events.append(Reasoning(reasoning))
        if text and (text := self._text.take(text)):
            events.append(Text(text))
        refused = "refusal" in delta or isinstance(content, list)
        if refused and (refusal := _read_refusal(delta)) and (refusal := self._refusal.take(refusal)):
            events.append(Refusal(refusal))
        pieces = delta.get("tool_calls")
        if not pieces and isinstance(delta.get("function_call"), dict):
            pieces = [{"index": 0, "function": delta["function_call"]}]
        if not pieces:
            return events
        if not isinstance(pieces, list) or not all(isinstance(piece, dict) for piece in pieces):
            self.damaged = True
        return [*events, *self._calls.read(pieces)]


def _read_reasoning(delta: Mapping[str, Any]) -> str:
    for name in ("reasoning_content", "reasoning"):
        value = delta.get(name)
        if isinstance(value, str) and value:
            return value
    details = delta.get("reasoning_details")
    if isinstance(details, list):
        return _join([part.get("text") or part.get("summary") for part in details if isinstance(part, Mapping)])
    thoughts = [part.get("thinking") for part in _list_parts(delta.get("content"), "thinking")]
    return "".join(map(_read_content, thoughts))  # a thought is a text, or parts itself


def _read_refusal(delta: Mapping[str, Any]) -> str:
    parts = _list_parts(delta.get("content"), "refusal")
    return _join([delta.get("refusal")]) or _join(part.get("refusal") for part in parts)


def _list_parts(content: Any, kind: str) -> list[Mapping[str, Any]]:
    parts = content if isinstance(content, list) else ()
    return [part for part in parts if isinstance(part, Mapping) and part.get("type") == kind]


def _join(texts: Iterable[Any]) -> str:
    return "".join(text for text in texts if isinstance(text, str))


def _read_number(choice: Any) -> int | None:
    number = choice.get("index") if isinstance(choice, dict) else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _counts_as_text(delta: Mapping[str, Any]) -> bool:
    """Return whether the tokens of a chunk are its text's: it has text, or nothing else (half a character)."""
    content = delta.get("content")
    return bool(_read_content(content)) or not (isinstance(content, list) or any(delta.get(name) for name in _NO_TEXT))


def _read_content(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _join(map(_read_part, value)) if isinstance(value, list) else ""


def _read_part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    return part.get("text") if _read_kind(part) in _TEXT_PARTS else ""


def _read_kind(part: Mapping[str, Any]) -> str:
    kind = part.get("type", "text")
    return kind if isinstance(kind, str) else ""


def _is_readable(content: Any) -> bool:
    if not isinstance(content, list):
        return False
    kinds = [_read_kind(part) for part in content if isinstance(part, Mapping)]
    return len(kinds) + sum(isinstance(part, str) for part in content) == len(content) and _PARTS.issuperset(kinds)


def _tells_problem(chunk: Mapping[str, Any]) -> bool:
    """Return whether a chunk without an answer says that something went wrong."""
    base = chunk.get("base_resp")
    status = base.get("status_code") if isinstance(base, Mapping) else chunk.get("status", chunk.get("code"))
    if isinstance(status, int) and not isinstance(status, bool):
        return status not in (0, 200)
    told = [chunk.get(key) for key in _PROBLEM_KEYS]
    failed = chunk.get("success") is False or chunk.get("error") == {}
    return failed or any(isinstance(value, str | list) and value for value in told)


def _find_usage(chunk: Mapping[str, Any], choice: Any) -> Any:
    """Find the usage: Moonshot tells it with the choice, Groq apart."""
    apart = chunk.get("x_groq")
    told = chunk.get("usage") or (choice.get("usage") if isinstance(choice, dict) else None)
    return told or (apart.get("usage") if isinstance(apart, dict) else None)


def read_usage(value: Any) -> Usage | None:
    """Read a usage in the names of OpenAI's APIs and Anthropic's; None as well where it holds no number, or zeros."""
    if not isinstance(value, Mapping):
        return None
    for asked, said in (("prompt", "completion"), ("input", "output")):
        prompt, completion = _read_count(value, f"{asked}_tokens"), _read_count(value, f"{said}_tokens")
        cached = _read_count(value.get(f"{asked}_tokens_details"), "cached_tokens")
        reasoning = _read_count(value.get(f"{said}_tokens_details"), "reasoning_tokens")
        if prompt is not None or completion is not None:
            break
    if asked == "input":  # Anthropic counts apart what its cache had, and what it took
        apart = [_read_count(value, f"cache_{deed}_input_tokens") for deed in ("read", "creation")]
        cached = cached or apart[0]
        prompt = None if prompt is None else prompt + sum(count or 0 for count in apart)
    total = _read_count(value, "total_tokens")
    if prompt is not None and total is not None:
        completion = max(completion or 0, total - prompt)
    if prompt == completion == 0 or all(count is None for count in (prompt, completion, cached, reasoning)):
        return None
    return Usage(
        prompt_tokens=prompt or 0,
        completion_tokens=completion or 0,
        cached_tokens=cached or 0,
        reasoning_tokens=reasoning or 0,
    )


def _read_count(value: Any, name: str) -> int | None:
    number = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    # Compared, not converted: an integer of hundreds of digits is no float.
    return int(min(max(0, number), COUNT_MAX)) if abs(number) < math.inf else None
