"""The scripted graph that the contract tests run: what a tier does is chosen by words in the last user message.

`fast:500` makes tier `fast` answer 500, `standard:hang` makes `standard` hang, and so on; a tier that isn't named
answers with its own name.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from deployments.api.api_keys import digest
from tests.conftest import CLOUD_KEY_ENV
from tests.support.upstream import Upstream

WEATHER = {"name": "get_weather", "arguments": {"city": "Paris"}}

CALLS: dict[str, Any] = {"when": {"has_tools": True}, "answer": [{"tool_call": WEATHER}]}
FAULTS: dict[str, list[dict[str, Any]]] = {
    "500": [{"status": 500}],
    "429": [{"status": 429, "retry_after_s": 7}],
    "401": [{"status": 401}],
    "400": [{"status": 400, "message": "the field is wrong", "param": "messages"}],
    "hang": [{"silence": True}],
    "cut-call": [{"tool_call": WEATHER}, {"cut": True}],
    "cut": [{"cut": True}],
    "stall": [{"text": "half an answer "}, {"silence": True}],
    "break": [{"text": "half an answer "}, {"cut": True}],
    "unavailable": [{"unavailable": "no model"}],
    "loading": [{"loading": "downloading"}],
    "too-long": [{"fault": "context_length"}],
}


def rules(tier: str) -> list[dict[str, Any]]:
    """The script of one tier."""
    return [
        *({"when": {"last_user": f"{tier}:{name}"}, "answer": steps} for name, steps in FAULTS.items()),
        {"when": {"last_user": "weather", "has_tools": True}, "answer": [{"tool_call": WEATHER}]},
        {"when": {"last_user": "think"}, "answer": [{"reasoning": "Let me see."}, {"text": "Done."}]},
        {"when": {"last_user": "talk"}, "token_delay_s": 0.05, "answer": "word " * 400},
        {"when": {"last_user": "wait"}, "answer": [{"delay_s": 1.0, "text": "late"}]},
        {"answer": f"Hello from {tier}. Grüße, 你好."},
    ]


QUICK = {"connect_s": 1.0, "first_token_s": 1.5, "idle_s": 1.5, "total_s": 60.0}
CHAIN = ["fast", "standard", "longctx"]
TWO = CHAIN[:2]
# Most of these tests break tiers all the time, each for itself: what breakers and the retry budget make of many faults
# in a row is tested in rooms of its own.
UNBOUNDED: dict[str, Any] = {
    "tier_health": {"failures_max": None, "rate_percent": None, "retry_after_max_s": 0},
    "retry_budget": {"floor": 100_000},
}


def scripted(*rules: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"kind": "scripted", "script": list(rules), **keys}


def tier(name: str) -> dict[str, Any]:
    """A scripted tier that does what the last user message tells it by this name."""
    return scripted(*rules(name))


def hosted(upstream: Upstream, model: str = "some/model", **keys: Any) -> dict[str, Any]:
    """A tier before this upstream, with its key."""
    return {"kind": "hosted", "base_url": upstream.base_url, "api_key_env": CLOUD_KEY_ENV, "model": model, **keys}


def graph(
    tiers: Mapping[str, Any],
    chain: Sequence[str] = (),
    *,
    retries: int = 1,
    timeouts: Mapping[str, float] = QUICK,
    server: Mapping[str, Any] | None = None,
    **reliability: Any,
) -> dict[str, Any]:
    """The `args` of these tiers: in a row, unless `chain` says which; unbounded, unless `reliability` says how much."""
    escalation = {"chain": list(chain or tiers), "max_retries_before_escalate": retries}
    escalation |= reliability.pop("escalation", {})
    return {
        "tiers": dict(tiers),
        "reliability": {"escalation": escalation, **UNBOUNDED, **reliability},
        "server": {"timeouts": dict(timeouts), **(server or {})},
    }


def write_keys(folder: Path, keys: Mapping[str, str], **fields: Mapping[str, Any]) -> str:
    """Write a file of API keys, by name; of each name the further fields of its entry. Return its path."""
    path = folder / "keys.yaml"
    entries = [
        {"name": name, "sha256": digest(key).hex(), "admin": False, **fields.get(name, {})}
        for name, key in keys.items()
    ]
    path.write_text(yaml.safe_dump(entries))
    return str(path)


def args(chain: list[str] = CHAIN, **changes: Any) -> dict[str, Any]:
    """The `args` of a graph of scripted tiers, three where nothing else is said; each starts a process."""
    aliases = {"gpt-4o-mini": "fast", "gpt-4o": "standard", "openai/gpt-4o": "standard"}
    tiers = {name: tier(name) for name in chain}
    return graph(tiers, server={"keepalive_s": 10.0, "aliases": aliases}) | changes
