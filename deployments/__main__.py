"""The command line: `python -m deployments COMMAND [serve_config.yaml]`, and `pull [NAME]` and `key NAME`.

check     is the configuration usable? one line, exit code 2 where it isn't
prepare   fetch and convert the models that it names
pull      the same for one tier or model source, or for all; exit code 1 where one can't be had
models    what models are on this machine, with sizes, and which tiers use them
serve     run the server in the foreground: the checks of `preflight`, then `serve run`, with the flags of `serve.env`
          (`deployments/front.py`); `--verbose` shows what Ray prints. Exit code 0 after a stop that was asked for, 1
          where the server has ended by itself, 2 for a wrong configuration
preflight `check`, and whether everything is there that the server needs at its start, the port above all
doctor    platform, packages, models, key, memory, and a fault forced through every edge of the chain
key       make an API key, show it once, and its entry for `server.api_keys_file`
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from deployments.config import ConfigError, MlxTierConfig
from deployments.front import serve, supervised

if TYPE_CHECKING:
    from deployments.config_file import ConfigFile

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 good, 1 a check failed, 2 a wrong configuration."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deployments", description="MLX Stack Serve at the command line")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in (*COMMANDS, "preflight", "serve"):
        command = commands.add_parser(name)
        command.add_argument("config", nargs="?", type=Path, default=Path("serve_config.yaml"))
        if name == "serve":
            command.add_argument("--verbose", action="store_true", help="show what Ray prints, besides its log file")
            command.add_argument("--checked", type=json.loads, help=argparse.SUPPRESS)
    pull = commands.add_parser("pull", description="Fetch and convert models; a fetch that was cut off goes on")
    pull.add_argument("name", nargs="?", help="a tier of the configuration, or a model source; else all that it names")
    pull.add_argument("--config", type=Path, default=Path("serve_config.yaml"))
    key = commands.add_parser("key", description="Make an API key: shown once, kept as its digest")
    key.add_argument("name", help="whose key it is: letters, digits, dots, underscores, dashes")
    key.add_argument("--admin", action="store_true", help="may also use the routes under /v1/reliability")
    key.add_argument("--local-only", action="store_true", help="its requests never leave this machine")
    key.add_argument("--file", type=Path, help="append the entry to this file (mode 0600)")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "serve" and arguments.checked:
        return supervised(arguments.checked, verbose=arguments.verbose)
    if arguments.command in ("serve", "preflight"):
        return _preflight(arguments)
    if arguments.command == "key":
        from deployments.key_command import key_command

        return key_command(arguments.name, admin=arguments.admin, local_only=arguments.local_only, file=arguments.file)
    if arguments.command == "pull" and arguments.name and ":" in arguments.name:
        return _pulled([("model", arguments.name)])
    from deployments.config_file import read_file

    try:
        if arguments.command == "pull":
            return _pulled(_models_of(read_file(arguments.config), arguments.name))
        return COMMANDS[arguments.command](read_file(arguments.config))
    except ConfigError as error:
        raise ConfigError(f"{arguments.config}: {error}") from None


def _check(file: ConfigFile) -> int:
    from deployments.preflight import check

    check(file)
    return 0


def _preflight(arguments: argparse.Namespace) -> int:
    from deployments.preflight import PortTaken, preflight

    try:
        if arguments.command == "serve":
            serve(arguments.config, verbose=arguments.verbose)
        preflight(arguments.config)
    except PortTaken as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _prepare(file: ConfigFile) -> int:
    from deployments.tiers.prepare import prepare

    prepare(_models_of(file))
    return 0


def _models(file: ConfigFile) -> int:
    from deployments.tiers.inventory import inventory

    for line in inventory(_models_of(file)):
        print(line)  # noqa: T201
    return 0


def _pulled(models: list[tuple[str, str]]) -> int:
    from deployments.tiers.prepare import prepare

    return 1 if prepare(models) else 0


def _models_of(file: ConfigFile, name: str | None = None) -> list[tuple[str, str]]:
    """Roles and models of the `mlx` tiers, or of the one that is named."""
    tiers = {role: tier for role, tier in file.args.tiers.items() if isinstance(tier, MlxTierConfig)}
    if name is not None and name not in tiers:
        known = ", ".join(tiers) or "none"
        raise ConfigError(f"there is no mlx tier {name!r} ({known}), and a model source has a colon (hf:ORG/NAME@main)")
    return [pair for role, tier in tiers.items() if name in (None, role) for pair in tier.sources(role)]


def _doctor(file: ConfigFile) -> int:
    from deployments.doctor import doctor

    return doctor(file.args)


COMMANDS = {"check": _check, "prepare": _prepare, "models": _models, "doctor": _doctor}

if __name__ == "__main__":
    sys.exit(main())
