"""`python -m deployments COMMAND [serve_config.yaml]`.

check     is the configuration usable? one line, exit code 2 where it isn't
prepare   fetch and convert the models that it names
doctor    platform, packages, models, key, memory, and a fault forced through every edge of the chain
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deployments.config import ConfigError, MlxTierConfig
from deployments.config_file import ConfigFile, read_file
from deployments.port import listener

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 good, 1 a check failed, 2 a wrong configuration."""
    parser = argparse.ArgumentParser(prog="python -m deployments", description="MLX Stack Serve at the command line")
    parser.add_argument("command", choices=tuple(COMMANDS))
    parser.add_argument("config", nargs="?", type=Path, default=Path("serve_config.yaml"))
    arguments = parser.parse_args(argv)
    try:
        file = read_file(arguments.config)
    except ConfigError as error:
        print(f"{arguments.config}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        return COMMANDS[arguments.command](file)
    except KeyboardInterrupt:
        return 130


def _check(_: ConfigFile) -> int:
    return 0


def _preflight(file: ConfigFile) -> int:
    owner = listener(file.host, file.port)
    if owner is None:
        return 0
    words = f"{file.host}:{file.port} is taken by {owner}: stop it, or change http_options.port in the configuration"
    print(words, file=sys.stderr)  # noqa: T201
    return 1


def _prepare(file: ConfigFile) -> int:
    from deployments.tiers.prepare import prepare

    tiers = file.args.tiers.items()
    prepare([(name, tier.model) for name, tier in tiers if isinstance(tier, MlxTierConfig)])
    return 0


def _doctor(file: ConfigFile) -> int:
    from deployments.doctor import doctor

    return doctor(file.args)


COMMANDS = {"check": _check, "preflight": _preflight, "prepare": _prepare, "doctor": _doctor}

if __name__ == "__main__":
    sys.exit(main())
