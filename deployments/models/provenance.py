"""What exactly generates here: the digest of the weights, and the versions of the packages that compute with them.

The digest of a model of one file is that file's sha256; of several, the sha256 of their `sha256sum` listing, sorted by
name, so that a person can check it with two commands. The hub's cache names a file's blob after its sha256, so no hub
model is read for it; other folders are read once, when the model is loaded anyway.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
from pathlib import Path

_PACKAGES = ("mlx", "mlx-lm")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def weights_sha256(folder: Path) -> str:
    """Compute the digest of all `*.safetensors` of a model folder. Raises OSError for an unreadable file."""
    files = sorted(folder.glob("*.safetensors"))
    digests = [(_read_blob_sha256(file) or file_sha256(file), file.name) for file in files]
    if len(digests) == 1:
        return digests[0][0]
    listing = "".join(f"{digest}  {name}\n" for digest, name in digests)
    return hashlib.sha256(listing.encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """Compute the digest of one file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def versions() -> dict[str, str]:
    """List the versions of the packages that generate, where they are installed."""
    found: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _read_blob_sha256(file: Path) -> str | None:
    """Read what the hub's cache says of a file that is a link to one of its blobs."""
    name = file.resolve().name
    return name if file.is_symlink() and _SHA256.fullmatch(name) else None
