"""Write the learned chain into a configuration file: first shown as a difference, then written on request.

Comments, order, indentation, line ends and a symbolic link stay. A `user_config` that sets a changed key changes too,
since it overrides `args`. `check_proposal` reads the new text as the server would before it is shown.
Invariants: no silent or partial change, none outside of what is shown (a YAML anchor may stand for two tiers), and no
file that the server can't start with.
"""

from __future__ import annotations

import difflib
import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from deployments.config.app_config import ROUTER, patch
from deployments.config.config_errors import ConfigError, describe_yaml_error
from deployments.config.whole_file import write_whole
from deployments.evaluate.evaluation_target import read_config
from deployments.graph.serve_file import IMPORT_PATH

WIDTH = 10_000  # no line is broken anew
# Indentation of mappings, of the items of a list, and of their dashes.
LAYOUTS = ((2, 2, 0), (2, 4, 2), (4, 4, 2), (4, 2, 0), (4, 6, 4))


def write_proposal(text: str, change: Mapping[str, Any]) -> str:
    """Return the text with the change to `args` merged in. Raises ConfigError: it can't be written back."""
    line_end = "\r\n" if "\r\n" in text else "\n"
    text = text.replace("\r\n", "\n")
    try:
        yaml = min((_make_yaml(layout) for layout in LAYOUTS), key=lambda one: _count_changes(one, text))
        document = yaml.load(text)
    except YAMLError as error:
        raise ConfigError(f"the file can't be changed: {describe_yaml_error(error)}") from None
    app = next(app for app in document["applications"] if app.get("import_path") == IMPORT_PATH)
    _merge(app["args"], change)
    for deployment in app.get("deployments") or ():
        name, patched = deployment["name"], deployment.get("user_config") or {}
        _merge(patched, change if name == ROUTER else change.get("tiers", {}).get(name, {}), adds=False)
    return _dump(yaml, document).replace("\n", line_end)


def _make_yaml(layout: tuple[int, int, int]) -> YAML:
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = WIDTH
    yaml.indent(*layout)
    return yaml


def _dump(yaml: YAML, document: Any) -> str:
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _count_changes(yaml: YAML, text: str) -> int:
    """Count the lines that would be another one though nothing has changed."""
    written = _dump(yaml, yaml.load(text)).splitlines()
    return sum(one != other for one, other in zip(text.splitlines(), written, strict=False))


def _merge(base: Any, change: Mapping[str, Any], *, adds: bool = True) -> None:
    """Merge a change in; where it `adds` nothing, only keys that are there already are set."""
    for key, value in change.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), Mapping):
            _merge(base[key], value, adds=adds)
        elif adds or key in base:
            base[key] = value


def check_proposal(source: Path, text: str, change: Mapping[str, Any]) -> None:
    """Check that a server with this text runs `source` with the change, and nothing else. Raises ConfigError."""
    wanted = patch(read_config(source), change)
    with tempfile.TemporaryDirectory(prefix="evaluate-") as place:
        path = Path(place, source.name)
        path.write_text(text, encoding="utf-8", newline="")
        if read_config(path) != wanted:
            raise ConfigError(f"{source}: an anchor (&) makes the change one of more than it; change by hand: {change}")


def show_difference(path: Path, old: str, new: str) -> str:
    """Show what would change."""
    before, after = (text.splitlines(keepends=True) for text in (old, new))
    return "".join(difflib.unified_diff(before, after, f"{path}", f"{path} (proposed)"))


def write_file(path: Path, text: str) -> None:
    """Write the file, or a link's target, in one step. Raises ConfigError: it can't be written; the old file stays."""
    path = path.resolve()
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    if not mode & 0o222:
        raise ConfigError(f"{path}: is read-only: nothing was changed")
    try:
        write_whole(path, text, mode)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written: {error.strerror}") from None
