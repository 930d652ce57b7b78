"""In which precision a model's weights are held: as they are on disk; on a CPU, floats of 16 bits as such of 32.

MLX computes 16-bit floats on a processor one by one: 20 times slower at reading a prompt
(docs/decisions/063-precision-on-a-cpu.md). So they take twice the memory of their files there, and so do keys and
values. Quantized weights stay as they are: they would take seven times as much.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from deployments.config.whole_file import read_bounded
from deployments.memory.room import estimate_scores_bytes
from deployments.memory.sensors.computing import Computing, find_computing
from deployments.work.json_text import load_object

_SHORT = ("bfloat16", "float16")


def find_stored_dtype(config: Mapping[str, Any]) -> str | None:
    """Find the type of the weights on disk, by the model's config; None where it doesn't say."""
    inner = config.get("text_config")
    inner = inner if isinstance(inner, Mapping) else {}
    dtype = config.get("torch_dtype") or config.get("dtype") or inner.get("torch_dtype") or inner.get("dtype")
    return dtype if isinstance(dtype, str) else None


def find_held_dtype(config: Mapping[str, Any]) -> str | None:
    """Find the type in which they are held, and keys and values with them."""
    stored = find_stored_dtype(config)
    quantized = any(isinstance(config.get(name), Mapping) for name in ("quantization", "quantization_config"))
    return "float32" if stored in _SHORT and not quantized and find_computing() is Computing.CPU else stored


def read_number(config: Any, *names: str) -> int:
    """Read the first of these from a model's config or arguments, or from those of its text layers; 0 for none."""
    inner = config.get("text_config") if isinstance(config, Mapping) else getattr(config, "text_config", None)
    for one in (config, inner):
        for name in names:
            found = one.get(name) if isinstance(one, Mapping) else getattr(one, name, None)
            if type(found) is int and found > 0:
                return found
    return 0


def estimate_scores(config: Any, step_tokens: int, *, forced: bool) -> tuple[int, int]:
    """Estimate what attention's scores take in a step, by the heads in a model's config or arguments: bytes in any
    case, and for each token of the context (`memory/room.py`)."""
    heads = read_number(config, "num_attention_heads")
    size = read_number(config, "head_dim") or read_number(config, "hidden_size") // max(1, heads)
    return estimate_scores_bytes(heads, size, step_tokens, find_computing(), forced=forced)


def read_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object from a model's folder; None where there is none."""
    try:
        return load_object(read_bounded(path))
    except OSError:
        return None


def grow_to_held(stored_bytes: int, config: Mapping[str, Any]) -> int:
    """Return how many bytes weights of so many on disk take in memory."""
    return stored_bytes * (1 if find_held_dtype(config) == find_stored_dtype(config) else 2)


_PACKAGES = ("mlx", "mlx-lm")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def weights_sha256(folder: Path) -> str:
    """Compute the digest of all `*.safetensors` of a model folder. Raises OSError for an unreadable file."""
    files = sorted(folder.glob("*.safetensors"))
    digests = []
    for file in files:
        blob = file.resolve().name  # the hub's cache names a file's blob after its sha256
        known = file.is_symlink() and _SHA256.fullmatch(blob)
        digests.append((blob if known else file_sha256(file), file.name))
    if len(digests) == 1:
        return digests[0][0]
    listing = "".join(f"{digest}  {name}\n" for digest, name in digests)
    return hashlib.sha256(listing.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Compute the digest of one file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions(packages: Iterable[str] = _PACKAGES) -> dict[str, str]:
    """List the versions of packages, of those that generate where none are named, as far as they are installed."""
    found: dict[str, str] = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
