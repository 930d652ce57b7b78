"""One function-calling case on one model, and which layer of the server delivered the answer.

    raw       the first attempt, in the model's own form, unrepaired
    repair    the first attempt, found in the text or repaired without loss
    retries   the re-asks before the first one under a grammar
    grammar   re-asks under the tools' grammar

The server's report lists each attempt, so one request tells of all layers. A server without reports has one layer,
`served`. Valid fits the tool's schema; right is valid and one of the acceptable calls, or words where no tool fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator

from deployments.evaluate.asking.chat_client import ChatClient, ChatReply
from deployments.evaluate.calls.call_cases import CallCase
from deployments.work.json_text import load_object

Wanted = Mapping[str, Any]


def are_right(calls: Sequence[tuple[str, str]], wanted: Sequence[Wanted]) -> bool:
    """Tell whether the calls are the wanted ones, in any order: `name`, and `arguments` with the values that count."""
    left = list(wanted)
    for name, arguments in calls:
        given = load_object(arguments)
        hit = next((one for one in left if one["name"] == name and given is not None and _fits(given, one)), None)
        if hit is None:
            return False
        left.remove(hit)
    return not left


def _are_valid(calls: Sequence[tuple[str, str]], tools: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether there are calls, and all of them are of declared tools and fit their schemas."""
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}
    for name, arguments in calls:
        given = load_object(arguments)
        if name not in schemas or given is None or not Draft202012Validator(schemas[name]).is_valid(given):
            return False
    return bool(calls)


def _fits(given: Mapping[str, Any], wanted: Wanted) -> bool:
    allowed = wanted["arguments"]
    for key, values in allowed.items():
        if not (_normalize(given[key]) in map(_normalize, values) if key in given else "" in values):
            return False
    return bool(given.keys() <= allowed.keys())


def _normalize(value: Any) -> Any:
    if isinstance(value, str):
        return "".join(c for c in value.lower() if c not in " ,./-_*^'\"")
    if isinstance(value, Mapping):
        return {
            key: _normalize(one[0] if isinstance(one, list) and len(one) == 1 else one) for key, one in value.items()
        }
    if isinstance(value, list):
        return [_normalize(one) for one in value]
    return value


LAYERS = ("raw", "repair", "retries", "grammar")
TOKENS_MAX = 128
# The re-ask from which on a tier decodes under the grammar (`reliability.escalation.decisions`): the second.
GRAMMAR_FROM = 2


def run_case(client: ChatClient, model: str, case: CallCase, *, seed: int, within_s: float, hasty: bool) -> Any:
    """Ask once; return the result as JSON, or None where it took longer than it may. `hasty`: the first re-ask of this
    server's variant is under the grammar already."""
    asked = {"model": model, "messages": case.messages, "tools": case.tools}
    drawn = {"temperature": 0, "seed": seed, "max_tokens": TOKENS_MAX}
    reply = client.ask(asked | drawn, session=f"evaluate-{model}-{case.id}", within_s=within_s)
    if reply.late:
        return None
    calls = reply.calls
    wanted = [{"name": case.tool, "arguments": case.arguments}] if case.tool else []
    # Without a tool that fits, words are the answer.
    valid = not reply.error if not wanted and not calls else _are_valid(calls, case.tools)
    return {
        "category": case.category,
        "features": case.features,
        "valid": valid,
        "right": valid and are_right(calls, wanted),
        "layer": _find_first_layer(reply, hasty=hasty) if valid else None,
        "seconds": round(reply.seconds, 3),
        "attempts": _describe_attempts(reply.attempts),
        "calls": [list(call) for call in calls],
        **{name: getattr(reply, name) for name in ("tier", "tokens", "cost_usd", "error")},
    }


def _find_first_layer(reply: ChatReply, *, hasty: bool) -> str:
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
    found = []
    for one in attempts:
        took = {"seconds": round(one["elapsed_ms"] / 1000, 3), "tokens": (one["usage"] or {}).get("total_tokens", 0)}
        kept = {name: one.get(name) for name in ("tier", "ran", "flaw", "fault", "confidence", "signs")}
        found.append(kept | took)
    return found
