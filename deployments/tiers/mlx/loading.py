"""Load a model that can generate, and learn from its tokenizer the form of its answers. Engine thread only.

The order matters: the files first, since they take longest and need no MLX; then the memory check, before anything is
allocated; then MLX itself.

A mark such as `<tool_call>` is one token, with a row of weights of its own. Where no training has moved that row it
still equals those of tokens that no text has (in Qwen2.5-Coder, to four digits): the model can neither tell the mark
from them in its prompt nor write it. Spelled in letters it does both (docs/decisions/093-untrained-marks.md).
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil

from deployments.memory.room import Room, explain_lack
from deployments.memory.sensors.computing import Computing, find_computing
from deployments.models.artifact import Adapter, Artifact, adapter_at, resolve
from deployments.models.cache_folder import Say
from deployments.models.sources import ModelSource, ModelUnavailable
from deployments.models.weights import read_object, versions, weights_sha256
from deployments.tiers.lazy_mlx import mx
from deployments.tiers.mlx.cache_size import find_context
from deployments.tiers.mlx.cpu.step import build_step
from deployments.tiers.mlx.decoding.ragged_batch import Computer
from deployments.tiers.mlx.metal import install_fused
from deployments.tiers.mlx.sampling import Sampling
from deployments.tiers.prompt import learn_template, read_opening
from deployments.tiers.stream_matchers import CallFormat, strict_json_call
from deployments.tiers.template_check import check_call_template
from deployments.tiers.template_form import AS_WRITTEN, TemplateForm

_LOG = logging.getLogger(__name__)

_FREED_BUFFERS_BYTES = 512 << 20
_CONTEXT_UNKNOWN_TOKENS = 4096
# Rows that were trained are at most .98 alike (the marks of turns of Qwen2.5-Coder), others at least .9999.
_ALIKE = 0.999
_ROWS_MAX = 512  # that a mark is held against


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model in memory. Only the engine thread touches `model`; the tokenizer is used by one thread at a time.
    `batched_as_alone`: whether sequences that decode together give what each gives alone; None where it wasn't tried.
    `warning`: what is wrong with its calls, its history or its batches. `cuttable`: whether its cache of a prompt can
    always be cut back. `step` computes its steps in its place; `room`: on a Mac, what this replica may use of it.
    `sampling`: its own; `vocabulary`: its number of tokens; `turn_start`: the tokens of its own that open its turn;
    `form`: what its chat template needs."""

    model: Any
    tokenizer: Any
    artifact: Artifact
    context_tokens: int
    sampling: Sampling
    vocabulary: int
    turn_start: Sequence[int] = ()
    form: TemplateForm = AS_WRITTEN
    adapter: Adapter | None = None
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    batched_as_alone: bool | None = None
    warning: str | None = None
    cuttable: bool = True
    step: Computer | None = None
    room: Room | None = None


def load(
    source: ModelSource,
    *,
    cache_dir: Path | None,
    context_tokens: int | None,
    say: Say,
    blas_threads: int | None = None,
    adapter_dir: str | None = None,
    room: Room | None = None,
) -> Loaded:
    """Fetch, check and load. Raises `ModelUnavailable` or ImportError for what a person can repair."""
    adapter = adapter_at(adapter_dir) if adapter_dir else None
    artifact = resolve(source, cache_dir=cache_dir, say=say)
    if adapter:
        artifact = dataclasses.replace(artifact, weight_bytes=artifact.weight_bytes + adapter.extra_bytes)
    lack = "" if room is None else explain_lack(artifact.needed_bytes, room)
    available_bytes = psutil.virtual_memory().available
    if room is None and artifact.needed_bytes > available_bytes:
        needed, available = artifact.needed_bytes / 2**30, available_bytes / 2**30
        lack = f"too little memory: the model needs {needed:.1f} GiB and {available:.1f} GiB are available"
    if lack:
        raise ModelUnavailable(lack, again=True)
    say("loading the weights")
    model, tokenizer = _load_mlx(artifact.path, adapter)
    if not tokenizer.has_chat_template:
        raise ModelUnavailable(f"{source.label} has no chat template: it is a base model, not an instruct model")
    form = learn_template(tokenizer)
    own_tokens = artifact.context_tokens or find_context(model)
    limits = [n for n in (context_tokens, own_tokens) if n] or [_CONTEXT_UNKNOWN_TOKENS]
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        # Its files have just been read, so they are in memory: a digest where the source brought none.
        artifact=dataclasses.replace(artifact, sha256=artifact.sha256 or weights_sha256(artifact.path)),
        context_tokens=min(limits),
        sampling=_read_default_sampling(artifact.path),
        vocabulary=max(tokenizer.get_vocab().values()) + 1,
        turn_start=_read_turn_start(tokenizer),
        form=form,
        adapter=adapter,
        versions=versions(),
        warning=_check_template(tokenizer, artifact, form),
        step=build_step(model, blas_threads or 1),
        room=room,
    )


