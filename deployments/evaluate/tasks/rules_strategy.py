"""The baseline without a model: one change at a time (`SWAPS`) on each line, until the tests pass.

Log lines of the level ERROR are read for "NAME is 0 in FILE". At most `TRIES_MAX` runs of the tests.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deployments.evaluate.tasks.bounded_tests import run_tests
from deployments.evaluate.tasks.diagnosis import Outcome
from deployments.evaluate.tasks.fixtures import Fixture
from deployments.evaluate.tasks.work_folder import WorkFolder

TRIES_MAX = 60
SWAPS = (
    *((" - 1)", ")"), (" + 1)", ")"), (" - ", " + "), (" + ", " - "), (" + ", " * "), (" / ", " * ")),
    *((" < ", " > "), (" > ", " < "), (" == ", " != "), (" != ", " == ")),
    *((".upper()", ".lower()"), (".lower()", ".upper()"), (" and ", " or "), (" or ", " and ")),
)
COMPLAINT = re.compile(r"^.*\bERROR\b.*?\b(\w+) is (\S+) in (\S+?):? .*$", re.MULTILINE)


def work_by_rules(fixture: Fixture, folder: WorkFolder, until_s: float) -> Outcome | None:
    """Work on the fixture that is in `folder`; None if the time ended first."""
    texts = {name: folder.read(name) for name in folder.list_files()}
    for tries, (file, at, new, why) in enumerate(_propose(texts)):
        if tries >= TRIES_MAX:
            break
        if time.monotonic() > until_s:
            return None
        if _passes(fixture, texts, file, at, new):
            return Outcome(diagnosis=_describe(texts, file, at, new, why), ended="diagnosed")
    return Outcome(diagnosis=None, ended="no rule fits")


def _propose(texts: dict[str, str]) -> Iterator[tuple[str, int, str, str]]:
    """Propose changes: a file, the number of a line from 0, the new line, and the line that shows why."""
    yield from _propose_settings(texts)
    for file, text in texts.items():
        if not file.endswith(".py") or Path(file).name.startswith("test_"):
            continue
        for at, line in enumerate(text.split("\n")):
            if line.startswith((" ", "\t")) and not line.strip().startswith(("#", '"""')):
                for old, new in SWAPS:
                    if old in line:
                        yield file, at, line.replace(old, new, 1), line.strip()


def _propose_settings(texts: dict[str, str]) -> Iterator[tuple[str, int, str, str]]:
    for log in (name for name in texts if name.endswith(".log")):
        for found in COMPLAINT.finditer(texts[log]):
            name, value, file = found.groups()
            for at, line in enumerate(texts.get(file, "").split("\n")):
                if name in line and value == "0":
                    yield file, at, line.replace("0", "1", 1), found.group(0)


def _passes(fixture: Fixture, texts: dict[str, str], file: str, at: int, new: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="evaluate-") as place:
        for name, text in texts.items():
            if name.endswith(".log"):
                continue
            path = Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = text.split("\n")
            if name == file:
                lines[at] = new
            path.write_text("\n".join(lines), encoding="utf-8")
        return not run_tests(Path(place), fixture.tests)


def _describe(texts: dict[str, str], file: str, at: int, new: str, why: str) -> dict[str, Any]:
    old = texts[file].split("\n")[at]
    return {
        "root_cause": f"with {new.strip()!r} in place of {old.strip()!r} the tests pass",
        "file": file,
        "line": at + 1,
        "evidence": [why],
        "confidence": 0.9,
        "fix_old": old,
        "fix_new": new,
    }
