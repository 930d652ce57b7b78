"""Models of the Hugging Face hub: downloaded by its own client, into its own cache.

A hub that doesn't answer is no reason to refuse a model that was fetched before: the download then
looks in the cache alone.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

from deployments.models.cache_folder import Say
from deployments.models.downloads import count_bytes, watch
from deployments.models.sources import DEFAULT_SOURCE, ModelSource, ModelUnavailable

__all__ = ["fetch_file", "fetch_snapshot", "find_snapshot"]

# What mlx-lm itself fetches of a repository: weights and what describes them, not every format that
# one offers.
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


def fetch_snapshot(source: ModelSource, say: Say) -> Path:
    """Return the folder of a repository's snapshot in the hub's cache, downloaded if need be.

    Raises:
        ModelUnavailable: it can't be had.
    """
    say(f"asking the hub for {source.name}")
    silence = _probe_hub(source)
    say(f"fetching {source.name}")
    return _load_snapshot(source, silence)


def fetch_file(source: ModelSource, say: Say) -> Path:
    """Return one file of a repository, in the hub's cache, downloaded if need be. Its client takes up a download where
    it broke off, and shows a bar on a terminal.

    Raises:
        ModelUnavailable: it can't be had.
    """
    say(f"asking the hub for {source.name}")
    silence = _probe_hub(source)
    say(f"fetching {source.file}")
    client = _import_client()
    arrived = partial(count_bytes, Path(client.constants.HF_HUB_CACHE) / _name_repository(source), "*.incomplete")
    with watch(arrived, source.size_bytes if silence is None else None, say, progress=False):
        try:
            file = client.hf_hub_download(
                source.name, source.file, revision=source.revision, local_files_only=silence is not None
            )
        except Exception as error:
            raise ModelUnavailable(_explain_unreachable(source, silence or error), again=True) from error
    return Path(file)


def _name_repository(source: ModelSource) -> str:
    return "models--" + source.name.replace("/", "--")


def find_snapshot(source: ModelSource) -> Path:
    """Return the folder of a repository's snapshot in the hub's cache. Asks nobody.

    Raises:
        ModelUnavailable: it isn't there.
    """
    return _load_snapshot(source, FileNotFoundError(source.name))


def _import_client() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ModelUnavailable("huggingface_hub is not installed; run `pip install huggingface_hub`") from error
    return huggingface_hub


def _load_snapshot(source: ModelSource, silence: Exception | None) -> Path:
    """Let the hub's client find or fetch a snapshot. `silence`: why the hub isn't asked; what was
    fetched before still serves."""
    client = _import_client()
    try:
        folder = client.snapshot_download(
            source.name,
            revision=source.revision,
            allow_patterns=_HF_FILES,
            local_files_only=silence is not None,
        )
    except Exception as error:
        raise ModelUnavailable(_explain_unreachable(source, silence or error), again=True) from error
    return Path(folder)


def _probe_hub(source: ModelSource) -> Exception | None:
    """Probe the hub: return why it doesn't answer, or None where it does. What it answers may be a
    refusal.

    Done before the download, since the download's own first request waits without end for a silent
    hub.
    """
    client = _import_client()
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        client.HfApi().model_info(source.name, revision=source.revision, timeout=_HF_ANSWER_S)
    except GatedRepoError as error:
        raise ModelUnavailable(f"{source.label} is gated: accept its terms and set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise ModelUnavailable(f"{source.label}: the repository has no such revision") from error
    except RepositoryNotFoundError as error:
        raise ModelUnavailable(f"{source.label}: no such repository (or HF_TOKEN may not see it)") from error
    except Exception as error:  # whatever its HTTP client raises for a network that doesn't work
        return error
    return None


def _explain_unreachable(source: ModelSource, error: Exception) -> str:
    file = f" {source.file}" if source.file else ""
    return (
        f"{source.label} is not in the local hub cache and can't be fetched ({type(error).__name__}); "
        f"connect and run `hf download {source.name}{file} --revision {source.revision}`, or configure "
        f"`model: path:DIR` or `model: {DEFAULT_SOURCE}`, which needs no hub"
    )
