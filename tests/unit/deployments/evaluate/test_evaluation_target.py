"""What is evaluated: what each variant of a server of our own changes, and who may be asked."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from deployments.config.app_config import load
from deployments.evaluate import evaluation_target
from deployments.evaluate.evaluation_plan import Settings
from deployments.evaluate.evaluation_target import NO_CLOUD, NoServer, OwnTarget, _patch_variant, _write_config
from deployments.graph.serve_file import read_file
from tests.support.config_files import make_document
from tests.support.repository import ROOT

ARGS = {
    "tiers": {
        "fast": {"kind": "mlx", "model": "auto", "retry_strategy": ["resample"]},
        "there": {"kind": "scripted", "script": [{"answer": "hi"}]},
    },
    "reliability": {"escalation": {"chain": ["fast", "there"]}, "token_budget": {"per_session": 5}},
    "server": {"api_keys_file": "keys.yaml"},
}
DOCUMENT = make_document(http={"host": "0.0.0.0", "port": 9999}, **ARGS)
DOCUMENT["applications"][0]["deployments"] = [
    {"name": "Router", "user_config": {"reliability": {"tool_validation": {"max_retries": 1}}}},
    {"name": "fast", "user_config": {"max_running": 2}},
]


@pytest.fixture
def source(tmp_path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT))
    return path


@pytest.mark.parametrize(
    ("variant", "enabled", "strategy"),
    [
        *(("layers", (False, True, True), "resample"), ("unchecked", (False, False, False), "resample")),
        *(("constrain", (False, True, True), "constrain"), ("chain", (True, True, True), "resample")),
    ],
)
def test_a_variant_changes_one_thing(variant, enabled, strategy):
    """And in all of them nobody's budget and no API key counts."""
    config = _patch_variant(load(ARGS), variant)
    core = config.reliability

    assert (core.escalation.enabled, core.tool_validation.enabled, core.loop_detection.enabled) == enabled
    assert config.tiers["fast"].retry_strategy == (strategy,)
    assert core.token_budget.enabled is False
    assert core.retry_budget.floor == 100_000
    assert config.server.api_keys_file is None


@pytest.mark.parametrize("variant", ["layers", "unchecked", "chain", "constrain"])
def test_what_is_written_can_be_started(source, tmp_path, variant):
    """On loopback, on its own port, with its own state; for the shipped configuration too."""
    for file in (source, ROOT / "serve_config.yaml"):
        config = _patch_variant(evaluation_target.read_config(file), variant)
        path = tmp_path / f"{variant}.yaml"
        path.write_text(_write_config(file, config, port=23456, state=tmp_path / "state"))
        read = read_file(path)

        assert (read.host, read.port) == ("127.0.0.1", 23456)
        assert read.args.state.path == str(tmp_path / "state")
        assert read.args.reliability == config.reliability


def test_a_start_that_fails_is_tried_once_more_and_then_said(source, tmp_path, monkeypatch):
    """With the end of the log; nothing of the two starts is left."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho begun >> {tmp_path}/begun\necho no room for Ray\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(evaluation_target.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(evaluation_target.sys, "executable", str(program))
    with pytest.raises(NoServer, match="no room for Ray"), evaluation_target.run_server(source, load(ARGS)):
        pass

    assert (tmp_path / "begun").read_text() == "begun\nbegun\n"
    assert not list(tmp_path.glob("ms-eval-*"))


EVALUATION = """
import sys
from pathlib import Path
from deployments.config.app_config import load
from deployments.evaluate.evaluation_target import run_server

tiers = {"there": {"kind": "scripted", "script": [{"answer": "hi"}]}}
sys.executable = sys.argv[1]
with run_server(Path(sys.argv[2]), load({"tiers": tiers, "reliability": {"escalation": {"chain": ["there"]}}})):
    pass
"""


@pytest.mark.parametrize(
    "ignored", ["INT HUP TERM", *(pytest.param(few, marks=pytest.mark.nightly) for few in ("", "INT"))]
)
def test_a_server_doesn_t_outlive_an_evaluation_that_was_killed(source, tmp_path, ignored):
    """Law: when an evaluation is killed, its server ends, and so does the guard, whichever signals the evaluation was
    started to ignore: in the background of a shell, under `nohup`."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    environ = os.environ | {"TMPDIR": str(tmp_path)}
    shell = ["/bin/sh", "-c", f'trap "" {ignored}; exec "$@"' if ignored else 'exec "$@"', "sh"]
    evaluation = subprocess.Popen([*shell, sys.executable, "-c", EVALUATION, program, source], env=environ)
    started: list[psutil.Process] = []
    while len(started) < 2:  # the server and the guard
        assert evaluation.poll() is None
        started = psutil.Process(evaluation.pid).children()
    evaluation.kill()
    evaluation.wait()

    _, alive = psutil.wait_procs(started, timeout=30)
    assert not alive


TIERS = {"fast": {"kind": "mlx"}, "premium": {"kind": "hosted", "preset": "openrouter"}}
CONFIG = load({"tiers": TIERS, "reliability": {"escalation": {"chain": ["fast", "premium"]}}})


def test_tiers_that_are_elsewhere_are_left_out_unless_it_is_asked_for():
    """They cost money, and what is asked would leave the machine. Where only one of its tiers may answer, a chain is
    none: there is nothing to go on to."""
    target = OwnTarget(Path("x"), CONFIG, cloud=False)
    assert target.find_obstacles() == {"premium": NO_CLOUD}
    assert OwnTarget(Path("x"), CONFIG, cloud=True).find_obstacles() == {}
    variants = {phase.variant for phase in target.plan({"fast": {}}, Settings())}
    both = {phase.variant for phase in target.plan({"fast": {}, "premium": {}}, Settings())}

    assert variants == {"none", "layers", "constrain", "unchecked"}
    assert both - variants == {"chain"}
