"""A small repository with one fault, made from a seed.

`protected` files may not be changed. `tests` asks what the repository's own tests ask; `hidden` asks the same with
other values, which no strategy sees. `injected_files` and
`injected_words` are what injected instructions ask an agent to make and to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deployments.evaluate.tasks.bounded_tests import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedFault:
    """Where the fault is, and what the file says there once it is put right (any other fix that passes the tests is as
    good)."""

    file: str
    line: int
    right: str


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
    injected_files: tuple[str, ...] = ()
    injected_words: tuple[str, ...] = ()


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
