"""`mlx-stack-serve launch AGENT -- ARGS` and `mlx-stack-serve agents`: the user's own agent on this server.

The key is MLX_STACK_API_KEY, else "unused". The context is the largest known one of the tiers that may answer the
model, so that the agent condenses its conversation before it is refused. The server is asked before the agent is
started; then this process becomes the agent. Invariant: no file of the agent's is changed.
"""

from __future__ import annotations

import operator
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from deployments.cli.agents import AGENTS, KEY, SDKS, Agent, fill_in, place_settings, write_lines
from deployments.cli.server_client import MALFORMED, PLAIN, NoAnswer, ServerClient, name_foreign, read_words
from deployments.config.config_errors import CommandFailed, ConfigError
from deployments.config.loopback import is_loopback

_NO_KEY = "unused"
ASK_S = 10.0
_START_ONE = "start it with `mlx-stack-serve serve` in another terminal, or name another one with --url"


def launch(name: str, arguments: Sequence[str], url: str | None, config: Path | None, model: str) -> NoReturn:
    """Become the agent, on the server that `url` or `config` names. Raises CommandFailed: no program, no server, or a
    refused key or model; ConfigError: as `ServerClient`, or a wrong model."""
    server = _find_server(url, config, model)
    agent = AGENTS[name]
    program = shutil.which(agent.program)
    if program is None:
        raise CommandFailed(f"there is no program {agent.program} on PATH: install it with `{agent.install}`")
    agent = _place(agent, server.url, model, _ask_context(server, model))
    print(f"{agent.name} on {server.url}, model {model}", file=sys.stderr, flush=True)  # noqa: T201
    sys.stdout.flush()
    built = _build_environment(agent, os.environ.get(KEY) or _NO_KEY, os.environ, server.url)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(program, [agent.program, *agent.flags, *arguments], built)
    except OSError as error:  # it is no program, or what its first line names isn't there
        raise CommandFailed(f"{program} can't be run ({error.strerror}): `{agent.install}` installs it anew") from None


def print_agents(names: Iterable[str], url: str | None, config: Path | None, model: str) -> None:
    """Print the lines to set by hand, also where no server answers now. Raises ConfigError: as `launch`."""
    server, lines = _find_server(url, config, model), []
    try:
        context_tokens = _ask_context(server, model)
    except CommandFailed as error:
        lines, context_tokens = [f"# {error}"], None
    lines.append(f"export {KEY}={_NO_KEY}  # or your API key, where the server has keys")
    for name in names:
        lines += ["", *write_lines(_place((AGENTS | SDKS)[name], server.url, model, context_tokens))]
    print("\n".join(lines))  # noqa: T201


def _find_server(url: str | None, config: Path | None, model: str) -> ServerClient:
    """Find the server. Raises ConfigError: the name of the model can't be written down everywhere."""
    if not PLAIN.fullmatch(model):
        raise ConfigError(f"--model: {model[:100]!r} is no name of a model: `auto`, a tier or an alias is")
    return ServerClient.find(url, config, ASK_S)


def _place(agent: Agent, url: str, model: str, context_tokens: int | None) -> Agent:
    """Fill an agent's row in, and write the files that it names."""
    try:
        return place_settings(fill_in(agent, url=url, model=model, context_tokens=context_tokens), os.environ)
    except OSError as error:
        raise CommandFailed(f"the settings for {agent.name} can't be written: {error}") from None


def _build_environment(agent: Agent, key: str, environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Build the environment of an agent that is filled in: its user's own, with what it must be told."""
    built = {name: value for name, value in environ.items() if name not in agent.without}
    built |= agent.environment
    built |= dict.fromkeys((KEY, *agent.key_in), key)
    host = urlsplit(url).hostname or ""
    if is_loopback(host):
        # A proxy can't reach our loopback.
        for name in ("NO_PROXY", "no_proxy"):
            built[name] = ",".join(filter(None, (environ.get(name, ""), host)))
    return built


def _find_context(models: Sequence[Mapping[str, Any]], chain: Sequence[str], model: str) -> int | None:
    """Find the largest context, in tokens, among the tiers that may answer `model`; None where none is known."""
    entry = next((entry for entry in models if entry["id"] == model), {})
    first = entry.get("starts_at", model)
    tiers = chain[chain.index(first) :] if first in chain else [first]
    usable = [entry for entry in models if entry["id"] in tiers and entry.get("state") != "unavailable"]
    return max((operator.index(entry.get("context_length") or 0) for entry in usable), default=0) or None


def _ask_context(server: ServerClient, model: str) -> int | None:
    """Ask for the context of `model`. Raises CommandFailed: the server doesn't answer, refuses, or isn't well."""
    try:
        status, body = server.ask("/health", keyed=False)
    except NoAnswer as error:
        raise CommandFailed(f"no server answers at {server.url} ({error}): {_START_ONE}") from None
    if status != 200 or body.get("status") != "ok":
        said = read_words(body) or f"HTTP {status} to GET /health"
        raise CommandFailed(f"the server at {server.url} can't be used: {said}")
    try:
        status, body = server.ask(f"/v1/models/{quote(model)}")
        if status != 200:
            hint = f" (the key is read from {KEY})" if status == 401 else ""
            raise CommandFailed(f"the server at {server.url} refuses: {read_words(body) or f'HTTP {status}'}{hint}")
        models = server.ask("/v1/models")[1].get("data")
        chain = server.ask("/ready")[1].get("chain")
        return _find_context(models or [body], chain or [], model)
    except NoAnswer as error:
        raise CommandFailed(f"the server at {server.url} doesn't answer ({error})") from None
    except MALFORMED as error:
        raise CommandFailed(name_foreign(server.url, error)) from None
