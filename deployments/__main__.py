"""The command line: `mlx-stack-serve COMMAND`, the same as `python -m deployments COMMAND`.

What each command does stands in `HELP`. A command that needs a configuration takes its path, else finds one and says
which (`deployments/config_paths.py`); one that asks a running server finds that (`deployments/cli/server_address.py`).
Exit codes: 0 good, 1 a check failed or the server ended by itself, 2 a wrong configuration, which is one line on
standard error.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deployments import __version__
from deployments.cli import operators
from deployments.cli.agents import AGENTS, SDKS
from deployments.cli.completion.shell_completion import SHELLS, write_completion
from deployments.cli.evaluate_arguments import add_arguments
from deployments.cli.front import run_supervised, serve
from deployments.config import ConfigError
from deployments.config_paths import announce_config
from deployments.config_tiers import MlxTierConfig
from deployments.port import DASHBOARD_PORT

if TYPE_CHECKING:
    from deployments.config_file import ConfigFile

__all__ = ["HELP", "build_parser", "main"]

HELP = {
    "serve": "run the server in the foreground until Ctrl-C",
    "check": "check the configuration: silent where it can be used, else one line",
    "preflight": "check everything that the server needs at its start, the port above all",
    "doctor": "check platform, packages, models, key, memory and every edge of the chain",
    "evaluate": "measure whether its models are good enough for an agent's work, and write the report",
    "prepare": "fetch and convert the models that are loaded when the server starts",
    "pull": "fetch and convert the model of one tier or source, or all of them, now",
    "models": "list the models on this machine, with sizes, and which tiers use them",
    "key": "make an API key: shown once, kept as its digest",
    "service": "run the server as a service of yours, from login to logout",
    "launch": "start your own agent (claude, codex, opencode, ...) on this server",
    "agents": "print what to set by hand so that an agent asks this server",
    **operators.HELP,
    "dashboard": "run Ray's own dashboard for the running server, until Ctrl-C",
    "completion": "print what completes these commands in bash, zsh or fish",
}
REPORT = "mlx-stack-report.json"
EPILOG = (
    "`mlx-stack-serve COMMAND --help` says what a command takes. In a folder without serve_config.yaml the built-in "
    "configuration is used."
)


def main(argv: list[str] | None = None) -> int:
    """Run one command; the result is the exit code: 0 good, 1 a check failed, 2 a wrong configuration."""
    given, rest = _split_arguments(sys.argv[1:] if argv is None else argv)
    arguments = build_parser().parse_args(given)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that knows no arrow
    try:
        if arguments.command in operators.HELP:
            return operators.run(arguments)
        return _run_agent(arguments, rest) if arguments.command in ("launch", "agents") else _run(arguments)
    except ConfigError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    """Build the parser: what may stand on the command line."""
    parser = argparse.ArgumentParser(
        prog="mlx-stack-serve",
        description="An OpenAI-compatible server that makes weak local models reliable for autonomous agents.",
        epilog=EPILOG,
    )
    parser.add_argument("-V", "--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for name, words in HELP.items():
        command = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        ADD.get(name, _add_config)(command)
    return parser


def _split_arguments(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split off what `launch` passes on to the agent, untouched: all behind the first `--`."""
    if argv[:1] != ["launch"] or "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _add_config(command: argparse.ArgumentParser) -> None:
    command.add_argument("config", nargs="?", type=Path, help="the configuration file")


def _add_serve(command: argparse.ArgumentParser) -> None:
    _add_config(command)
    command.add_argument("--verbose", action="store_true", help="show what Ray prints, besides its log file")
    command.add_argument("--checked", type=json.loads, help=argparse.SUPPRESS)
    # What launchd does not do for a service (`deployments/service/agent_start.py`).
    command.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    command.add_argument("--environment", type=Path, help=argparse.SUPPRESS)


def _add_prepare(command: argparse.ArgumentParser) -> None:
    _add_config(command)
    words = "fetch what `serve` fetches behind the running server; nothing where HF_HUB_OFFLINE=1 is set"
    command.add_argument("--behind", action="store_true", help=words)


