"""Files that `mlx-stack-serve service` writes for other programs, and recognizes later.

A comment in each file names its writer, the configuration and the SHA-256 of all other lines: a file that carries its
own sum is ours, any other text is foreign. Invariant: a foreign file is neither overwritten nor removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path

from deployments.cli.service.init_system import ServiceFault

WORDS = "Written by `mlx-stack-serve service install`:"
MARK = re.compile(rf"^(?:# |<!-- ){re.escape(WORDS)} (\{{.*\}})(?: -->)?\n", re.MULTILINE)
BYTES_MAX = 1 << 20


class ForeignFile(ServiceFault):
    """A file of another writer stands where one of ours belongs."""


def sign(text: str, config: Path, *, xml: bool = False) -> str:
    """Add the line that says whose the text is: as the first, or after the head of an XML file."""
    # Two dashes would end an XML comment.
    mark = json.dumps({"config": str(config), "sha256": _digest(text)}).replace("-", "\\u002d")
    if not xml:
        return f"# {WORDS} {mark}\n{text}"
    head, _, rest = text.partition("\n")
    return f"{head}\n<!-- {WORDS} {mark} -->\n{rest}"


def read_config_of(text: str) -> str | None:
    """Read for which configuration the text was signed; None where it isn't as it was signed."""
    found = MARK.search(text)
    try:
        mark = json.loads(found[1]) if found else {}
    except ValueError:
        return None
    rest = found and text[: found.start()] + text[found.end() :]
    return str(mark.get("config")) if rest is not None and mark.get("sha256") == _digest(rest) else None


def read_own(path: Path) -> str | None:
    """Read the text of a file of ours; None where there is no file. Raises ForeignFile: a link, a file that can't be
    read, or a text of another writer."""
    if not os.path.lexists(path):
        return None
    text = ""
    if not path.is_symlink():
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(BYTES_MAX)
        except (OSError, UnicodeDecodeError):
            pass
    if read_config_of(text) is None:
        raise ForeignFile(f"{path} is not as this command has written it: move it away, then try again")
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
