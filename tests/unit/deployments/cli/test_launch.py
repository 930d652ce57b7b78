"""Starting an agent on a server: the real command, a program that tells how it was started, a server that answers."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from deployments.__main__ import main
from deployments.cli.agents import AGENTS, SDKS
from deployments.cli.launch import _find_context, _find_server
from deployments.config.config_errors import ConfigError
from deployments.config.free_port import free_port
from tests.support.loopback import Answer, JsonServer
from tests.support.repository import ROOT
from tests.unit.deployments.test_main import SCRIPTED

TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)])); sys.exit(7)"
MODELS = [{"id": "fast", "state": "ready", "context_length": 8192}]


@pytest.fixture
def server() -> Iterator[JsonServer]:
    """One that is well, until a test changes what it answers."""
    answers: dict[str, Answer] = {
        "/health": (200, {"status": "ok"}),
        "/v1/models/fast": (200, MODELS[0]),
        "/v1/models": (200, {"data": MODELS}),
        "/ready": (200, {"chain": ["fast"]}),
    }
    with JsonServer(answers) as made:
        yield made


def run(tmp_path: Path, *arguments: str, program: str = "qwen", **environ: str) -> subprocess.CompletedProcess[str]:
    """`launch` as a process, with a program on PATH that tells its arguments and environment, and exits with 7."""
    script = tmp_path / program
    script.write_text(f"#!{sys.executable}\n{TELL}\n")
    script.chmod(0o755)
    given = {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), **environ}
    command = [sys.executable, "-m", "deployments", *arguments]
    return subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)


def test_the_agent_is_started_with_what_it_needs(tmp_path, server):
    """Its arguments are what stands behind the first `--`, untouched; the exit code is the agent's."""
    ended = run(
        tmp_path,
        *("launch", "qwen", "--model", "fast", "--url", f"{server.url}/v1/", "--", "-p", "say hi", "--", "-x"),
        MLX_STACK_API_KEY="msk-1",
        OPENAI_API_KEY="another's",
        QWEN_THEME="dark",
        http_proxy="http://127.0.0.1:9",
    )
    arguments, environment = json.loads(ended.stdout)

    assert ended.returncode == 7
    assert arguments == ["--auth-type", "openai", "--model", "fast", "-p", "say hi", "--", "-x"]
    assert environment["OPENAI_BASE_URL"] == f"{server.url}/v1"
    assert environment["OPENAI_API_KEY"] == "msk-1"
    assert environment["NO_PROXY"] == "127.0.0.1"
    assert environment["QWEN_THEME"] == "dark"
    assert [key for _, key in server.asked] == [None, "Bearer msk-1", "Bearer msk-1", "Bearer msk-1"]
    assert "msk-1" not in ended.stderr


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux shows them so")
def test_the_agent_heeds_the_signals_that_python_ignores(tmp_path, server):
    """Of what an agent runs, `yes | head -1` ends: SIGPIPE and SIGXFSZ are as before Python changed them."""
    (tmp_path / "codex").write_text("#!/bin/sh\nexec grep SigIgn /proc/self/status\n")
    (tmp_path / "codex").chmod(0o755)
    ended = run(tmp_path, "launch", "codex", "--model", "fast", "--url", server.url, PATH=f"{tmp_path}:/usr/bin:/bin")

    assert int(ended.stdout.split()[1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1) == 0


@pytest.mark.parametrize("text", ["echo no first line\n", "#!/none/python\n"])
def test_a_program_that_cant_be_run_is_said_in_a_line(tmp_path, server, text):
    """What pip wrote, where its Python is gone: one line with the command that installs the program; exit code 1."""
    (tmp_path / "hermes").write_text(text)
    (tmp_path / "hermes").chmod(0o755)
    ended = run(tmp_path, "launch", "hermes", "--model", "fast", "--url", server.url)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "`pip install hermes-agent`" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_it_finds_the_server_in_a_configuration_that_is_named(tmp_path, server):
    """With --config it is `http_options` of that file; without a key it is one that any server without keys takes."""
    http = {"host": "127.0.0.1", "port": int(server.url.rpartition(":")[2])}
    (tmp_path / "named.yaml").write_text(yaml.safe_dump(SCRIPTED | {"http_options": http}))
    options = ("--config", "named.yaml", "--model", "fast")
    ended = run(tmp_path, "launch", "claude", *options, program="claude", ANTHROPIC_API_KEY="another's")
    _, environment = json.loads(ended.stdout)

    assert environment["ANTHROPIC_BASE_URL"] == server.url
    assert environment["ANTHROPIC_AUTH_TOKEN"] == "unused"
    assert environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "2048"
    assert "ANTHROPIC_API_KEY" not in environment


@pytest.mark.parametrize("path", ["/v1/models/fast", "/v1/models", "/ready"])
@pytest.mark.parametrize("body", [[1], {"data": [1]}, {"data": [{}]}, {"chain": 5}, {"data": 7}, {"chain": {"a": 1}}])
def test_an_answer_of_another_shape_is_no_traceback(server, capsys, path, body):
    """A program that is no server of ours, and answers 200: a line says so. Where the rest suffices nothing is said."""
    server.answers[path] = (200, body)
    assert main(["agents", "qwen", "--model", "fast", "--url", server.url]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if server.url in line and line.startswith("#")]

    assert all("is not an MLX Stack Serve instance" in line for line in said)
    assert len(said) <= 1


def test_the_key_does_not_follow_a_redirect(tmp_path, server):
    """A server that sends the client elsewhere learns the key that it was asked with, and nobody else does."""
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        other.timeout = 0.01
        location = f"http://127.0.0.1:{other.server_port}/"
        server.answers["/v1/models/fast"] = (302, {}, {"location": location})
        ended = run(tmp_path, "launch", "qwen", "--model", "fast", "--url", server.url, MLX_STACK_API_KEY="msk-1")
        other.socket.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody has connected
            other.socket.accept()

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "HTTP 302" in ended.stderr


@pytest.mark.parametrize(
    ("agent", "away", "words"),
    [("codex", False, "`npm install -g @openai/codex`"), ("qwen", True, "`mlx-stack-serve serve`")],
)
def test_a_program_or_a_server_that_is_missing_is_said_before_anything_is_started(tmp_path, server, agent, away, words):
    """One line with the command that installs the program, or with the URL and how to start a server; exit code 1."""
    url = f"http://127.0.0.1:{free_port()}" if away else server.url
    ended = run(tmp_path, "launch", agent, "--url", url)

    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert words in ended.stderr
    assert not away or url in ended.stderr


@pytest.mark.parametrize(
    ("path", "answer", "words"),
    [
        ("/health", (503, {"error": {"message": "the server is starting"}}), "the server is starting"),
        ("/health", (200, "hello"), "HTTP 200 to GET /health"),
        ("/v1/models/fast", (401, {"error": {"message": "the API key is wrong"}}), "read from MLX_STACK_API_KEY"),
        ("/v1/models/fast", (404, {"error": {"message": "there is no model 'fast'"}}), "there is no model 'fast'"),
    ],
)
def test_what_the_server_refuses_is_said(tmp_path, server, path, answer, words):
    """A server that starts, another program at that port, a wrong key, a model that doesn't exist: one line each."""
    server.answers[path] = answer
    ended = run(tmp_path, "launch", "qwen", "--model", "fast", "--url", server.url)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.count("\n") == 1
    assert words in ended.stderr


@pytest.mark.parametrize("up", [True, False])
def test_agents_prints_lines_for_each(server, capsys, monkeypatch, up):
    """Every agent and SDK, or one, with the server's context where it answers; no key is printed."""
    monkeypatch.setenv("MLX_STACK_API_KEY", "msk-secret")
    if not up:
        server.answers["/health"] = (503, {})
    assert main(["agents", "--model", "fast", "--url", server.url]) == 0
    out = capsys.readouterr().out

    assert ("CLAUDE_CODE_MAX_OUTPUT_TOKENS=2048" in out) is up
    assert out.startswith("export" if up else "# the server at")
    assert "msk-secret" not in out
    assert all(f"# {agent.name}" in out for agent in (*AGENTS.values(), *SDKS.values()))
    assert main(["agents", "aider", "--model", "fast", "--url", server.url]) == 0
    out = capsys.readouterr().out
    assert "aider --model openai/fast" in out
    assert "# Codex" not in out


@pytest.mark.parametrize("path", ["/health", "/v1/models/auto"])
@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x85", "\u2028", "\x1b]0;"])
def test_a_server_writes_no_line_of_its_own(server, capsys, path, end):
    """Law: of the lines that a shell is given none is a server's: what it says of an error stays in one comment, and
    moves no cursor."""
    server.answers[path] = (503, {"error": {"message": f"away{end}touch owned"}})
    assert main(["agents", "openai", "--url", server.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum("touch owned" in line for line in lines) == 1
    assert lines[0].startswith("# the server")
    assert lines[0].isprintable()


@pytest.mark.parametrize("model", ["", 'a"b', "a b", "$(x)", "a\n"])
def test_what_is_no_model_is_said(model):
    """One line; and nothing that a shell, TOML or JSON would read otherwise."""
    with pytest.raises(ConfigError, match="--model"):
        _find_server("http://127.0.0.1:8000", None, model)


TIERS = [
    {"id": "fast", "state": "ready", "context_length": 8192},
    {"id": "standard", "state": "asleep", "context_length": 32768},
    {"id": "premium", "state": "unavailable", "context_length": 200000},
    {"id": "alone", "state": "ready", "context_length": 4096},
    {"id": "odd", "state": "ready", "context_length": None},
    {"id": "auto", "state": "ready", "context_length": 8192, "starts_at": "fast"},
]


KNOWN = {**dict.fromkeys(("auto", "fast", "standard"), 32768), "premium": None, "alone": 4096, "odd": None, "x": None}


@pytest.mark.parametrize("model", KNOWN)
def test_the_context_is_the_largest_that_may_answer(model):
    """From the tier that the model starts at to the end of the chain; a tier that can't answer doesn't count."""
    assert _find_context(TIERS, ["fast", "standard", "premium"], model) == KNOWN[model]
