"""Writes the learned chain into a configuration file: shown as a difference first, written only when told to.

The file's comments and order stay. What would be written is read and checked as the server will read it, before it
takes the place of the old file in one step. What must never happen: a file that is changed silently, in part, or so
that the server can't start with it.
"""

from __future__ import annotations

import difflib
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from deployments.config_file import IMPORT_PATH, read_file

__all__ = ["show_difference", "write_file", "write_proposal"]

WIDTH = 10_000  # no line is broken anew


def write_proposal(text: str, patch: Mapping[str, Any]) -> str:
    """Return the file's text with the patch to `args` merged in."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    document = yaml.load(text)
    app = next(app for app in document["applications"] if app.get("import_path") == IMPORT_PATH)
    _merge(app["args"], patch)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _merge(base: Any, change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            _merge(base[key], value)
        else:
            base[key] = value


def show_difference(path: Path, old: str, new: str) -> str:
    """Show what would change."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"{path}", f"{path} (proposed)"
    )
    return "".join(lines)


def write_file(path: Path, text: str) -> None:
    """Write the file in one step.

    Raises:
        ConfigError: the server couldn't use it; the old file stays.
    """
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".yaml", delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new = Path(file.name)
    try:
        read_file(new)
        new.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
