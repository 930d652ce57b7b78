"""`mlx-stack-serve completion SHELL`: what a shell reads to complete commands, options and what they take.

    source <(mlx-stack-serve completion bash)     in ~/.bashrc; zsh the same in ~/.zshrc
    mlx-stack-serve completion fish | source      in ~/.config/fish/config.fish

    the parser ──▶ Command, Argument ──▶ a script in the shell's language (completion_scripts.py)
                                            └─ at Tab ──▶ completion SHELL --values tiers (completion_values.py)

It is made from the parser itself, so it knows what the parser knows, and for that the shell starts no Python. Only
where an argument is something of a running server, a request's id, a session or a tier, the script asks this program.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from deployments.cli.completion.completion_scripts import WRITERS
from deployments.cli.completion.completion_words import Argument, Command
from deployments.state.incident_record import IncidentKind

__all__ = ["SHELLS", "list_commands", "write_completion"]

SHELLS = tuple(WRITERS)
# What an argument of this name is, of a running server; a model may be a tier's name.
ASKED: Mapping[str, str] = {"request": "requests", "session": "sessions", "tier": "tiers", "model": "tiers"}
ASKED_BY: Mapping[tuple[str, str], str] = {("pull", "name"): "tiers"}
WORDS: Mapping[str, tuple[str, ...]] = {"kind": tuple(kind.value for kind in IncidentKind)}


def write_completion(shell: str, parser: argparse.ArgumentParser) -> str:
    """Write it in the shell's language."""
    return "\n".join(WRITERS[shell](list_commands(parser)))


def list_commands(parser: argparse.ArgumentParser) -> list[Command]:
    """List what the parser knows."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return [_describe(name, command) for name, command in action.choices.items()]
    raise AssertionError("the parser has commands")


def _describe(name: str, command: argparse.ArgumentParser) -> Command:
    shown = [action for action in command._actions if action.help != argparse.SUPPRESS]
    arguments = tuple(_describe_argument(name, action) for action in shown)
    return Command(name=name, help=(command.description or "").rstrip("."), arguments=arguments)


def _describe_argument(command: str, action: argparse.Action) -> Argument:
    return Argument(
        names=tuple(action.option_strings),
        means=action.dest.replace("_", " "),
        help=(action.help or "").replace("%%", "%"),
        takes=action.nargs != 0,
        optional=action.nargs == "?",
        words=tuple(map(str, action.choices or WORDS.get(action.dest, ()))),
        file=action.type is Path,
        asks=ASKED_BY.get((command, action.dest), ASKED.get(action.dest)),
    )
