"""One function-calling case on one model, and what each layer of the server made of it.

One request tells of all layers: the server's report lists every attempt, and the layers are nested in the order in
which they work. So they need no runs of their own, and what they are compared on is the same answer.

    raw       the first attempt, as a call and unrepaired: what a server gives that only reads the model's own form
    repair    the first attempt, found in the text and repaired where nothing was lost
    retries   asked again, told what was wrong or as it was: the re-asks before the first one under a grammar
    grammar   asked again under the tools' grammar

An answer that is delivered at some attempt is that layer's and of all that follow it. What is right is decided here,
against what the case wants. A server without reports shows what it delivers, as one layer (`served`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.evaluate.asking.chat_client import ChatClient, ChatReply
from deployments.evaluate.calls.call_cases import CallCase
from deployments.evaluate.calls.call_score import are_right, are_valid

__all__ = ["LAYERS", "TOKENS_MAX", "find_first_layer", "run_case"]

LAYERS = ("raw", "repair", "retries", "grammar")
TOKENS_MAX = 128
# The re-ask from which on a tier decodes under the grammar (`reliability.escalation.decisions`): the second.
GRAMMAR_FROM = 2


def run_case(client: ChatClient, model: str, case: CallCase, *, seed: int, within_s: float, hasty: bool) -> Any:
    """Ask once; return the result as JSON, or None where it took longer than it may. `hasty`: the first re-ask of this
    server's variant is under the grammar already."""
    body = {
        "model": model,
        "messages": list(case.messages),
        "tools": list(case.tools),
        "temperature": 0,
        "seed": seed,
        "max_tokens": TOKENS_MAX,
    }
    reply = client.ask(body, session=f"evaluate-{model}-{case.id}", within_s=within_s)
    if reply.late:
        return None
    calls = reply.calls
    valid = are_valid(calls, case.tools)
    wanted = [{"name": case.tool, "arguments": case.arguments}]
    return {
        "category": case.category,
        "features": case.features,
        "valid": valid,
        "right": valid and are_right(calls, wanted),
        "layer": find_first_layer(reply, hasty=hasty) if valid else None,
        "tier": reply.tier,
        "seconds": round(reply.seconds, 3),
        "tokens": reply.tokens,
        "cost_usd": reply.cost_usd,
        "attempts": _describe_attempts(reply.attempts),
        "calls": [list(call) for call in calls],
        "error": reply.error,
    }


def find_first_layer(reply: ChatReply, *, hasty: bool) -> str:
    """Find the first layer with which the answer was delivered."""
    if reply.attempts is None:
        return "served"
    ran = [attempt for attempt in reply.attempts if attempt["ran"] and attempt["tier"] == reply.tier]
    if len(ran) <= 1:
        native = bool(ran) and ran[0]["native_calls"] >= len(reply.calls) and not reply.repairs
        return "raw" if native else "repair"
    reasks = sum(1 for attempt in ran if attempt["flaw"])
    return "grammar" if reasks >= (1 if hasty else GRAMMAR_FROM) else "retries"


def _describe_attempts(attempts: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Keep what the learned chain needs of each attempt: who, how long, how much, and why it wasn't good."""
    if attempts is None:
        return None
    return [
        {
            "tier": one["tier"],
            "ran": one["ran"],
            "flaw": one["flaw"],
            "fault": one["fault"],
            "seconds": round(one["elapsed_ms"] / 1000, 3),
            "tokens": (one["usage"] or {}).get("total_tokens", 0),
        }
        for one in attempts
    ]
