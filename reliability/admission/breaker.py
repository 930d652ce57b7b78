"""One circuit breaker per tier: it keeps requests away from a tier that is unwell, and lets it come back.

    CLOSED     requests run. Failures in a row, or a share of failures in a window, open it. A failure with the tier's
               own Retry-After opens it at once, for that bounded time only.
    OPEN       nothing runs until `until_ns`. Only time, or a person (`close`), leaves this state.
    HALF_OPEN  one request runs as a probe, and one more for each `open_max_ns` in which none of them ends. A failed
               probe opens again, for longer; a good one closes.

The failures of one API key in a row open nothing while the newest call of another key succeeded, within the window of
the rate. The first failure of a second key ends that, so an outage opens as it would with one key.

`isolated` is a hold by hand beside the state. A `Permit` has a generation (the number of the current state), a number
and an expiry; a settle counts only while its permit is outstanding, unexpired and of the current generation. IGNORED
returns the permit and changes nothing else: a cancelled call says nothing of the tier.

Open time doubles with every opening in a row, up to `open_max_ns`, counted from the beginning of the failed probe; each
`calm_ns` spent CLOSED takes one opening back. So a tier that is back runs the first request that comes `open_max_ns`
after the last probe began, and one that is still away costs at most one request in each `open_max_ns`.

Invariants: no success or cancel opens; only a probe's success closes; no probe slot is lost for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from reliability.rolling import EMPTY, SECOND_NS, Rolling, Span
from reliability.types import Verdict

_OPENINGS_MAX = 32  # doublings remembered; beyond it open_max_ns has long been reached
_PERMITS_MAX = 1024  # outstanding permits remembered; beyond it the oldest is forgotten, as if ignored
_RATE_BUCKETS = 10  # the failure window is this fine
_WELL_MAX = 2  # keys remembered whose newest call succeeded: one of them may be the one that fails
_PROBE_WAIT_NS = SECOND_NS  # the wait of a request that finds all probe slots taken


class Phase(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Cause(StrEnum):
    """Why a breaker changed or rejected."""

    CONSECUTIVE = "consecutive_failures"
    RATE = "failure_rate"
    RETRY_AFTER = "retry_after"
    PROBE_FAILED = "probe_failed"
    PROBE_SUCCEEDED = "probe_succeeded"
    OPEN = "open"
    PROBING = "probing"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """Limits of one breaker, at least 1 each. None turns a rule off."""

    failures_max: int | None = 5
    rate_percent: int | None = 50
    rate_calls_min: int = 20
    rate_window_ns: int = 60 * SECOND_NS
    open_ns: int = 5 * SECOND_NS
    open_max_ns: int = 10 * SECOND_NS
    calm_ns: int = 60 * SECOND_NS
    retry_after_max_ns: int = 600 * SECOND_NS  # 0: a tier's Retry-After is not honoured
    permit_ns: int = 900 * SECOND_NS

    @property
    def span(self) -> Span:
        """The window of the failure rate."""
        return Span(self.rate_window_ns, self.rate_window_ns // _RATE_BUCKETS)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of one tier's breaker. `permits`: the outstanding ones by number, with their expiry. `probed_ns`: when
    the last probe began. `failing`: the keys of the failures in a row, two at most; `well`: the last keys whose newest
    call succeeded, each with its time."""

    phase: Phase = Phase.CLOSED
    generation: int = 0
    since_ns: int = 0
    until_ns: int = 0
    openings: int = 0
    consecutive: int = 0
    failing: tuple[str, ...] = ()
    well: tuple[tuple[str, int], ...] = ()
    calls: Rolling = EMPTY
    failures: Rolling = EMPTY
    issued: int = 0
    probed_ns: int = 0
    permits: Mapping[int, int] = field(default_factory=dict)
    isolated: bool = False


@dataclass(frozen=True, slots=True)
class Permit:
    """The right of an API key to run one call. It is settled once, or expires."""

    generation: int
    number: int
    probe: bool
    expires_ns: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class BreakerRejection:
    """No call now. `retry_after_ns` is None where only a person can help."""

    cause: Cause
    retry_after_ns: int | None


@dataclass(frozen=True, slots=True)
class Change:
    """A move from one phase to another, for the record of incidents."""

    before: Phase
    after: Phase
    cause: Cause


def phase_at(breaker: Breaker, now_ns: int) -> Phase:
    """Return the phase that an `admit` at this moment would meet."""
    if breaker.phase is Phase.OPEN and now_ns >= breaker.until_ns:
        return Phase.HALF_OPEN
    return breaker.phase


def admit(
    breaker: Breaker, config: BreakerConfig, now_ns: int, hold_ns: int | None = None, key: str = ""
) -> tuple[Breaker, Permit | BreakerRejection]:
    """Ask for a permit that is held for `hold_ns` at most. A rejection changes nothing."""
    if breaker.isolated:
        return breaker, BreakerRejection(Cause.ISOLATED, None)
    phase = phase_at(breaker, now_ns)
    if phase is Phase.OPEN:
        return breaker, BreakerRejection(Cause.OPEN, breaker.until_ns - now_ns)
    ready = breaker if phase is breaker.phase else _enter_phase(breaker, phase, now_ns)
    live = _find_live_permits(ready, now_ns)
    beside_ns = ready.probed_ns + config.open_max_ns - now_ns  # until a probe may run beside those that hang
    if phase is Phase.HALF_OPEN and live and beside_ns > 0:
        return breaker, BreakerRejection(Cause.PROBING, min(_PROBE_WAIT_NS, beside_ns, min(live.values()) - now_ns))
    hold = config.permit_ns if hold_ns is None else min(max(hold_ns, 0), config.permit_ns)
    permit = Permit(ready.generation, ready.issued, phase is Phase.HALF_OPEN, now_ns + hold, key)
    live[permit.number] = permit.expires_ns
    if len(live) > _PERMITS_MAX:
        del live[next(iter(live))]
    probed_ns = now_ns if permit.probe else ready.probed_ns
    return replace(ready, issued=ready.issued + 1, permits=live, probed_ns=probed_ns), permit


