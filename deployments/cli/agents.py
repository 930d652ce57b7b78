"""The agents that people run, as a table: how each is told to ask this server, and no other.

Each row was found by watching the unmodified program, of the version in its comment. A text may hold `$url`, `$model`,
`$context` and `$context_or_0`; a setting whose `$context` isn't known is left out.
Invariants: no key in what is printed or on a command line; no key of another provider is sent to this server.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

KEY = "MLX_STACK_API_KEY"


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

    @property
    def flags(self) -> list[str]:
        return [text for option in self.options for text in option]


def _read_agents(kind: str) -> dict[str, Agent]:
    read = tomllib.loads(Path(__file__).with_name("agents.toml").read_text(encoding="utf-8"))
    return {name: Agent(**row) for name, row in read[kind].items()}


AGENTS, SDKS = _read_agents("agents"), _read_agents("sdks")


def fill_in(agent: Agent, *, url: str, model: str, context_tokens: int | None) -> Agent:
    """Fill an agent's row in. `url` is the server's, without `/v1`."""
    values = {"url": url, "model": model, "context_or_0": str(context_tokens or 0)}
    if context_tokens is not None:
        values["context"] = str(context_tokens)
    environment = {name: text for name, text in agent.environment.items() if _is_known(text, values)}
    options = [option for option in agent.options if all(_is_known(text, values) for text in option)]
    return replace(
        agent,
        environment={name: Template(text).substitute(values) for name, text in environment.items()},
        options=tuple(tuple(Template(text).substitute(values) for text in option) for option in options),
    )


def _is_known(text: str, values: Mapping[str, str]) -> bool:
    return values.keys() >= set(Template(text).get_identifiers())


def write_lines(agent: Agent) -> Iterator[str]:
    """Write what a person types to start an agent that is filled in: lines for a shell, with the key from
    `MLX_STACK_API_KEY`."""
    yield f"# {agent.name}"
    if agent.without:
        yield f"unset {' '.join(agent.without)}"
    for name, value in agent.environment.items():
        yield f"export {name}={shlex.quote(value)}"
    for name in agent.key_in:
        yield f'export {name}="${KEY}"'
    if agent.program:
        yield shlex.join([agent.program, *agent.flags])
