"""Models of the Hugging Face hub: listed by its own client, and kept in its own cache.

The hub's client throws away what it has of a file when it is interrupted (from version 1.10 on). So the files with a
sha256 are fetched here, by plain ranges, to where the client looks for them; it then fetches the small ones and links
all. Where the hub doesn't answer, the cache alone is searched. Invariants: a file gets its final name only when its
sha256 fits; bytes that have arrived are only deleted when the whole of them is wrong; one process at a time fetches.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from deployments.models import cache_folder as store
from deployments.models import downloads
from deployments.models.cache_folder import Say
from deployments.models.downloads import watch
from deployments.models.sources import DEFAULT_SOURCE, ModelSource, ModelUnavailable
from deployments.models.weights import file_sha256

# What mlx-lm itself fetches of a repository: weights and what describes them, not every format.
_HF_FILES = ["*.json", "model*.safetensors", "*.py", "tokenizer.model", "*.tiktoken", "*.txt", "*.jsonl", "*.jinja"]
_COMMIT = re.compile(r"[0-9a-f]{40}")
_HF_ANSWER_S = 10.0  # for the hub's first answer; then its client's own timeouts per read apply


def fetch_snapshot(source: ModelSource, cache_dir: Path, *, say: Say) -> Path:
    """Return the folder of a repository's snapshot in the hub's cache, downloaded if need be. The hub isn't asked again
    about a commit that is complete, so a tier that wakes waits for no network. Raises ModelUnavailable."""
    name = name_fetch(source)
    done = cache_dir / "models" / f".{name}.complete"
    here = find_complete(source) if _COMMIT.fullmatch(source.revision or "") and done.exists() else None
    if here is not None:
        return here
    with store.hold(cache_dir / "models", name, say=say):
        with downloads.tell(cache_dir, name, say) as say_all:
            silence = _fetch_large(source, say=say_all)
            folder = _load(source, silence)
        if silence is None:
            done.touch()
    return folder


def fetch_file(source: ModelSource, *, say: Say) -> Path:
    """Return one file of a repository, in the hub's cache, downloaded if need be. Raises ModelUnavailable."""
    return _load(source, _fetch_large(source, say=say))


def find_complete(source: ModelSource) -> Path | None:
    """Find the folder of a snapshot that has all its weights. Reads three small files, and asks no hub."""
    try:
        repository = _locate_repository(source)
        commit = source.revision or ""
        if not _COMMIT.fullmatch(commit):
            commit = (repository / "refs" / commit).read_text(encoding="ascii").strip()
        folder = repository / "snapshots" / commit
        if (folder / "config.json").is_file() and _has_weights(folder):
            return folder
    except (ImportError, OSError, ValueError, KeyError, AttributeError):  # no client, no such file, or no index
        pass
    return None


def _has_weights(folder: Path) -> bool:
    """Tell whether each file is there that the index names, or any where there is no index."""
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(file.is_file() for file in folder.glob("*.safetensors"))
    named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return all((folder / str(file)).is_file() for file in set(named))


def name_fetch(source: ModelSource) -> str:
    """Name the fetch of a snapshot, for `downloads.read_progress`."""
    return re.sub(r"[^\w.-]", "-", f"hub-{source.name}-{source.revision}")


def _locate_repository(source: ModelSource) -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / ("models--" + source.name.replace("/", "--"))


def _fetch_large(source: ModelSource, *, say: Say) -> Exception | None:
    """Fetch the files of the source that have a sha256. Return why the hub isn't asked, where it doesn't answer."""
    say(f"asking the hub for {source.name}")
    info = _ask_hub(source)
    if isinstance(info, Exception):
        return info
    files, blobs = list(_list_large(source, info)), _locate_repository(source) / "blobs"
    total_bytes = sum(file.size_bytes for file in files)
    missing_bytes = total_bytes - _count_arrived(files, blobs)
    downloads.check_disk(source.label, blobs.parent.parent, missing_bytes, variable="HF_HOME")
    say(f"fetching {source.file or source.name}")
    try:
        with watch(partial(_count_arrived, files, blobs), total_bytes or None, say):
            _fetch_files(files, blobs, _import_client().utils.build_hf_headers())
    except _BrokenOff as error:
        raise ModelUnavailable(f"{source.label}: {error}", again=True) from error
    return None


def _list_large(source: ModelSource, info: Any) -> Iterator[_HubFile]:
    client = _import_client()
    for one in info.siblings or ():
        fits = any(fnmatch.fnmatchcase(one.rfilename, pattern) for pattern in _HF_FILES)
        if one.lfs is not None and (one.rfilename == source.file if source.file else fits):
            url = client.hf_hub_url(source.name, one.rfilename, revision=info.sha)
            yield _HubFile(url=url, sha256=one.lfs.sha256, size_bytes=one.lfs.size)


