"""Files that `mlx-stack-serve service` writes for other programs, and recognizes later.

A comment in each file names its writer, the configuration and the SHA-256 of all other lines: a file that carries its
own sum is OURS, any other text is FOREIGN. Invariant: a foreign file is neither overwritten nor removed.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

WORDS = "Written by `mlx-stack-serve service install`:"
MARK = re.compile(rf"^(?:# |<!-- ){re.escape(WORDS)} (\{{.*\}})(?: -->)?\n", re.MULTILINE)
BYTES_MAX = 1 << 20


class FileState(enum.Enum):
    """What stands where a file of ours belongs."""

    ABSENT = "absent"
    OURS = "ours"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedFile:
    """A file to be written: `text` is signed. A kept one is written once, and is the user's from then on."""

    path: Path
    text: str
    mode: int
    kept: bool = False


def sign(text: str, config: Path, *, xml: bool = False) -> str:
    """Add the line that says whose the text is: as the first, or after the head of an XML file."""
    # Two dashes would end an XML comment.
    mark = json.dumps({"config": str(config), "sha256": _digest(text)}).replace("-", "\\u002d")
    if not xml:
        return f"# {WORDS} {mark}\n{text}"
    head, _, rest = text.partition("\n")
    return f"{head}\n<!-- {WORDS} {mark} -->\n{rest}"


def read_mark(text: str) -> Mapping[str, str] | None:
    """Read whose the text is; None where it isn't as it was signed."""
    found = MARK.search(text)
    if found is None:
        return None
    try:
        mark = json.loads(found[1])
    except ValueError:
        return None
    same = isinstance(mark, dict) and mark.get("sha256") == _digest(text[: found.start()] + text[found.end() :])
    return {key: str(value) for key, value in mark.items()} if same else None


def look_at(path: Path) -> tuple[FileState, str]:
    """Return whose file is there, and its text. A link, or a file that can't be read, is foreign."""
    if not os.path.lexists(path):
        return FileState.ABSENT, ""
    if path.is_symlink():
        return FileState.FOREIGN, ""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(BYTES_MAX)
    except (OSError, UnicodeDecodeError):
        return FileState.FOREIGN, ""
    return (FileState.OURS if read_mark(text) is not None else FileState.FOREIGN), text


def write_file(file: OwnedFile) -> None:
    """Write the file atomically: a reader sees the old text or the new one, also after a power cut. Raises OSError: it
    can't be written."""
    file.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{file.path.name}.", dir=file.path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as new:
            new.write(file.text)
            new.flush()
            os.fsync(new.fileno())
        Path(name).chmod(file.mode)
        Path(name).replace(file.path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def remove_file(path: Path) -> bool:
    """Remove the file if it is ours; return whether it is gone. Raises OSError: it can't be removed."""
    state, _ = look_at(path)
    if state is FileState.OURS:
        path.unlink(missing_ok=True)
    return state is not FileState.FOREIGN


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
