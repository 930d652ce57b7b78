"""The command line: `mlx-stack-serve COMMAND`, the same as `python -m deployments COMMAND`.

`deployments/cli/commands.py` declares the commands. Exit codes: 0 good, 1 a check failed or the server ended by itself,
2 a wrong command line or configuration, which is one line on standard error, 130 Ctrl-C.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout

import click

from deployments.cli.commands import cli
from deployments.cli.shell_completion import PROGRAM, VARIABLE
from deployments.config.config_errors import CommandFailed, ConfigError
from deployments.running.terminal_text import TerminalText


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    if os.path.expanduser("~") == "~":  # no HOME, and a user whom the system doesn't list
        os.environ["HOME"] = "/"
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no arrow
    with redirect_stdout(TerminalText(sys.stdout)), redirect_stderr(TerminalText(sys.stderr)):
        return _run(argv)


def _run(argv: list[str] | None) -> int:
    try:
        return cli.main(argv, PROGRAM, VARIABLE, standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except ConfigError as error:
        click.echo(error, err=True)
        return 2
    except CommandFailed as error:
        click.echo(error, err=True)
        return 1
    except OSError as error:  # such as a full disk below standard output
        click.echo(f"{PROGRAM}: {error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130


if __name__ == "__main__":
    sys.exit(main())
