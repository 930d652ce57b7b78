"""`mlx-stack-serve key NAME`: make an API key, show it once, and keep only its digest.

Standard output has the key and, without `--file`, its entry; the words about them go to standard error. `--file`
appends the entry atomically, under a lock on the folder, and the key is shown after its entry is safe.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from deployments.api.api_keys import NAME, ApiKey, digest, entry_line, new_key, parse_file
from deployments.config.config_errors import ConfigError
from deployments.config.whole_file import lock_folder, write_whole


def key_command(name: str, *, admin: bool, local_only: bool, file: Path | None) -> int:
    """Make a key; return the exit code. Raises ConfigError: the name can't be used, or the file can't be extended."""
    if not NAME.fullmatch(name) or name.startswith("sk-"):
        raise ConfigError("NAME must have 1 to 64 letters, digits, dots, underscores or dashes, and not begin as a key")
    secret = new_key()
    line = entry_line(ApiKey(name=name, sha256=digest(secret), admin=admin, allow_cloud=not local_only))
    if file is None:
        click.echo("The key, shown this once, and its entry for server.api_keys_file:", err=True)
        click.echo(f"{secret}\n{line}")
        return 0
    _append(file, line)
    click.echo("The key, shown this once:", err=True)
    click.echo(secret)
    click.echo(f"Its entry is in {file}; a server that runs reads it when it is started anew.", err=True)
    return 0


def _append(file: Path, line: str) -> None:
    # Through a link: the file that it leads to is the one to change.
    path = Path(os.path.expanduser(file)).resolve()  # `~` of nobody stays as it is
    try:
        with lock_folder(path.parent):
            old = path.read_text(encoding="utf-8") if path.exists() else ""
            new = old + ("\n" if old and not old.endswith("\n") else "") + line + "\n"
            parse_file(old, str(file))
            try:
                parse_file(new, str(file))
            except ConfigError as error:
                words = "nothing can be appended to it: write it as lines that begin with `- `"
                raise error if "same name" in str(error) else ConfigError(f"{file}: {words}") from None
            write_whole(path, new)
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{file}: can't be written: {error.strerror}") from None
