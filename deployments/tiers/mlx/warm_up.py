"""Make an engine ready: check what sequences may share, generate two tokens, and settle its budget.

The check comes first, since the rest runs as the tier will. Generating also measures the speed of prefill. Where a
sequence of the full context doesn't fit the budget, the tier offers the context that does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from deployments.memory.room import AGENT_TOKENS
from deployments.models.cache_folder import default_cache_dir, measure_once
from deployments.models.sources import ModelUnavailable
from deployments.models.weights import file_sha256
from deployments.tiers.mlx.batch_check import choose_sharing
from deployments.tiers.mlx.cache_size import measure_layout, read_zeros, scratch_bytes
from deployments.tiers.mlx.decoding.generators import Sharing
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.memory_budget import STEP_TOKENS_MAX, Layout, MemoryBudget
from deployments.tiers.mlx.metal import is_forced, wire
from deployments.tiers.mlx.prompt_cache.prompt_cache import detach
from deployments.tiers.mlx.prompt_cache.prompt_store import PromptStore
from deployments.tiers.mlx.prompt_cache.segment_file import FORMAT
from deployments.tiers.mlx.prompt_cache.segment_folder import SegmentFolder
from deployments.tiers.mlx.scheduler import Scheduler
from deployments.tiers.mlx.sequence import EngineJob
from reliability.types import Event, Failed

_LOG = logging.getLogger(__name__)

_PROBE = "The quick brown fox jumps over the lazy dog. " * 3
_PROBE_TOKENS = 24
_WARNINGS = {
    Sharing.DECODING: "prompts are prefilled one at a time: in a batch mlx-lm computes this model's wrongly",
    Sharing.NONE: "requests are answered one at a time: in a batch mlx-lm computes this model wrongly, or not at all",
}
_BUDGET_SHARE, _CONTEXT_TOKENS_MIN = 3, 256
_CHUNKS, _CHUNKS_S = (256, 512, 1024, 2048), 1.0  # of a prompt, and how long they are tried
_CHUNK_GAIN = 0.03  # the smallest chunk within this share of the fastest is taken
_DECIDING_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


def prepare_batch(
    batch: Scheduler,
    loaded: Loaded,
    *,
    memory_bytes: int | None = None,
    prompt_cache_bytes: int | None = None,
    prompt_disk: Path | None = None,
    prompt_disk_bytes: int | None = None,
    shared: bool = False,
) -> Loaded:
    """Make `batch` ready; return what is known of the model. Raises `ModelUnavailable`, and what the model raises.
    `prompt_disk_bytes`: what all models' prompts may take in `prompt_disk`; None: `SegmentFolder.choose_bytes`."""
    running_max = batch.running_max
    sharing = choose_sharing(loaded, running_max)
    batch.share(sharing)
    warnings = [loaded.warning] if loaded.warning else []
    if sharing is not Sharing.ALL and running_max > 1:
        warnings.append(_WARNINGS[sharing])
        _LOG.warning("%s: %s", loaded.artifact.source, _WARNINGS[sharing])
    _generate(batch, loaded.tokenizer.encode(_PROBE, add_special_tokens=False)[:_PROBE_TOKENS])
    budget = _build_budget(loaded, memory_bytes)
    context_tokens = budget.fit_tokens(loaded.context_tokens)
    if context_tokens < min(_CONTEXT_TOKENS_MIN, loaded.context_tokens):
        total, fixed = budget.budget_bytes / 2**20, (budget.weight_bytes + budget.scratch_bytes) / 2**20
        message = f"too little memory: of a budget of {total:.0f} MiB the weights and one step take {fixed:.0f} MiB"
        raise ModelUnavailable(message, again=memory_bytes is None)
    budget = _settle_on_gpu(batch, loaded, budget, shared_out=memory_bytes is None)
    context_tokens = budget.fit_tokens(loaded.context_tokens)
    kept_bytes_max = budget.kept_bytes_max if prompt_cache_bytes is None else prompt_cache_bytes
    folder = None if prompt_disk is None else _open_folder(prompt_disk, prompt_disk_bytes, loaded, budget.layout)
    batch.set_budget(budget, PromptStore(bytes_max=kept_bytes_max, folder=folder, shared=shared))
    return dataclasses.replace(
        loaded,
        context_tokens=context_tokens,
        batched_as_alone=sharing is not Sharing.NONE if running_max > 1 else None,
        warning="; ".join(warnings) or None,
        cuttable=budget.layout.cuttable,
    )


def _generate(batch: Scheduler, prompt: list[int]) -> None:
    out: list[Event] = []
    batch.add(-1, EngineJob(prompt=prompt, max_tokens=2, sink=out.extend))
    while batch:
        batch.step()
    if not out or isinstance(out[-1], Failed):
        raise ModelUnavailable("the model is loaded but can't generate")


def _build_budget(loaded: Loaded, memory_bytes: int | None) -> MemoryBudget:
    """Build the budget: the configured one, what a Mac has at most, or the weights and a third of what is free."""
    weight_bytes = loaded.artifact.weight_bytes
    if memory_bytes:
        budget_bytes = memory_bytes
    elif loaded.room is not None:  # on a Mac at most what the other tiers leave, of which it gets its part below
        budget_bytes = loaded.room.most_bytes
    else:
        budget_bytes = _default_budget_bytes(weight_bytes, psutil.virtual_memory().available)
    step_bytes, token_bytes = scratch_bytes(loaded.model, STEP_TOKENS_MAX, forced=is_forced())
    return MemoryBudget(
        budget_bytes=budget_bytes,
        weight_bytes=weight_bytes,
        scratch_bytes=step_bytes,
        scratch_token_bytes=token_bytes,
        layout=measure_layout(loaded.model),
    )


