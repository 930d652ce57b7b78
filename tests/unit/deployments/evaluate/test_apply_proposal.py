"""Writing the learned chain into a file: shown, whole, checked, and nothing else changed."""

from __future__ import annotations

import pytest
import yaml

from deployments.config import ConfigError
from deployments.config_file import read_file
from deployments.evaluate.apply_proposal import show_difference, write_file, write_proposal
from tests.support.repository import ROOT

TEXT = (ROOT / "serve_config.yaml").read_text(encoding="utf-8")
PATCH = {
    "reliability": {
        "escalation": {"chain": ["standard", "premium"], "start_at": [{"tier": "premium", "tools_min": 9}]}
    },
    "tiers": {"fast": {"retry_strategy": ["constrain"]}},
}


def test_what_is_patched_is_there_and_the_rest_as_it_was(tmp_path):
    """By the server's own reading; comments stay."""
    path = tmp_path / "mine.yaml"
    path.write_text(write_proposal(TEXT, PATCH))
    before, after = read_file(ROOT / "serve_config.yaml").args, read_file(path).args

    assert after.reliability.escalation.chain == ("standard", "premium")
    assert after.reliability.escalation.start_at[0].tier == "premium"
    assert after.tiers["fast"].retry_strategy == ("constrain",)
    assert after.server == before.server
    assert after.tiers["standard"] == before.tiers["standard"]
    comments = [line.strip() for line in TEXT.splitlines() if line.strip().startswith("#")]
    assert all(comment in path.read_text() for comment in comments)


def test_the_difference_shows_what_changes_and_little_else(tmp_path):
    """A line for each change, with its surroundings; the layout of the rest stays."""
    shown = show_difference(tmp_path / "mine.yaml", TEXT, write_proposal(TEXT, PATCH))
    changed = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]

    assert any("standard" in line and line.startswith("+") for line in changed)
    assert len(changed) <= 10
    assert show_difference(tmp_path / "x", TEXT, TEXT) == ""


def test_a_file_is_replaced_whole(tmp_path):
    """With its own mode; nothing is left beside it."""
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    path.chmod(0o600)
    write_file(path, write_proposal(TEXT, PATCH))

    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
    assert yaml.safe_load(path.read_text())["applications"][0]["args"]["tiers"]["fast"]["retry_strategy"]


def test_what_the_server_can_t_use_is_not_written(tmp_path):
    """The old file stays, and nothing is left beside it."""
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    with pytest.raises(ConfigError):
        write_file(path, write_proposal(TEXT, {"reliability": {"escalation": {"chain": ["nobody"]}}}))

    assert path.read_text() == TEXT
    assert list(tmp_path.iterdir()) == [path]
