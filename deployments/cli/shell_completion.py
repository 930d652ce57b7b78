"""What completes `mlx-stack-serve` in bash, zsh and fish: click's own scripts, and what a running server has.

The scripts ask this program at each Tab. Requests, sessions and tiers come from the server that the command itself
would ask; one that is away, slow, refuses or is another one has nothing to offer.
Invariant: a word that a shell would read anything into is never offered.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

PROGRAM = "mlx-stack-serve"
VARIABLE = "_MLX_STACK_SERVE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@%+,/-]*")
ASK_S = 3.0
MANY = 100
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@add_completion_class
class _OldBash(BashComplete):
    """Completes in the bash of macOS too (3.2), and reads the line itself: bash splits its words at `:` and `=`."""

    source_template: ClassVar[str] = """\
%(complete_func)s() {
  local IFS=$'\\n' line type value files=""
  COMPREPLY=()
  for line in $(COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" %(complete_var)s=bash_complete "$1" 2>/dev/null); do
    IFS=',' read -r type value <<< "$line"
    case "$type" in plain) COMPREPLY+=("$value") ;; *) files=yes ;; esac
  done
  [ -n "$files" ] || compopt +o default 2>/dev/null
}
complete -o default -F %(complete_func)s %(prog_name)s
"""

    @staticmethod
    def _check_version() -> None:
        """Check nothing: this script runs in any bash."""

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"].encode()[: int(os.environ["COMP_POINT"])].decode(errors="replace")
        words = split_arg_string(line)[1:]
        return (words[:-1], words[-1]) if words and not line[-1].isspace() else (words, "")


def write_script(shell: str, cli: click.Command) -> str:
    """Write the script for a shell."""
    found = get_completion_class(shell)
    assert found is not None
    return found(cli, {}, PROGRAM, VARIABLE).source()


def complete_with(what: str) -> Complete:
    """Return what completes a request, session or tier of the named server, or the kind of an incident."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        known = _list_values(what, ctx.params.get("url"), ctx.params.get("config"))
        return [CompletionItem(word, help=about) for word, about in known.items() if word.startswith(incomplete)]

    return complete


def _list_values(what: str, url: str | None, config: Path | None) -> dict[str, str]:
    """List what there is, of a server or of incidents, each with a few words on it; empty where no server answers."""
    if what == "kinds":
        from deployments.state.incident_record import IncidentKind

        return {kind.value: "" for kind in IncidentKind}
    from deployments.cli.server_client import MALFORMED, NoAnswer, ServerClient
    from deployments.config.config_errors import ConfigError
    from deployments.graph.serve_file import read_file

    found: dict[str, str] = {}
    try:
        try:
            found = _ask(ServerClient.find(url, config, ASK_S), what)
        except NoAnswer:
            if what == "tiers" and config is not None and url is None:
                found = {name: tier.kind for name, tier in read_file(config).args.tiers.items()}
        return {word: about for word, about in found.items() if PLAIN.fullmatch(word)}
    except (ConfigError, OSError, *MALFORMED):
        return {}


def _ask(client: Any, what: str) -> dict[str, str]:
    if what == "tiers":
        return {tier["name"]: tier["state"] for tier in client.get("live")["tiers"]}
    found = client.get(what, limit=MANY)["data"]
    if what == "sessions":
        return {one["session"]: f"{one['requests']} requests" for one in found}
    about = {}
    for one in found:
        at = time.strftime("%d %b %H.%M.%S", time.localtime(one["at"]))
        about[one["request_id"]] = f"{one['outcome']} {at}".replace("_", " ")
    return about
