"""The nouns that the core and the shell share.

All are frozen values. Times are integers in nanoseconds (`_ns`) inside the core and floats in seconds (`_s`) where a
person configures them. An *attempt* is one call to one tier, which sends back a stream of *events*, in this order:

    Started? (Prefilled | Text | Logprobs | Reasoning | Refusal | CallDelta | Counted)* (Finish | Failed)

Before `Started` the request waits for a replica. Exactly one `Finish` or `Failed` ends the stream, and a tier never
raises what it can say as `Failed`.

A *fault* says that the tier is unwell; a *flaw* says that its answer is not good enough. They never mix: a fault
feeds the breaker, a flaw feeds escalation. What follows from each stands in `reliability.faults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from reliability.prefix import LostPrefix
from reliability.thinking import ThoughtEnd

#: The roles of messages that are neither a person's nor the model's.
SYSTEM_ROLES = ("system", "developer")


class Fault(StrEnum):
    """Why a tier could not answer. The value stands in reports and metrics."""

    UNAVAILABLE = "unavailable"  # no package, model, key or replica: nothing was run
    LOADING = "loading"  # the model is still on its way: nothing was run
    OVERLOADED = "overloaded"  # a full queue, 429, 503 with Retry-After
    AUTH = "auth"  # the tier refused our credentials (401, 403)
    CONNECT_TIMEOUT = "connect_timeout"  # no replica took the request in time
    FIRST_TOKEN_TIMEOUT = "first_token_timeout"
    IDLE_TIMEOUT = "idle_timeout"  # silence between two chunks
    TOTAL_TIMEOUT = "total_timeout"
    DEADLINE = "deadline"  # the request's own time is over, which says nothing of the tier
    SERVER_ERROR = "server_error"  # 5xx, or an error inside the tier
    CRASHED = "crashed"  # the connection or the replica died
    PROTOCOL = "protocol"  # an answer that can't be read: malformed SSE, not JSON
    SEAM = "seam"  # words that don't go on with the text that stands before the client
    CONTEXT_LENGTH = "context_length"  # the prompt doesn't fit this tier
    UNSUPPORTED = "unsupported"  # this tier can't do what the request asks (another may)
    REFUSED = "refused"  # the tier refused the request (4xx), and another may take it
    BAD_REQUEST = "bad_request"  # the request itself is wrong, or its content is refused
    UNJUDGED = "unjudged"  # this server was too busy to check the answer, which says nothing of the tier
    # Not the tier's answer: admission rejected the call, and nothing was run.
    BREAKER_OPEN = "breaker_open"
    RETRY_BUDGET = "retry_budget"  # too many extra calls in the last minute
    BUDGET = "budget"
    MEMORY_PRESSURE = "memory_pressure"
    STATE_SILENT = "state_silent"  # admission didn't answer, and this tier costs money
    CLOUD_BARRED = "cloud_barred"  # the request, or its key, must not leave the machine


class Hold(StrEnum):
    """What is held until the whole answer is there."""

    TOOL_CALLS = "tool_calls"
    ALL = "all"


class Flaw(StrEnum):
    """Why an answer that did arrive is not good enough."""

    TOOL_CALL_INVALID = "tool_call_invalid"
    LOOP = "loop"  # the answer is the next repetition of a loop: worth a nudge
    CIRCUIT_BREAK = "circuit_break"  # the loop has gone on for too long
    CYCLE = "cycle"  # the answer repeats itself within itself
    EMPTY = "empty"
    TRUNCATED = "truncated"  # cut by the token limit in the middle of a call
    FORM_INVALID = "form_invalid"  # the text isn't the JSON that `response_format` asks for
    DOUBT = "doubt"  # valid, and probably not right


class Verdict(StrEnum):
    """What an attempt says about the health of its tier. A client that left says nothing: ignored."""

    SUCCESS = "success"
    FAILURE = "failure"
    IGNORED = "ignored"


class Reason(StrEnum):
    """Why a request moved to another tier: the values of the header `X-MLX-Stack-Escalation-Reason`."""

    TOOL_VALIDATION_FAILURE = "tool_validation_failure"
    LOOP_DETECTED = "loop_detected"
    TIMEOUT = "timeout"
    SERVER_ERROR = "server_error"
    MEMORY_PRESSURE = "memory_pressure"
    BUDGET = "budget"
    CONTEXT_LENGTH = "context_length"
    LOW_CONFIDENCE = "low_confidence"


class RefuseCode(StrEnum):
    """Why a request gets no answer. Each has one row in the error table of `deployments/errors.py`."""

    BAD_REQUEST = "bad_request"
    UNSUPPORTED = "unsupported"
    CONTEXT_LENGTH = "context_length"
    NO_TIER = "no_tier"
    NO_TIER_EVER = "no_tier_ever"
    LOADING = "loading"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    UPSTREAM = "upstream"
    DEADLINE = "deadline"
    BROKEN_STREAM = "broken_stream"
    INVALID_ANSWER = "invalid_answer"
    LOOP = "loop"
    BUDGET = "budget"
    RATE = "rate"
    MEMORY_PRESSURE = "memory_pressure"
    CLOUD_BARRED = "cloud_barred"
    STOPPING = "stopping"


class FinishReason(StrEnum):
    """OpenAI's values, and no others: clients break on unknown ones."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one attempt. `exact` is False where they were counted here, for want of the tier's own count."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    exact: bool = True

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together; reasoning tokens are part of the completion, cached ones of the prompt."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One complete tool call. `arguments` is the JSON text of an object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One request in the form that every tier takes. `messages` and `tools` are OpenAI chat-completions values.
    `max_tokens`: the output cap; `max_tokens_named` is False where it is the server's. `extra`: fields that this server
    doesn't know; hosted tiers pass them on. `timeout_s`: what is left of the deadline; `body_bytes`: the size of the
    body. `constrained` asks a tier that can to decode under the tools' grammar, and `must_look` that it calls one of
    these; `calls_tried`: how many calls the model wrote when it was free. `top_logprobs`: how many of the
    likeliest tokens to name at each place, or None. `thinking`: whether the model is to reason first; None: as it does
    by itself; `thinking_tokens_max`: with how many tokens at most. `route`: another route of a hosted tier's API
    (`/completions`), whose body is `extra`; `messages` is then what a model reads of it, to be measured. `keep`: what a
    tier computes for it may outlive the process; no text ever does. `key`: the API key of the session. `added`: how
    many messages at the end are this server's own. `must_speak`: the last attempt said nothing, so this one must not
    end before a word. `begun`: how the answer begins that is to be continued, and its reasoning. `streamed`: False: it
    is wanted whole, and leaves in fewer pieces. `parent`: the session that this one helps, whose budget it spends.
    `session_shared`: requests of many tasks may belong to the session. `loader`: the name of the tool behind which the
    server has deferred the tools, or empty. `searched`: tools that the client's own search has put into the
    conversation. `summarizes`: its newest message is this server's order for a summary of those before it."""

    request_id: str
    session_id: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int
    timeout_s: float
    max_tokens_named: bool = True
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    thinking: bool | None = None
    thinking_tokens_max: int | None = None
    keep: bool = True
    body_bytes: int = 0
    constrained: bool = False
    must_look: tuple[str, ...] = ()
    route: str = ""
    calls_tried: int = 0
    key: str = ""
    added: int = 0
    must_speak: bool = False
    begun: str = ""
    begun_reasoning: str = ""
    streamed: bool = True
    parent: str = ""
    session_shared: bool = False
    loader: str = ""
    searched: frozenset[str] = frozenset()
    summarizes: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """A replica took the request and works on it. `lost`: what it can't go on from, where it rendered the prompt."""

    lost: LostPrefix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilled:
    """The tier has read `tokens` of the `of_tokens` of a long prompt, cached ones included; the rest takes about
    `left_s`. `waits_behind`: it isn't read yet, and so many are before it."""

    tokens: int
    of_tokens: int
    left_s: float
    waits_behind: int | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer's text. Never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token by its bytes, which need not be whole characters, and ln of its probability; `top`: the likeliest."""

    raw: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Logprobs:
    """The next tokens of the answer's text. They come with their text or behind it, never before. Never empty."""

    tokens: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the model's reasoning. Never empty. `anew`: another attempt's, behind that of one before."""

    text: str
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A piece of the words with which the model declines to answer. Never empty. It is an answer: it isn't judged."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDelta:
    """A piece of a tool call, in OpenAI's streaming form: `id` and `name` come with the first piece of an index."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens that this attempt has cost so far. One that is not `exact` is an estimate of the completion alone."""

    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The answer is complete. Each field is None where the tier doesn't know. `notes`: what was done less strictly than
    it was asked for, in words for the report. `damaged`: a piece of it was lost on the way. `stop`: the stop sequence
    that ended it. `sampled`: its temperature and its top-p. `unsure`: the tokens that the model was unsure of, in
    order, each with -ln of its probability against the next likeliest. `thought`: what ended its reasoning."""

    reason: FinishReason
    usage: Usage | None = None
    model: str | None = None
    notes: tuple[str, ...] = ()
    damaged: bool = False
    stop: str | None = None
    sampled: tuple[float, float] | None = None
    unsure: tuple[tuple[str, float], ...] | None = None
    thought: ThoughtEnd | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The attempt broke. `message` is fit for a client: no key, no path, no stack. `param`: the request field that is
    the cause. `usage`: what was spent all the same. `lost`: the process that worked on it is gone."""

    fault: Fault
    message: str
    retry_after_s: float | None = None
    status: int | None = None
    param: str | None = None
    usage: Usage | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Passed:
    """A piece of the answer of another API than chat (`ChatRequest.route`): a part of one JSON body, or all of one
    frame. `text_bytes`: how much of it a model has written."""

    data: bytes
    text_bytes: int = 0


