"""The scripts that complete the program in bash, zsh and fish.

Each offers commands first, then options behind a `-`, and else what the command or the option before it takes. What is
asked of a server comes from `PROGRAM completion SHELL --values WHAT --line LINE`: one a line, and nothing that a shell
would read anything into (`completion_values.py`). bash is that of macOS, too: 3.2.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

from deployments.cli.completion.completion_words import PROGRAM, Argument, Command

__all__ = ["WRITERS"]

ASK = f"{PROGRAM} completion {{shell}} --values"
BASH_HEAD = """_mlx_stack_serve() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words="" asks="" file="" options=""
  if [ "$word" = "=" ]; then word=""; elif [ "$before" = "=" ]; then before="${{COMP_WORDS[COMP_CWORD-2]}}"; fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}}" in"""
BASH_FOOT = f"""    esac
    case "${{COMP_WORDS[1]}} $before" in
%s
      *) case "$word" in -*) words="$options" asks="" file="" ;; esac
         [ -n "$words$asks$file" ] || words="$options" ;;
    esac
  fi
  [ -z "$asks" ] || words="$words $({ASK.format(shell="bash")} "$asks" --line "$COMP_LINE" 2>/dev/null)"
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  [ -n "$file" ] || compopt +o default 2>/dev/null
}}
complete -o default -F _mlx_stack_serve {PROGRAM}"""
ZSH_HEAD = f"""#compdef {PROGRAM}
_mlx_stack_serve_ask() {{
  local -a found
  found=(${{(f)"$({ASK.format(shell="zsh")} $1 --line "${{(j: :)words}}" 2>/dev/null)"}})
  _describe -t $1 ${{1%s}} found
}}
_mlx_stack_serve() {{
  local -a commands
  if (( CURRENT == 2 )); then
    commands=(
"""
ZSH_MIDDLE = """    )
    _describe -t commands command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in"""
ZSH_FOOT = f"""  esac
}}
(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit }}
compdef _mlx_stack_serve {PROGRAM}"""
FISH_HEAD = f"""function __mlx_stack_serve_at
  set -l words (commandline -opc)
  test (count $words) -gt 1; and test $words[2] = $argv[1]
end
function __mlx_stack_serve_ask
  {ASK.format(shell="fish")} $argv[1] --line (commandline -cp | string collect) 2>/dev/null
end
complete -c {PROGRAM} -e
complete -c {PROGRAM} -f"""


def write_bash(commands: Sequence[Command]) -> Iterator[str]:
    """Write it for bash."""
    yield BASH_HEAD.format(commands=" ".join(one.name for one in commands))
    for one in commands:
        yield f'      {one.name}) options="{" ".join(one.options)}"{"".join(map(_write_bash_values, one.own))} ;;'
    takers = [(one, argument) for one in commands for argument in one.arguments if argument.names and argument.takes]
    yield BASH_FOOT % "\n".join(_write_bash_option(one.name, argument) for one, argument in takers)


def _write_bash_option(command: str, argument: Argument) -> str:
    patterns = "|".join(f'"{command} {name}"' for name in argument.names)
    none = ' words="" asks="" file=""'
    return f"      {patterns}){none}{_write_bash_values(argument)} ;;"


def _write_bash_values(argument: Argument) -> str:
    words = f' words="{" ".join(argument.words)}"' if argument.words else ""
    asks = f" asks={argument.asks}" if argument.asks else ""
    return f"{words}{asks}{' file=yes' if argument.file else ''}"


def write_zsh(commands: Sequence[Command]) -> Iterator[str]:
    """Write it for zsh."""
    yield ZSH_HEAD + "\n".join(f"      {shlex.quote(f'{one.name}:{one.help}')}" for one in commands)
    yield ZSH_MIDDLE
    for one in commands:
        specs = [shlex.quote(spec) for argument in one.arguments for spec in _write_zsh_specs(argument)]
        yield f"    {one.name}) _arguments -s {' '.join(specs)} ;;"
    yield ZSH_FOOT


def _write_zsh_specs(argument: Argument) -> Iterator[str]:
    """Write what `_arguments` reads, once for each name."""
    does = _choose_zsh_action(argument)
    if not argument.names:
        yield f"{'::' if argument.optional else ':'}{argument.means}:{does}"
    words = argument.help.replace("[", "(").replace("]", ")").replace(":", "\\:")
    for name in argument.names:
        behind = "" if not argument.takes else "=" if name.startswith("--") else "+"
        takes = f":{argument.means}:{does}" if argument.takes else ""
        yield f"({' '.join(argument.names)}){name}{behind}[{words}]{takes}"


def _choose_zsh_action(argument: Argument) -> str:
    if argument.words:
        return f"({' '.join(argument.words)})"
    if argument.asks:  # the space: called with these words and no more
        return f" _mlx_stack_serve_ask {argument.asks}"
    return "_files" if argument.file else " "


def write_fish(commands: Sequence[Command]) -> Iterator[str]:
    """Write it for fish."""
    yield FISH_HEAD
    for one in commands:
        first = "'test (count (commandline -opc)) -eq 1'"
        yield f"complete -c {PROGRAM} -n {first} -a {one.name} -d {shlex.quote(one.help)}"
    for one in commands:
        for argument in one.arguments:
            names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in argument.names)
            words = f" -d {shlex.quote(argument.help)}" if argument.names else ""
            takes = _write_fish_values(argument) if argument.takes else ""
            yield f"complete -c {PROGRAM} -n '__mlx_stack_serve_at {one.name}' {names}{words}{takes}"


def _write_fish_values(argument: Argument) -> str:
    if argument.words:
        return f" -x -a {shlex.quote(' '.join(argument.words))}"
    if argument.asks:
        return f" -x -a '(__mlx_stack_serve_ask {argument.asks})'"
    return " -r -F" if argument.file else " -x"


WRITERS: Mapping[str, Callable[[Sequence[Command]], Iterator[str]]] = {
    "bash": write_bash,
    "zsh": write_zsh,
    "fish": write_fish,
}
