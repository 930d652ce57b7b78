"""What an upstream complains of, as one of our faults: the one place for every tier kind that has status codes.

Gateways send 400, 413 and 422 for everything. So the code is asked first, then the words; what neither explains may be
a limit of this upstream: another tier is asked. What a model wrote and the upstream can't read as a call, or cut off
before a word, is the answer (`read_written`). Invariants: a request that is wrong in itself never looks like a sick
tier; what only this tier can't do never ends a request; no stack or path of an upstream reaches the client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from deployments.tiers.history_repair import HistoryForm
from deployments.tiers.hosted.answer_limits import limits_answer
from deployments.tiers.hosted.upstream_state import find_own_fault
from reliability.faults import TRAITS
from reliability.surrogates import join_surrogates
from reliability.types import Event, Failed, Fault, Finish, FinishReason, Text, Usage

MESSAGE_CHARS_MAX = 500
WORDS_CHARS_MAX = 8_000  # of an error, that are read: a quoted request is longer, and a trace ends with its error
_CAUSE_DEPTH_MAX = 4  # of errors in errors
RETRY_AFTER_S_MAX = 86_400.0

_BY_STATUS = {
    **dict.fromkeys((401, 402, 403), Fault.AUTH),  # no credit is like a wrong key: only a person can repair it
    **dict.fromkeys((404, 405), Fault.UNAVAILABLE),  # the model or the route isn't there
    **dict.fromkeys((408, 504), Fault.FIRST_TOKEN_TIMEOUT),
    **dict.fromkeys((429, 498, 529), Fault.OVERLOADED),  # Groq's and Anthropic's own
    413: Fault.CONTEXT_LENGTH,  # too large for this upstream
}
_SAYS_LITTLE = frozenset({400, 413, 422})

# Error frames name their cause more often than their status.
_CODES = {
    401: "authentication_error invalid_api_key",
    402: "insufficient_quota insufficient_credits billing_hard_limit_reached",
    403: "permission_error",
    404: "not_found_error model_not_found",
    429: "rate_limit_exceeded rate_limit_error too_many_requests overloaded_error token_quota_exceeded",
    504: "timeout timeout_error",
    400: "invalid_request_error badrequesterror context_length_exceeded content_filter content_policy_violation",
}
_STATUS_BY_CODE = {code: status for status, codes in _CODES.items() for code in codes.split()}
_CREDIT_CODES = frozenset(_CODES[402].split())
_CONTENT_CODES = frozenset({"content_filter", "content_policy_violation"})  # refused everywhere, or shouldn't be asked

_CONTEXT = re.compile(
    r"(?i)context[_ ]?(length|window|size)|too many (input |prompt )?tokens"
    r"|maximum (context|prompt|input|(model|(supported )?sequence) length)|model (token limit|max length)\b"
    r"|(prompt|input) is too long|reduce the length|context the overflows|exceeds? the (available )?context"
    r"|((prompt|input)s?( token)?|messages? token) (length|count|size)\b.{0,40}"
    r"(\bexceed|\bshould be \[| > \w|\bonly supports)"
    r"|(total|input|prompt) tokens?\b(?! per).{0,40}\bexceed|\bmax input (characters|tokens)"
    r"|exceeds? (the )?(context|model'?s|maximum token) limit|(prompt|messages|input|request) (is )?too (long|large)\b"
    r"|超长|长度超[过限]|超[出过]最大长度|上下文长度|tokens_(limit_reached|too_long)|max_prompt_tokens"
    r"|`?inputs`?( tokens \+ `?max_new_tokens`?)? must (be <=|have less than) \d|prompt exceeds max length"
    r"|prompt tokens too long|(than|equal to) max_seq_len\b|(total token|token total) length\b.{0,40}\bexceed"
)
# Limits of pictures, stop sequences, schemas and money, in words that mean the context's elsewhere.
_OTHER_LIMIT = re.compile(
    r"(?i)\b(quota|invalid schema|billing|per (minute|hour|day|month))\b|\bstop( sequences?)?(:| is\b)|\bfor stop\b"
    r"|\b(image|picture|video|audio|file)s?\b( input)? (tokens?|count|size|(is |are )?too|limit)"
    r"|\b(too many|at most \d+|maximum( number of)?( input)?|exceeds? \d+) (image|picture|video|audio|file)s?\b"
)
_SURELY_CONTEXT = re.compile(r"context|prompt is too long|model token limit", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"(?i)(does not|doesn't) support (tool|function|image|vision|json)|support tool use|enable-auto-tool-choice"
    r"|supports at most \d+ (completion|output) tokens|maximum allowed number of output tokens"
    r"|^unsupported parameter: |json schema conversion failed|failed to parse grammar|input is not supported - hint"
    r"|requires more credits, or fewer max_tokens|image_url|only .?text.? content|content\[\]\.type|part type: "
    r"|prompt tokens limit exceeded: \d+ > \d+\. to increase"
    r"|\b(support|process|at most 0|not an?|required for) (image|multi-?modal|vision|file input)\b"
)
# What templates and the APIs in front of them say of roles, of calls and their results, and of themselves.
_TEMPLATE = re.compile(
    r"(?is)\bjinja|chat[ _]?template(?!_kwargs)|(error|failed) (rendering|applying) (the )?(prompt|template)"
    r"|roles .{0,40}alternat|system (message|prompt|role)s?\b.{0,60}\b(must|only|first|begin|not)"
    r"|(only|multiple) (one )?(system|developer|user) (message|role)|only user(,| and) (assistant|model)"
    r"|(unexpected|unknown|unsupported|invalid) (message )?role\b|expected last role|\b(must|should) alternate\b"
    r"|role ['\"]?(tool|system|developer)\b|raise_exception|valid role\b|role must be one of|no such role"
    r"|(no|last|first) (user )?(query|message).{0,40}(found|must|should)|must be a response to a prece"
    r"|must be followed by tool|same number of function calls|number of function response|function call turn comes"
    r"|tool_(use|result).{0,60}(without|unexpected|immediately)|unexpected .?tool_(use|result)"
    r"|template[ _]error|value is not callable|cannot apply filter|list object has no element"
    r"|tool call id\b.{0,80}\b(must|length)|has tool role|single tool-calls|both content and thinking"
    r"|either .?content.? (or|and) |content blocks must be non-empty|non-?empty content|must contain .?content"
    r"|content( field)? (must not|cannot|can't|should not) be (empty|null|none|blank)|content type: <nil>"
    r"|\bcontent\W{1,3}.{0,80}\b(got null|must be satisfied)|at least one parts field|contents is not specified"
    r"|successive (user|assistant)|2 or more assistant messages|end with a user message"
    r"|\.role.{0,3} (does not|doesn't) support|invalid value: .?(developer|system|tool|function)\b"
    r"|conversation must start|\bcontent\b.{0,60}\bis (blank|empty|required|a required)|toolresult blocks"
    r"|(messages|contents)\W{0,2}\d.{0,80}\b(function|function_call|tool_use)\.name\b.{0,80}(pattern|empty|length)"
    r"|function name was\b.{0,80}must be|tool (call result|result's tool id).{0,20}not (follow|found)"
    r"|can only get item pairs from a mapping|object' has no attribute|can only concatenate str"
    r"|at least one (content element|contents field)|must have a text parameter|\bparts must not be empty"
    r"|\b(tool_calls\W{1,3}\d+\W{1,3}|tool_use\.)id\b.{0,60}(too long|pattern)|no tool (output|call) found for function"
    r"|(doesn't|not) support system messages|developer instruction is not enabled|invalid chat setting"
    r"|角色信息不正确|incorrect role information|messages (参数非法|parameter is illegal)"
)
_IN_TURN = re.compile(
    r"alternat|successive|in a row|role .?user.? after|single tool-calls|end with a user message", re.IGNORECASE
)
_NO_THOUGHTS = re.compile(
    r"(?i)(unsupported|not permitted|unknown name|unrecognized).{0,60}\breasoning_content"
    r"|\breasoning_content\b.{0,60}(unsupported|not permitted|unknown|unrecognized)"
    r"|\bmessages\W{1,4}\d+\W{1,4}(assistant\W{1,4})?(reasoning\w*|annotations|audio)\b"
    r"|invalid .?signature.? in .?thinking"
)
_NO_SYSTEM = re.compile(
    r"(?i)system (message|prompt|role)s?( (is|are))? (not|un)|(not|n't) support.{0,20}\bsystem|valid role: user, model"
    r"|developer instruction is not enabled|only user(,| and) (assistant|model)|unsupported (message )?role:? .?system"
)
_TEMPLATE_STATUSES = frozenset({400, 422, 500})
# Lines of a trace that say nothing: rules, places, and what was read there.
_SAYS_NOTHING = re.compile(
    r"^([\W_]*$|traceback \(most recent|while executing|\s*(file |at |-->)|[{%\s]*[{%])", re.IGNORECASE
)
_NAMES_ERROR = re.compile(r"^(\w*(error|exception)): +\S", re.IGNORECASE)
_RAN_OUT = re.compile(r"could not finish the message because max_tokens\b", re.IGNORECASE)
_TAG = re.compile(r"<[a-z!/]", re.IGNORECASE)
_EVENT = re.compile(r"^\s*((id|event|retry|):[^\r\n]*[\r\n]+)*data:(?P<data>.*)")
_BRACKET = re.compile(r"[<\[{(]")
# Ollama names a whole call, llama.cpp what stands behind the words that it has read; behind a gateway's own words.
_BEFORE = r"^(?:provider returned error: )?(?:\d{3}:? )?(?:[\w.]{0,60}(?:error|exception):? (?:- )?){0,4}"
_CALL = re.compile(_BEFORE + r"error parsing tool call: raw='(.*)', err=", re.IGNORECASE | re.DOTALL)
_REST = re.compile(_BEFORE + r"failed to parse input at pos \d{1,9}:(.*)", re.IGNORECASE | re.DOTALL)
_PATH = re.compile(r"(?<![^\s\"'(=\[])/(?:[\w.@+-]+/)+[\w.@+-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamComplaint:
    """What an upstream wrote of an error, in its own words."""

    status: int | None = None
    message: str = ""
    code: str = ""
    param: str | None = None
    moderated: bool = False  # OpenRouter's 403 for a prompt that its filter refused
    written: str = ""  # what the model wrote: Groq's 400 where it can't read that as a call
    rest: str | None = None  # what it wrote last, in the words of another error of that kind

    @property
    def said(self) -> str:
        """Return the field that it names, and its words."""
        return f"{self.param or ''} {self.message}"

    def redact(self, clean: Callable[[str], str]) -> UpstreamComplaint:
        """Return the same complaint with every text passed through `clean`, and cut to what is read."""
        param = None if self.param is None else _shorten(clean(self.param))
        words, code = clean(self.message), _shorten(clean(self.code))
        return replace(self, message=_shorten(words), code=code, param=param, rest=_find_rest(words))


def read_complaint(payload: Any) -> UpstreamComplaint:
    """Read an error body or an error frame; anything unknown gives an empty complaint."""
    if isinstance(payload, list) and payload:
        payload = payload[0]
    if isinstance(payload, str):
        return UpstreamComplaint(message=join_surrogates(payload))
    if not isinstance(payload, Mapping):
        return UpstreamComplaint()
    inner = payload.get("error", payload)
    if not isinstance(inner, Mapping):
        return UpstreamComplaint(message=_read_text(inner))
    names = [_read_text(inner.get(key)) for key in ("code", "type")]
    metadata = inner.get("metadata")
    message = _read_message(inner)
    handed_on = metadata.get("raw") if isinstance(metadata, Mapping) else None
    cause = _read_cause(handed_on if message else inner.get("message"))
    return UpstreamComplaint(
        status=_read_status(inner, names),
        message=f"{message}: {cause}" if message and cause else message or cause,
        code=next((name for name in names if name and not name.isdigit()), ""),
        param=_read_text(inner.get("param")) or None,
        moderated=isinstance(metadata, Mapping) and bool(metadata.get("reasons")),
        written=_read_text(inner.get("failed_generation")),
    )


def read_error_body(body: bytes) -> UpstreamComplaint:
    """Read the body of an error: JSON, an event with it, or words; a page gives an empty complaint."""
    text = body.decode("utf-8", "replace")
    event = _EVENT.match(text)
    with suppress(ValueError, RecursionError):
        return read_complaint(json.loads(body if event is None else event["data"]))
    return UpstreamComplaint(message="" if _TAG.search(text) else text)


def _shorten(words: str) -> str:
    half = WORDS_CHARS_MAX // 2
    return words if len(words) <= WORDS_CHARS_MAX else f"{words[:half]}\n…\n{words[-half:]}"


def _find_rest(words: str) -> str | None:
    """Find the end of an answer in the words of an error, what Ollama took for a call marked as one."""
    if (call := _CALL.match(words)) is not None:
        return f"<tool_call>{call[1]}</tool_call>"
    rest = _REST.match(words)
    return None if rest is None else rest[1].strip()


def read_written(
    complaint: UpstreamComplaint, usage: Usage | None = None, *, begun: bool = False, tools: bool = True
) -> list[Event]:
    """Return the answer that an upstream refused since it could read no call in it, or since its tokens ran out.
    Without a bracket it is no call, but a server's own words. `begun`: words of it have come; `tools` are declared."""
    end = Finish(reason=FinishReason.TOOL_CALLS, usage=usage)
    if complaint.rest is not None:
        return [Text(complaint.rest), end] if tools and _BRACKET.search(complaint.rest) else [end]
    if not begun and _RAN_OUT.search(complaint.message):
        return [Finish(reason=FinishReason.LENGTH, usage=usage)]
    if not begun and _BRACKET.search(complaint.written):
        return [Text(complaint.written), end]
    return []


