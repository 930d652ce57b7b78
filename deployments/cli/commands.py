"""The commands of `mlx-stack-serve`, each declared once for click: name, arguments, options, help and completion.

A command imports what it does when it runs, so that `--help` and a Tab wait for neither Ray nor pydantic. It returns
the exit code. `config_paths.py` finds the configuration, `server_client.py` the server that a command asks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deployments import __version__
from deployments.cli.agents import AGENTS, SDKS
from deployments.cli.shell_completion import SHELLS, complete_with, write_script
from deployments.config.config_paths import announce_config

if TYPE_CHECKING:
    from deployments.graph.serve_file import ConfigFile

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")
FILE = click.Path(path_type=Path)
REPORT = "mlx-stack-report.json"
LINES, LINES_MAX = 20, 500
DASHBOARD_PORT = 8265
AT_ONCE = 8
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Commands(click.Group):
    """Lists the commands in the order in which they are declared. A reader who has seen enough is no failure."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            sys.stderr.close()
            return 0


@click.group(
    cls=_Commands,
    context_settings=CONTEXT,
    epilog="In a folder without serve_config.yaml the built-in configuration is used.",
)
@click.version_option(__version__, "-V", "--version", message="%(version)s")
def cli() -> None:
    """Run an OpenAI-compatible server that makes weak local models reliable for autonomous agents."""


