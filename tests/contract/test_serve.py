"""What Ray Serve does for an app, on one app of bare deployments: sessions stay with a replica, metrics come to
Prometheus, lines to a log file, and the app learns where it listens and who asks."""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from deployments.api.access import Access
from deployments.config.app_config import load
from deployments.errors import ApiError
from deployments.graph.handle import HandleTier
from deployments.graph.session_routing import _SPREAD, SessionRouter, session_routing
from deployments.listener.listening import find_serving_host
from deployments.reports.account import RequestMetrics
from deployments.telemetry import log_request
from reliability.attempt import Attempt
from reliability.types import Event, Fault, Finish, FinishReason, Text
from tests.support.room_rig import attempt, report
from tests.support.serving import until
from tests.support.small_config import BASE, REQUEST, options_of

APP = "platform"
SAMPLE = re.compile(r"^(ray_mlx_stack_\w+?)(?:_total|_bucket|_sum|_count)?\{(.*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# Our labels; Ray adds its own to each sample.
OURS = {"tier", "outcome", "fault", "flaw", "reason", "mark", "kind"}
USED = {"prompt_tokens": 7, "completion_tokens": 11}
FAILED = attempt("fast", fault="server_error", elapsed_ms=600, usage=USED, cost_usd=0.25)
ESCALATED = {"tier": "standard", "escalated_from": "fast", "escalation_reason": "server_error", "retries": 1}
TRIED = [FAILED, FAILED | {"tier": "standard", "fault": None}]
REPORT = report(**ESCALATED, loop="nudged", repairs=["name"], attempts=TRIED, total_ms=1300, overhead_ms=2)
ATTEMPTS = (Attempt(tier="fast", ran=True, fault=Fault.SERVER_ERROR), Attempt(tier="standard", ran=True))
FAMILIES = {
    *("requests", "attempts", "escalations", "repairs", "loops", "tokens", "cost_usd"),
    *("ttft_ms", "inter_token_ms", "overhead_ms", "request_ms"),
}


Sample = tuple[str, dict[str, str], float]


class Named:
    """A tier replica that answers with its own name, and holds the stream open while the request says so."""

    async def stream(self, request: Any) -> AsyncGenerator[list[Event], None]:
        from ray import serve

        yield [Text(serve.get_replica_context().replica_id.unique_id)]
        if request.stop:
            await asyncio.get_running_loop().create_future()
        yield [Finish(reason=FinishReason.STOP)]


class Counting:
    """A replica that counts and logs the reports that it is sent."""

    def __init__(self) -> None:
        self._metrics = RequestMetrics()

    def __call__(self, report: dict[str, Any]) -> None:
        self._metrics.count(report, ATTEMPTS)
        log_request(report)


class Door:
    """An ingress that says what it sees; `at_start` is what its constructor saw."""

    def __init__(self, *_: Any) -> None:
        self.at_start = find_serving_host()

    def __serve_build_asgi_app__(self) -> Starlette:
        return Starlette(routes=[Route("/seen", self.seen)])

    async def seen(self, request: Request) -> JSONResponse:
        return JSONResponse({"host": self.at_start, "client": request.client.host if request.client else None})


@pytest.fixture(scope="module")
def url(serve_port):
    """Run the app; its other deployments are called by their handles."""
    from ray import serve

    options: dict[str, Any] = {"ray_actor_options": {"num_cpus": 0}}
    routed = {"num_replicas": 2, "request_router_config": session_routing()}
    named = serve.deployment(Named).options(**options, **routed).bind()
    counting = serve.deployment(Counting).options(**options).bind()
    door = serve.deployment(serve.ingress()(Door)).options(name="Door", **options).bind(named, counting)
    serve.run(door, name=APP, route_prefix=f"/{APP}", logging_config={"encoding": "JSON"})
    yield f"http://127.0.0.1:{serve_port}/{APP}/seen"
    serve.delete(APP, _blocking=False)


@pytest.fixture(scope="module")
def tier(url):
    from ray import serve

    return HandleTier("t", serve.get_deployment_handle("Named", APP))


@pytest.fixture(scope="module")
def counting(url):
    from ray import serve

    return serve.get_deployment_handle("Counting", APP)


async def home(tier: HandleTier, session: str) -> str:
    events = [e async for batch in tier.stream(replace(REQUEST, session_id=session)) for e in batch]
    (text,) = (event.text for event in events if isinstance(event, Text))
    return text


@pytest.mark.ray
def test_a_session_stays_and_sessions_spread(tier):
    """Law: a session's requests all go to one replica, and thirty sessions use both."""

    async def ask() -> list[tuple[str, ...]]:
        return [tuple([await home(tier, f"session {n}") for _ in range(3)]) for n in range(30)]

    homes = asyncio.run(ask())
    assert all(len(set(visited)) == 1 for visited in homes)
    assert min(Counter(visited[0] for visited in homes).values()) >= 5


@pytest.mark.ray
def test_a_busy_replica_is_left_for_the_other(tier):
    """Law: while a session's own replica has more than its share open, further ones go to the other; as soon as they
    have left, the session is at home again."""

    async def crowd() -> tuple[str, Counter[str], str]:
        at_home = await home(tier, "busy")
        seen: Counter[str] = Counter()
        async with AsyncExitStack() as open_streams:
            for _ in range(8):
                stream = tier.stream(replace(REQUEST, session_id="busy", stop=("wait",)))
                open_streams.push_async_callback(stream.aclose)
                ((first,)) = await anext(stream)
                seen[first.text] += 1
        return at_home, seen, await home(tier, "busy")

    at_home, seen, afterwards = asyncio.run(crowd())
    assert len(seen) == 2
    assert max(seen.values()) <= math.ceil(_SPREAD * 8 / 2)
    assert seen[at_home] == max(seen.values())
    assert afterwards == at_home


def test_only_mlx_tiers_of_several_replicas_are_routed_so():
    """Law: where there is no choice, or no prompt to find, Serve's own routing stays."""
    two = {**BASE, "tiers": {**BASE["tiers"], "m": {"kind": "mlx", "model": "path:nowhere", "max_replicas": 2}}}

    def router(raw: dict[str, Any], name: str) -> Any:
        return options_of(load(raw), name)._deployment_config.request_router_config.get_request_router_class()

    assert router(two, "m").__name__ == SessionRouter.__name__
    assert router(BASE, "m").__name__ != SessionRouter.__name__
    assert router(two, "fast").__name__ != SessionRouter.__name__


def read_metrics() -> str:
    """What the Prometheus endpoint of this node says."""
    import ray

    (node,) = ray.nodes()
    return httpx.get(f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics", timeout=30).text


def of(application: str) -> list[Sample]:
    """Our samples of an application: name, labels, value."""
    found = ((name, dict(LABEL.findall(labels)), value) for name, labels, value in SAMPLE.findall(read_metrics()))
    own = [sample for sample in found if sample[1].get("application") == application]
    return [(name.removeprefix("ray_mlx_stack_"), labels, float(value)) for name, labels, value in own]


def ours(samples: list[Sample], family: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sorted((k, v) for k, v in labels.items() if k in OURS)): value
        for name, labels, value in samples
        if name == family
    }


@pytest.mark.ray
def test_every_metric_is_on_the_endpoint(counting):
    """What a replica counted is there in numbers, under its labels."""
    for one in (REPORT, REPORT, REPORT | {"outcome": "timeout", "tier": None}):
        counting.remote(one).result(timeout_s=30)

    def exported() -> list[Sample]:
        samples = of(APP)
        whole = {name for name, _, _ in samples} == FAMILIES and sum(ours(samples, "requests").values()) == 3
        return samples if whole else []

    samples = until(exported, "all are exported")

    assert ours(samples, "requests") == {
        (("outcome", "answered"), ("tier", "standard")): 2,
        (("outcome", "timeout"), ("tier", "none")): 1,
    }
    assert ours(samples, "escalations") == {(("reason", "server_error"), ("tier", "fast")): 3}
    assert ours(samples, "tokens")[("kind", "completion"), ("tier", "fast")] == 33
    assert ours(samples, "cost_usd")[(("tier", "fast"),)] == 0.75
    assert ours(samples, "repairs") == {(("kind", "name"),): 3}
    assert ours(samples, "loops") == {(("mark", "nudged"),): 3}


@pytest.mark.ray
def test_a_line_is_json_with_its_request(counting):
    """Ray Serve's own log file of the replica: one object a line, our fields in it beside Ray's."""
    import ray

    counting.remote(REPORT | {"session": "made-up-session", "request_id": "r-json"}).result(timeout_s=30)
    folder = Path(ray._private.worker._global_node.get_logs_dir_path()) / "serve"

    def written() -> dict[str, Any] | None:
        text = "".join(path.read_text() for path in folder.glob(f"replica_{APP}_Counting_*.log"))
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return next((line for line in lines if line.get("event") == "request" and line["tier"] == "standard"), None)

    line = until(written, "the line is written")

    assert (line["outcome"], line["retries"], line["reason"]) == ("answered", 1, "server_error")
    assert {"request_id", "application", "deployment", "replica", "levelname"} <= line.keys()
    assert "made-up-session" not in json.dumps(line)


@pytest.mark.ray
def test_the_peer_is_who_it_says(url):
    """A replica's constructor, and the driver that started Serve, learn the real host. The proxy passes the peer's
    address on, and that of a local reverse proxy's client in its place: whom a reverse proxy on this machine lets in
    from elsewhere is refused without keys."""
    access = Access(())
    near = httpx.get(url).json()
    far = httpx.get(url, headers={"x-forwarded-for": "203.0.113.7"}).json()["client"]

    access.guard(near["client"], {})
    with pytest.raises(ApiError):
        access.guard(far, {})
    assert (near["client"], far) == ("127.0.0.1", "203.0.113.7")
    assert near["host"] == find_serving_host() == "127.0.0.1"
