"""The control room without Ray: its real app over a real state actor in this process; its tiers only say how they are.

rig = Rig(folder)            an app for `TestClient`, or for uvicorn
rig.finish("r1", ...)        a request that has ended
rig.running.append(run)      one that runs
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from deployments.api.access import Access, Caller
from deployments.api.admin import Insight
from deployments.api.overview import Overview
from deployments.api.responses import build_error_handlers
from deployments.app.stopping import Stopping
from deployments.config.app_config import AppConfig, load
from deployments.graph.status_poll import TierWatch
from deployments.request.policy import state_limits
from deployments.state.client import State
from deployments.ui.control_room import ControlRoom
from reliability.types import TierState, TierStatus
from tests.support.incarnations import Driver, done
from tests.support.near_actor import NearActor

TIERS = ("fast", "standard", "premium")


def attempt(tier: str = "fast", **changes: Any) -> dict[str, Any]:
    """An attempt of a report, good unless it is said otherwise."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    usage |= {"prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 0}}
    flags = {"ran": True, "cancelled": False, "estimated": False, "granted": True}
    times = {"at_ms": 5, "elapsed_ms": 400, "ttft_ms": 100}
    unsaid = dict.fromkeys(("fault", "flaw", "detail", "cost_usd"))
    return {"tier": tier, **flags, **times, **unsaid, "native_calls": 0, "usage": usage, **changes}


def report(request_id: str = "r", **changes: Any) -> dict[str, Any]:
    """The report of a request that was answered at once, unless it is said otherwise."""
    told = {"request_id": request_id, "session": "s", "key": "", "outcome": "answered", "tier": "fast", "retries": 0}
    told |= {"repairs": [], "notes": [], "budget": [], "attempts": [attempt()], "total_ms": 410.5, "overhead_ms": 10.5}
    told |= dict.fromkeys(("escalated_from", "escalation_reason", "loop", "cost_usd", "judge"))
    return told | {"shortened": 0, "memory_pressure": "normal", "state_silent": False} | changes


class Told:
    """A tier that only says how it is."""

    def __init__(self, name: str) -> None:
        self.known = TierStatus(name=name, kind="scripted", state=TierState.READY, model=f"{name}-model")

    async def status(self) -> TierStatus:
        return self.known


class Rig:
    """One control room."""

    def __init__(self, folder: Path, access: Access | None = None, **changes: Any) -> None:
        self.config = make_config(**changes)
        self.access = access or Access(())
        self.here = NearActor(folder, lost=False, timed=False)
        self.stopping = Stopping()
        self.tiers = {name: Told(name) for name in TIERS}
        self.asked: list[tuple[str, bytes]] = []
        self.app = self.make_app()

    def make_app(self) -> Starlette:
        """One Router's app, over the state actor of all."""
        self.limits = state_limits(self.config, self.config.state, {})
        state = State(self.here.find, self.limits)
        watch = TierWatch(self.tiers, dict.fromkeys(TIERS, "scripted"), {})  # type: ignore[arg-type]
        self.overview = Overview(
            state=state,
            watch=watch,
            running=self.stopping.list_running,
            stopping=lambda: self.stopping.begun,
            memory=None,
            tiers=TIERS,
            cloud=frozenset({"premium"}),
            config=lambda: self.config,
        )
        room = ControlRoom(access=lambda: self.access, overview=self.overview, chat=self._chat)

        @contextlib.asynccontextmanager
        async def live(_: Starlette) -> AsyncGenerator[None, None]:
            await state.start()
            await watch.ask()
            yield
            await state.close()

        handlers = build_error_handlers({})
        insight = Insight(self.overview, lambda: self.access, self._admit)
        routes = [Route("/", room.show_now), room.mount(), *insight.routes()]
        return Starlette(routes=routes, lifespan=live, exception_handlers=handlers)

    async def _admit(self, request: Request, _: int) -> Caller:
        return self.access.identify(request)

    async def _chat(self, request: Request, caller: Caller) -> Response:
        self.asked.append((caller.name, await request.body()))
        return JSONResponse({"choices": []})

    def finish(self, request_id: str = "r", incidents: tuple[dict[str, Any], ...] = (), **changes: Any) -> None:
        made = report(request_id, **changes)
        item = done(request_id, session=made["session"], key=made["key"])
        Driver(self.here.actor, client=f"of-{made['key']}-{request_id}", limits=self.limits).put(
            type(item)(key=made["key"], session=made["session"], report=made, incidents=incidents)
        )


@contextlib.contextmanager
def browse(rig: Rig, host: str = "127.0.0.1", root: str = "") -> Iterator[TestClient]:
    """A browser at this address; it follows nothing by itself."""
    at = {"base_url": "http://127.0.0.1:8000", "client": (host, 1), "root_path": root, "follow_redirects": False}
    with TestClient(rig.app, **at) as client:  # type: ignore[arg-type]
        client.headers["accept"] = "text/html"
        yield client


def find_token(page: str) -> str:
    found = re.search(r'X-CSRF-Token": "([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def make_config(**changes: Any) -> AppConfig:
    tiers: dict[str, Any] = {name: {"kind": "scripted", "script": [{"answer": "hi"}]} for name in TIERS}
    budget = {"per_session": 10_000, "policy": "hard_stop"}
    reliability = {"escalation": {"chain": list(TIERS)}, "token_budget": budget} | changes
    return load({"tiers": tiers, "reliability": reliability})
