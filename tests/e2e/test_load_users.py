"""The users of the load test, on a small server: what they say they measure was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.repository import ROOT

pytestmark = pytest.mark.nightly
USERS, SECONDS = 17, 12  # as many users as their weights sum up to: at least one of each kind


@pytest.fixture(scope="module")
def server(deploy):
    return deploy(yaml.safe_load((ROOT / "loadtests" / "scripted.yaml").read_text(encoding="utf-8")), "load")


@pytest.fixture(scope="module")
def figures(server, tmp_path_factory):
    path: Path = tmp_path_factory.mktemp("load") / "load.json"
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests" / "locustfile.py"), "--headless"]
    command += ["--host", server.url, "--users", str(USERS), "--spawn-rate", str(USERS), "--only-summary"]
    command += ["--run-time", f"{SECONDS}s", "--figures", str(path)]
    environment = os.environ | {"MLX_STACK_LOAD_PACE_S": "0.6"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return dict(json.loads(path.read_text(encoding="utf-8")))


def test_every_kind_of_user_was_answered(figures):
    """Agents and loopers, streamed and not, leavers and bursts; none of them failed, and nothing else was counted."""
    asked = {row["name"]: row for row in figures["requests"]}
    kinds = {f"{kind} {how}" for kind in ("Agent", "Looper") for how in ("stream", "whole")}

    assert asked.keys() == kinds | {"Leaver stream", "Burst whole"}
    assert all(row["requests"] and not row["failures"] for row in asked.values())


def test_each_time_is_told_by_tier_and_outcome(figures):
    """Totals of streams and of whole answers, times to the first text and between two pieces: each of a tier that is
    named, with an outcome, and in order."""
    answered = [row for row in figures["rows"] if row["tier"] != "none"]

    assert {(row["kind"], row["how"]) for row in answered} == {
        *(("total", how) for how in ("stream", "whole")),
        *((kind, "stream") for kind in ("ttft", "gap")),
    }
    assert all(row["outcome"] and 0 < row["p50"] <= row["p95"] <= row["p99"] <= row["max"] for row in answered)


def test_streams_were_left_and_calls_came_together(figures):
    """Somebody left in the middle, and some answers had two calls at once."""
    assert figures["counts"]["left"] > 0
    assert figures["counts"]["parallel"] > 0


def test_calls_are_counted_by_the_servers_own_word(figures):
    """The scripts answer badly now and then: there are more calls than requests, and more than one tier answered."""
    tiers = {row["tier"] for row in figures["rows"]}

    assert 1 < figures["calls_per_request"] < 8
    assert {"fast", "standard"} <= tiers
