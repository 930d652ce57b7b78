"""A monitor of one's own on the session's Ray: a script that turns its knob, and settings that are quick."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.memory import nodes
from deployments.memory.plan import MonitorSettings

BUDGET = 1000


class Knob:
    """A scripted sensor's file, and the monitor of this node that reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.app = f"app{uuid.uuid4().hex[:8]}"
        self.turn("normal")
        self.settings = MonitorSettings(
            sensor=f"scripted:{path}",
            budget_bytes=BUDGET,
            poll_s=0.05,
            calm_s=0.2,
            stale_s=1.0,
            lease_s=1.0,
            linger_s=3.0,
        )

    def turn(self, words: str) -> None:
        self.path.write_text(words)

    def handle(self) -> Any:
        return nodes.here(self.app, self.settings)

    def call(self, method: str, *args: Any) -> Any:
        import ray

        return ray.get(getattr(self.handle(), method).remote(*args), timeout=30)

    def level(self) -> str:
        return str(self.call("peek").level)


@pytest.fixture
def knob(serve_port: int, tmp_path: Path) -> Iterator[Knob]:
    import ray

    knob = Knob(tmp_path / "sensor.txt")
    yield knob
    for handle in nodes.find(knob.app).values():
        ray.kill(handle)
