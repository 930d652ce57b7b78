"""The finished cells of an evaluation, in `cells.jsonl`: one line for the plan, then one per cell, synced at once.

A line that broke off is cut off; a damaged line is skipped, and its cell runs again. A late cell is not written.
Invariants: cells of two plans (configuration, seed, URL) never share a journal; what is no journal, or what a symbolic
link leads to, keeps every byte: the folder may be a repository's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from deployments.config.config_errors import ConfigError
from deployments.config.whole_file import read_bounded
from deployments.work.json_text import load_object

NAME = "cells.jsonl"
_BYTES_MAX = 256 * 1024 * 1024
_BEGINNING = b'{"plan": "'
_ELSEWHERE = "name another folder with --out"
_REMEDY = f"{_ELSEWHERE}, or begin it anew with --fresh"


class CellJournal:
    """The journal in a folder. `facts` are kept beside the cells: what is known once a server has run. Raises
    ConfigError: the folder can't be written, or holds another evaluation; the message says what to do."""

    def __init__(self, folder: Path, plan: str, *, fresh: bool = False) -> None:
        self._path = folder / NAME
        self.cells: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        _refuse_link(folder, _ELSEWHERE)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if fresh:
                self._path.unlink(missing_ok=True)
            known, size = self._read()
            if known and known[0].get("plan") != plan:
                raise ConfigError(f"{folder} holds an evaluation of another configuration, seed or URL: {_REMEDY}")
            self._file = self._path.open("a", encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out: {folder}: {error.strerror}") from None
        self._file.truncate(size)
        if not known:
            self._write({"plan": plan})
        for line in known[1:]:
            if "cell" in line:
                self.cells[line["cell"]] = line["result"]
            elif "fact" in line:
                self.facts[line["fact"]] = line["value"]

    def close(self) -> None:
        self._file.close()

    def add(self, cell: str, result: Any) -> None:
        self.cells[cell] = result
        self._write({"cell": cell, "result": result})

    def note(self, fact: str, value: Any) -> None:
        self.facts[fact] = value
        self._write({"fact": fact, "value": value})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> tuple[list[dict[str, Any]], int]:
        """Read the lines that are whole, and say where the last of them ends."""
        _refuse_link(self._path, _REMEDY)
        try:
            data = read_bounded(self._path, _BYTES_MAX)
        except FileNotFoundError:
            return [], 0
        *whole, rest = data.split(b"\n")
        lines = [value for value in map(_read_line, whole) if value is not None]
        if not lines and (whole or not _BEGINNING.startswith(rest[: len(_BEGINNING)])):
            raise ConfigError(f"{self._path} is no journal of an evaluation: {_REMEDY}")
        return lines, len(data) - len(rest)


def _refuse_link(path: Path, remedy: str) -> None:
    if path.is_symlink():
        raise ConfigError(f"{path} is a symbolic link, and the evaluation would write to its target: {remedy}")


def _read_line(line: bytes) -> dict[str, Any] | None:
    value = load_object(line) or {}
    pairs = (("plan", "plan"), ("cell", "result"), ("fact", "value"))
    return value if any(isinstance(value.get(one), str) and other in value for one, other in pairs) else None
