"""The table of agents, filled in and written down."""

import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deployments.cli.agents import AGENTS, KEY, SDKS, fill_in, place_settings, write_lines
from deployments.cli.launch import _build_environment

URL = "http://127.0.0.1:8000"
ALL = AGENTS | SDKS
PRINTS = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


@pytest.mark.parametrize("name", ALL)
def test_every_place_is_filled_in(name):
    """No setting holds a place that isn't filled in, and the server's address is in one of them. The context is told
    where it is known; one that isn't known isn't made up."""
    known, unknown = (fill_in(ALL[name], url=URL, model="auto", context_tokens=count) for count in (32769, None))
    for start in (known, unknown):
        settings = [*start.environment.values(), *start.flags, *start.settings.values()]
        assert not [text for text in settings if re.search(r"\$\w", text)]
        assert any(URL in text for text in settings)
        assert any("auto" in text for text in settings)
    assert "32769" not in repr(unknown)
    assert ("32769" in repr(known)) is (name in ("codex", "opencode", "qwen"))
    assert (repr(known) != repr(unknown)) is (name in ("claude", "codex", "opencode", "qwen"))


@pytest.mark.parametrize("context_tokens", [8192, 16_384, 32_768, 65_536, 100_000, 131_072, 200_000, 1_000_000])
def test_an_answer_leaves_room_for_the_prompt(context_tokens):
    """Law: agents that keep room for an answer keep at most a quarter of the context: by themselves they keep 20,000
    tokens or more, and find a context of 16,384 full before the first word. What Claude Code holds back of its window
    (an answer up to 20,000 tokens, and 13,000) is a quarter of the context, or less of a large one: else it condensed
    after each call."""
    started = {n: fill_in(AGENTS[n], url=URL, model="auto", context_tokens=context_tokens).environment for n in AGENTS}
    config = json.loads(started["opencode"]["OPENCODE_CONFIG_CONTENT"])
    kept = config["provider"]["mlx-stack"]["models"]["auto"]["limit"]["output"]
    window, answer = (int(started["claude"][f"CLAUDE_CODE_MAX_{kind}_TOKENS"]) for kind in ("CONTEXT", "OUTPUT"))

    assert 0 < kept == answer <= min(context_tokens // 4, 32_000)
    assert window - min(answer, 20_000) - 13_000 == max(context_tokens * 3 // 4, context_tokens - 33_000)


def test_qwen_reads_the_context_from_a_file(tmp_path, monkeypatch):
    """Law: the file is ours and closed to others; a user who has named one keeps it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    start = fill_in(AGENTS["qwen"], url=URL, model="auto", context_tokens=16_384)
    variable = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"
    path = Path(place_settings(start, {}).environment[variable])

    assert json.loads(path.read_text())["model"]["generationConfig"]["contextWindowSize"] == 16_384
    assert path.is_relative_to(tmp_path)
    assert not path.parent.stat().st_mode & 0o077
    assert variable not in place_settings(start, {variable: "/etc/theirs.json"}).environment
    path.parent.chmod(0o777)
    with pytest.raises(PermissionError):
        place_settings(start, {})


@pytest.mark.parametrize("context_tokens", [None, 16_384])
def test_no_settings_file_leads_an_agent_elsewhere(context_tokens):
    """Law: the server is told where no settings file, the repository's among them, goes over it. Each of these sent the
    conversation and the key to another address: variables of `.claude/settings.json`, in `opencode.json` a model of an
    agent's own or a `default_agent` with another provider, `modelProviders` in `.qwen/settings.json` (Qwen Code merges
    mappings, so that one for `openai` alone left `anthropic` and the repository's own names). Its `telemetry` took the
    conversation along, and `share` with an `enterprise` address of `opencode.json` asked to. Also where the context
    isn't known."""
    told = {n: fill_in(AGENTS[n], url=URL, model="fast", context_tokens=context_tokens) for n in AGENTS}
    config = json.loads(told["opencode"].environment["OPENCODE_CONFIG_CONTENT"])
    providers = json.loads(told["qwen"].settings["QWEN_CODE_SYSTEM_SETTINGS_PATH"])

    assert told["claude"].environment["CLAUDE_CODE_PROVIDER_MANAGED_BY_HOST"] == "1"
    assert config["agent"].keys() >= {"build", "plan", "general", "explore", "title", "summary", "compaction"}
    assert {agent["model"] for agent in config["agent"].values()} == {config["model"]} == {"mlx-stack/fast"}
    assert config["share"] == "manual"
    assert config["enabled_providers"] == list(config["provider"]) == ["mlx-stack"]
    assert providers == {"modelProviders": []}
    assert told["qwen"].environment["QWEN_TELEMETRY_ENABLED"] == "false"


@pytest.mark.parametrize(("url", "proxies"), [(URL, 2), ("https://models.example", 0)])
def test_no_file_of_a_repository_leads_aider_elsewhere(tmp_path, monkeypatch, url, proxies):
    """Law: flags say what a repository's `.aider.model.settings.yml` (an `api_base` for the model, or for all) and
    `.env` (a proxy, `NO_PROXY=`, LiteLLM's own) go over otherwise, and its `.aider.conf.yml` (a weak or an editor's
    model, an alias): each of them had led the conversation elsewhere. A server on another machine may need the user's
    proxy."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    start = place_settings(fill_in(AGENTS["aider"], url=url, model="fast", context_tokens=None), {})
    flags = start.flags
    models = json.loads(Path(flags[flags.index("--model-settings-file") + 1]).read_text())

    assert {one["name"]: one["extra_params"] for one in models} == {"openai/fast": {}, "aider/extra_params": {}}
    assert "--model-settings-file" not in start.environment
    pairs = set(itertools.pairwise(flags))
    assert pairs >= {(f"--{kind}model", "openai/fast") for kind in ("", "weak-", "editor-")}
    assert pairs >= {("--alias", "openai/fast:openai/fast"), ("--set-env", "USE_LITELLM_PROXY=false")}
    assert sum(flag.lower() == "no_proxy=127.0.0.1" for flag in flags) == proxies


def test_hermes_reads_the_server_from_a_folder(tmp_path, monkeypatch):
    """Law: it is a provider of its own, in a folder that goes over Hermes' `.env`: LM Studio's address in there had
    taken the conversation and the key."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for _ in range(2):
        start = place_settings(fill_in(AGENTS["hermes"], url=URL, model="fast", context_tokens=None), {})
    folder = Path(start.environment["HERMES_MANAGED_DIR"])

    assert start.flags == ["--provider", "mlx-stack-launch", "-m", "fast"]
    settings = json.loads((folder / "config.yaml").read_text())
    assert settings["model"] == {"provider": "mlx-stack-launch", "default": "fast"}
    provider = settings["providers"]["mlx-stack-launch"]
    assert (provider["base_url"], provider["key_env"]) == (f"{URL}/v1", KEY)
    assert not folder.stat().st_mode & 0o077


def test_each_agent_is_told_in_its_own_form():
    """Claude Code adds `/v1` itself, its attribution, which ruins prompt caches, is off, and no sub-agent's file
    chooses another model; Codex reads its flags as TOML; opencode reads JSON, and the key by its variable."""
    told = fill_in(AGENTS["claude"], url=URL, model="fast", context_tokens=None).environment
    assert (told["ANTHROPIC_BASE_URL"], told["CLAUDE_CODE_ATTRIBUTION_HEADER"]) == (URL, "0")
    assert {told[name] for name in told if name.endswith("_MODEL")} == {"fast"}
    assert {"ANTHROPIC_DEFAULT_FABLE_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"} <= told.keys()
    assert told["CLAUDE_CODE_SUBAGENT_MODEL_FORCE"] == "1"

    flags = fill_in(AGENTS["codex"], url=URL, model="auto", context_tokens=5).flags
    values = dict(text.split("=", 1) for text in flags if text != "-c")
    (provider,) = tomllib.loads(f"x = [{values['model_providers.mlx-stack']}]")["x"]

    assert (values["model_provider"], values["model_context_window"]) == ("mlx-stack", "5")
    assert (provider["base_url"], provider["env_key"], provider["wire_api"]) == (f"{URL}/v1", KEY, "responses")

    text = fill_in(AGENTS["opencode"], url=URL, model="auto", context_tokens=7).environment
    config = json.loads(text["OPENCODE_CONFIG_CONTENT"])
    provider = config["provider"]["mlx-stack"]
    assert config["model"] == config["small_model"] == "mlx-stack/auto"
    assert provider["options"] == {"baseURL": f"{URL}/v1", "apiKey": f"{{env:{KEY}}}"}
    assert provider["models"]["auto"]["limit"]["context"] == 7


@pytest.mark.parametrize("name", AGENTS)
def test_the_lines_by_hand_do_what_launch_does(name, tmp_path):
    """A shell that runs the printed lines starts the program with the environment and the flags of `launch`. No flag
    holds the key: everybody on a machine may read command lines."""
    agent = AGENTS[name]
    start = fill_in(agent, url=URL, model="auto", context_tokens=32768)
    program = tmp_path / agent.program
    program.write_text(f"#!{sys.executable}\n{PRINTS}\n")
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, KEY: "msk-1", **dict.fromkeys(agent.without, "elsewhere")}
    lines = "\n".join(write_lines(start))
    out = subprocess.run(["/bin/sh", "-e", "-c", lines], env=given, capture_output=True, check=True, text=True).stdout
    flags, environment = json.loads(out)
    built = _build_environment(start, "msk-1", given, "http://elsewhere")

    assert flags == start.flags
    assert {n: v for n, v in environment.items() if n in built} == built
    assert not set(agent.without) & set(environment)
    assert all(built[variable] == "msk-1" for variable in (KEY, *agent.key_in))
    assert "msk-1" not in lines + repr(start)