def _read_turn_start(tokenizer: Any) -> Sequence[int]:
    """Read the tokens with which the template opens the model's turn; none where it has no token of its own for it."""
    opening, added = read_opening(tokenizer), tokenizer.added_tokens_decoder
    return opening if opening and opening[0] in added and added[opening[0]].special else ()


def _check_template(tokenizer: Any, artifact: Artifact, form: TemplateForm) -> str | None:
    """Check whether the model's calls can be read, and conversations rendered; say loudly where they can't."""
    found = [warning for warning in (check_call_template(tokenizer, call_format, form), form.describe()) if warning]
    for warning in found:
        _LOG.warning("%s: %s", artifact.source, warning)
    return "; ".join(found) or None


def check_calls_on_disk(folder: Path) -> str | None:
    """Check the calls of the model in this folder without its weights. Raises ImportError without mlx-lm."""
    from mlx_lm.tokenizer_utils import load as load_tokenizer

    tokenizer = load_tokenizer(folder)
    return check_call_template(tokenizer, call_format, learn_template(tokenizer))


def call_format(tokenizer: Any, tools: Sequence[Mapping[str, Any]]) -> CallFormat | None:
    """Return how this model marks its calls, or None where mlx-lm knows no delimiters for it."""
    if not tools or not tokenizer.has_tool_calling:
        return None
    parser = tokenizer.tool_parser
    # mlx-lm's plain JSON parser takes any JSON value for a call; ours takes calls only and keeps their spelling.
    plain = parser.__module__.endswith(".json_tools")
    parse = strict_json_call if plain else _guard_parser(parser, [dict(tool) for tool in tools])
    return CallFormat(tokenizer.tool_call_start, tokenizer.tool_call_end, parse)


def _load_mlx(folder: Path, adapter: Adapter | None) -> tuple[Any, Any]:
    from mlx import core
    from mlx_lm import load as mlx_load

    if find_computing() is not Computing.CPU:
        core.set_cache_limit(_FREED_BUFFERS_BYTES)  # the default keeps freed buffers up to the whole memory limit
        install_fused()
    try:
        model, tokenizer = mlx_load(str(folder), adapter_path=str(adapter.path) if adapter else None)
    except ValueError as error:
        if adapter is None:
            raise
        why = " ".join(str(error).split())[:200]
        raise ModelUnavailable(f"adapter {adapter.label} doesn't fit this model: {why}") from error
    if core.default_device() == core.Device(core.cpu):
        _upcast(model)
    if spelled := spell_untrained_marks(model, tokenizer):
        _LOG.info("%s: spelled in letters, since the model hasn't learned their tokens: %s", folder, " ".join(spelled))
    return model, tokenizer


def _upcast(model: Any) -> None:
    """Hold a model's weights in float32, with its adapter in them, but for quantized ones: they stay, and a warning
    says that they are slow. It goes a layer at a time, so that memory is freed on the way."""
    from mlx.utils import tree_unflatten

    if any(hasattr(module, "bits") for module in model.modules()):
        _LOG.warning("quantized weights are slow on a processor: the same model in bfloat16 or float32 answers sooner")
        return
    for module in model.modules():
        if not module.children():
            module.set_dtype(mx.float32)
            mx.eval(module.parameters())
    model.set_dtype(mx.float32)  # what a module with layers in it has beside them
    mx.eval(model.parameters())
    fused = [(name, module.fuse()) for name, module in model.named_modules() if hasattr(module, "fuse")]
    model.update_modules(tree_unflatten(fused))


