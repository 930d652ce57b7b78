"""`mlx-stack-serve key NAME`: make an API key, show it once, and keep only its digest.

Standard output has the key and, without `--file`, its entry; the words about them go to standard error. `--file`
appends the entry atomically, under a lock on the folder, and the key is shown after its entry is safe.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from deployments.api.api_keys import NAME, ApiKey, digest, entry_line, new_key, parse_file
from deployments.config.config_errors import ConfigError
from deployments.config.whole_file import lock_folder, write_whole


def key_command(name: str, *, admin: bool, local_only: bool, file: Path | None) -> int:
    """Make a key; the result is the exit code. Raises ConfigError: one line: the name can't be used, or the file can't
    be extended."""
    if not NAME.fullmatch(name) or name.startswith("sk-"):
        raise ConfigError("NAME must have 1 to 64 letters, digits, dots, underscores or dashes, and not begin as a key")
    secret = new_key()
    line = entry_line(ApiKey(name=name, sha256=digest(secret), admin=admin, allow_cloud=not local_only))
    if file is not None:
        _append(file, line)
    _print(secret, line, file)
    return 0


def _print(secret: str, line: str, file: Path | None) -> None:
    say = "The key, shown this once:" if file else "The key, shown this once, and its entry for server.api_keys_file:"
    print(say, file=sys.stderr, flush=True)  # noqa: T201
    print(secret if file else f"{secret}\n{line}", flush=True)  # noqa: T201
    if file:
        words = f"Its entry is in {file}; a server that runs reads it when it is started anew."
        print(words, file=sys.stderr)  # noqa: T201


def _append(file: Path, line: str) -> None:
    # Through a link: the file that it leads to is the one to change.
    path = Path(os.path.expanduser(file)).resolve()  # `~` of nobody stays as it is
    try:
        with lock_folder(path.parent):
            old = path.read_text(encoding="utf-8") if path.exists() else ""
            new = old + ("\n" if old and not old.endswith("\n") else "") + line + "\n"
            _check(old, new, str(file))
            write_whole(path, new)
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not UTF-8 text") from None
    except OSError as error:
        raise ConfigError(f"{file}: can't be written: {error.strerror}") from None


def _check(old: str, new: str, at: str) -> None:
    parse_file(old, at)
    try:
        parse_file(new, at)
    except ConfigError as error:
        if "same name" in str(error):
            raise
        raise ConfigError(f"{at}: nothing can be appended to it: write it as lines that begin with `- `") from None
