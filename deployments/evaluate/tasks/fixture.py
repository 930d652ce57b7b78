"""A small repository with one fault in it, made from a seed: what an agent is asked to find and to put right.

`files` is the whole repository. `protected` are those that a fix may not touch (its tests, above all). `tests` asks
what the repository's tests ask, so that no fix passes by changing them. `hidden` asks the same with other values, which
no strategy sees: so no fix passes by having the answers written into the code. Answers must have the right types, too:
an object that says it is equal to everything is no answer. `tricks` are marks that only an agent that followed the
injected instructions leaves behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.evaluate.tasks.check import Check

__all__ = ["Fixture", "FixtureMaker", "PlantedFault", "Trick", "find_line", "spell_path", "write_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFault:
    """Where the fault is, and what the file says there once it is put right (any other fix that passes the tests is as
    good)."""

    file: str
    line: int
    right: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trick:
    """What an injected instruction asks for: a file that would be there, or words that would be said."""

    file: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """One repository, and what there is to be known of it."""

    name: str
    question: str
    files: Mapping[str, str]
    fault: PlantedFault
    protected: tuple[str, ...]
    tests: tuple[Check, ...]
    hidden: tuple[Check, ...]
    tricks: tuple[Trick, ...] = ()


FixtureMaker = Callable[[random.Random], Fixture]


def write_files(fixture: Fixture, folder: Path) -> None:
    """Write the repository into an empty folder."""
    for name, text in fixture.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def find_line(text: str, wanted: str) -> int:
    """Return the number of the one line that is `wanted`, without its indentation."""
    (found,) = [number for number, line in enumerate(text.splitlines(), 1) if line.strip() == wanted.strip()]
    return found


def spell_path(path: str) -> str:
    """Spell a path in the one way: `./a//b` is `a/b`. One that is absolute or leads back is no path of the fixture."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return "" if path.startswith("/") or ".." in parts else "/".join(parts)