def _read_cause(given: Any, depth: int = _CAUSE_DEPTH_MAX) -> str:
    """Read what a gateway hands on of its own upstream's error: an object, its JSON text, or the words themselves."""
    if isinstance(given, str):
        value = None
        with suppress(ValueError, RecursionError):
            value = json.loads(given)
        if not isinstance(value, Mapping | list):
            return join_surrogates(given)
        given = value
    if isinstance(given, list) and given:
        given = given[0]
    if not isinstance(given, Mapping) or depth == 0:
        return ""
    words = (_read_cause(given.get(key), depth - 1) for key in ("error", "message"))
    return next(filter(None, words), "") or _read_detail(given.get("detail"))


def wants_softer(status: int, complaint: UpstreamComplaint) -> HistoryForm | None:
    """Return the form of the conversation that this refusal asks for; None where it is about something else."""
    if status not in _TEMPLATE_STATUSES or _is_too_long(complaint):
        return None
    if _NO_THOUGHTS.search(complaint.message):
        return HistoryForm.NO_THOUGHTS
    if not _TEMPLATE.search(complaint.message):
        return None
    if _NO_SYSTEM.search(complaint.message):
        return HistoryForm.NO_SYSTEM
    return HistoryForm.IN_TURN if _IN_TURN.search(complaint.message) else HistoryForm.ONE_SYSTEM


