"""Strategies: whoever works on a fixture, behind one boundary.

    rules       no model: the floor. It always runs
    a model     a plain agent loop over HTTP: one tier, the chain, or another URL

A model that can't be asked is found before any of its cells is planned (`evaluation_run`), and shown as `unavailable`
with the reason: never as a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from deployments.evaluate.tasks.fixture import Fixture
from deployments.evaluate.tasks.work_folder import WorkFolder

__all__ = ["Outcome", "Strategy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a strategy hands in. `steps` has the tokens and seconds of each request that it made; `touched` the
    protected files that it wanted to change; `ended` why it stopped."""

    diagnosis: Mapping[str, Any] | None
    ended: str
    steps: tuple[Mapping[str, Any], ...] = ()
    touched: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    calls: tuple[str, ...] = field(default=())


class Strategy(Protocol):
    """Works on one fixture at a time."""

    def work(self, fixture: Fixture, folder: WorkFolder, *, seed: int, until_s: float) -> Outcome | None:
        """Work on the fixture that lies in `folder`; None where the time (`until_s`, of the monotonic clock) didn't
        suffice."""
        ...
