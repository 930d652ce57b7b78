"""`completion SHELL --values WHAT`: what a running server has, for the scripts of `shell_completion.py`: a word a line.

It asks the server that the command itself would ask (`deployments/cli/server_address.py`): a Tab inside a repository
reads nothing of it. zsh and fish are told beside each word what it is. A server that is away, slow, refuses or is
another one has nothing to offer: a Tab says no error.

What must never happen: a word that a shell would read anything into. Sessions are named by clients; a name of other
characters than `PLAIN` is left out.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from deployments.cli.server_address import find_url
from deployments.cli.server_client import MALFORMED, NotAnswered, ServerClient
from deployments.config import ConfigError
from deployments.config_file import read_file

__all__ = ["VALUES", "list_values", "write_values"]

VALUES = ("requests", "sessions", "tiers")
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@%+,/-]*")
ASK_S = 3.0
MANY = 100


def write_values(shell: str, what: str, line: str) -> Iterator[str]:
    """Write the words as the shell reads them."""
    for word, about in list_values(what, line).items():
        yield {"bash": word, "zsh": f"{word}:{about}", "fish": f"{word}\t{about}"}[shell]


def list_values(what: str, line: str) -> dict[str, str]:
    """List the words that can stand here, each with what it is; none where nobody answers."""
    try:
        given = _read_places(line)
        config = Path(given["--config"]) if "--config" in given else None
        return {word: about for word, about in _ask(what, given, config).items() if PLAIN.fullmatch(word)}
    except (ConfigError, OSError, *MALFORMED):
        return {}


def _read_places(line: str) -> Mapping[str, str]:
    """Read which server the command line names, as far as it is written."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote that isn't closed yet
        words = line.split()
    parts = [part for word in words for part in word.split("=", 1)]
    return {name: after for name, after in pairwise([*parts, ""]) if name in ("--url", "--config") and after}


def _ask(what: str, given: Mapping[str, str], config: Path | None) -> dict[str, str]:
    try:
        return _ask_server(ServerClient(find_url(given.get("--url"), config), ask_s=ASK_S), what)
    except NotAnswered:
        return _read_tiers(config) if what == "tiers" and config is not None and "--url" not in given else {}


def _ask_server(client: ServerClient, what: str) -> dict[str, str]:
    if what == "tiers":
        return {tier["name"]: tier["state"] for tier in client.get("live")["tiers"]}
    found = client.get(what, limit=MANY)["data"]
    if what == "sessions":
        return {one["session"]: f"{one['requests']} requests" for one in found}
    return {one["request_id"]: f"{one['outcome']} {_write_clock(one['at'])}".replace("_", " ") for one in found}


def _write_clock(at_s: float) -> str:
    return time.strftime("%d %b %H.%M.%S", time.localtime(at_s))


def _read_tiers(config: Path) -> dict[str, str]:
    """Read what the configuration names: tiers are known without a server."""
    return {name: tier.kind for name, tier in read_file(config).args.tiers.items()}
