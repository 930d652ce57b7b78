"""An engine on a real model of a few kilobytes, which raises or stands still when told to."""

import dataclasses
import queue
import threading
from functools import partial
from pathlib import Path
from typing import Any

from deployments.models.cache_folder import Say, quiet
from deployments.models.sources import parse_source
from deployments.tiers.mlx.engine import Engine
from deployments.tiers.mlx.loading import Loaded, load
from deployments.tiers.mlx.memory_budget import Layout
from deployments.tiers.mlx.sequence import EngineJob
from deployments.tiers.mlx.warm_up import prepare_batch
from reliability.types import Event, Failed, Fault, Finish, TierState
from tests.support.tier_asking import text_of as text_of

PATIENCE_S = 60.0
PROMPT = list(range(40, 90))


def load_folder(folder: Path, say: Say = quiet, **options: Any) -> Loaded:
    source = parse_source(f"path:{folder}")
    return load(source, **{"cache_dir": None, "context_tokens": None, "say": say, **options})


class Moody:
    """The real model, which raises or stands still when told to. `breaks_in` raises in that call from now. `shapes`: of
    what it was asked, sequences times tokens."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.broken = False
        self.words = "the model is in a bad mood"
        self.breaks_in = 0
        self.shapes: list[tuple[int, ...]] = []
        self.moving, self.reached = threading.Event(), threading.Event()
        self.moving.set()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        self.reached.set()
        self.shapes.append(tuple(inputs[0].shape))
        assert self.moving.wait(PATIENCE_S)
        out = self._model(*inputs, **options)  # it has written to the caches before it raises
        breaks = self.broken or self.breaks_in == 1
        self.breaks_in = max(0, self.breaks_in - 1)
        if breaks:
            raise RuntimeError(self.words)
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class FineLayout(Layout):
    """As a model whose caches grow by a token at a time."""

    def sequence_bytes(self, tokens: int) -> int:
        return sum(layer.token_bytes * tokens for layer in self.layers)


class Rig:
    """An engine with a moody model."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.model: Any = None
        self._folder = folder
        budget = ("memory_bytes", "prompt_cache_bytes", "prompt_disk", "prompt_disk_bytes", "shared")
        prepare = partial(prepare_batch, **{name: options.pop(name) for name in budget if name in options})
        self.engine = Engine("t", self._load, prepare=prepare, **{"running_max": 2, **options})
        assert self.engine.load_attempted.wait(PATIENCE_S)
        assert self.engine.phase.state is TierState.READY, self.engine.phase

    def _load(self, say: Say) -> Loaded:
        loaded = load_folder(self._folder, say)
        self.model = Moody(loaded.model)
        return dataclasses.replace(loaded, model=self.model)

    def ask(self, **fields: Any) -> tuple[int, queue.SimpleQueue[list[Event]]]:
        out: queue.SimpleQueue[list[Event]] = queue.SimpleQueue()
        return self.engine.submit(EngineJob(sink=out.put, **{"prompt": PROMPT, "max_tokens": 20, **fields})), out

    def answer(self, **fields: Any) -> list[Event]:
        return whole(self.ask(**fields)[1])


def whole(out: queue.SimpleQueue[list[Event]]) -> list[Event]:
    events: list[Event] = []
    while not events or not isinstance(events[-1], Finish | Failed):
        events += out.get(timeout=PATIENCE_S)
    return events


def fault_of(events: list[Event]) -> Fault:
    last = events[-1]
    assert isinstance(last, Failed), last
    return last.fault