def _guard_parser(
    parser: Callable[..., Any], tools: list[dict[str, Any]]
) -> Callable[[str], list[tuple[str, str]] | None]:
    """Wrap mlx-lm's parser: complete calls or None, whatever it returns or raises."""

    def parse(body: str) -> list[tuple[str, str]] | None:
        try:
            found = parser(body, tools)
        except Exception:  # its input is whatever a model wrote
            return None
        calls = [_read_call(one) for one in (found if isinstance(found, list) else [found])]
        return None if any(call is None for call in calls) else [call for call in calls if call is not None]

    return parse


def _read_call(found: Any) -> tuple[str, str] | None:
    if not isinstance(found, Mapping) or not isinstance(found.get("name"), str) or not found["name"]:
        return None
    arguments = found.get("arguments")
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        return (found["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None
    except (TypeError, ValueError):
        return None


def _read_default_sampling(folder: Path) -> Sampling:
    """Read what the model's maker recommends; the most likely token where that is nothing."""
    config = read_object(folder / "generation_config.json") or {}
    if not config.get("do_sample", False):
        return Sampling()
    return Sampling(
        temperature=float(config.get("temperature") or 1.0),
        top_p=float(config.get("top_p") or 1.0),
        top_k=int(config.get("top_k") or 0),
    )


def spell_untrained_marks(model: Any, tokenizer: Any) -> tuple[str, ...]:
    """Have the tokenizer encode in letters the marks that its chat template writes and the model hasn't learned; return
    them. A tokenizer of another library than `tokenizers`, or without a table of its tokens, stays as it is."""
    backend, rows = getattr(tokenizer, "backend_tokenizer", None), _find_embedding(model)
    if backend is None or rows is None:
        return ()
    added, template = tokenizer.added_tokens_decoder, str(tokenizer.chat_template)
    marks = [token for token, one in added.items() if not one.special and one.content in template]
    untrained = {added[token].content for token in _find_untrained(rows, marks, list(added))}
    if not untrained:
        return ()
    spec = orjson.loads(backend.to_str())
    if not isinstance(spec["model"].get("vocab"), dict):
        return ()
    # All of them, else those that stay would be numbered anew; so a token that is drawn is told by its text, too.
    spec["model"]["vocab"].update((one["content"], one["id"]) for one in spec["added_tokens"])
    spec["added_tokens"] = [one for one in spec["added_tokens"] if one["content"] not in untrained]
    tokenizer._tokenizer._tokenizer = type(backend).from_str(orjson.dumps(spec).decode())
    return tuple(sorted(untrained))


def _find_embedding(model: Any) -> Any:
    """Find the layer that gives each token its row, packed or not: the one with the most rows."""
    found = [one for _, one in model.named_modules() if type(one).__name__.endswith("Embedding") and "weight" in one]
    return max(found, key=lambda one: len(one["weight"]), default=None)


def _find_untrained(embedding: Any, marks: Sequence[int], added: Sequence[int]) -> list[int]:
    """Find the `marks` whose row nothing has moved, by those of other `added` tokens and of those behind the last."""
    count = len(embedding["weight"])
    others = [*(token for token in added if token < count), *range(max(added, default=0) + 1, count)][-_ROWS_MAX:]
    marks = [token for token in marks if token < count]
    if not marks:
        return []
    rows = [np.array(embedding(mx.array(tokens)).astype(mx.float32)) for tokens in (marks, others)]
    units = [one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-9) for one in rows]
    alike = units[0] @ units[1].T >= _ALIKE
    return [mark for mark, same in zip(marks, alike, strict=True) if any(same & (np.array(others) != mark))]
