"""What an engine does between having a model and being ready: it generates, checks itself and
learns its budget.

Ready means "has generated": two tokens, which also measures the speed of prefill and what a token keeps in memory. Then
a check that no specification gives: sequences that decode together must get what each gets alone. A model whose batch
mixes them up (mlx-lm has had such bugs, in models with windows and recurrent states) would answer one client with
another's words. The check is greedy, short, and its outcome stands in the tier's status. Where there is a difference,
prompts are prefilled one by one from then on, each without padding, and it is checked again. A difference that stays
doesn't stop the tier: where half precision rounds, two equally likely tokens may change places.

At last the memory: what a sequence of the full context needs against the budget. Where it doesn't
fit, the context that the tier offers is what does.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from deployments.models.provenance import file_sha256
from deployments.models.sources import ModelUnavailable
from deployments.tiers.mlx.answer import AnswerReader
from deployments.tiers.mlx.batch import Batch, Job
from deployments.tiers.mlx.kv import MlxCaches, scratch_bytes
from deployments.tiers.mlx.loading import Loaded
from deployments.tiers.mlx.memory_budget import TOKENS_MIN, Layout, MemoryBudget, default_budget_bytes
from deployments.tiers.mlx.pace import STEP_TOKENS_MAX
from deployments.tiers.mlx.prompt_store import PromptStore
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.mlx.stored.segment_file import FORMAT
from deployments.tiers.mlx.stored.segment_folder import SegmentFolder, count_bytes
from reliability.types import Event, Failed, Text

__all__ = ["PromptDisk", "prepare_batch"]

_LOG = logging.getLogger(__name__)

_PROBES = ("The quick brown fox jumps over the lazy dog. " * 3, "1, 2, 3, 4,")
_PROBE_TOKENS = 24
_CHECK_TOKENS = 6
_DISK_BYTES_MAX, _DISK_SHARE = 4 << 30, 10
_DECIDING_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class PromptDisk:
    """Where prompts go on disk, and how many bytes of all models may be there; None: see `_choose_bytes`."""

    root: Path
    bytes_max: int | None = None


def prepare_batch(
    batch: Batch,
    loaded: Loaded,
    running_max: int,
    memory_bytes: int | None,
    prompt_cache_bytes: int | None,
    prompt_disk: PromptDisk | None = None,
) -> Loaded:
    """Make `batch` ready; return what is known of the model afterwards.

    Raises `ModelUnavailable`, and what the model raises.
    """
    probes = [loaded.tokenizer.encode(text, add_special_tokens=False)[:_PROBE_TOKENS] for text in _PROBES]
    _generate(batch, probes[:1], 2)
    same = _is_batched_as_alone(batch, probes) if running_max > 1 else None
    if same is False:
        batch.prefills_together = False
        same = _is_batched_as_alone(batch, probes)
    if same is False:
        _LOG.warning("%s: a batch gives other tokens than each sequence alone", loaded.artifact.source)
    budget = _build_budget(batch, loaded, memory_bytes)
    context_tokens = budget.fit_tokens(loaded.context_tokens)
    if context_tokens < min(TOKENS_MIN, loaded.context_tokens):
        raise ModelUnavailable(_explain_too_little(budget), again=memory_bytes is None)
    kept_bytes_max = budget.kept_bytes_max if prompt_cache_bytes is None else prompt_cache_bytes
    folder = None if prompt_disk is None else _open_folder(prompt_disk, loaded, budget.layout)
    batch.set_budget(budget, PromptStore(MlxCaches(), bytes_max=kept_bytes_max, folder=folder))
    return dataclasses.replace(
        loaded, context_tokens=context_tokens, batched_as_alone=same, cuttable=budget.layout.cuttable
    )


def _is_batched_as_alone(batch: Batch, probes: list[list[int]]) -> bool:
    alone = [_generate(batch, [probe], _CHECK_TOKENS)[0] for probe in probes]
    return _generate(batch, probes, _CHECK_TOKENS) == alone


def _generate(batch: Batch, prompts: list[list[int]], max_tokens: int) -> list[str]:
    """Return the greedy answers, generated together."""
    outs: list[list[Event]] = [[] for _ in prompts]
    for number, (prompt, out) in enumerate(zip(prompts, outs, strict=True)):
        reader = AnswerReader()
        batch.add(
            -1 - number,
            Job(prompt=prompt, max_tokens=max_tokens, sampling=Sampling(), reader=reader, sink=out.extend),
        )
    while batch:
        batch.step()
    if any(not out or isinstance(out[-1], Failed) for out in outs):
        raise ModelUnavailable("the model is loaded but can't generate")
    return ["".join(event.text for event in out if isinstance(event, Text)) for out in outs]


def _build_budget(batch: Batch, loaded: Loaded, memory_bytes: int | None) -> MemoryBudget:
    assert batch.layout is not None  # measured on the first answer
    weight_bytes = loaded.artifact.weight_bytes
    step_bytes, token_bytes = scratch_bytes(loaded.model, STEP_TOKENS_MAX)
    return MemoryBudget(
        budget_bytes=memory_bytes or default_budget_bytes(weight_bytes, _measure_available_bytes(weight_bytes)),
        weight_bytes=weight_bytes,
        scratch_bytes=step_bytes,
        scratch_token_bytes=token_bytes,
        layout=batch.layout,
    )


def _measure_available_bytes(weight_bytes: int) -> int:
    """Measure what the machine has left.

    On a Mac that is at most what the GPU may have of it beside the weights.
    """
    import mlx.core as mx

    left: int = psutil.virtual_memory().available
    info: dict[str, Any] = mx.device_info() if mx.metal.is_available() else {}
    most = info.get("max_recommended_working_set_size")
    return min(left, int(most) - weight_bytes) if most else left


def _open_folder(disk: PromptDisk, loaded: Loaded, layout: Layout) -> SegmentFolder | None:
    try:
        bytes_max = _choose_bytes(disk.root) if disk.bytes_max is None else disk.bytes_max
    except OSError as error:
        _LOG.warning("prompts are not kept on disk: %s", error)
        return None
    if not bytes_max:
        return None
    folder = SegmentFolder(disk.root, _build_key(loaded, layout), bytes_max=bytes_max)
    folder.sweep()
    return folder


def _choose_bytes(root: Path) -> int:
    """Choose how much of the disk prompts may have, where nobody says: a tenth of what is free, with what they have."""
    there = next(folder for folder in (root, *root.parents) if folder.exists())
    return min(_DISK_BYTES_MAX, (shutil.disk_usage(there).free + count_bytes(root)) // _DISK_SHARE)


def _build_key(loaded: Loaded, layout: Layout) -> str:
    """Name everything that decides what the keys and values of a token are, and which tokens a text is."""
    artifact, template = loaded.artifact, getattr(loaded.tokenizer, "chat_template", None)
    files = {file: file_sha256(artifact.path / file) for file in _DECIDING_FILES if (artifact.path / file).is_file()}
    facts = {
        "format": FORMAT,
        "weights": artifact.sha256,
        "folder": artifact.path.name,  # of a conversion it names the converter
        "quantization": artifact.quantization,
        "adapter": [loaded.adapter, loaded.adapter_config_sha256],
        "files": files,
        "template": hashlib.sha256(repr(template).encode()).hexdigest(),
        "layout": repr(layout),
        "versions": dict(loaded.versions),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _explain_too_little(budget: MemoryBudget) -> str:
    total = budget.budget_bytes / 2**20
    fixed = (budget.weight_bytes + budget.scratch_bytes) / 2**20
    return f"too little memory: of a budget of {total:.0f} MiB the weights and one step take {fixed:.0f} MiB"