Event = Started | Prefilled | Text | Logprobs | Reasoning | Refusal | CallDelta | Passed | Counted | Finish | Failed
# For `isinstance` with each piece of an answer: a union would be built anew each time.
ENDS = (Finish, Failed)
WRITTEN = (Text, Reasoning, Refusal)


class TierState(StrEnum):
    """What `/ready` and `/v1/models` say of a tier."""

    READY = "ready"
    LOADING = "loading"
    ASLEEP = "asleep"  # scaled to zero: no replica runs, and a request starts one
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """A tier's report on itself. `reason` is empty only when it is ready. `batched_as_alone`: whether answers that are
    generated together come out as each alone, by the check at the start; False: each is generated alone; None: the tier
    answers one request at a time anyway. `sha256`: of the weights (of the file that they were made from, for a
    wheel's); `adapter`: with its digest; `versions`: of the packages that generate. `warning`: what it can't do well
    though it is ready. `mlx_peak_bytes`: the most memory that MLX has held in the replica that was asked.
    `download_bytes`: the size of a model that can be fetched."""

    name: str
    kind: str
    state: TierState
    reason: str = ""
    model: str | None = None
    source: str | None = None
    revision: str | None = None
    quantization: str | None = None
    sha256: str | None = None
    adapter: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    context_tokens: int | None = None
    batched_as_alone: bool | None = None
    warning: str | None = None
    mlx_peak_bytes: int | None = None
    download_bytes: int | None = None