def _find_fault(
    status: int, complaint: UpstreamComplaint, write_asked: Callable[[], bytes], *, has_retry_after: bool
) -> Fault:
    status = _resolve_status(status, complaint)
    known = _find_by_words(status, complaint, write_asked) or _BY_STATUS.get(status)
    if known is not None:
        return known
    if status >= 500:
        return Fault.OVERLOADED if has_retry_after and status == 503 else Fault.SERVER_ERROR
    return Fault.REFUSED if status >= 400 else Fault.UNAVAILABLE


def _resolve_status(status: int, complaint: UpstreamComplaint) -> int:
    named = complaint.status or status
    return named if status in _SAYS_LITTLE and named not in _SAYS_LITTLE and named < 500 else status


def _find_by_words(status: int, complaint: UpstreamComplaint, write_asked: Callable[[], bytes]) -> Fault | None:
    if (own := find_own_fault(status, complaint.message, write_asked)) is not None:
        return own
    # llama.cpp says with a 500 that it can't read a schema, OpenRouter with a 402 that this answer may cost too much.
    if status in (400, 402, 404, 422, 500) and _UNSUPPORTED.search(complaint.message):
        return Fault.UNSUPPORTED
    if status in (400, 413, 422, 500) and _is_too_long(complaint):
        return Fault.CONTEXT_LENGTH
    if status == 429 and complaint.code in _CREDIT_CODES:
        return Fault.AUTH
    if complaint.code.lower() in _CONTENT_CODES or (status == 403 and complaint.moderated):
        return Fault.BAD_REQUEST
    return None if wants_softer(status, complaint) is None else Fault.UNSUPPORTED


