"""What the configuration says about one request (its chain, its limits), and what the state decides by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from itertools import dropwhile
from types import MappingProxyType

from deployments.config.app_config import RouterConfig, StateConfig
from deployments.errors import ApiError
from deployments.request.timeouts import NS_PER_S
from deployments.state.records import StateLimits
from reliability.admission.admit import AdmissionConfig
from reliability.admission.breaker import BreakerConfig
from reliability.admission.budget import BudgetConfig, Limit
from reliability.admission.ledger import Bounds
from reliability.admission.retry_budget import RetryBudgetLimits
from reliability.answer.estimate import prompt_bytes
from reliability.answer.judgement import Expected, expect
from reliability.answer.wanted_form import WantedForm
from reliability.confidence import ModelCalibration
from reliability.escalation.decisions import Limits, RetryStep, drop_correction
from reliability.loops import may_be_unseen, repeats_already
from reliability.tools import ToolBox
from reliability.types import ChatRequest, Hold, Reason

# Models that agents ask for by themselves.
ALWAYS = dict.fromkeys(
    ("claude-*", "anthropic/claude-*", "gpt-*", "openai/gpt-*", "o1*", "o3*", "o4*", "codex-*"), "auto"
)
# Fields beyond those of `ChatRequest` that an `mlx` tier or the Router reads, and those that change no words.
READ_LOCALLY = frozenset({
    "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "n", "best_of",
    "audio", "modalities", "chat_template_kwargs", "reasoning_effort", "reasoning", "thinking", "max_thinking_tokens",
    "thinking_budget", "conversation", "metadata", "prompt_cache_key", "user", "store", "prompt_cache_retention",
    "cache_prompt",
})  # fmt: skip
WORDLESS = frozenset({"service_tier", "safety_identifier", "client_metadata", "prediction"})
_UNREAD_MAX, _NAME_CHARS_MAX = 16, 60
# A grant lives as long as its request may, and a little longer, so that its settle finds it open.
_GRANT_GRACE_S = 30.0


def chain_for(config: RouterConfig, tiers: Collection[str], model: str) -> tuple[str, ...]:
    """List the tiers that may answer `model`: from the one it names to the end of the chain. A tier outside of the
    chain answers alone, and so does each where `escalation.enabled` is false. Raises `ApiError`: `model_not_found`."""
    escalation = config.reliability.escalation
    name = _resolve(config.server.aliases, tiers, model)
    if name == "auto":
        name = escalation.chain[0]
    if name not in tiers:
        names = ", ".join(("auto", *tiers, *config.server.aliases))
        raise ApiError("model_not_found", f"there is no model {model!r}; models: {names}", param="model")
    if not escalation.enabled or name not in escalation.chain:
        return (name,)
    return escalation.chain[escalation.chain.index(name) :]


def chain_of(
    config: RouterConfig,
    tiers: Collection[str],
    model: str,
    request: ChatRequest,
    calibration: Callable[[str], ModelCalibration | None] = lambda _: None,
    is_ready: Callable[[str], bool] = lambda _: False,
) -> tuple[str, ...]:
    """List the tiers that may answer a request: as `chain_for`, from where `auto` lets it start: by
    `escalation.start_at`, and where it has tools behind a head whose calls would nearly all go on."""
    chain, escalation = chain_for(config, tiers, model), config.reliability.escalation
    if not escalation.enabled or _resolve(config.server.aliases, tiers, model) != "auto":
        return chain
    if escalation.start_at:
        size = prompt_bytes(request.messages, request.tools)
        features = {"tools": len(request.tools), "messages": len(request.messages), "prompt_bytes": size}
        start = next((rule.tier for rule in escalation.start_at if rule.fits(**features)), chain[0])
        chain = chain[chain.index(start) :]
    skips = bool(request.tools and escalation.confidence.min)
    return _skip_doubtful(chain, calibration, is_ready) if skips else chain


def _skip_doubtful(
    chain: tuple[str, ...],
    calibration: Callable[[str], ModelCalibration | None],
    is_ready: Callable[[str], bool],
) -> tuple[str, ...]:
    """Leave out the tiers at the head whose calls are seldom right, where one behind them is ready."""

    def is_doubtful(tier: str) -> bool:
        known = calibration(tier)
        return known is not None and known.is_seldom_right

    behind = tuple(dropwhile(is_doubtful, chain))
    return behind if any(map(is_ready, behind)) else chain


def note_unread(request: ChatRequest, chain: Collection[str], kinds: Mapping[str, str]) -> tuple[str, ...]:
    """Note the fields that only hosted tiers can act on, where another kind of tier may answer."""
    if request.route or all(kinds[tier] == "hosted" for tier in chain):
        return ()
    known = READ_LOCALLY | WORDLESS
    unread = [
        name[:_NAME_CHARS_MAX] for name, value in request.extra.items() if value is not None and name not in known
    ]
    return (f"only hosted tiers read: {', '.join(unread[:_UNREAD_MAX])}",) if unread else ()


def _resolve(aliases: Mapping[str, str], tiers: Collection[str], model: str) -> str:
    """Return the tier or `auto` that a name stands for: an exact alias, then a tier, then the longest pattern; the
    configuration's go before `ALWAYS`."""
    if model in aliases or model in tiers or model == "auto":
        return aliases.get(model, model)
    for known in (aliases, ALWAYS):
        fitting = [pattern for pattern in known if "*" in pattern and fnmatchcase(model, pattern)]
        if fitting:
            return known[max(fitting, key=lambda pattern: (len(pattern.replace("*", "")), pattern))]
    return model