def settle(
    breaker: Breaker, config: BreakerConfig, permit: Permit, verdict: Verdict, now_ns: int, retry_after_ns: int = 0
) -> tuple[Breaker, Change | None]:
    """Give a permit back with what its call says about the tier."""
    expires_ns = breaker.permits.get(permit.number)
    if expires_ns is None or permit.generation != breaker.generation:
        return breaker, None
    rest = dict(breaker.permits)
    del rest[permit.number]
    returned = replace(breaker, permits=rest)
    if verdict is Verdict.IGNORED or now_ns >= expires_ns:
        return returned, None
    if verdict is Verdict.FAILURE:
        rest_ns = min(max(retry_after_ns, 0), config.retry_after_max_ns)
        return _record_failure(returned, config, permit.key, now_ns, rest_ns)
    well = (*_find_well(breaker, permit.key)[1 - _WELL_MAX :], (permit.key, now_ns))
    if breaker.phase is Phase.CLOSED:
        calls = breaker.calls.add(config.span, 1, now_ns)
        return replace(returned, consecutive=0, failing=(), well=well, calls=calls), None
    closed = replace(_enter_phase(breaker, Phase.CLOSED, now_ns), well=well)
    return closed, Change(breaker.phase, Phase.CLOSED, Cause.PROBE_SUCCEEDED)


def close(breaker: Breaker, now_ns: int) -> Breaker:
    """Close by hand: all failures and openings are forgotten, and results of calls from before say nothing."""
    if breaker.phase is Phase.CLOSED:
        return breaker
    return replace(_enter_phase(breaker, Phase.CLOSED, now_ns), openings=0)


def _record_failure(
    breaker: Breaker, config: BreakerConfig, key: str, now_ns: int, rest_ns: int
) -> tuple[Breaker, Change | None]:
    if breaker.phase is Phase.HALF_OPEN:
        openings, cause = breaker.openings + 1, Cause.PROBE_FAILED
    else:
        breaker = replace(
            breaker,
            consecutive=breaker.consecutive + 1,
            failing=breaker.failing if key in breaker.failing else (*breaker.failing[:1], key),
            well=_find_well(breaker, key),
            calls=breaker.calls.add(config.span, 1, now_ns),
            failures=breaker.failures.add(config.span, 1, now_ns),
        )
        others_well = any(now_ns - at_ns < config.rate_window_ns for _, at_ns in breaker.well)
        one_keys_own = others_well and len(breaker.failing) == 1
        tripped = None if one_keys_own else _find_trip_cause(breaker, config)
        if tripped is None and rest_ns == 0:
            return breaker, None
        calm = max(0, now_ns - breaker.since_ns) // config.calm_ns
        openings = max(0, breaker.openings - calm) + (tripped is not None)
        cause = tripped or Cause.RETRY_AFTER
    began_ns = breaker.probed_ns if cause is Cause.PROBE_FAILED else now_ns
    doubled_ns = min(config.open_ns << min(max(openings - 1, 0), _OPENINGS_MAX), config.open_max_ns)
    open_ns = 0 if cause is Cause.RETRY_AFTER else doubled_ns
    opened = replace(
        _enter_phase(breaker, Phase.OPEN, now_ns),
        openings=min(openings, _OPENINGS_MAX),
        until_ns=max(now_ns + rest_ns, began_ns + open_ns),
    )
    return opened, Change(breaker.phase, Phase.OPEN, cause)


def _find_well(breaker: Breaker, key: str) -> tuple[tuple[str, int], ...]:
    """Return the other keys whose newest call succeeded."""
    return tuple(each for each in breaker.well if each[0] != key)


def _find_trip_cause(breaker: Breaker, config: BreakerConfig) -> Cause | None:
    if config.failures_max is not None and breaker.consecutive >= config.failures_max:
        return Cause.CONSECUTIVE
    calls = breaker.calls.total
    if config.rate_percent is None or calls < config.rate_calls_min:
        return None
    return Cause.RATE if breaker.failures.total * 100 >= config.rate_percent * calls else None


def _enter_phase(breaker: Breaker, phase: Phase, now_ns: int) -> Breaker:
    """Build a new state and generation: all older permits are void, all counts start again."""
    generation, openings, isolated = breaker.generation + 1, breaker.openings, breaker.isolated
    return Breaker(phase=phase, generation=generation, since_ns=now_ns, openings=openings, isolated=isolated)


def _find_live_permits(breaker: Breaker, now_ns: int) -> dict[int, int]:
    """Return the unexpired permits. While many may run, sift only when the oldest one is over."""
    permits = breaker.permits
    if breaker.phase is Phase.CLOSED and (not permits or next(iter(permits.values())) > now_ns):
        return dict(permits)
    return {number: expires_ns for number, expires_ns in permits.items() if expires_ns > now_ns}
