"""`mlx-stack-serve launch AGENT -- ARGS` and `mlx-stack-serve agents`: the user's own agent on this server.

    URL      --url ──▶ `http_options` of the configuration
    key      MLX_STACK_API_KEY ──▶ "unused": a server without keys takes any
    context  the largest that is known of the tiers that may answer the model, so that the agent sums its conversation
             up before it is refused. Larger prompts go to the tiers behind in the chain, so it isn't the first tier's

The server is asked before anything is started: an agent that can't reach it would show its own riddle. Then this
process becomes the agent: Ctrl-C, the terminal and the exit code are the agent's. What must never happen: a file of the
agent's that is changed.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlsplit

from deployments.cli.agents import AGENTS, KEY, SDKS, Agent, Start, build_start, write_lines
from deployments.config import ConfigError
from deployments.config_paths import find_config
from deployments.listener.listening import is_loopback

__all__ = ["NotStarted", "build_environment", "check_model", "find_context", "find_url", "launch", "print_agents"]

NO_KEY = "unused"
ASK_S = 10.0
ANSWER_BYTES_MAX = 4 * 1024 * 1024
PLAIN = re.compile(r"[\w.:/@+~%\[\]-]+")  # what stands in a shell, in TOML and in JSON as it is
START_ONE = "start it with `mlx-stack-serve serve` in another terminal, or name another one with --url"


class NotStarted(RuntimeError):
    """The agent can't be started. The message is one line that says why, and what to do."""


def launch(name: str, arguments: Sequence[str], *, url: str, model: str, environ: Mapping[str, str]) -> NoReturn:
    """Become the agent, started so that it asks the server at `url`.

    Raises:
        NotStarted: the program isn't there, no server answers, or the server refuses the key or the model.
    """
    agent = AGENTS[name]
    program = shutil.which(agent.program, path=environ.get("PATH"))
    if program is None:
        raise NotStarted(f"there is no program {agent.program} on PATH: install it with `{agent.install}`")
    key = environ.get(KEY) or NO_KEY
    _check_server(url)
    start = build_start(agent, url=url, model=model, context_tokens=_ask_context(url, model, key))
    print(f"{agent.name} on {url}, model {model}", file=sys.stderr, flush=True)  # noqa: T201
    sys.stdout.flush()
    os.execve(program, [agent.program, *start.flags, *arguments], build_environment(agent, start, key, environ, url))


def print_agents(names: Iterable[str], *, url: str, model: str, environ: Mapping[str, str]) -> None:
    """Print the lines to set by hand. A server that doesn't answer now is no mistake here."""
    lines = []
    try:
        _check_server(url)
        context_tokens = _ask_context(url, model, environ.get(KEY) or NO_KEY)
    except NotStarted as error:
        lines, context_tokens = [f"# {error}"], None
    lines += [f"export {KEY}={NO_KEY}  # or your API key, where the server has keys"]
    for name in names:
        agent = (AGENTS | SDKS)[name]
        lines += ["", *write_lines(agent, build_start(agent, url=url, model=model, context_tokens=context_tokens))]
    print("\n".join(lines))  # noqa: T201


def find_url(given: str | None, config: Path | None) -> str:
    """Find where the server listens, without `/v1`.

    Raises:
        ConfigError: one line: no URL, or a configuration that can't be read.
    """
    if given is not None:
        return _parse_url(given)
    from deployments.config_file import read_file

    path = find_config(config)
    try:
        return read_file(path).url
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _parse_url(given: str) -> str:
    url = given.rstrip("/").removesuffix("/v1")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and PLAIN.fullmatch(url)
    except ValueError:
        good = False
    if not good:
        raise ConfigError(f"--url: {given[:100]!r} is no URL of a server: http://127.0.0.1:8000 is one")
    return url


def check_model(model: str) -> str:
    """Return the model's name, if it is one that can be written down everywhere.

    Raises:
        ConfigError: it isn't.
    """
    if not PLAIN.fullmatch(model):
        raise ConfigError(f"--model: {model[:100]!r} is no name of a model: `auto`, a tier or an alias is")
    return model


def build_environment(agent: Agent, start: Start, key: str, environ: Mapping[str, str], url: str) -> dict[str, str]:
    """Build the environment of the agent: its user's own, with what it must be told."""
    built = {name: value for name, value in environ.items() if name not in agent.without}
    built |= start.environment
    built |= dict.fromkeys((KEY, *agent.key_in), key)
    host = urlsplit(url).hostname or ""
    if is_loopback(host):
        # A proxy can't reach our loopback.
        for name in ("NO_PROXY", "no_proxy"):
            built[name] = ",".join(filter(None, (environ.get(name, ""), host)))
    return built


def find_context(models: Sequence[Mapping[str, Any]], chain: Sequence[str], model: str) -> int | None:
    """Find the largest context, in tokens, among the tiers that may answer `model`; None where none is known."""
    entry = next((entry for entry in models if entry["id"] == model), {})
    first = entry.get("starts_at", model)
    tiers = chain[chain.index(first) :] if first in chain else [first]
    usable = [entry for entry in models if entry["id"] in tiers and entry.get("state") != "unavailable"]
    return max((entry.get("context_length") or 0 for entry in usable), default=0) or None


def _check_server(url: str) -> None:
    try:
        status, body = _ask(f"{url}/health")
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise NotStarted(f"no server answers at {url} ({reason}): {START_ONE}") from None
    if status != 200 or body.get("status") != "ok":
        said = _read_message(body) or f"HTTP {status} to GET /health"
        raise NotStarted(f"the server at {url} can't be used: {said}")


def _ask_context(url: str, model: str, key: str) -> int | None:
    """Ask for the context of `model`, and so whether key and model are good.

    Raises:
        NotStarted: one of them isn't.
    """
    try:
        status, body = _ask(f"{url}/v1/models/{quote(model)}", key)
        if status != 200:
            hint = f" (the key is read from {KEY})" if status == 401 else ""
            raise NotStarted(f"the server at {url} refuses: {_read_message(body) or f'HTTP {status}'}{hint}")
        models = _ask(f"{url}/v1/models", key)[1].get("data")
        chain = _ask(f"{url}/ready", key)[1].get("chain")
    except OSError as error:
        raise NotStarted(f"the server at {url} doesn't answer ({getattr(error, 'reason', error)})") from None
    return find_context(models or [body], chain or [], model)


def _ask(url: str, key: str = "") -> tuple[int, dict[str, Any]]:
    """Ask once; the answer's status and its JSON object, empty where it is none.

    Raises:
        OSError: there was no answer.
    """
    headers = {"authorization": f"Bearer {key}"} if key else {}
    own = is_loopback(urlsplit(url).hostname)
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if own else []))
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=ASK_S) as answer:
            return answer.status, _read_object(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, _read_object(answer.read(ANSWER_BYTES_MAX))
    except http.client.HTTPException as error:
        raise OSError(f"it doesn't speak HTTP: {type(error).__name__}") from None


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_message(body: Mapping[str, Any]) -> str:
    error = body.get("error")
    return str(error.get("message", ""))[:300] if isinstance(error, dict) else ""
