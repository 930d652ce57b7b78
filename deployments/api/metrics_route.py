"""`GET /metrics` for Prometheus: what was counted on every node, and gauges of this moment. It needs an admin's key.

A node whose endpoint doesn't answer within `_ASK_S` is counted in `mlx_stack_nodes_silent`. Invariants: no label is a
name that a client chose; no family stands twice; the route answers where the state actor is away.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.api.access import Access
from deployments.api.overview import Overview
from deployments.state.link import StateUnavailable
from deployments.telemetry import log_error
from reliability.admission.breaker import Phase
from reliability.types import TierState

_MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_ASK_S = 5.0
_BYTES_MAX = 32 * 1024 * 1024
_OURS = re.compile(r"ray_mlx_stack_\w+")
STATES = (*TierState, "unknown")
_LEVELS = {"unknown": -1, "normal": 0, "warn": 1, "critical": 2}
Gauge = tuple[str, str, Sequence[tuple[Mapping[str, str], float]]]


class MetricsRoute:
    """The route. `access` is called at each request; `endpoints` names those of Ray's nodes."""

    def __init__(
        self, overview: Overview, access: Callable[[], Access], endpoints: Callable[[], Sequence[str]]
    ) -> None:
        self._overview, self._access, self._endpoints = overview, access, endpoints

    def routes(self) -> list[Route]:
        return [Route("/metrics", self.show)]

    async def show(self, request: Request) -> Response:
        self._access().identify_admin(request)
        hour, now, texts = await asyncio.gather(self._find_hour(), self._overview.take(), self._ask_nodes())
        silent = sum(text is None for text in texts)
        lines = [*_merge_families(text for text in texts if text), *_write_gauges(now, hour, silent)]
        return Response("\n".join(lines) + "\n", media_type=_MEDIA)

    async def _find_hour(self) -> Mapping[str, Mapping[str, int]]:
        """Find how full the windows are that all sessions share; none where the state actor is away."""
        try:
            return await self._overview.state.find_shared_windows()
        except StateUnavailable:
            return {}

    async def _ask_nodes(self) -> list[str | None]:
        endpoints = await asyncio.to_thread(self._endpoints)
        async with httpx.AsyncClient(timeout=_ASK_S, trust_env=False) as client:
            return await asyncio.gather(*(_ask_node(client, endpoint) for endpoint in endpoints))


async def _ask_node(client: httpx.AsyncClient, endpoint: str) -> str | None:
    try:
        answer = await client.get(endpoint)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        log_error("metrics_of_a_node", error)
        return None
    return answer.text[:_BYTES_MAX]


def find_endpoints() -> list[str]:
    """Find the Prometheus endpoint of each node that is alive. Blocks for Ray's answer."""
    import ray

    return [
        f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        for node in ray.nodes()
        if node["Alive"] and node.get("MetricsExportPort")
    ]


def _merge_families(texts: Iterable[str]) -> list[str]:
    """Merge what nodes have counted: our families alone, each once with its head, the samples of all nodes below."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2] if line.count(" ") >= 2 else ""
                head = heads.setdefault(family, []) if _OURS.fullmatch(family) else None
                if head is not None and line not in head and len(head) < 2:
                    head.append(line)
            elif family in heads:
                samples.setdefault(family, []).append(line)
    return [line for family, head in heads.items() for line in (*head, *dict.fromkeys(samples.get(family, ())))]


def _write_gauges(now: Mapping[str, Any], windows: Mapping[str, Mapping[str, int]], silent: int) -> list[str]:
    lines: list[str] = []
    for name, words, values in _list_gauges(now, windows, silent):
        lines += [f"# HELP mlx_stack_{name} {words}", f"# TYPE mlx_stack_{name} gauge"]
        lines += [f"mlx_stack_{name}{_write_labels(labels)} {value:g}" for labels, value in values]
    return lines


def _list_gauges(now: Mapping[str, Any], windows: Mapping[str, Mapping[str, int]], silent: int) -> Iterable[Gauge]:
    tiers = now["tiers"]
    yield (
        "tier_state",
        "1 for the state that a tier is in.",
        [({"tier": t["name"], "state": s}, t["state"] == s) for t in tiers for s in STATES],
    )
    yield "tier_in_chain", "1 for a tier of the chain.", [(_of(t), t["place"] is not None) for t in tiers]
    yield (
        "tier_breaker",
        "1 for the phase that a tier's breaker is in.",
        [({"tier": t["name"], "phase": p}, t["breaker"] == p) for t in tiers for p in Phase],
    )
    yield "tier_isolated", "1 where somebody keeps calls off a tier.", [(_of(t), t["isolated"]) for t in tiers]
    yield "running", "Requests that a tier has now.", [(_of(t), t["asked"]) for t in tiers]
    yield "tokens_per_second", "Tokens that a tier wrote a second.", [(_of(t), t["tokens_s"]) for t in tiers]
    yield "state_actor_up", "1 where the state actor answers.", [({}, now["state_actor"] == "up")]
    yield "nodes_silent", "Nodes whose counters are missing here.", [({}, silent)]
    yield (
        "budget_used_ratio",
        "Tokens used of the limit, of the windows that all sessions share.",
        [({"window": n}, w["tokens"] / max(1, w["tokens_max"])) for n, w in windows.items() if n == "hour"],
    )
    nodes = (now["memory"] or {"nodes": {}})["nodes"]
    yield (
        "memory_level",
        "Memory pressure of a machine: -1 unknown, 0 normal, 1 warn, 2 critical.",
        [({"node": name}, _LEVELS.get(node["level"], -1)) for name, node in nodes.items()],
    )
    for name, words in (("leased", "leased by replicas"), ("budget", "that replicas may lease together")):
        values = [({"node": at}, float(node[f"{name}_bytes"] or 0)) for at, node in nodes.items()]
        yield f"memory_{name}_bytes", f"Bytes {words}.", values


def _of(tier: Mapping[str, Any]) -> Mapping[str, str]:
    return {"tier": tier["name"]}


def _write_labels(labels: Mapping[str, str]) -> str:
    written: list[str] = []
    for name, value in labels.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        written.append(f'{name}="{escaped}"')
    return f"{{{','.join(written)}}}" if written else ""
