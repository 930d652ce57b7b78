"""The large files of a hub repository, fetched so that an interrupted fetch continues where it was.

The hub's own client throws away what it has of a file when it is interrupted (from version 1.10 on), and a model is
often one file of gigabytes. So the files with a sha256 are fetched here, by plain ranges, to where the client looks for
them; the client then fetches the small ones and links all.

    <hub cache>/models--ORG--NAME/blobs/SHA256.mlx-stack-serve.incomplete    what has arrived
    <hub cache>/models--ORG--NAME/blobs/SHA256                               complete, and its sha256 checked

Invariants: a file gets its final name only when its sha256 fits; bytes that have arrived are only deleted when the
whole of them is wrong. One process at a time fetches a file (the caller holds a lock).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.models.provenance import file_sha256

__all__ = ["BrokenOff", "HubFile", "count_arrived", "fetch_files"]

_TRIES = 5
_CONNECT_S, _READ_S = 10.0, 60.0
_PART = ".mlx-stack-serve.incomplete"


class BrokenOff(Exception):
    """A file could not be fetched to its end. What has arrived stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file with a pinned content. `url` is its address, by a commit."""

    url: str
    sha256: str
    size_bytes: int


def fetch_files(files: Iterable[HubFile], blobs: Path, headers: Mapping[str, str]) -> None:
    """Fetch what isn't in `blobs` yet. `headers`: those of the hub's client, with its key.

    Raises:
        BrokenOff: a file could not be had, or its content isn't what the hub says.
        OSError: it can't be written.
    """
    blobs.mkdir(parents=True, exist_ok=True)
    for file in files:
        if not (blobs / file.sha256).exists():
            _fetch_file(file, blobs, headers)


def count_arrived(files: Iterable[HubFile], blobs: Path) -> int:
    """Count the bytes of these files that are here."""
    return sum(_count_bytes(blobs / file.sha256) or _count_bytes(_locate_part(file, blobs)) for file in files)


def _fetch_file(file: HubFile, blobs: Path, headers: Mapping[str, str]) -> None:
    part = _locate_part(file, blobs)
    tries = 0
    while (had := _count_bytes(part)) < file.size_bytes:
        why = _fetch_rest(file, part, headers)
        tries = tries + 1 if _count_bytes(part) <= had else 0
        if tries == _TRIES:
            raise BrokenOff(f"{file.url}: {why}; {had} of {file.size_bytes} bytes have arrived, and stay")
    if had > file.size_bytes or file_sha256(part) != file.sha256:
        part.unlink()
        raise BrokenOff(f"{file.url}: its content isn't what the hub says, and was deleted")
    part.rename(blobs / file.sha256)


def _fetch_rest(file: HubFile, part: Path, headers: Mapping[str, str]) -> str:
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


def _locate_part(file: HubFile, blobs: Path) -> Path:
    return blobs / f"{file.sha256}{_PART}"


def _count_bytes(path: Path) -> int:
    with contextlib.suppress(OSError):
        return os.stat(path).st_size
    return 0