def _default_budget_bytes(weight_bytes: int, available_bytes: int) -> int:
    """Return the budget where nobody names one. `available_bytes`: left with the weights loaded."""
    return weight_bytes + max(0, available_bytes) // _BUDGET_SHARE


def _settle_on_gpu(batch: Scheduler, loaded: Loaded, budget: MemoryBudget, *, shared_out: bool) -> MemoryBudget:
    """Settle what a GPU adds: a Mac's memory is shared out and wired, and the chunk of a prompt is measured, unless a
    larger one leaves too short a context. Raises `ModelUnavailable` where a Mac has no room for what an agent needs."""
    needed_tokens = min(AGENT_TOKENS, loaded.context_tokens)
    if shared_out and loaded.room is not None:
        needed_bytes = -dataclasses.replace(budget, budget_bytes=0).spare_bytes([needed_tokens])
        budget = dataclasses.replace(budget, budget_bytes=loaded.room.share_bytes(needed_bytes))
        if needed_bytes > budget.budget_bytes:
            raise ModelUnavailable(
                f"left out: with the {needed_tokens:,} tokens of context that an agent needs, the model takes "
                f"{needed_bytes / 2**30:.1f} GiB, and {budget.budget_bytes / 2**30:.1f} are left beside the "
                "other tiers. Name a smaller model, leave a tier out, or set memory_bytes or context_tokens for less",
                again=True,
            )
    facts = {"model": loaded.artifact.source, "sha256": loaded.artifact.sha256, "versions": dict(loaded.versions)}
    tokens = _choose_chunk(loaded.model, facts, default_cache_dir())
    step_bytes, token_bytes = scratch_bytes(loaded.model, tokens, forced=is_forced())
    suited = dataclasses.replace(budget, scratch_bytes=step_bytes, scratch_token_bytes=token_bytes)
    if suited.fits([needed_tokens]):
        budget, batch.pace.tokens_max = suited, tokens
    wire(budget.budget_bytes)
    return budget


def _choose_chunk(model: Any, facts: Mapping[str, Any], cache_dir: Path) -> int:
    """Return the chunk for the model and packages of `facts` on this machine; `STEP_TOKENS_MAX` where that can't be
    measured."""
    import mlx.core as mx

    if mx.default_device() == mx.Device(mx.cpu):
        return STEP_TOKENS_MAX

    def read(tokens: int) -> None:
        detach(read_zeros(model, tokens))
        mx.clear_cache()

    facts = {**facts, "gpu": mx.device_info().get("device_name"), "chunks": _CHUNKS}
    try:
        return measure_once(cache_dir / "prefill-chunks", facts, lambda: _measure_chunk(read))
    except Exception as error:  # a model that can't read so many at once, or a GPU without the memory
        _LOG.warning("the chunk of a prompt isn't measured: %s", error)
        return STEP_TOKENS_MAX


def _measure_chunk(read: Callable[[int], None], clock: Callable[[], float] = time.perf_counter) -> int:
    """Time `read`, which reads so many tokens, for about `_CHUNKS_S`; the usual chunk where not even two sizes can be
    tried. No size is begun that would take longer than the time that is left."""
    read(_CHUNKS[0])  # compiles the kernels
    began_s, per_token_s = clock(), dict[int, float]()
    for tokens in _CHUNKS:
        left_s = _CHUNKS_S - (clock() - began_s)
        if per_token_s and min(per_token_s.values()) * tokens > left_s:
            break
        at_s = clock()
        read(tokens)
        per_token_s[tokens] = (clock() - at_s) / tokens
    if len(per_token_s) < 2:
        return STEP_TOKENS_MAX
    best = min(per_token_s.values())
    return next(tokens for tokens, took in per_token_s.items() if took <= best * (1 + _CHUNK_GAIN))


def _open_folder(root: Path, bytes_max: int | None, loaded: Loaded, layout: Layout) -> SegmentFolder | None:
    try:
        bytes_max = SegmentFolder.choose_bytes(root) if bytes_max is None else bytes_max
    except OSError as error:
        _LOG.warning("prompts are not kept on disk: %s", error)
        return None
    if not bytes_max:
        return None
    folder = SegmentFolder(root, _build_key(loaded, layout), bytes_max=bytes_max)
    folder.sweep()
    return folder


def _build_key(loaded: Loaded, layout: Layout) -> str:
    """Name everything that decides what the keys and values of a token are, and which tokens a text is."""
    artifact, template = loaded.artifact, getattr(loaded.tokenizer, "chat_template", None)
    files = {file: file_sha256(artifact.path / file) for file in _DECIDING_FILES if (artifact.path / file).is_file()}
    facts = {
        "format": FORMAT,
        "weights": artifact.sha256,
        "folder": artifact.path.name,  # of a conversion it names the converter
        "quantization": artifact.quantization,
        "adapter": [loaded.adapter.name, loaded.adapter.config_sha256] if loaded.adapter else [None, None],
        "files": files,
        "template": hashlib.sha256(repr(template).encode()).hexdigest(),
        "layout": repr(layout),
        "versions": dict(loaded.versions),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
