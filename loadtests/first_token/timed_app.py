"""The server's own graph, which notes when a request passes each point of its way.

Router and tiers are those of `deployments.app`; whoever imports this module gets them with a note before or behind some
of their methods. A note is a line in the file that `TIMES` of the environment names, by one write: the point, and the
moment by the machine's monotonic clock, which all of its processes share. So only one request may be under way at a
time, and all on one machine.
"""

import functools
import os
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from ray import serve

from deployments import app
from deployments.app.router import Router
from deployments.graph.handle import HandleTier
from deployments.graph.replica import TierReplica
from deployments.state.client import RequestState
from deployments.tiers.hosted.hosted_tier import HostedTier
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.types import Text

TIMES = "MLX_STACK_TIMES"
# In the order of the way; of those behind "the tier has it" a request meets what its tier has.
POINTS = (
    "the Router has the request",
    "its body is read",
    "parsed and checked",
    "its run is made",
    "granted",
    "the tier has it",
    "rendered for the engine",
    "the upstream has answered",
    "the first words leave the tier",
    "the Router has them",
)


def note(point: str) -> None:
    """Note that a request is at this point now."""
    line = f"{POINTS.index(point)} {time.monotonic_ns()}\n".encode()
    file = os.open(os.environ[TIMES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)
    os.close(file)


def note_behind(owner: type, name: str, point: str) -> None:
    """Note the point whenever this coroutine method of the class has returned."""
    method = getattr(owner, name)

    @functools.wraps(method)
    async def noted(*args: Any, **more: Any) -> Any:
        out = await method(*args, **more)
        note(point)
        return out

    setattr(owner, name, noted)


def note_first_words(owner: type, point: str, before: str | None = None) -> None:
    """Note the point when `stream` of the class yields its first words; `before`: the one at which it is called."""
    stream: Callable[..., AsyncGenerator[Any, None]] = owner.stream  # type: ignore[attr-defined]

    @functools.wraps(stream)
    async def noted(self: Any, request: Any) -> AsyncGenerator[Any, None]:
        if before:
            note(before)
        silent = True
        async with aclosing(stream(self, request)) as events:
            async for batch in events:
                if silent and any(isinstance(event, Text) for event in batch):
                    silent = False
                    note(point)
                yield batch

    owner.stream = noted  # type: ignore[attr-defined]


class TimedRouter(Router):
    """The Router; what it notes itself is here."""

    async def _answer(self, spoken: Any, request: Any, caller: Any) -> Any:
        note("the Router has the request")
        return await super()._answer(spoken, request, caller)

    def _make_run(self, call: Any, caller: Any, local_only: bool) -> Any:
        run = super()._make_run(call, caller, local_only)
        note("its run is made")
        return run


class TimedTier(TierReplica):
    """The tier; the notes are put into it below, before any process makes one."""


def build(args: dict[str, Any]) -> serve.Application:
    """Wire the graph of `deployments.app` with the noting classes."""
    app.Router, app.TierReplica = TimedRouter, TimedTier  # type: ignore[misc]
    return app.build(args)


note_behind(TimedRouter, "_read_body", "its body is read")
note_behind(TimedRouter, "_read_call", "parsed and checked")
note_behind(RequestState, "admit", "granted")
note_first_words(HandleTier, "the Router has them")
note_first_words(TimedTier, "the first words leave the tier", before="the tier has it")
note_behind(MlxTier, "_render_job", "rendered for the engine")
note_behind(HostedTier, "_send", "the upstream has answered")
