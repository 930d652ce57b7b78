"""`mlx-stack-serve completion SHELL`: what a shell reads to complete commands and options.

    source <(mlx-stack-serve completion bash)     in ~/.bashrc; zsh the same in ~/.zshrc
    mlx-stack-serve completion fish | source      in ~/.config/fish/config.fish

It is made from the parser itself, so it knows what the parser knows, and the shell starts no Python for it.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping

__all__ = ["SHELLS", "write_completion"]

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "mlx-stack-serve"
BASH = """_mlx_stack_serve() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}}" in
{cases}
      *) words="" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -F _mlx_stack_serve {program}"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def write_completion(shell: str, parser: argparse.ArgumentParser) -> str:
    """Write it in the shell's language."""
    commands = _find_commands(parser)
    if shell == "fish":
        return "\n".join(_write_fish(commands))
    cases = [f'      {name}) words="{" ".join(_list_words(each))}" ;;' for name, each in commands.items()]
    words = BASH.format(commands=" ".join(commands), cases="\n".join(cases), program=PROGRAM)
    return ZSH + words if shell == "zsh" else words


def _find_commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("the parser has commands")


def _list_words(command: argparse.ArgumentParser) -> list[str]:
    """List the options of a command, and what its arguments may be where that is a choice."""
    shown = [action for action in command._actions if action.help != argparse.SUPPRESS]
    options = [option for action in shown for option in action.option_strings]
    choices = [str(choice) for action in shown if not action.option_strings for choice in action.choices or ()]
    return [*choices, *options]


def _write_fish(commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    for name, command in commands.items():
        words = (command.description or "").rstrip(".")
        yield f"complete -c {PROGRAM} -n __fish_use_subcommand -a {name} -d {shlex.quote(words)}"
        for word in _list_words(command):
            kind = (
                f"-l {word[2:]}"
                if word.startswith("--")
                else f"-s {word[1:]}"
                if word.startswith("-")
                else f"-a {word}"
            )
            yield f"complete -c {PROGRAM} -n '__fish_seen_subcommand_from {name}' {kind}"
