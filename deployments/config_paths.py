"""Which files a command reads: those that are given, this folder's own, or those that the package ships.

    configuration   the path that is given ──▶ `serve_config.yaml` of this folder ──▶ the built-in one
    Ray's flags     `serve.env` of this folder ──▶ the built-in one

The built-in files are those at the top of the repository: `deployments/built_in/` holds links to them, and an installed
package what they say. So each exists once (tests/unit/test_package.py).

What must never happen: a file of the user's own that is passed over.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["BUILT_IN", "find_config", "find_flags"]

BUILT_IN = Path(__file__).with_name("built_in")
CONFIG = "serve_config.yaml"
FLAGS = "serve.env"


def find_config(given: Path | None) -> Path:
    """Name the configuration file."""
    return given if given is not None else _own_or_built_in(CONFIG)


def find_flags() -> Path:
    """Name the file with the flags of Ray Serve's processes."""
    return _own_or_built_in(FLAGS)


def _own_or_built_in(name: str) -> Path:
    # A link that leads nowhere counts: who reads it says so.
    return Path(name) if os.path.lexists(name) else BUILT_IN / name
