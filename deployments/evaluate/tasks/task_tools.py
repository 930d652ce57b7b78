"""The tools of the plain agent: list, read, grep, edit, run the tests, hand in the diagnosis, which every strategy does
at the end: one flat object that a small model can write.

Each answer is bounded text; nothing that a model sends raises. Text of files is passed on as it is.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import re2
from jsonschema import Draft202012Validator

from deployments.evaluate.calls.call_cases import declare_tools
from deployments.evaluate.tasks.bounded_tests import run_tests
from deployments.evaluate.tasks.fixtures import Fixture, spell_path
from deployments.evaluate.tasks.work_folder import Refused, WorkFolder

RESULT_CHARS_MAX = 1_600
READ_LINES_MAX = 40
HITS_MAX = 12
HIT_CHARS_MAX = 160
PATTERN_CHARS_MAX = 200
TEXT_CHARS_MAX = 2_000
_DECLARED = declare_tools(Path(__file__).with_name("task_tools.yaml"))
TOOLS: tuple[dict[str, Any], ...] = tuple(_DECLARED.values())
SCHEMA: dict[str, Any] = _DECLARED["diagnose"]["function"]["parameters"]
VALIDATOR = Draft202012Validator(SCHEMA)


def read_diagnosis(given: object) -> dict[str, Any] | None:
    """Return the diagnosis, if it is one: an object of the schema, or its JSON text."""
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return None
    if not isinstance(given, Mapping) or not VALIDATOR.is_valid(dict(given)):
        return None
    found = {key: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value for key, value in given.items()}
    return found | {"line": int(found["line"])}  # 4.0 is an integer, too, by the schema


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


class Toolset:
    """The tools on one folder. `touched`: the files that somebody wanted to edit and may not: protected ones, and those
    that an injected instruction asks for."""

    def __init__(self, fixture: Fixture, folder: WorkFolder) -> None:
        self._folder, self._tests = folder, fixture.tests
        self._barred = {*fixture.protected, *fixture.injected_files}
        self.touched: list[str] = []

    def use(self, name: str, arguments: str) -> str:
        """Use a tool; the answer is for the model, whatever it asked."""
        does: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "list_files": self._list_files,
            "read_file": self._read_file,
            "grep": self._grep,
            "edit": self._edit,
            "run_tests": self._run_tests,
        }
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return "error: the arguments are not JSON"
        if name not in does or not isinstance(given, Mapping):
            return f"error: there is no tool {name[:60]!r}; tools: {', '.join(does)}, diagnose"
        try:
            return _cut(does[name](given))
        except Refused as refused:
            return f"error: {refused}"

    def _list_files(self, _: Mapping[str, Any]) -> str:
        return "\n".join(self._folder.list_files())

    def _read_file(self, given: Mapping[str, Any]) -> str:
        lines = self._folder.read(str(given.get("path", ""))).splitlines()
        first = given.get("first_line", 1)
        first = max(1, first) if isinstance(first, int) else 1
        shown = [f"{number}: {line[:HIT_CHARS_MAX]}" for number, line in enumerate(lines, 1)]
        part = shown[first - 1 : first - 1 + READ_LINES_MAX]
        more = len(lines) - (first - 1) - len(part)
        return "\n".join([*part, *([f"({more} more lines)"] if more > 0 else [])]) or "(no such lines)"

    def _grep(self, given: Mapping[str, Any]) -> str:
        pattern = str(given.get("pattern", ""))[:PATTERN_CHARS_MAX]
        options = re2.Options()
        options.log_errors = False
        try:
            compiled = re2.compile(pattern, options)  # linear, whatever the pattern
        except (re2.error, UnicodeEncodeError):  # half a pair of surrogates
            return f"error: {pattern!r} is no regular expression"
        hits: list[str] = []
        for name, text in self._read_all():
            for number, line in enumerate(text.splitlines(), 1):
                if compiled.search(line):
                    hits.append(f"{name}:{number}: {line.strip()[:HIT_CHARS_MAX]}")
        return (
            "\n".join([*hits[:HITS_MAX], *([f"({len(hits) - HITS_MAX} more)"] if len(hits) > HITS_MAX else [])])
            or "(none)"
        )

    def _read_all(self) -> Iterator[tuple[str, str]]:
        """Read every file that can be read: tests may have left others."""
        for name in self._folder.list_files():
            with contextlib.suppress(Refused):
                yield name, self._folder.read(name)

    def _edit(self, given: Mapping[str, Any]) -> str:
        path, old, new = (str(given.get(key, "")) for key in ("path", "old", "new"))
        if spell_path(path) in self._barred:
            self.touched.append(path)
            raise Refused(f"{path} may not be changed")
        text = self._folder.read(path)
        if not old or text.count(old) != 1:
            raise Refused(f"the old text must stand in {path} once; it is there {text.count(old) if old else 0} times")
        self._folder.write(path, text.replace(old, new))
        return "edited"

    def _run_tests(self, _: Mapping[str, Any]) -> str:
        return run_tests(self._folder.root, self._tests)[-900:] or "all tests pass"


def _cut(text: str) -> str:
    return text if len(text) <= RESULT_CHARS_MAX else text[:RESULT_CHARS_MAX] + "\n(cut)"
