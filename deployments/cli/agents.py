"""The agents that people run, as a table: how each is told to ask this server, and no other.

Each row was found by watching the unmodified program, of the version in its comment. A text may hold `$url`, `$model`,
`$context`, `$answer` (the tokens of an answer), both as `…_or_0`, `$claude_window`, and `$own_host` (a server's on this
machine, which no proxy reaches); a setting whose value isn't known is left out. Invariants: no key in what is printed
or on a command line; no key of another provider is sent to this server.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from string import Template
from urllib.parse import urlsplit

from deployments.config.loopback import is_loopback
from deployments.config.whole_file import write_whole
from deployments.models.cache_folder import default_cache_dir
from deployments.running.own_folder import refuse_strangers

KEY = "MLX_STACK_API_KEY"
_ANSWER_TOKENS_MAX = 32_000
# Claude Code condenses at its window, less the tokens of an answer up to this, and less this for a summary.
_CLAUDE_ANSWER_TOKENS_MAX = 20_000
_CLAUDE_SUMMARY_TOKENS = 13_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent, as `agents.toml` has it."""

    name: str
    program: str = ""
    install: str = ""
    key_in: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    options: Sequence[Sequence[str]] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def flags(self) -> list[str]:
        return [text for option in self.options for text in option]


def _read_agents(kind: str) -> dict[str, Agent]:
    read = tomllib.loads(Path(__file__).with_name("agents.toml").read_text(encoding="utf-8"))
    return {name: Agent(**row) for name, row in read[kind].items()}


AGENTS, SDKS = _read_agents("agents"), _read_agents("sdks")


def fill_in(agent: Agent, *, url: str, model: str, context_tokens: int | None) -> Agent:
    """Fill an agent's row in. `url` is the server's, without `/v1`."""
    answer = min((context_tokens or 0) // 4, _ANSWER_TOKENS_MAX)
    values = {"url": url, "model": model, "context_or_0": str(context_tokens or 0), "answer_or_0": str(answer)}
    host = urlsplit(url).hostname or ""
    if is_loopback(host):
        values["own_host"] = host
    if context_tokens is not None:
        kept = min(answer, _CLAUDE_ANSWER_TOKENS_MAX) + _CLAUDE_SUMMARY_TOKENS
        window = max(context_tokens, context_tokens * 3 // 4 + kept)
        values |= {"context": str(context_tokens), "answer": str(answer), "claude_window": str(window)}
    options = [option for option in agent.options if all(_is_known(text, values) for text in option)]
    return replace(
        agent,
        environment=_fill_in_all(agent.environment, values),
        settings=_fill_in_all(agent.settings, values),
        options=tuple(tuple(Template(text).substitute(values) for text in option) for option in options),
    )


def place_settings(agent: Agent, environ: Mapping[str, str]) -> Agent:
    """Write the files of a filled-in agent's settings, and name them in its flags, or in its environment unless the
    user has set the variable. Raises OSError: a file can't be written, or another user could change it."""
    named: dict[str, str] = {}
    for name, text in agent.settings.items():
        variable, _, file = name.partition("/")
        if variable in environ:
            continue
        folder = default_cache_dir() / "agents"
        refuse_strangers(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{agent.program}-{sha256(text.encode()).hexdigest()[:16]}{'' if file else '.json'}"
        if file:
            path.mkdir(mode=0o700, exist_ok=True)
        write_whole(path / file, text)
        named[variable] = str(path)
    flags = [(name, named.pop(name)) for name in list(named) if name.startswith("--")]
    return replace(agent, environment={**agent.environment, **named}, options=(*agent.options, *flags))


def _fill_in_all(texts: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    return {name: Template(text).substitute(values) for name, text in texts.items() if _is_known(text, values)}


def _is_known(text: str, values: Mapping[str, str]) -> bool:
    return values.keys() >= set(Template(text).get_identifiers())


def write_lines(agent: Agent) -> Iterator[str]:
    """Write the lines for a shell that start a filled-in agent, with the key from `MLX_STACK_API_KEY`."""
    yield f"# {agent.name}"
    if agent.without:
        yield f"unset {' '.join(agent.without)}"
    for name, value in agent.environment.items():
        yield f"export {name}={shlex.quote(value)}"
    for name in agent.key_in:
        yield f'export {name}="${KEY}"'
    if agent.program:
        yield shlex.join([agent.program, *agent.flags])
