"""Several Ray nodes: each has its monitor, pressure counts where it is, and a dead node stops nobody."""

import os
import subprocess
import sys
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.memory.nodes import _fit_minimums
from deployments.memory.plan import MonitorSettings, TierNeed, settings_of
from reliability.config import MemoryPressureConfig
from tests.support.repository import ROOT


def run_three_nodes() -> str:
    with tempfile.TemporaryDirectory(prefix="ms-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "tests.support.three_nodes", folder]
        # Ray's class for several nodes writes an address there, and doesn't make the folder.
        (Path(folder) / "ray").mkdir()
        env = os.environ | {"RAY_TMPDIR": folder}
        out = subprocess.run(command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert out.returncode == 0, out.stderr[-4000:]
    return out.stdout


@pytest.mark.ray
@pytest.mark.nightly
def test_three_nodes():
    """The whole graph over three nodes: pressure on one moves work to another, and a node that dies with its monitor
    stops nobody."""
    assert "doesn't stop the graph" in run_three_nodes()


NEEDS = st.lists(
    st.builds(
        TierNeed,
        name=st.sampled_from("abcd"),
        replica_bytes=st.sampled_from([None, 0, 10, 30, 60]),
        replicas_min=st.integers(0, 3),
        replicas_max=st.just(5),
        local=st.booleans(),
    ),
    unique_by=lambda n: n.name,
    max_size=4,
)


@given(NEEDS, st.lists(st.integers(0, 100), max_size=3))
def test_nothing_is_asked_that_cannot_be_had(needs: list[TierNeed], room: list[int]) -> None:
    """Where the tiers ask for their bytes, their minimums fit together, and one replica of each on a node."""
    least = [n.replica_bytes for n in needs if n.local and n.replica_bytes for _ in range(max(1, n.replicas_min))]
    if _fit_minimums(needs, room):
        assert sum(least) <= sum(room)
        assert max(least, default=0) <= max(room, default=0)
    else:
        assert least
        assert len(room) != 1 or sum(least) > sum(room)


def test_other_settings_are_another_monitor():
    """Any setting changes the digest in a monitor's name, and the same settings never do."""
    plain = MonitorSettings()
    others = [replace(plain, **{f.name: "scripted:x" if f.name == "sensor" else 3}) for f in fields(MonitorSettings)]

    assert len({settings.digest for settings in (plain, *others)}) == len(fields(MonitorSettings)) + 1
    assert MonitorSettings().digest == plain.digest


def test_a_reading_must_outlive_the_poll():
    """Readings that are stale before the next one comes are refused: the level would be unknown half of the time."""
    with pytest.raises(ValueError, match=r"stale_s \(1\) is under twice poll_s \(1\)"):
        MemoryPressureConfig(poll_s=1, stale_s=1)
    assert settings_of(MemoryPressureConfig(enabled=False)) is None
