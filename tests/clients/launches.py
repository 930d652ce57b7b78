"""How each client is started on a task: base URL, key and model, and what lets it work with nobody to ask."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtests.real_agents import agents
from loadtests.real_agents.agents import Launch
from tests.clients.behind import FLAGS
from tests.clients.install import HERE
from tests.clients.moves import FILE

KEY = "sk-none"
CODEX_MODEL = "gpt-5.5"
DRIVERS = HERE / "drivers"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client runs: its programs, a folder for its work and a home of its own; and what it is told. `url`: the
    server's, without `/v1`; `says`: how often its user says the task, where it asks its user."""

    programs: Path
    work: Path
    home: Path
    url: str
    task: str
    model: str = "fast"
    says: int = 1


def launch_driver(driver: str, *words: str, env: str = "OPENAI", path: str = "/v1") -> Callable[[Place], Launch]:
    """Start one of the Python drivers; `env`: whose variables its client reads."""

    def build(place: Place) -> Launch:
        command = [str(place.programs / "python"), str(DRIVERS / f"{driver}.py"), place.task, *words]
        return Launch(command, {f"{env}_BASE_URL": place.url + path, f"{env}_API_KEY": KEY})

    return build


def launch_node(driver: str, *, env: str = "OPENAI", path: str = "/v1") -> Callable[[Place], Launch]:
    """Start one of the drivers for Node."""

    def build(place: Place) -> Launch:
        prefix = place.programs.parents[1]
        known = {f"{env}_BASE_URL": place.url + path, f"{env}_API_KEY": KEY, "NODE_PREFIX": str(prefix)}
        return Launch(["node", str(DRIVERS / f"{driver}.mjs"), place.task], known)

    return build


def launch_front(driver: str, prefix: str) -> Callable[[Place], Launch]:
    """Start LiteLLM's proxy and, through it, one of the Python drivers."""

    def build(place: Place) -> Launch:
        url = place.url + ("/v1" if prefix == "openai" else "")
        command = launch_driver("litellm_front", driver, prefix)(place).command
        return Launch(command, FLAGS | {"SERVER_URL": url, "SERVER_KEY": KEY})

    return build


def launch_claude_code(place: Place) -> Launch:
    """Start Claude Code; as root it works without asking only where it is told that it is in a sandbox."""
    command = [str(place.programs / "claude"), "-p", place.task, "--model", place.model]
    env = {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_API_KEY": KEY}
    models = {f"ANTHROPIC_DEFAULT_{kind}_MODEL": place.model for kind in ("HAIKU", "SONNET", "OPUS")}
    quiet = {"IS_SANDBOX": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    return Launch([*command, "--dangerously-skip-permissions"], env | models | quiet)


def launch_codex(place: Place, model: str = "") -> Launch:
    """Start Codex, whose settings are given on the command line as they would stand in its config.toml."""
    provider = f'{{name="local", base_url="{place.url}/v1", env_key="OPENAI_API_KEY", wire_api="responses"}}'
    settings = ["-c", "model_provider=local", "-c", f"model_providers.local={provider}"]
    free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    command = [str(place.programs / "codex"), "exec", *free, *settings, "-m", model or place.model, place.task]
    return Launch(command, {"OPENAI_API_KEY": KEY})


def launch_codex_as_known(place: Place) -> Launch:
    """Start Codex with a model that it knows, by an alias of the server: it has other tools for it."""
    return launch_codex(place, CODEX_MODEL)


def launch_qwen_code(place: Place) -> Launch:
    command = [str(place.programs / "qwen"), "--yolo", "--auth-type", "openai", "-p", place.task]
    env = {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": place.model}
    return Launch(command, env)


def launch_opencode(place: Place) -> Launch:
    options = {"baseURL": f"{place.url}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {place.model: {}}}
    settings = place.home / "opencode.json"
    settings.write_text(json.dumps({"provider": {"local": provider}, "autoupdate": False}), encoding="utf-8")
    command = [str(place.programs / "opencode"), "run", "-m", f"local/{place.model}", place.task]
    return Launch(command, {"OPENCODE_CONFIG": str(settings), "OPENCODE_DISABLE_MODELS_FETCH": "1"})


def launch_continue(place: Place) -> Launch:
    settings = place.home / "config.yaml"
    model = {"name": "local", "provider": "openai", "model": place.model, "apiBase": f"{place.url}/v1", "apiKey": KEY}
    model |= {"roles": ["chat", "edit", "apply"], "capabilities": ["tool_use"]}
    content = {"name": "local", "version": "1.0.0", "schema": "v1", "models": [model]}
    settings.write_text(json.dumps(content), encoding="utf-8")
    command = [str(place.programs / "cn"), "-p", place.task, "--config", str(settings), "--auto"]
    return Launch(command, {"CONTINUE_TELEMETRY_ENABLED": "0"})


def launch_aider(place: Place) -> Launch:
    """Start aider; what it runs after an edit is its test command."""
    options = ["--edit-format", "diff", "--no-git", "--yes-always", "--no-pretty", "--no-fancy-input"]
    options += ["--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes"]
    options += ["--test-cmd", f"wc -l {FILE}", "--auto-test"]
    where = ["--model", f"openai/{place.model}", "--openai-api-base", f"{place.url}/v1", "--openai-api-key", KEY]
    return Launch([str(place.programs / "aider"), *where, *options, FILE], {}, f"{place.task}\n" * place.says)


def _launch_known(name: str) -> Callable[[Place], Launch]:
    return lambda place: agents.AGENTS[name].build(place.programs, place.home, f"{place.url}/v1", place.task)


launch_hermes = _launch_known("hermes")
launch_openhands = _launch_known("openhands")
