"""The doctor finds a chain that is only configured and doesn't work."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from deployments import __main__
from deployments.cli import doctor
from tests.support.chain_configs import config


def test_the_report_and_its_exit_code(capsys, monkeypatch):
    """All findings are printed, the missing key by its name; only a failure makes the exit code 1."""
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    good = doctor.doctor(config(), Path("serve_config.yaml"))
    out = capsys.readouterr().out
    bad = doctor.doctor(config(escalate_on=[]), Path("serve_config.yaml"))

    assert (good, bad) == (0, 1)
    assert "warn  tier premium: unavailable: OPENROUTER_API_KEY is not set" in out
    assert "platform: " in out
    assert "memory: " in out


def test_a_wrong_configuration_is_exit_code_2(tmp_path, capsys):
    """The command line says one line and 2, before anything else."""
    path = tmp_path / "c.yaml"
    path.write_text("applications: [{import_path: 'deployments.app:build', args: {tears: {}}}]")

    assert __main__.main(["check", str(path)]) == 2
    assert (
        "tears: unknown key; allowed here: evaluate, reliability, server, state, telemetry, tiers"
        in capsys.readouterr().err
    )


def test_a_port_that_is_taken_is_said_before_the_start(tmp_path, capsys):
    """Serve shares a port with whoever has it, without a word; `preflight` names the process instead."""
    path = tmp_path / "c.yaml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        args = "{tiers: {fast: {kind: scripted, script: []}}, reliability: {escalation: {chain: [fast]}}}"
        http = f"{{host: 127.0.0.1, port: {port}}}"
        path.write_text(f"http_options: {http}\napplications: [{{import_path: 'deployments.app:build', args: {args}}}]")
        assert __main__.main(["preflight", str(path)]) == 1  # nobody listens, and nobody else may
        assert f":{port} is taken by another process" in capsys.readouterr().err
        taken.listen()
        assert __main__.main(["preflight", str(path)]) == 1
    assert __main__.main(["preflight", str(path)]) == 0

    err = capsys.readouterr().err
    assert f":{port} is taken by" in err
    assert str(os.getpid()) in err


def test_a_model_whose_calls_cant_be_read_is_a_warning(tmp_path, monkeypatch):
    """The doctor says it of what is on disk, before the tier has started; a tokenizer that can't be loaded too."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    unreadable, _ = doctor._check_model("fast", f"path:{tmp_path}")
    monkeypatch.setattr(doctor, "check_calls_on_disk", lambda folder: f"its calls in {folder.name} can't be read")
    warned, _ = doctor._check_model("fast", f"path:{tmp_path}")
    monkeypatch.setattr(doctor, "check_calls_on_disk", lambda folder: None)
    good, _ = doctor._check_model("fast", f"path:{tmp_path}")

    assert (unreadable.level, warned.level, good.level) == ("warn", "warn", "ok")
    assert "its tokenizer can't be loaded" in unreadable.words
    assert f"its calls in {tmp_path.name} can't be read" in warned.words
