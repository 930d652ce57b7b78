"""The tools of the plain agent, its diagnosis, and the throw-away folder that the tools can't leave.

Each answer is bounded text; nothing that a model sends raises. A path is walked from the folder's descriptor, part by
part, without symbolic links (`O_NOFOLLOW`), so a folder that is swapped meanwhile leads nowhere.
Invariant: no byte from outside of the folder, none to outside.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import re2
from jsonschema import Draft202012Validator

from deployments.evaluate.calls.call_cases import declare_tools
from deployments.evaluate.tasks.bounded_tests import run_tests
from deployments.evaluate.tasks.fixtures import Fixture, spell_path

FILE_BYTES_MAX = 1_000_000
_FILES_MAX = 200
DEPTH_MAX = 8
_PATH_CHARS_MAX = 200


class Refused(Exception):
    """The tool didn't do what it was asked to. The message says why, for the agent."""


class WorkFolder:
    """The folder of one run. `refusals` counts the attempts to leave it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.refusals = 0

    def read(self, path: str) -> str:
        with self._open(path, os.O_RDONLY) as file:
            return os.read(file, FILE_BYTES_MAX).decode("utf-8", "replace")

    def write(self, path: str, text: str) -> None:
        """Write a file that is there; none is made."""
        data = text.encode("utf-8", "replace")
        if len(data) > FILE_BYTES_MAX:
            raise Refused(f"{path} would be larger than {FILE_BYTES_MAX} bytes")
        with self._open(path, os.O_WRONLY) as file:
            os.ftruncate(file, 0)
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]

    def list_files(self) -> list[str]:
        """List the files, without links and whatever isn't a file."""
        found: list[str] = []
        for folder, folders, names in os.walk(self.root, followlinks=False):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = Path(folder, name)
                if stat.S_ISREG(path.lstat().st_mode):
                    # A name that isn't UTF-8 is shown as far as it is: nobody can open it by that.
                    found.append(os.fsencode(path.relative_to(self.root)).decode("utf-8", "replace"))
        return sorted(found)[:_FILES_MAX]

    @contextlib.contextmanager
    def _open(self, path: str, flags: int) -> Iterator[int]:
        parts = self._split(path)
        with contextlib.ExitStack() as opened:
            try:
                here = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:  # the tests have taken it away
                raise Refused("the folder is gone") from None
            opened.callback(os.close, here)
            for part in parts[:-1]:
                here = self._step(path, part, os.O_RDONLY | os.O_DIRECTORY, here)
                opened.callback(os.close, here)
            file = self._step(path, parts[-1], flags | os.O_NONBLOCK, here)
            opened.callback(os.close, file)
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise Refused(f"{path} is no file")
            yield file

    def _step(self, path: str, part: str, flags: int, here: int) -> int:
        try:
            return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                if stat.S_ISLNK(os.stat(part, dir_fd=here, follow_symlinks=False).st_mode):
                    self._refuse(f"{path}: symbolic links are not followed")
            raise Refused(f"there is no file {path[:_PATH_CHARS_MAX]!r}; list_files shows which there are") from None

    def _split(self, path: str) -> list[str]:
        if not path or len(path) > _PATH_CHARS_MAX or "\0" in path:
            raise Refused("a path of a file in this folder is needed")
        if path.startswith(("/", "~")) or "\\" in path:
            self._refuse(f"{path!r}: only paths inside this folder, relative to it")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts:
            self._refuse(f"{path!r} leads out of this folder")
        if not parts or len(parts) > DEPTH_MAX:
            raise Refused(f"there is no file {path!r}")
        return parts

    def _refuse(self, words: str) -> None:
        self.refusals += 1
        raise Refused(words)


RESULT_CHARS_MAX = 1_600
_READ_LINES_MAX = 40
_HITS_MAX = 12
_HIT_CHARS_MAX = 160
PATTERN_CHARS_MAX = 200
TEXT_CHARS_MAX = 2_000
_DECLARED = declare_tools(Path(__file__).with_name("task_tools.yaml"))
TOOLS: tuple[dict[str, Any], ...] = tuple(_DECLARED.values())
SCHEMA: dict[str, Any] = _DECLARED["diagnose"]["function"]["parameters"]
_VALIDATOR = Draft202012Validator(SCHEMA)


def read_diagnosis(given: object) -> dict[str, Any] | None:
    """Return the diagnosis, if it is one: an object of the schema, or its JSON text."""
    if isinstance(given, str):
        try:
            given = json.loads(given, parse_constant=lambda name: None)  # no infinity, which no field may be
        except (ValueError, RecursionError):
            return None
    if not isinstance(given, Mapping) or not _VALIDATOR.is_valid(dict(given)):
        return None
    found = {key: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value for key, value in given.items()}
    return found | {"line": int(found["line"])}  # 4.0 is an integer, too, by the schema


class Toolset:
    """The tools on one folder. `touched`: the protected or injected files that somebody wanted to edit."""

    def __init__(self, fixture: Fixture, folder: WorkFolder) -> None:
        self._folder, self._tests = folder, fixture.tests
        self._barred = {*fixture.protected, *fixture.injected_files}
        self.touched: list[str] = []

    def use(self, name: str, arguments: str) -> str:
        """Use a tool; the answer is for the model, whatever it asked."""
        does: dict[str, Callable[[Mapping[str, Any]], str]] = {
            "list_files": lambda _: "\n".join(self._folder.list_files()),
            "read_file": self._read_file,
            "grep": self._grep,
            "edit": self._edit,
            "run_tests": lambda _: run_tests(self._folder.root, self._tests)[-900:] or "all tests pass",
        }
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return "error: the arguments are not JSON"
        if name not in does or not isinstance(given, Mapping):
            return f"error: there is no tool {name[:60]!r}; tools: {', '.join(does)}, diagnose"
        try:
            text = does[name](given)
        except Refused as refused:
            return f"error: {refused}"
        return text if len(text) <= RESULT_CHARS_MAX else text[:RESULT_CHARS_MAX] + "\n(cut)"

    def _read_file(self, given: Mapping[str, Any]) -> str:
        lines = self._folder.read(str(given.get("path", ""))).splitlines()
        first = given.get("first_line", 1)
        first = max(1, first) if isinstance(first, int) else 1
        shown = [f"{number}: {line[:_HIT_CHARS_MAX]}" for number, line in enumerate(lines, 1)]
        part, more = shown[first - 1 : first - 1 + _READ_LINES_MAX], len(shown) - (first - 1) - _READ_LINES_MAX
        return "\n".join([*part, f"({more} more lines)"] if more > 0 else part) or "(no such lines)"

    def _grep(self, given: Mapping[str, Any]) -> str:
        pattern = str(given.get("pattern", ""))[:PATTERN_CHARS_MAX]
        options = re2.Options()
        options.log_errors = False
        try:
            compiled = re2.compile(pattern, options)  # linear, whatever the pattern
        except (re2.error, UnicodeEncodeError):  # half a pair of surrogates
            return f"error: {pattern!r} is no regular expression"
        hits: list[str] = []
        for name in self._folder.list_files():
            with contextlib.suppress(Refused):  # tests may have left what can't be read
                for number, line in enumerate(self._folder.read(name).splitlines(), 1):
                    if compiled.search(line):
                        hits.append(f"{name}:{number}: {line.strip()[:_HIT_CHARS_MAX]}")
        if len(hits) > _HITS_MAX:
            hits[_HITS_MAX:] = [f"({len(hits) - _HITS_MAX} more)"]
        return "\n".join(hits) or "(none)"

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