def _add_options(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


CONFIG = click.argument("config", required=False, type=FILE)
_SERVER = _add_options(
    click.option("--url", help="The server's URL; else the server that you run here."),
    click.option("--config", type=FILE, help="The configuration of the server to ask."),
)
MODEL = click.option(
    "--model", default="auto", shell_complete=complete_with("tiers"), help="A tier, an alias or `auto` (the default)."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON: what the server answered.")
COUNT = click.option(
    "-n", "--lines", type=click.IntRange(0, LINES_MAX), default=LINES, help=f"How many; {LINES} by default."
)
SESSION = click.option("--session", shell_complete=complete_with("sessions"), help="Only those of this session.")
KEY = click.option("--key", help="The name of the API key that it belongs to, where several have one of this name.")


# -- the server ------------------------------------------------------------------------------------------------


@cli.command("serve")
@CONFIG
@click.option("--verbose", is_flag=True, help="Show what Ray prints, besides its log file.")
@click.option("--checked", type=json.loads, hidden=True)
@click.option("--output", type=FILE, hidden=True)
@click.option("--environment", type=FILE, hidden=True)
def _serve(config: Path | None, verbose: bool, checked: Any, output: Path | None, environment: Path | None) -> int:
    """Run the server in the foreground until Ctrl-C."""
    from deployments.cli.serve_command import run_supervised, serve

    if checked:
        return run_supervised(checked, verbose=verbose)
    found = announce_config(config)
    from deployments.cli.service.launchd import bound_output  # here, since they bring Ray along
    from deployments.cli.service.service_plan import read_environment_file

    if output:
        bound_output(output)
    if environment:
        read_environment_file(environment, os.environ)
    return serve(found, verbose=verbose)


@cli.command("check")
@CONFIG
def _check(config: Path | None) -> int:
    """Validate the configuration; print one line if it is invalid."""
    from deployments.cli.preflight import check

    _run_on(config, lambda file, _: check(file))
    return 0


@cli.command("preflight")
@CONFIG
def _preflight(config: Path | None) -> int:
    """Check all that the server needs at its start, also the port."""
    from deployments.cli.serve_command import check_start

    check_start(announce_config(config))
    return 0


@cli.command("doctor")
@CONFIG
@click.option(
    "--ask",
    is_flag=True,
    help="Send each hosted tier one short request, which may cost money: does it continue a broken answer?",
)
@click.option(
    "--report",
    type=FILE,
    is_flag=False,
    flag_value=REPORT,
    metavar="[FILE]",
    help=f"Show and write one anonymous file that you can send with a question (else {REPORT}).",
)
def _doctor(config: Path | None, ask: bool, report: Path | None) -> int:
    """Check platform, packages, models, keys, memory and the chain."""

    def examine(file: ConfigFile, path: Path) -> int:
        if report is None:
            from deployments.cli.doctor import doctor

            return doctor(file.args, path, ask=ask)
        from deployments.cli.anonymous_report import write_report
        from deployments.state.client import folder_of
        from deployments.state.journal import JOURNAL

        return write_report(file.args, folder_of(file.app, file.args.state) / JOURNAL, report)

    return _run_on(config, examine)


@cli.command("evaluate")
@CONFIG
@click.option("--url", help="Measure this running server as it is, ours or any OpenAI-compatible one.")
@click.option("--model", "models", multiple=True, help="With --url: a model to measure; may be repeated.")
@click.option("--out", type=FILE, default="evaluation", show_default=True, help="The folder of the evaluation.")
@click.option(
    "--budget-minutes",
    type=click.FloatRange(0, 10_000, min_open=True),
    default=20.0,
    show_default=True,
    help="How long it may take.",
)
@click.option(
    "--cases", type=click.IntRange(1, 10_000), default=24, show_default=True, help="Tool-call cases for each model."
)
@click.option(
    "--at-once",
    type=click.IntRange(1, 64),
    help=f"Cases that run concurrently and share a batch (default: {AT_ONCE}, with --url 1).",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of cases and fixtures.")
@click.option("--fresh", is_flag=True, help="Begin anew, and forget the finished cells in the folder.")
@click.option("--cloud", is_flag=True, help="Ask tiers that aren't on this machine, too; it costs money.")
@click.option("--compare", type=FILE, metavar="OLD.json", help="Say what is worse than in an older report.")
@click.option("--apply", is_flag=True, help="Show the learned chain as a change, and ask to write it.")
@click.option("--yes", is_flag=True, help="With --apply: write it without asking.")
def _evaluate(at_once: int | None, **options: Any) -> int:
    """Measure if its models are fit for agents; write a report."""
    from deployments.cli.evaluate import EvaluateOptions, evaluate

    return evaluate(EvaluateOptions(at_once=at_once or (1 if options["url"] else AT_ONCE), **options))


# -- models ----------------------------------------------------------------------------------------------------


@cli.command("prepare")
@CONFIG
@click.option(
    "--behind", is_flag=True, help="Fetch what `serve` fetches in the background; nothing if HF_HUB_OFFLINE=1."
)
def _prepare(config: Path | None, behind: bool) -> int:
    """Fetch and convert the models that the server loads first."""
    from deployments.cli.prepare import fetch_in_background, list_models, prepare

    if behind:
        return _run_on(config, lambda file, _: int(fetch_in_background(list_models(file)) > 0))
    _run_on(config, lambda file, _: prepare(list_models(file)))
    return 0


@cli.command("pull")
@click.argument("name", required=False, shell_complete=complete_with("tiers"))
@click.option("--config", type=FILE, help="The configuration file.")
def _pull(name: str | None, config: Path | None) -> int:
    """Fetch and convert the model of a tier or a source, or all."""
    from deployments.cli.prepare import list_models, pull

    if name and ":" in name:
        return int(pull([("model", name)]) > 0)
    return _run_on(config, lambda file, _: int(pull(list_models(file, name)) > 0))


@cli.command("models")
@CONFIG
def _models(config: Path | None) -> int:
    """List the models on this machine, with sizes and tiers."""
    from deployments.cli.prepare import inventory, list_models

    for line in _run_on(config, lambda file, _: list(inventory(list_models(file)))):
        click.echo(line)
    return 0


# -- keys, services, agents ------------------------------------------------------------------------------------


@cli.command("key")
@click.argument("name")
@click.option("--admin", is_flag=True, help="It may also use the routes under /v1/reliability.")
@click.option("--local-only", is_flag=True, help="Its requests never leave this machine.")
@click.option("--file", type=FILE, help="Append the entry to this file (mode 0600).")
def _key(name: str, admin: bool, local_only: bool, file: Path | None) -> int:
    """Make an API key: shown once, kept as its digest.

    NAME has letters, digits, dots, underscores and dashes.
    """
    from deployments.cli.key import key_command

    return key_command(name, admin=admin, local_only=local_only, file=file)


@cli.command("service")
@click.argument("order", type=click.Choice(["install", "uninstall", "status", "restart"]))
@CONFIG
@click.option("--yes", is_flag=True, help="`install` doesn't ask before it writes.")
def _service(order: str, config: Path | None, yes: bool) -> int:
    """Install the server as a user service that starts at login.

    `install` shows, writes and starts it, with the configuration at CONFIG; `uninstall` stops and removes it;
    `status` tells how it is; `restart` drains it and starts it again.
    """
    from deployments.cli.service_command import service_command

    return service_command(order, config, yes=yes)


@cli.command("launch")
@click.argument("agent", type=click.Choice(list(AGENTS)), metavar="AGENT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]")
@MODEL
@_SERVER
def _launch(agent: str, arguments: tuple[str, ...], url: str | None, model: str, config: Path | None) -> int:
    """Start your own agent (claude, codex, ...) on this server.

    ARGS are passed on to the agent. Its key is read from MLX_STACK_API_KEY.
    """
    from deployments.cli.launch import launch

    return launch(agent, arguments, url, config, model)


@cli.command("agents")
@click.argument("agent", type=click.Choice([*AGENTS, *SDKS]), metavar="AGENT", required=False)
@MODEL
@_SERVER
def _agents(agent: str | None, url: str | None, model: str, config: Path | None) -> int:
    """Print what to set by hand for an agent on this server.

    Without AGENT, for all of them.
    """
    from deployments.cli.launch import print_agents

    print_agents([agent] if agent else [*AGENTS, *SDKS], url, config, model)
    return 0


# -- a running server ------------------------------------------------------------------------------------------


REQUEST = click.argument("request", metavar="REQUEST_ID", shell_complete=complete_with("requests"))
_OF_SESSION = click.argument("session", required=False, shell_complete=complete_with("sessions"))
KIND = click.option(
    "--kind", shell_complete=complete_with("kinds"), help="loop, flaw, repair, escalation, fault, budget, ..."
)
TIER = click.option("--tier", shell_complete=complete_with("tiers"), help="Only those of this tier.")
FOLLOW = click.option("-f", "--follow", is_flag=True, help="Continue with those to come, until Ctrl-C.")
ASKING: dict[str, tuple[str, tuple[Callable[[Any], Any], ...]]] = {
    "status": ("Show a running server: tiers, requests, the last day, memory.", (JSON,)),
    "why": ("Tell why a request (its x-request-id) went where it went.", (REQUEST, KEY, JSON)),
    "logs": ("List the newest finished requests; -f continues with new ones.", (FOLLOW, SESSION, COUNT, JSON)),
    "sessions": ("List sessions with their usage; or one, with its budget.", (_OF_SESSION, KEY, COUNT, JSON)),
    "incidents": ("List what went wrong or was repaired, the newest last.", (KIND, TIER, SESSION, COUNT, JSON)),
}


def _ask(command: str, url: str | None, config: Path | None, **options: Any) -> int:
    from deployments.cli.admin_commands import ask_server
    from deployments.cli.server_client import ServerClient

    return ask_server(ServerClient.find(url, config), command, **options)


for _name, (_help, _options) in ASKING.items():
    cli.command(_name, help=_help)(_add_options(*_options, _SERVER)(partial(_ask, _name)))


@cli.command("dashboard")
@click.option("--url", help="The server's URL; else the server that you run here.")
@click.option(
    "--port", type=click.IntRange(1, 65_535), default=DASHBOARD_PORT, help=f"Else {DASHBOARD_PORT}, or one above it."
)
def _dashboard(url: str | None, port: int) -> int:
    """Run Ray's own dashboard of the running server until Ctrl-C."""
    from deployments.cli.dashboard import dashboard

    return dashboard(url, port)


@cli.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def _completion(shell: str) -> int:
    """Print what completes these commands in bash, zsh or fish."""
    click.echo(write_script(shell, cli))
    return 0


def _run_on(config: Path | None, work: Callable[[ConfigFile, Path], Result]) -> Result:
    """Run what needs the configuration on it, and return what it returns; an error in it names the file."""
    from deployments.config.config_errors import ConfigError
    from deployments.graph.serve_file import read_file

    path = announce_config(config)
    try:
        return work(read_file(path), path)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
