"""What is being fetched: a folder for each model with what has arrived, and how far it is.

One process fetches, under the lock of `cache_folder.py`; any other reads its words, which count as true only while the
lock is held. What a killed process had fetched stays. Invariant: a question never waits for the fetch.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from deployments.config.whole_file import write_whole
from deployments.models.cache_folder import Say, is_being_made
from deployments.models.gguf import UnknownModel
from deployments.models.sources import ModelUnavailable
from deployments.models.weights import read_object

_EVERY_S = 0.5
_WORDS_MAX = 400


@dataclass(frozen=True, slots=True)
class _FetchProgress:
    """How far a fetch is, in words. Where it has ended, `running` is False and `words` say why."""

    running: bool
    words: str


def find_folder(cache_dir: Path, name: str) -> Path:
    """Return where the parts of the model `name` are kept until it is converted."""
    return cache_dir / "downloads" / name


@contextlib.contextmanager
def tell(cache_dir: Path, name: str, say: Say) -> Iterator[Say]:
    """Yield a `Say` that also lets other processes know. Why the block raises is written down, until the next fetch
    begins; once it is complete, its folder is deleted."""
    folder = find_folder(cache_dir, name)

    def both(words: str) -> None:
        say(words)
        _write(folder, words, failed=False)

    try:
        yield both
    except (ModelUnavailable, UnknownModel, OSError) as error:
        _write(folder, str(error), failed=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def read_progress(cache_dir: Path, name: str) -> _FetchProgress | None:
    """Read how far the fetch of `name` is; None where there is none, and none has failed. Reads two small files."""
    found = read_object(find_folder(cache_dir, name) / "progress") or {}
    words, failed = str(found.get("words", "")), found.get("failed") is True
    if is_being_made(cache_dir / "models", name):
        return _FetchProgress(True, words if words and not failed else "preparing")
    if failed:
        return _FetchProgress(False, words)
    return None


@contextlib.contextmanager
def watch(count: Callable[[], int], total_bytes: int | None, say: Say) -> Iterator[None]:
    """Say how far it is, at each whole percent, while the block runs; nothing where the total isn't known. `count`: the
    bytes that have arrived. On a terminal there is a bar."""
    if total_bytes is None:
        yield
        return
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(count, total_bytes, say, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def check_disk(label: str, folder: Path, needed_bytes: int, *, variable: str, when: str = "") -> None:
    """Raise ModelUnavailable where the disk of `folder` hasn't so much room `when` it's needed. `variable` moves it."""
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free_bytes = shutil.disk_usage(there).free
    if needed_bytes > free_bytes:
        words = f"{format_size(needed_bytes)} of disk are needed{when}, {format_size(free_bytes)} are free"
        raise ModelUnavailable(f"{label}: {words}; make room, or set {variable} to a larger disk", again=True)


def count_bytes(folder: Path, pattern: str, *, largest: bool = False) -> int:
    """Count the bytes of all files under `folder` that fit, or of the largest; files come and go meanwhile."""
    sizes = [0]
    for here, _, files in os.walk(folder):  # which passes by what it can't list
        for file in fnmatch.filter(files, pattern):
            with contextlib.suppress(OSError):
                sizes.append(os.stat(os.path.join(here, file)).st_size)
    return max(sizes) if largest else sum(sizes)


def _format_progress(done_bytes: int, total_bytes: int) -> str:
    """Build the words for a share: `43 % of 491 MB`."""
    return f"{min(100, 100 * done_bytes // max(1, total_bytes))} % of {format_size(total_bytes)}"


def format_size(size_bytes: int) -> str:
    """Build the words for a size, as packages and hubs count it: by thousands."""
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.0f} MB"


def _watch(count: Callable[[], int], total_bytes: int, say: Say, ended: threading.Event) -> None:
    last, done = "", 0
    with tqdm(total=total_bytes, unit="B", unit_scale=True, disable=None) as bar:
        while not ended.wait(0 if not last else _EVERY_S):
            done = max(done, min(count(), total_bytes))
            bar.update(done - bar.n)
            words = _format_progress(done, total_bytes)
            if words != last:
                say(words)
                last = words


def _write(folder: Path, words: str, *, failed: bool) -> None:
    with contextlib.suppress(OSError):  # a full disk is reported by whoever writes the model
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "progress", json.dumps({"words": words[:_WORDS_MAX], "failed": failed}))
