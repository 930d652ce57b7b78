"""The commands that ask a running server: `status`, `why`, `logs`, `sessions`, `incidents` and `top`.

Each is a client of the routes under `/v1/reliability`, which the control room shows, too; `--json` prints what they
answered, for programs. With API keys they need an admin's, but for one's own requests and sessions.

What they are made of is imported when one of them runs: the other commands need none of it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

__all__ = ["HELP", "add_arguments", "run"]

HELP = {
    "status": "show a running server: its tiers, what runs, the last day, memory",
    "why": "tell why a request went where it went, step by step",
    "logs": "list the newest finished requests, a line each; -f goes on with those to come",
    "sessions": "list sessions with what they have used; or one, with its budget",
    "incidents": "list what went wrong or was mended, the newest last",
    "top": "watch a running server in the terminal",
}
LINES, LINES_MAX = 20, 500


def add_arguments(name: str, command: argparse.ArgumentParser) -> None:
    """Add what a command takes."""
    if name == "why":
        command.add_argument("request", metavar="REQUEST_ID", help="the id of the answer's x-request-id")
    if name == "sessions":
        command.add_argument("session", metavar="SESSION", nargs="?", help="one session; else all")
    if name == "logs":
        command.add_argument("-f", "--follow", action="store_true", help="go on with those to come, until Ctrl-C")
    if name == "incidents":
        command.add_argument("--kind", help="loop, flaw, repair, escalation, fault, budget, breaker, memory, ...")
        command.add_argument("--tier", help="only those of this tier")
    if name in ("why", "sessions"):
        command.add_argument("--key", help="whose it is, by the name of the API key, where several have such a one")
    if name in ("logs", "incidents"):
        command.add_argument("--session", help="only those of this session")
    if name in ("logs", "sessions", "incidents"):
        words = f"how many, up to {LINES_MAX} (else {LINES})"
        command.add_argument("-n", "--lines", type=_parse_lines, default=LINES, help=words)
    if name != "top":
        command.add_argument("--json", action="store_true", help="print JSON: what the server answered")
    command.add_argument("--url", help="the server's URL; else the server that you run here")
    command.add_argument("--config", type=Path, help="the configuration of the server to ask")


def _parse_lines(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 9 and int(text) <= LINES_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"a number up to {LINES_MAX} is needed")


def run(arguments: argparse.Namespace) -> int:
    """Run one of them; the result is the exit code.

    Raises:
        ConfigError: no URL can be found.
    """
    from deployments.cli.ask_server import ask_server
    from deployments.cli.server_address import find_url
    from deployments.cli.server_client import ServerClient

    return ask_server(ServerClient(find_url(arguments.url, arguments.config)), arguments)