def _add_doctor(command: argparse.ArgumentParser) -> None:
    _add_config(command)
    words = "send each hosted tier one short request, which may cost money: does it go on with a broken answer?"
    command.add_argument("--ask", action="store_true", help=words)
    words = f"show and write one anonymous file that you can send with a question (else {REPORT})"
    command.add_argument("--report", nargs="?", type=Path, const=Path(REPORT), metavar="FILE", help=words)


def _add_pull(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", help="a tier of the configuration, or a model source; else all")
    command.add_argument("--config", type=Path, help="the configuration file")


def _add_key(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", help="whose key it is: letters, digits, dots, underscores, dashes")
    command.add_argument("--admin", action="store_true", help="may also use the routes under /v1/reliability")
    command.add_argument("--local-only", action="store_true", help="its requests never leave this machine")
    command.add_argument("--file", type=Path, help="append the entry to this file (mode 0600)")


def _add_service(command: argparse.ArgumentParser) -> None:
    words = "show, write and start it; stop and remove it; tell how it is; drain it and start it anew"
    command.add_argument("order", choices=("install", "uninstall", "status", "restart"), help=words)
    command.add_argument("config", nargs="?", type=Path, help="the configuration file, for `install`")
    command.add_argument("--yes", action="store_true", help="`install` doesn't ask before it writes")


def _add_dashboard(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="the server's URL; else the server that you run here")
    command.add_argument("--port", type=int, default=DASHBOARD_PORT, help=f"else {DASHBOARD_PORT}, or one above it")


def _add_launch(command: argparse.ArgumentParser) -> None:
    command.usage = "mlx-stack-serve launch [OPTIONS] AGENT [-- ARGS]"
    command.epilog = "What stands behind `--` is passed on to the agent. Its key is read from MLX_STACK_API_KEY."
    command.add_argument("agent", metavar="AGENT", choices=tuple(AGENTS), help=", ".join(AGENTS))
    _add_place(command)


def _add_agents(command: argparse.ArgumentParser) -> None:
    known = (*AGENTS, *SDKS)
    command.add_argument("agent", metavar="AGENT", nargs="?", choices=known, help=f"{', '.join(known)}; else all")
    _add_place(command)


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument("--url", help="the server's URL; else the server that you run here")
    command.add_argument("--model", default="auto", help="a tier, an alias or `auto` (the default)")
    command.add_argument("--config", type=Path, help="the configuration of the server to ask")


def _add_completion(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, help="whose language to print it in")
    # What the script asks for while somebody writes a line.
    command.add_argument("--values", help=argparse.SUPPRESS)
    command.add_argument("--line", default="", help=argparse.SUPPRESS)


ADD: dict[str, Callable[[argparse.ArgumentParser], None]] = {
    **{name: partial(operators.add_arguments, name) for name in operators.HELP},
    "completion": _add_completion,
    "dashboard": _add_dashboard,
    "evaluate": add_arguments,
    "serve": _add_serve,
    "doctor": _add_doctor,
    "prepare": _add_prepare,
    "pull": _add_pull,
    "key": _add_key,
    "service": _add_service,
    "launch": _add_launch,
    "agents": _add_agents,
}


def _run_agent(arguments: argparse.Namespace, rest: list[str]) -> int:
    from deployments.cli.launch import NotStarted, check_model, launch, print_agents
    from deployments.cli.server_address import find_url

    name, model = arguments.agent, check_model(arguments.model)
    url = find_url(arguments.url, arguments.config)
    try:
        if arguments.command == "launch":
            launch(name, rest, url=url, model=model, environ=os.environ)
        print_agents([name] if name else [*AGENTS, *SDKS], url=url, model=model, environ=os.environ)
    except NotStarted as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "serve" and arguments.checked:
        return run_supervised(arguments.checked, verbose=arguments.verbose)
    if arguments.command == "completion":
        return _complete(arguments)
    if arguments.command == "dashboard":
        from deployments.cli.dashboard import dashboard

        dashboard(arguments.url, arguments.port)
    if arguments.command == "evaluate":
        from deployments.cli.evaluate import evaluate

        return evaluate(arguments)
    if arguments.command == "key":
        from deployments.cli.key import key_command

        return key_command(arguments.name, admin=arguments.admin, local_only=arguments.local_only, file=arguments.file)
    if arguments.command == "service":
        from deployments.cli.service import service_command

        return service_command(arguments)
    if arguments.command == "pull" and arguments.name and ":" in arguments.name:
        return _pull([("model", arguments.name)])
    return _run_on(announce_config(arguments.config), arguments)


def _complete(arguments: argparse.Namespace) -> int:
    if arguments.values is None:
        try:
            print(write_completion(arguments.shell, build_parser()), flush=True)  # noqa: T201
        except BrokenPipeError:  # whoever read it has seen enough
            sys.stderr.close()
        return 0
    from deployments.cli.completion.completion_values import write_values

    for line in write_values(arguments.shell, arguments.values, arguments.line):
        print(line)  # noqa: T201
    return 0


def _run_on(config: Path, arguments: argparse.Namespace) -> int:
    """Run a command that reads the configuration."""
    if arguments.command == "serve":
        _start_agent(arguments)
    if arguments.command in ("serve", "preflight"):
        return _preflight(config, arguments)
    from deployments.config_file import read_file

    try:
        if arguments.command == "pull":
            return _pull(_find_models(read_file(config), arguments.name))
        if arguments.command == "prepare" and arguments.behind:
            return _fetch_behind(read_file(config))
        if arguments.command == "doctor":
            return _doctor(config, read_file(config), arguments)
        return COMMANDS[arguments.command](read_file(config))
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from None


def _start_agent(arguments: argparse.Namespace) -> None:
    from deployments.service.agent_start import bound_output, read_environment_file

    if arguments.output:
        bound_output(arguments.output)
    if arguments.environment:
        read_environment_file(arguments.environment, os.environ)


def _check(file: ConfigFile) -> int:
    from deployments.cli.preflight import check

    check(file)
    return 0


def _preflight(config: Path, arguments: argparse.Namespace) -> int:
    from deployments.cli.preflight import PortTaken, preflight

    try:
        if arguments.command == "serve":
            serve(config, verbose=arguments.verbose)
        preflight(config)
    except PortTaken as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _prepare(file: ConfigFile) -> int:
    from deployments.cli.prepare import prepare

    prepare(_find_models(file))
    return 0


def _fetch_behind(file: ConfigFile) -> int:
    from deployments.cli.prepare import fetch_behind

    return 1 if fetch_behind(_find_models(file)) else 0


def _models(file: ConfigFile) -> int:
    from deployments.cli.inventory import inventory

    for line in inventory(_find_models(file)):
        print(line)  # noqa: T201
    return 0


def _pull(models: list[tuple[str, str]]) -> int:
    from deployments.cli.prepare import pull

    return 1 if pull(models) else 0


def _find_models(file: ConfigFile, name: str | None = None) -> list[tuple[str, str]]:
    """Find roles and models of the `mlx` tiers, or of the one that is named."""
    tiers = {role: tier for role, tier in file.args.tiers.items() if isinstance(tier, MlxTierConfig)}
    if name is not None and name not in tiers:
        known = ", ".join(tiers) or "none"
        raise ConfigError(f"there is no mlx tier {name!r} ({known}), and a model source has a colon (hf:ORG/NAME@main)")
    return [(role, tier.model) for role, tier in tiers.items() if name in (None, role)]


def _doctor(config: Path, file: ConfigFile, arguments: argparse.Namespace) -> int:
    if arguments.report is not None:
        from deployments.cli.reporting.anonymous_report import write_report
        from deployments.state.client import folder_of
        from deployments.state.recovery import JOURNAL

        return write_report(file.args, folder_of(file.app, file.args.state) / JOURNAL, arguments.report)
    from deployments.cli.doctor import doctor

    return doctor(file.args, config, ask=arguments.ask)


COMMANDS = {"check": _check, "prepare": _prepare, "models": _models}

if __name__ == "__main__":
    sys.exit(main())
