"""Whether the model that `auto` chose is on this machine, on its way, or missing, and what can be done.

Only models that no tier fetches by itself (`ModelChoice.fetch`) can be missing. Invariant: a question fetches nothing,
and waits for no fetch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deployments.models import cache_folder as store
from deployments.models import conversion, hub
from deployments.models.cache_folder import Say
from deployments.models.catalog import ModelChoice, weight_bytes_of
from deployments.models.downloads import format_size, read_progress
from deployments.models.sources import ModelUnavailable, parse_source

_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class _Presence:
    """Where a model is; `words` say how far it is on its way, or why it is missing and how to have it. `size_bytes`:
    the size of the download, where this machine can hold the model; 0: unknown."""

    state: Literal["here", "coming", "missing"]
    words: str = ""
    size_bytes: int | None = None


def look(role: str, choice: ModelChoice, *, cache_dir: Path | None = None) -> _Presence:
    """Look where the model of the tier `role` is. Reads a few small files."""
    if choice.unfit:
        return _Presence("missing", choice.unfit)
    if choice.fetch == "load":
        return _Presence("here")
    source, cache_dir = parse_source(choice.source), cache_dir or store.default_cache_dir()
    final = conversion.locate_model(source, cache_dir) if source.is_gguf else hub.find_complete(source)
    if final is not None and final.is_dir():
        return _Presence("here")
    progress = read_progress(cache_dir, final.name if final else hub.name_fetch(source))
    if progress is not None and progress.running:
        return _Presence("coming", progress.words)
    why = "" if progress is None else f"{progress.words}; "
    size_bytes = source.size_bytes or weight_bytes_of(choice.source) or 0
    size, how = format_size(size_bytes), f"`mlx-stack-serve pull {role}`"
    if choice.fetch == "background":
        way = f"not on this machine yet ({size}): `mlx-stack-serve serve` fetches it once it can answer, or run {how}"
    else:
        way = f"not on this machine: {how} fetches it ({size})"
    return _Presence("missing", why + way, size_bytes)


def await_model(
    role: str,
    choice: ModelChoice,
    say: Say,
    *,
    cache_dir: Path | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait while the model of the tier is on its way, and say how far it is. Raises ModelUnavailable: it is missing."""
    while (found := look(role, choice, cache_dir=cache_dir)).state == "coming":
        say(found.words)
        pause(_LOOK_AGAIN_S)
    if found.state == "missing":
        raise ModelUnavailable(found.words, again=not choice.unfit)
