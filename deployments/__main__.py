"""`python -m deployments COMMAND [serve_config.yaml]`.

check     is the configuration usable? one line, exit code 2 where it isn't
prepare   fetch and convert the models that it names
doctor    platform, packages, models, key, memory, and a fault forced through every edge of the chain
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deployments.config import AppConfig, ConfigError, MlxTierConfig
from deployments.config_file import read_config

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 good, 1 a check failed, 2 a wrong configuration."""
    parser = argparse.ArgumentParser(prog="python -m deployments", description="MLX Stack Serve at the command line")
    parser.add_argument("command", choices=("check", "prepare", "doctor"))
    parser.add_argument("config", nargs="?", type=Path, default=Path("serve_config.yaml"))
    arguments = parser.parse_args(argv)
    try:
        config = read_config(arguments.config)
    except ConfigError as error:
        print(f"{arguments.config}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        return COMMANDS[arguments.command](config)
    except KeyboardInterrupt:
        return 130


def _check(_: AppConfig) -> int:
    return 0


def _prepare(config: AppConfig) -> int:
    from deployments.tiers.prepare import prepare

    prepare([(name, tier.model) for name, tier in config.tiers.items() if isinstance(tier, MlxTierConfig)])
    return 0


def _doctor(config: AppConfig) -> int:
    from deployments.doctor import doctor

    return doctor(config)


COMMANDS = {"check": _check, "prepare": _prepare, "doctor": _doctor}

if __name__ == "__main__":
    sys.exit(main())