def _import_client() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ModelUnavailable("huggingface_hub is not installed; run `pip install huggingface_hub`") from error
    return huggingface_hub


def _load(source: ModelSource, silence: Exception | None) -> Path:
    """Let the hub's client find or fetch the one file, or the snapshot. `silence`: why the hub isn't asked."""
    client, where = _import_client(), {"revision": source.revision, "local_files_only": silence is not None}
    try:
        if source.file:
            return Path(client.hf_hub_download(source.name, source.file, **where))
        return Path(client.snapshot_download(source.name, allow_patterns=_HF_FILES, **where))
    except Exception as error:
        file = f" {source.file}" if source.file else ""
        words = (
            f"{source.label} is not in the local hub cache and can't be fetched ({type(silence or error).__name__}); "
            f"connect and run `hf download {source.name}{file} --revision {source.revision}`, or configure "
            f"`model: path:DIR` or `model: {DEFAULT_SOURCE}`, which needs no hub"
        )
        raise ModelUnavailable(words, again=True) from error


def _ask_hub(source: ModelSource) -> Any:
    """Ask the hub what the repository has: its answer, or the error where it doesn't answer. Done before the download,
    whose own first request waits without end for a silent hub. Raises ModelUnavailable where the hub refuses."""
    client = _import_client()
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return client.HfApi().model_info(
            source.name, revision=source.revision, timeout=_HF_ANSWER_S, files_metadata=True
        )
    except GatedRepoError as error:
        raise ModelUnavailable(f"{source.label} is gated: accept its terms and set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise ModelUnavailable(f"{source.label}: the repository has no such revision") from error
    except RepositoryNotFoundError as error:
        raise ModelUnavailable(f"{source.label}: no such repository (or HF_TOKEN may not see it)") from error
    except Exception as error:  # whatever its HTTP client raises for a network that doesn't work
        return error


_TRIES = 5
_CONNECT_S, _READ_S = 10.0, 60.0


class _BrokenOff(Exception):
    """A file could not be fetched to its end. What has arrived stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HubFile:
    """A file with a pinned content. `url` is its address, by a commit."""

    url: str
    sha256: str
    size_bytes: int

    @property
    def part(self) -> str:
        return f"{self.sha256}.mlx-stack-serve.incomplete"


def _fetch_files(files: Iterable[_HubFile], blobs: Path, headers: Mapping[str, str]) -> None:
    """Fetch what isn't in `blobs` yet. `headers`: those of the hub's client, with its key. Raises _BrokenOff: a file
    could not be had, or its content isn't what the hub says; OSError: it can't be written."""
    blobs.mkdir(parents=True, exist_ok=True)
    for file in files:
        if not (blobs / file.sha256).exists():
            _fetch_file(file, blobs, headers)


def _count_arrived(files: Iterable[_HubFile], blobs: Path) -> int:
    return sum(_count_bytes(blobs / file.sha256) or _count_bytes(blobs / file.part) for file in files)


def _fetch_file(file: _HubFile, blobs: Path, headers: Mapping[str, str]) -> None:
    part = blobs / file.part
    tries = 0
    while (had := _count_bytes(part)) < file.size_bytes:
        why = _fetch_rest(file, part, headers)
        tries = tries + 1 if _count_bytes(part) <= had else 0
        if tries == _TRIES:
            raise _BrokenOff(f"{file.url}: {why}; {had} of {file.size_bytes} bytes have arrived, and stay")
    if had > file.size_bytes or file_sha256(part) != file.sha256:
        part.unlink()
        raise _BrokenOff(f"{file.url}: its content isn't what the hub says, and was deleted")
    part.rename(blobs / file.sha256)


def _fetch_rest(file: _HubFile, part: Path, headers: Mapping[str, str]) -> str:
    """Append what comes; return why it ended."""
    import httpx  # late: a Router that only looks what is here has no use for it

    had = _count_bytes(part)
    timeout = httpx.Timeout(_CONNECT_S, read=_READ_S)
    ranged = {**headers, "Accept-Encoding": "identity"} | ({"Range": f"bytes={had}-"} if had else {})
    try:
        with httpx.stream("GET", file.url, headers=ranged, follow_redirects=True, timeout=timeout) as answer:
            if answer.status_code not in (200, 206):
                return f"the hub answers {answer.status_code}"
            # A server that knows no ranges begins anew.
            with part.open("ab" if answer.status_code == 206 else "wb") as out:
                for chunk in answer.iter_raw():
                    out.write(chunk)
    except httpx.HTTPError as error:
        return type(error).__name__
    return "the connection ended early"


def _count_bytes(path: Path) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0
