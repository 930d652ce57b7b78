"""The record of an incident: one flat, bounded JSON object of one shape; None where a field doesn't apply.

Breaker changes, memory transitions, an operator's orders, expired grants and a journal that was put aside belong to no
request: their writers call `record`. What becomes of a request is reported by `deployments/reports/incidents.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from deployments.state.incident_evidence import cut, fit_evidence, to_plain_json

RECORD_BYTES_MAX = 8192
_ID_BYTES_MAX = 512
_WORD_BYTES_MAX = 128
_FACTS_BYTES_MAX = 2048
FACTS: dict[str, Any] = dict.fromkeys(
    ("model", "generation", "prompt_tokens", "completion_tokens", "ttft_ms", "elapsed_ms", "attempt")
)


class IncidentKind(StrEnum):
    """What happened. The value stands in records and in the filters of the API."""

    LOOP = "loop"
    FLAW = "flaw"
    REPAIR = "repair"
    ESCALATION = "escalation"  # and fallback: `evidence.how` says which
    FAULT = "fault"
    BUDGET = "budget"
    USAGE = "usage"  # a tier reported a cost that an answer can't have had; an estimate is booked
    BREAKER = "breaker"
    MEMORY = "memory"
    SCALING = "scaling"  # a replica that holds memory has come or gone
    OPERATOR = "operator"
    GRANT_EXPIRED = "grant_expired"
    JOURNAL = "journal"  # it could not be read and was put aside: budgets and incidents begin empty


def record(
    kind: IncidentKind,
    *,
    at_s: float,
    reason: str,
    request_id: str | None = None,
    session: str | None = None,
    key: str | None = None,
    tier: str | None = None,
    evidence: Mapping[str, Any] | None = None,
    **facts: Any,
) -> dict[str, Any]:
    """Build one record, bounded and JSON-ready. `evidence` is cut here; the caller decides whether it may be shown at
    all. `at_s`: seconds since the epoch. `key`: the name of the API key, never the key. `facts`: more of the fields
    that `incidents_of` fills (`model`, `attempt`, `ttft_ms`, ...). Raises TypeError for a fact that no record has."""
    unknown = facts.keys() - FACTS.keys()
    if unknown:
        raise TypeError(f"a record has no {', '.join(sorted(unknown))}")
    head = {
        "at": to_plain_json(float(at_s)),
        "kind": kind.value,
        "request_id": shorten(request_id, _ID_BYTES_MAX),
        "session": shorten(session, _ID_BYTES_MAX),
        "key": shorten(key),
        "tier": shorten(tier),
    }
    known = {name: value for name, value in fit_evidence(facts, _FACTS_BYTES_MAX).items() if name in FACTS}
    return head | FACTS | known | {"reason": cut(reason, _WORD_BYTES_MAX), "evidence": fit_evidence(evidence or {})}


def shorten(text: str | None, bytes_max: int = _WORD_BYTES_MAX) -> str | None:
    """Cut a text to its bound; None stays None."""
    return None if text is None else cut(text, bytes_max)