def limits_of(
    config: RouterConfig,
    strategies: Mapping[str, tuple[RetryStep, ...]] = MappingProxyType({}),
    kinds: Mapping[str, str] = MappingProxyType({}),
) -> Limits:
    """Return the limits of the attempt loop, by the retry strategies and the kinds of the tiers."""
    escalation, validation = config.reliability.escalation, config.reliability.tool_validation
    if not validation.retry_with_correction:
        strategies = {tier: drop_correction(steps) for tier, steps in strategies.items()}
    return Limits(
        retries_max=escalation.max_retries_before_escalate,
        shorten=config.reliability.context == "shorten",
        reasks_max=min(validation.max_retries, escalation.max_retries_before_escalate),
        attempts_max=config.server.attempts_max,
        continuations_max=escalation.continuations_max,
        escalate_on=frozenset(Reason(reason.value) for reason in escalation.escalate_on),
        strategies=strategies,
        cheap=escalation.chain[0],
        confidence_min=escalation.confidence.min,
        grammars=frozenset(tier for tier, kind in kinds.items() if kind == "mlx"),
    )


def build_expected(
    config: RouterConfig, request: ChatRequest, toolbox: ToolBox, form: WantedForm | None = None
) -> Expected:
    """Build what the request asks of every answer, under the configured checks."""
    loops = config.reliability.loop_detection
    return expect(
        request.messages,
        toolbox,
        id_seed=request.request_id,
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        checks=config.reliability.tool_validation.checks,
        loops=loops if loops.enabled else None,
        form=form,
        shared=request.session_shared,
    )


def hold_of(config: RouterConfig, expected: Expected, *, stream: bool) -> Hold:
    """Return what is held until the whole answer is judged. All of it, where the client doesn't stream, where the text
    or a forced call must be of a form, where it is a summary, and where the conversation repeats itself."""
    if (
        not stream
        or expected.form is not None
        or expected.forced is not None
        or expected.ordered is not None
        or may_be_unseen(expected.ask)
        or (expected.loops is not None and repeats_already(expected.turns, expected.loops, expected.memo))
    ):
        return Hold.ALL
    return config.reliability.streaming.hold


def state_limits(config: RouterConfig, state: StateConfig, key_hours: Mapping[str, int]) -> StateLimits:
    """Return what the state decides by. `key_hours`: the tokens an hour of the keys that have a limit of their own."""
    loops, health = config.reliability.loop_detection, config.reliability.tier_health
    retries = config.reliability.retry_budget
    breaker = BreakerConfig(
        failures_max=health.failures_max,
        rate_percent=health.rate_percent,
        rate_calls_min=health.rate_calls_min,
        rate_window_ns=_ns(health.rate_window_s),
        open_ns=_ns(health.open_s),
        open_max_ns=_ns(max(health.open_s, health.open_max_s)),
        retry_after_max_ns=_ns(health.retry_after_max_s),
        permit_ns=_ns(config.server.deadline_s + _GRANT_GRACE_S),
    )
    admission = AdmissionConfig(
        breaker=breaker,
        budget=_budget_of(config, state, key_hours),
        retries=RetryBudgetLimits(
            share_percent=retries.share_percent, floor=retries.floor, window_ns=_ns(retries.window_s)
        ),
        memory=config.reliability.memory_pressure.rules,
    )
    digest = hashlib.sha256(f"{admission!r} {loops.model_dump_json()}".encode()).hexdigest()[:16]
    return StateLimits(digest=digest, admission=admission, loops=loops)


def _budget_of(config: RouterConfig, state: StateConfig, key_hours: Mapping[str, int]) -> BudgetConfig:
    tokens = config.reliability.token_budget
    return BudgetConfig(
        session=Limit(tokens_max=tokens.per_session if tokens.enabled else None, policy=tokens.policy),
        hour=Limit(tokens_max=tokens.per_hour if tokens.enabled else None, policy=tokens.policy),
        key_hours={key: Limit(tokens_max=limit, policy=tokens.policy) for key, limit in key_hours.items()},
        output_tokens_max=tokens.max_output_tokens,
        output_tokens_default=tokens.max_output_tokens,
        reservation_ns=_ns(config.server.deadline_s + _GRANT_GRACE_S),
        bounds=Bounds(session_ttl_ns=_ns(state.session_ttl_s), sessions_max=state.sessions_max),
    )


def _ns(seconds: float) -> int:
    return int(seconds * NS_PER_S)