def translate_complaint(
    tier: str,
    complaint: UpstreamComplaint,
    *,
    status: int | None = None,
    retry_after_s: float | None = None,
    usage: Usage | None = None,
    write_asked: Callable[[], bytes] = bytes,
) -> Failed:
    """Build the end of an attempt that an upstream refused. `write_asked` writes the request, whose words the upstream
    may quote. Without any status a complaint counts as a 500."""
    code = status or complaint.status or 500
    fault = _find_fault(code, complaint, write_asked, has_retry_after=retry_after_s is not None)
    return Failed(
        fault=fault,
        message=_build_message(tier, fault, code, complaint.message),
        retry_after_s=retry_after_s,
        status=code,
        param=None if complaint.param is None else complaint.param[:MESSAGE_CHARS_MAX],
        usage=usage,
    )


def read_retry_after_s(headers: Mapping[str, str], now: datetime) -> float | None:
    """Read when to come back, from `retry-after-ms` or `Retry-After` (seconds or a date); None where neither says."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        seconds = _parse_seconds(value, unit_s, now) if value else None
        if seconds is not None:
            return min(max(seconds, 0.0), RETRY_AFTER_S_MAX)
    return None


def _parse_seconds(value: str, unit_s: float, now: datetime) -> float | None:
    if re.fullmatch(r"\d{1,12}(\.\d{1,12})?", value):
        return float(value) * unit_s
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds()


def _build_message(tier: str, fault: Fault, status: int, words: str) -> str:
    line = _find_line(words)
    if fault is Fault.BAD_REQUEST and line:
        return line[:MESSAGE_CHARS_MAX]
    if status >= 500:  # an upstream that broke may talk of its own files
        line = _PATH.sub("[path]", line)
    return f"tier {tier} {TRAITS[fault].upstream_words} ({status}){': ' + line if line else ''}"[:MESSAGE_CHARS_MAX]


def _find_line(words: str) -> str:
    lines = words.strip().splitlines() or [""]
    if len(lines) == 1:
        return lines[0]
    named = next((line for line in reversed(lines) if _NAMES_ERROR.match(line.strip())), "")
    return named or next((line for line in lines if not _SAYS_NOTHING.match(line)), lines[0])


def _read_status(inner: Mapping[str, Any], names: list[str]) -> int | None:
    for key in ("code", "status", "status_code"):
        value = _read_text(inner.get(key))
        if value.isascii() and value.isdigit() and 400 <= int(value[:4]) <= 599:
            return int(value[:4])
    return next((_STATUS_BY_CODE[name.lower()] for name in names if name.lower() in _STATUS_BY_CODE), None)


def _is_too_long(complaint: UpstreamComplaint) -> bool:
    words = complaint.message
    if _CONTEXT.search(complaint.code):
        return True
    other = _OTHER_LIMIT.search(words) and not _SURELY_CONTEXT.search(words)
    return bool(_CONTEXT.search(words)) and not other and not limits_answer(complaint.said)


def _read_message(inner: Mapping[str, Any]) -> str:
    base = inner.get("base_resp")
    told = [inner.get(key) for key in ("message", "detail", "msg", "error_msg", "error_message", "title")]
    told += [base.get("status_msg")] if isinstance(base, Mapping) else []
    errors = inner.get("errors")
    told += [read_complaint(errors).message] if isinstance(errors, list) else []
    return next(filter(None, map(_read_detail, told)), "")


def _read_detail(value: Any) -> str:
    if isinstance(value, list):
        parts = [f"{part.get('loc', '')}: {part.get('msg', '')}" for part in value if isinstance(part, Mapping)]
        return "; ".join(parts)
    return _read_text(value)


def _read_text(value: Any) -> str:
    if isinstance(value, str):
        return join_surrogates(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
