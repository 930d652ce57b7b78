"""The newest `KEPT_MAX` reports, for the control room: STATE/mlx-stack-serve/evaluations/20261124-081500-1a2b3c4d/.

A report is written into a hidden folder, which is renamed at the end. The writer holds a lock on the parent folder, and
deletes the hidden folders that killed writers have left. The folder is this user's alone.
Invariants: a name from a browser fits `NAME` before it becomes a path; no link is followed; only `PARTS` are read.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deployments.config.config_paths import state_folder
from deployments.config.whole_file import lock_folder, make_whole

KEPT_MAX = 50
NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}", re.ASCII)
PARTS = ("report.html", "report.md", "report.json")
SUMMARY = "summary.json"
_SUMMARY_BYTES_MAX = 64 * 1024
PART_BYTES_MAX = 32 * 1024 * 1024
WORDS_MAX, TIERS_MAX = 200, 32
_UNFINISHED = "."  # how the name of a folder begins that is being written


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptReport:
    """One of them: when it was made, of what, and each tier's verdict."""

    name: str
    made: str
    target: str
    verdicts: tuple[tuple[str, str], ...]


def find_kept_folder() -> Path:
    """Name the folder of all of them."""
    return state_folder("evaluations")


def keep_report(folder: Path, report: Mapping[str, Any], page: str, summary: str) -> Path:
    """Keep a report, and let the oldest go. Raises OSError: it can't be written."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
    verdicts = {tier: one["verdict"] for tier, one in report["verdicts"].items()}
    short = {"made": report["made"], "target": report["target"], "verdicts": verdicts}
    texts = dict(zip(PARTS, (page, summary, json.dumps(report, indent=1)), strict=True)) | {SUMMARY: json.dumps(short)}
    with lock_folder(folder):
        with make_whole(folder / name, _UNFINISHED) as unfinished:
            for part, text in texts.items():
                (unfinished / part).write_text(text, encoding="utf-8")
        for old in _list_names(folder)[KEPT_MAX:]:
            shutil.rmtree(folder / old, ignore_errors=True)
    return folder / name


def list_kept(folder: Path) -> list[_KeptReport]:
    """List them, the newest first; one that can't be read is left out."""
    found = []
    for name in _list_names(folder)[:KEPT_MAX]:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
            short = json.loads(_read(folder, name, SUMMARY, _SUMMARY_BYTES_MAX) or b"")
            verdicts = [(str(tier)[:WORDS_MAX], str(words)[:WORDS_MAX]) for tier, words in short["verdicts"].items()]
            made, target = str(short["made"])[:WORDS_MAX], str(short["target"])[:WORDS_MAX]
            found.append(_KeptReport(name=name, made=made, target=target, verdicts=tuple(verdicts[:TIERS_MAX])))
    return found


def read_kept(folder: Path, name: str, part: str) -> bytes | None:
    """Read one of a report's `PARTS`; None where there is none."""
    return _read(folder, name, part, PART_BYTES_MAX) if part in PARTS else None


def _list_names(folder: Path) -> list[str]:
    """List the newest first; nothing where nothing has been kept yet."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [one.name for one in entries if NAME.fullmatch(one.name) and one.is_dir(follow_symlinks=False)]
        return sorted(names, reverse=True)
    return []


def _read(folder: Path, name: str, part: str, bytes_max: int) -> bytes | None:
    if not NAME.fullmatch(name) or (folder / name).is_symlink():
        return None

    def open_file(path: str, _: int) -> int:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # what stands there may be a pipe

    with contextlib.suppress(OSError), open(folder / name / part, "rb", opener=open_file) as file:
        state = os.fstat(file.fileno())
        if stat.S_ISREG(state.st_mode) and state.st_size <= bytes_max:
            return file.read(bytes_max)
    return None
