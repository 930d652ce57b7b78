"""Small sabotages of the state reducers and the gate: the law that each one breaks must notice.

Each entry is (file, old text, new text, law); the old text stands in the file exactly once.
"""

from __future__ import annotations

MUTANTS: list[tuple[str, str, str, str]] = [
    # journal
    (
        "deployments/state/recovery.py",
        '    if _layout(path).endswith(" hub"):\n',
        "    if False:\n",
        "books that lie in several journals are refused, not read in part",
    ),
    (
        "deployments/state/recovery.py",
        '    if _layout(path).endswith(" hub"):\n',
        "    if _layout(path):\n",
        "the books of one actor go on",
    ),
    # leases
    (
        "reliability/memory/leases.py",
        "    if wanted_bytes > free_bytes:",
        "    if wanted_bytes > free_bytes + 1:",
        "a grant never exceeds the budget",
    ),
    (
        "reliability/memory/leases.py",
        "    held = _without(leases.held, holder)\n",
        "    held = leases.held\n",
        "asking again replaces what one holds",
    ),
    (
        "reliability/memory/leases.py",
        "    if level is Level.CRITICAL:",
        "    if level is Level.UNKNOWN:",
        "nothing is loaded at critical",
    ),
    (
        "reliability/memory/leases.py",
        "    return Leases({**leases.held, holder: lease}, _without(leases.waiting, holder))",
        "    return Leases({**leases.held, holder: lease}, leases.waiting)",
        "nobody holds and waits at once",
    ),
    (
        "reliability/memory/leases.py",
        "    lease = Lease(tier, max(0, held_bytes), known.since_ns if known else now_ns, now_ns + ttl_ns)",
        "    lease = known or Lease(tier, max(0, held_bytes), now_ns, now_ns + ttl_ns)",
        "a holder that renews keeps its bytes",
    ),
    # breaker
    (
        "reliability/admission/breaker.py",
        "if verdict is Verdict.IGNORED or now_ns >= expires_ns:",
        "if now_ns >= expires_ns:",
        "a cancel changes nothing but returns the slot",
    ),
    (
        "reliability/admission/breaker.py",
        "if verdict is Verdict.IGNORED or now_ns >= expires_ns:",
        "if verdict is Verdict.IGNORED:",
        "an expired permit says nothing",
    ),
    (
        "reliability/admission/breaker.py",
        "if expires_ns is None or permit.generation != breaker.generation:",
        "if expires_ns is None:",
        "a late result of an older state is void",
    ),
    (
        "reliability/admission/breaker.py",
        "    del rest[permit.number]\n",
        "",
        "a second settle changes nothing",
    ),
    (
        "reliability/admission/breaker.py",
        "len(live) >= config.probes_max and beside_ns > 0:",
        "len(live) > config.probes_max and beside_ns > 0:",
        "probes are bounded",
    ),
    (
        "reliability/admission/breaker.py",
        "if breaker.phase is Phase.OPEN and now_ns >= breaker.until_ns:",
        "if breaker.phase is Phase.OPEN and now_ns >= breaker.since_ns:",
        "only time leaves OPEN",
    ),
    (
        "reliability/admission/breaker.py",
        "if breaker.successes + 1 < config.probe_successes:",
        "if breaker.successes + 2 < config.probe_successes:",
        "as many good probes as asked for close",
    ),
    (
        "reliability/admission/breaker.py",
        "return replace(breaker, consecutive=0, calls=",
        "return replace(breaker, calls=",
        "a success starts the count of failures again",
    ),
    (
        "reliability/admission/breaker.py",
        "if config.rate_percent is None or calls < config.rate_calls_min:",
        "if config.rate_percent is None:",
        "a share of too few calls opens nothing",
    ),
    (
        "reliability/admission/breaker.py",
        "openings, cause = breaker.openings + 1, Cause.PROBE_FAILED",
        "openings, cause = breaker.openings, Cause.PROBE_FAILED",
        "open time grows",
    ),
    (
        "reliability/admission/breaker.py",
        "OPENINGS_MAX), config.open_max_ns)",
        "OPENINGS_MAX), config.open_max_ns * 2)",
        "open time is bounded",
    ),
    (
        "reliability/admission/breaker.py",
        "max(0, breaker.openings - calm)",
        "max(0, breaker.openings)",
        "open time decays when healthy",
    ),
    (
        "reliability/admission/breaker.py",
        "min(max(retry_after_ns, 0), config.retry_after_max_ns)",
        "max(retry_after_ns, 0)",
        "Retry-After is bounded",
    ),
    (
        "reliability/admission/breaker.py",
        "until_ns=max(now_ns + rest_ns, began_ns + open_ns)",
        "until_ns=began_ns + open_ns",
        "Retry-After lengthens an opening",
    ),
    (
        "reliability/admission/breaker.py",
        "    if breaker.isolated:\n        return breaker, BreakerRejection(Cause.ISOLATED, None)\n",
        "",
        "an isolated tier gets nothing",
    ),
    (
        "reliability/admission/breaker.py",
        "    if len(live) > PERMITS_MAX:\n        del live[next(iter(live))]\n",
        "",
        "outstanding permits are bounded",
    ),
    # rolling sums, persistent mapping
    (
        "reliability/rolling.py",
        "return (number + 1) * span.bucket_ns + span.window_ns",
        "return number * span.bucket_ns + span.window_ns",
        "a sum never says too little",
    ),
    (
        "reliability/rolling.py",
        "number * span.bucket_ns + span.window_ns > now_ns",
        "(number + 1) * span.bucket_ns + span.window_ns > now_ns",
        "an inner sum never says too much",
    ),
    (
        "reliability/rolling.py",
        "if kept.buckets and kept.buckets[-1][0] >= number:",
        "if kept.buckets and kept.buckets[-1][0] == number:",
        "a clock that steps back keeps entries",
    ),
    (
        "reliability/admission/shards.py",
        "        rest = dict(old)\n",
        "        rest: dict[str, V] = old  # type: ignore[assignment]\n",
        "older versions of a mapping stay as they were",
    ),
    # budget
    (
        "reliability/admission/budget.py",
        "if load.tokens > load.tokens_max",
        "if load.tokens > load.tokens_max + 1",
        "spent and reserved never exceed the limit",
    ),
    (
        "reliability/admission/budget.py",
        "tokens = max(0, request.prompt_tokens) + cap\n",
        "tokens = max(0, request.prompt_tokens)\n",
        "a reservation covers the output",
    ),
    (
        "reliability/admission/budget.py",
        "charged = max(estimate_charge(held), tokens or 0)",
        "charged = tokens or 0",
        "an expired reservation is charged what is known",
    ),
    (
        "reliability/admission/budget.py",
        "    budget, late = forget_expired(budget, name)\n",
        "    late = budget.expired.get(name)\n",
        "an expired reservation is settled late once",
    ),
    (
        "reliability/admission/ledger.py",
        "    return max(known, min(held.tokens, known + held.slack))",
        "    return held.tokens",
        "a call that nobody settles is charged what it said",
    ),
    (
        "reliability/admission/ledger.py",
        "held.tokens - held.output_cap if held.used is None else held.used",
        "held.used or 0",
        "a prompt that may have been read is charged",
    ),
    (
        "reliability/admission/budget.py",
        "charged = held.tokens if tokens is None else max(0, tokens)",
        "charged = held.tokens if tokens is None else min(held.tokens, max(0, tokens))",
        "an overrun is charged in full",
    ),
    (
        "reliability/admission/budget.py",
        "    if held is not None:\n        full = loads",
        "    if False and held is not None:\n        full = loads",
        "a reservation is made once per name",
    ),
    (
        "reliability/admission/budget.py",
        "elif Policy.ESCALATE in policies and not request.cheap:",
        "elif Policy.ESCALATE in policies:",
        "under escalate the session goes on on the cheap tier",
    ),
    (
        "reliability/admission/budget.py",
        "if load.percent >= config.warn_percent)",
        "if load.percent > config.warn_percent)",
        "warnings start at eighty percent",
    ),
    (
        "reliability/admission/budget.py",
        "return max(-(-wait_ns // SECOND_NS),",
        "return max(wait_ns // SECOND_NS // 2,",
        "retry_after is exact",
    ),
    (
        "reliability/admission/budget.py",
        "return wanted if config.output_tokens_max is None else min(wanted, config.output_tokens_max)",
        "return wanted",
        "output is capped",
    ),
    (
        "reliability/admission/ledger.py",
        "session = Session(known.spent + charged, known.reserved - held.tokens, known.open - 1, now_ns)",
        "session = Session(known.spent + charged, known.reserved - charged, known.open - 1, now_ns)",
        "what is not used returns",
    ),
    (
        "reliability/admission/ledger.py",
        "return Hour(add_amount(hour.spent, HOUR, charged, now_ns), hour.reserved - reserved)",
        "return Hour(hour.spent, hour.reserved - reserved)",
        "the hour remembers what was spent",
    ),
    (
        "reliability/admission/ledger.py",
        "for name, session in shard.items() if session.open == 0]",
        "for name, session in shard.items()]",
        "a session with open reservations doesn't leave",
    ),
    (
        "reliability/admission/ledger.py",
        "return session.open == 0 and now_ns - session.used_ns >= bounds.session_ttl_ns",
        "return False",
        "idle sessions leave",
    ),
    (
        "reliability/admission/ledger.py",
        'return f"{len(key)}:{key}{session}"',
        'return f"{key}{session}"',
        "a session belongs to its key",
    ),
    # retry budget
    (
        "reliability/admission/retry_budget.py",
        "if spent.total >= allowed:",
        "if spent.total > allowed:",
        "extra calls are a bounded share",
    ),
    (
        "reliability/admission/retry_budget.py",
        "inner_total(budget.first, span, now_ns)",
        "drop_expired(budget.first, span, now_ns).total",
        "the share holds between the edges of buckets",
    ),
    # admission
    (
        "reliability/admission/budget.py",
        "return IN_FLIGHT_RETRY_S if load.tokens - load.reserved <= load.tokens_max else None",
        "return None",
        "what open calls hold comes back",
    ),
    (
        "reliability/admission/breaker.py",
        "    return replace(_enter_phase(breaker, Phase.CLOSED, now_ns), openings=0)\n",
        "    return replace(breaker, phase=Phase.CLOSED)\n",
        "a breaker that is closed by hand has no past",
    ),
    (
        "reliability/admission/admit.py",
        "        return state, _reject_by_budget(request.tier, reserved)\n",
        "        return _with_breaker(state, request.tier, breaker), _reject_by_budget(request.tier, reserved)\n",
        "a rejection by the budget leaks no permit",
    ),
    (
        "reliability/admission/admit.py",
        '        return state, Rejection(request.tier, RejectedBy.RETRY_BUDGET, "too many extra calls", wait_s)\n',
        "        return replace(state, budget=budget), Rejection(request.tier, RejectedBy.RETRY_BUDGET, "
        '"too many extra calls", wait_s)\n',
        "a rejection by the retry budget leaks no reservation",
    ),
    (
        "reliability/admission/admit.py",
        "says = Verdict.IGNORED if closed.expired else verdict",
        "says = Verdict.FAILURE if closed.expired else verdict",
        "a grant that expires says nothing of its tier",
    ),
    (
        "reliability/admission/admit.py",
        "        grants=state.grants.drop(closed.name),\n",
        "        grants=state.grants,\n",
        "a settled grant is gone",
    ),
    (
        "reliability/admission/admit.py",
        'name = f"{state.epoch}:{state.granted}"',
        'name = f"{state.epoch}{state.granted}"',
        "grant names are unique over restarts",
    ),
    (
        "reliability/admission/memory_rules.py",
        "if not request.local or request.level not in (Level.WARN, Level.CRITICAL):",
        "if not request.local or request.level is Level.NORMAL:",
        "unknown pressure rejects nothing",
    ),
    (
        "reliability/admission/memory_rules.py",
        '    if request.sustained_ns < rules.sustained_ns:\n        return ""\n',
        "",
        "complex requests move only under sustained pressure",
    ),
    (
        "reliability/admission/events.py",
        "return admission.settle(state, config, grant_id, verdict, usage, now_ns, retry_after_ns)",
        "return admission.settle(state, config, grant_id, verdict, None, now_ns, retry_after_ns)",
        "a replay gives the state that was lost",
    ),
]
