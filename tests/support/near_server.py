"""A whole server in this process, behind a real socket: the Router's app, its tiers and its state actor, without Ray.

    client ═ HTTP ═▶ uvicorn ─▶ Router ─ _NearHandle ─▶ TierReplica ─▶ its tier
                                  └── Link ═ Unix socket ═▶ SessionState, on its threads

Everything is what Ray Serve runs (`deployments.app.build` says it); only what carries the calls is another: what goes
between the replicas is pickled and unpickled here too, and a client that leaves cancels its request. What Ray itself
does (replicas that die, are many, sleep or count) and what a node's memory says needs `deploy_on_ray`.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import uvicorn
from starlette.datastructures import MutableHeaders

from deployments.app import build, router
from deployments.config.app_config import StateConfig
from deployments.config.free_port import free_port
from deployments.graph import replica
from deployments.state.actor import SessionState
from deployments.state.client import folder_of
from deployments.state.link import Actor
from deployments.state.unix_socket import SocketActor, StepListener
from tests.support.serving import Server, until

JOIN_S = 30.0


@contextlib.contextmanager
def run_near(args: Mapping[str, Any], name: str) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:  # short: sockets lie in it
        near = _NearServer(args, name, Path(folder))
        thread = threading.Thread(target=near.run, name=f"near-{name}", daemon=True)
        thread.start()
        until(lambda: near.failed or (near.server and near.server.started), "the server begins", JOIN_S)
        if near.failed:
            raise near.failed[0]
        try:
            yield Server(name, f"http://127.0.0.1:{near.port}/{name}", near.ask_state)
        finally:
            near.server.should_exit = True
            thread.join(JOIN_S)
            assert not thread.is_alive(), "the server doesn't end"


class _NearServer:
    """One app, on an event loop of its own."""

    def __init__(self, args: Mapping[str, Any], name: str, folder: Path) -> None:
        self._root = build(dict(args))._bound_deployment
        self._name, self._folder = name, folder
        self._tiers: list[Any] = []
        self._near_actor: _NearActor | None = None
        self.port = free_port()
        self.server: Any = None
        self.failed: list[BaseException] = []

    def ask_state(self, method: str, *args: Any) -> Any:
        assert self._near_actor is not None
        return getattr(self._near_actor.state, method)(*args)

    def run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failed.append(error)

    async def _serve(self) -> None:
        app = _Prefixed(await self._make_app(), f"/{self._name}")
        quiet: Any = {"lifespan": "on", "log_config": None, "access_log": False, "server_header": False}
        config = uvicorn.Config(app, host="127.0.0.1", port=self.port, timeout_graceful_shutdown=0, **quiet)
        self.server = uvicorn.Server(config)
        await self.server.serve()
        for tier in self._tiers:
            await replica.TierReplica.__del__(tier)
        if self._near_actor is not None:
            self._near_actor.listener.close()

    async def _make_app(self) -> Any:
        """Make tiers and Router as Serve makes them, and the app that it asks the Router for."""
        context = SimpleNamespace(app_name=self._name, replica_id=SimpleNamespace(unique_id="near"))
        with contextlib.ExitStack() as stack:
            for module in (router, replica):
                stack.enter_context(mock.patch.object(module, "bind_to_node"))
            stack.enter_context(mock.patch.object(router.serve, "get_replica_context", return_value=context))
            stack.enter_context(mock.patch.object(router, "ray_finder", self._find_actor))
            stack.enter_context(mock.patch.object(router, "plan_of", return_value=None))
            config, bound = self._root.init_args
            handles = {}
            for name, tier in bound.items():
                handles[name] = _NearHandle(self._name, await self._make_tier(tier._bound_deployment))
            made: Any = router.Router(config, handles)
            made.reconfigure({})
            stack.enter_context(mock.patch.object(router, "find_endpoints", list))  # no node of Ray's counts here
            return made.__serve_build_asgi_app__()

    async def _make_tier(self, bound: Any) -> Any:
        tier: Any = object.__new__(_NearReplica)
        name, config, cloud, _ = bound.init_args
        await replica.TierReplica.__init__(tier, name, config, cloud)
        await tier.reconfigure({})
        self._tiers.append(tier)
        return tier

    def _find_actor(self, app: str, config: StateConfig) -> Callable[[], Awaitable[Actor]]:
        async def find() -> Actor:
            if self._near_actor is None:
                self._near_actor = await asyncio.to_thread(_NearActor, app, config, self._folder / "state")
            return SocketActor(self._near_actor, str(self._near_actor.listener.path))

        return find


class _NearReplica(replica.TierReplica):
    """One whose end its server awaits."""

    def __del__(self) -> None:  # type: ignore[override]
        """Do nothing."""


class _NearActor:
    """`deployments.state.link.Actor`: the state actor on threads of this process."""

    def __init__(self, app: str, config: StateConfig, socket: Path) -> None:
        folder = str(folder_of(app, config))
        self.state = SessionState(folder=folder, bounds=config, idle_exit_s=None)
        self.listener = StepListener(socket, self.state.step)

    async def call(self, method: str, *args: Any) -> Any:
        return _carry(await asyncio.to_thread(getattr(self.state, method), *_carry(args)))

    def close(self) -> None:
        """Do nothing: there is no connection."""


class _NearHandle:
    """What `HandleTier` uses of a `DeploymentHandle`, for one replica in this process."""

    def __init__(self, app: str, tier: Any) -> None:
        self.app_name, self.deployment_name = app, tier.name
        self._tier = tier

    def options(self, *, stream: bool = False, **_: Any) -> Any:
        """Choose how to call; what else Serve would be told is for several replicas."""
        return SimpleNamespace(
            stream=_make_method(lambda request: _NearStream(self._tier.stream(_carry(request)))),
            status=_make_method(lambda: _NearAnswer(self._tier.status())),
            count_tokens=_make_method(lambda request: _NearAnswer(self._tier.count_tokens(_carry(request)))),
        )


def _make_method(remote: Callable[..., Any]) -> Any:
    """A method of a handle, to which options mean nothing."""
    method = SimpleNamespace(remote=remote)
    method.options = lambda **_: method
    return method


class _NearAnswer:
    """What a call returns: awaited once."""

    def __init__(self, call: Any) -> None:
        self._task = asyncio.ensure_future(call)

    def __await__(self) -> Any:
        return _carry((yield from self._task.__await__()))

    def cancel(self) -> None:
        self._task.cancel()


class _NearStream:
    """What a streaming call returns. The replica runs ahead of its reader, as behind a real handle."""

    def __init__(self, events: AsyncIterator[Any]) -> None:
        self._queue: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(events))

    async def _run(self, events: Any) -> None:
        try:
            async with contextlib.aclosing(events):
                async for batch in events:
                    self._queue.put_nowait(("batch", pickle.dumps(batch)))
        except Exception as error:
            self._queue.put_nowait(("failed", error))
        else:
            self._queue.put_nowait(("end", None))

    def __aiter__(self) -> _NearStream:
        return self

    async def __anext__(self) -> Any:
        kind, value = await self._queue.get()
        if kind == "batch":
            return pickle.loads(value)
        if kind == "failed":
            raise value
        raise StopAsyncIteration

    def cancel(self) -> None:
        self._task.cancel()


def _carry(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


class _Prefixed:
    """The app at its prefix, as behind Serve's proxy: each request has an id, and a client that leaves cancels it."""

    def __init__(self, app: Any, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = MutableHeaders(scope=scope)
        request_id = headers.setdefault("x-request-id", str(uuid.uuid4()))
        messages: asyncio.Queue[Any] = asyncio.Queue()

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault("x-request-id", request_id)
            await send(message)

        answering = asyncio.create_task(self._app(scope | {"root_path": self._prefix}, messages.get, answer))
        listening = asyncio.create_task(_listen(receive, messages))
        try:
            await asyncio.wait({answering, listening}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                answering.cancel()
                await asyncio.wait({answering})
        finally:
            listening.cancel()
            answering.cancel()
        if not answering.cancelled():
            answering.result()


async def _listen(receive: Any, messages: asyncio.Queue[Any]) -> None:
    """Hand over what comes, until the client leaves."""
    while True:
        message = await receive()
        messages.put_nowait(message)
        if message["type"] == "http.disconnect":
            return
