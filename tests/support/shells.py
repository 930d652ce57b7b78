"""bash, zsh and fish as people use them: at a terminal, a line is begun, and the shell is asked how it may go on.

`complete(shell, script, line, folder)` starts the real shell in `folder` with the script loaded, types the line, lets
the shell insert all that it would offer, and returns those words. Programs are looked for in `folder/bin` first.
"""

import os
import pty
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

# Ctrl-X A asks for what may stand here, Ctrl-X D ends the shell; what was offered is then in the file `line`. bash
# inserts it into the line, and of zsh the one function is watched by which each completion adds its words.
KEYS = "\x18a\x18d"
BASH = r"""
bind 'set bell-style none'
bind '"\C-xa": insert-completions'
finish() { printf '%s' "$READLINE_LINE" > line; kill -KILL $$; }
bind -x '"\C-xd": finish'
"""
ZSH = r"""
autoload -Uz compinit && compinit -u -D
setopt nolistbeep noautomenu
zstyle ':completion:*' verbose yes
compadd() {
  builtin compadd "$@"
  local status_=$?
  if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
    local -a offered
    builtin compadd -A offered "$@"
    (( $#offered )) && print -rl -- $offered >> line
  fi
  return status_
}
finish() { exit }
zle -N finish
bindkey -e
bindkey '^Xa' complete-word
bindkey '^Xd' finish
"""
READY = "\nprintf '%s%s' re ady\n"


def need_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on this machine (apt-get install {shell})")


def complete(shell: str, script: str, line: str, folder: Path) -> set[str]:
    """What the shell offers for the last word of the line."""
    environ = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C"}
    (folder / "script").write_text(script, encoding="utf-8")
    if shell == "fish":
        asked = ["fish", "--no-config", "-c", f"source script; complete -C {shlex.quote(line)}"]
        out = subprocess.run(asked, cwd=folder, env=environ, capture_output=True, text=True, check=True, timeout=60)
        assert out.stderr == ""
        return {one.partition("\t")[0] for one in out.stdout.splitlines()}
    words = _type({"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell], shell, line, folder, environ)
    return set(words if shell == "zsh" else words[line.count(" ") :])


def _type(command: list[str], shell: str, line: str, folder: Path, environ: dict[str, str]) -> list[str]:
    """Type the line at a terminal of its own, and return what has become of it."""
    (folder / "line").write_text("", encoding="utf-8")
    (folder / "keys").write_text({"bash": BASH, "zsh": ZSH}[shell], encoding="utf-8")
    master, slave = pty.openpty()
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    ) as process:
        os.close(slave)
        try:
            os.write(master, f". ./keys; . ./script{READY}".encode())
            _read_until(master, b"ready")
            os.write(master, (line + KEYS).encode())
            _read_until(master, None)
            process.wait(60)
        finally:
            process.kill()
            os.close(master)
    return shlex.split((folder / "line").read_text(encoding="utf-8"))


def _read_until(master: int, mark: bytes | None) -> None:
    """Read what the terminal shows, up to a mark, or to the end of the shell."""
    seen = b""
    while mark is None or mark not in seen:
        try:
            data = os.read(master, 4096)
        except OSError:  # how Linux says that nobody is at the other end
            return
        if not data:
            return
        seen += data
