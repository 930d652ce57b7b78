"""The finished cells of an evaluation, on disk: what Ctrl-C, a crash or the end of the budget leaves is taken up again.

    evaluation/cells.jsonl    a line for the plan, then a line for each finished cell, synced before the next one begins

A line that broke off is cut off, one that is damaged is passed over, and its cell is run again. A cell that ran out of
time is not written. What must never happen: cells of two different plans (another configuration, seed, URL) in one
journal; a byte taken from a file that isn't one, or from one that a link leads to: the folder may be a repository's.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["CellJournal", "OtherPlan"]

NAME = "cells.jsonl"
BEGINNING = b'{"plan": "'
REMEDY = "name another folder with --out, or begin it anew with --fresh"


class OtherPlan(RuntimeError):
    """The folder holds another evaluation. The message says what to do."""


class CellJournal:
    """The journal in a folder. `facts` are kept beside the cells: what is known once a server has run."""

    def __init__(self, folder: Path, plan: str, *, fresh: bool = False) -> None:
        self._path = folder / NAME
        self.cells: dict[str, Any] = {}
        self.facts: dict[str, Any] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if fresh:
            self._path.unlink(missing_ok=True)
        known, size = self._read()
        if known and known[0].get("plan") != plan:
            raise OtherPlan(f"{folder} holds an evaluation of another configuration, seed or URL: {REMEDY}")
        self._file = self._path.open("a", encoding="utf-8")
        self._file.truncate(size)
        if not known:
            self._write({"plan": plan})
        for line in known[1:]:
            if "cell" in line:
                self.cells[line["cell"]] = line["result"]
            elif "fact" in line:
                self.facts[line["fact"]] = line["value"]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, cell: str, result: Any) -> None:
        """Keep a finished cell."""
        self.cells[cell] = result
        self._write({"cell": cell, "result": result})

    def note(self, fact: str, value: Any) -> None:
        """Keep a fact; a later one of the same name replaces it."""
        self.facts[fact] = value
        self._write({"fact": fact, "value": value})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> tuple[list[dict[str, Any]], int]:
        """Read the lines that are whole, and say where the last of them ends."""
        if self._path.is_symlink():
            raise OtherPlan(f"{self._path} is a symbolic link, and the evaluation would write to its target: {REMEDY}")
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return [], 0
        *whole, rest = data.split(b"\n")
        lines = [value for value in map(_read_line, whole) if value is not None]
        if not lines and (whole or not BEGINNING.startswith(rest[: len(BEGINNING)])):
            raise OtherPlan(f"{self._path} is no journal of an evaluation: {REMEDY}")
        return lines, len(data) - len(rest)


def _read_line(line: bytes) -> dict[str, Any] | None:
    """Read a line; None where it isn't one of a journal."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    pairs = (("plan", "plan"), ("cell", "result"), ("fact", "value"))
    return value if any(isinstance(value.get(one), str) and other in value for one, other in pairs) else None
