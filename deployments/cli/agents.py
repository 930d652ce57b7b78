"""The agents that people run, as a table: how each is told to ask this server, and no other.

Each row was found by watching the unmodified program, of the version in its comment. A text may hold `$url`, `$model`,
`$context` and `$context_or_0`; a setting whose `$context` isn't known is left out.
Invariants: no key in what is printed or on a command line; no key of another provider is sent to this server.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from string import Template

KEY = "MLX_STACK_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One agent. `program` is looked for on PATH, `install` says how to get it. `key_in`: the variables that hold the
    key. `without`: variables that would lead it elsewhere. Each of `options` is one option with its values."""

    name: str
    program: str = ""
    install: str = ""
    key_in: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    options: tuple[tuple[str, ...], ...] = ()

    @property
    def flags(self) -> list[str]:
        return [text for option in self.options for text in option]


OPENCODE = (
    '{"provider":{"mlx-stack":{"npm":"@ai-sdk/openai-compatible","name":"MLX Stack Serve",'
    '"options":{"baseURL":"$url/v1","apiKey":"{env:MLX_STACK_API_KEY}"},'
    '"models":{"$model":{"name":"$model","limit":{"context":$context_or_0,"output":0}}}}},'
    '"model":"mlx-stack/$model","small_model":"mlx-stack/$model"}'
)

AGENTS = {
    # 2.1.330. A key in ANTHROPIC_API_KEY would go along with the token, and be asked about. The attribution is a line
    # at the head of the prompt that changes with each request, so that no prompt cache holds behind it. Its settings
    # file may set variables over these: the address stands in a flag too, so that no prompt goes elsewhere.
    "claude": Agent(
        name="Claude Code",
        program="claude",
        install="npm install -g @anthropic-ai/claude-code",
        key_in=("ANTHROPIC_AUTH_TOKEN",),
        environment={
            "ANTHROPIC_BASE_URL": "$url",
            "ANTHROPIC_MODEL": "$model",
            "ANTHROPIC_DEFAULT_OPUS_MODEL": "$model",
            "ANTHROPIC_DEFAULT_SONNET_MODEL": "$model",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "$model",
            "ANTHROPIC_SMALL_FAST_MODEL": "$model",
            "CLAUDE_CODE_SUBAGENT_MODEL": "$model",
            "CLAUDE_CODE_MAX_CONTEXT_TOKENS": "$context",
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
        without=(
            *("ANTHROPIC_API_KEY", "ANTHROPIC_CUSTOM_HEADERS"),
            *("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"),
        ),
        options=(("--settings", '{"env":{"ANTHROPIC_BASE_URL":"$url"}}'),),
    ),
    # codex-cli 0.169.0
    "codex": Agent(
        name="Codex",
        program="codex",
        install="npm install -g @openai/codex",
        options=(
            ("-c", "model_provider=mlx-stack"),
            (
                "-c",
                'model_providers.mlx-stack={name="MLX Stack Serve",base_url="$url/v1",'
                f'env_key="{KEY}",wire_api="responses"}}',
            ),
            ("-c", "model=$model"),
            ("-c", "model_context_window=$context"),
        ),
    ),
    # 1.18.33
    "opencode": Agent(
        name="opencode",
        program="opencode",
        install="npm install -g opencode-ai",
        environment={"OPENCODE_CONFIG_CONTENT": OPENCODE},
    ),
    # 0.24.4: without the first flag it goes on with the account of its settings, whatever the environment says.
    "qwen": Agent(
        name="Qwen Code",
        program="qwen",
        install="npm install -g @qwen-code/qwen-code",
        key_in=("OPENAI_API_KEY",),
        environment={"OPENAI_BASE_URL": "$url/v1", "OPENAI_MODEL": "$model"},
        options=(("--auth-type", "openai"), ("--model", "$model")),
    ),
    # 0.19.0: the one of its local providers that takes address and key from the environment.
    "hermes": Agent(
        name="Hermes",
        program="hermes",
        install="pip install hermes-agent",
        key_in=("LM_API_KEY",),
        environment={"LM_BASE_URL": "$url/v1"},
        options=(("--provider", "lmstudio"), ("-m", "$model")),
    ),
    # 0.86.2: its own .env goes over the environment, but not over flags, nor over AIDER_*. OPENAI_BASE_URL, where it is
    # set, goes over --openai-api-base.
    "aider": Agent(
        name="aider",
        program="aider",
        install="pip install aider-chat",
        key_in=("AIDER_OPENAI_API_KEY",),
        options=(
            ("--model", "openai/$model"),
            ("--openai-api-base", "$url/v1"),
            ("--set-env", "OPENAI_BASE_URL=$url/v1"),
            ("--no-show-model-warnings",),
        ),
    ),
}
SDKS = {
    "openai": Agent(
        name="OpenAI's SDKs, and agents built on them",
        key_in=("OPENAI_API_KEY",),
        environment={"OPENAI_BASE_URL": "$url/v1", "OPENAI_MODEL": "$model"},
    ),
    "anthropic": Agent(
        name="Anthropic's SDKs, and agents built on them",
        key_in=("ANTHROPIC_API_KEY",),
        environment={"ANTHROPIC_BASE_URL": "$url", "ANTHROPIC_MODEL": "$model"},
        without=("ANTHROPIC_AUTH_TOKEN",),
    ),
}


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
