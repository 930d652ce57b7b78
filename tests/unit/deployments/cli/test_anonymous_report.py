"""The file that a person sends: what helps is in it, and nothing that names anybody."""

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from deployments import __main__
from deployments.cli.anonymous_report import _build_report, write_report
from deployments.config.app_config import AppConfig, load
from deployments.state.incident_record import IncidentKind, record
from deployments.state.records import IncidentItem
from tests.support.config_files import write_config
from tests.support.incarnations import Driver, life

SECRETS = ("hunter2", "acme", "corp.example", "10.1.2.3", "/home/", "/Users/", "confidential", "my-session", "jane")


def config(tmp_path: Path) -> AppConfig:
    """A configuration full of what must not leave this machine."""
    upstream = {"kind": "hosted", "base_url": "https://jane:hunter2@corp.example/v1", "model": "acme/confidential"}
    tiers = {
        "fast": {"kind": "mlx", "model": "auto"},
        "acme-internal": {"kind": "mlx", "model": f"path:{tmp_path}/home/jane/confidential"},
        "corp": upstream | {"headers": {"x-key": "hunter2"}, "api_key_env": "ACME_KEY"},
        "mine": {"kind": "mlx", "model": "hf:acme-corp/confidential@main"},
        "premium": {"kind": "hosted", "preset": "openrouter"},
    }
    return load({"tiers": tiers, "reliability": {"escalation": {"chain": ["acme-internal", "fast", "corp"]}}})


def test_nothing_names_anybody_and_what_helps_is_there(tmp_path: Path) -> None:
    """Law: of names that a person chose, addresses, users, paths, keys and texts none is in the file, wherever they
    stood; tiers go by their usual names or by numbers. There are versions, memory, processor, and each tier's model."""
    report = _build_report(config(tmp_path), tmp_path / "none.sqlite", time.time())
    text = json.dumps(report).lower()

    assert [secret for secret in (*SECRETS, str(tmp_path).lower(), "acme_key") if secret in text] == []
    assert list(report["tiers"]) == ["fast", "tier 2", "tier 3", "tier 4", "premium"]
    assert report["chain"] == ["tier 2", "fast", "tier 3"]
    assert (report["tiers"]["tier 2"]["model"], report["tiers"]["tier 4"]["model"]) == ("path:", "hf:")
    assert (report["tiers"]["tier 3"]["where"], report["tiers"]["premium"]["where"]) == ("elsewhere", "openrouter")
    assert report["versions"]["ray"]
    assert report["machine"]["memory_bytes"] > 0
    assert report["machine"]["cores"] > 0
    assert "model" in report["tiers"]["fast"]
    assert report["incidents"] == {"counted": None, "newest": []}


def test_incidents_have_no_text(tmp_path: Path) -> None:
    """Law: of a week's incidents only kind, tier and age are told; each kind is counted, and older ones aren't."""
    actor, now_s = life(tmp_path), time.time()
    state = Driver(actor)
    for age_s, kind, tier in ((9 * 86400, "fault", "fast"), (7200, "loop", "corp"), (60, "fault", "fast")):
        named = {"reason": "confidential", "session": "my-session", "key": "jane", "evidence": {"text": "hunter2"}}
        state.put(IncidentItem(incident=record(IncidentKind(kind), at_s=now_s - age_s, tier=tier, **named)))
    found: Any = _build_report(config(tmp_path), Path(actor.stats()["journal"]), now_s)["incidents"]

    assert [secret for secret in SECRETS if secret in json.dumps(found)] == []
    assert found["counted"] == {"fault": 1, "loop": 1}
    assert found["newest"] == [
        {"kind": "fault", "tier": "fast", "hours_ago": 0},
        {"kind": "loop", "tier": "tier 3", "hours_ago": 2},
    ]


def test_it_is_shown_before_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: what is printed is what the file holds, the file is its user's alone, and none is overwritten."""
    path = tmp_path / "report.json"
    assert write_report(config(tmp_path), tmp_path / "none.sqlite", path) == 0
    out = capsys.readouterr().out
    written = path.read_text()

    assert out.startswith(written)
    assert "Nothing was sent" in out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert write_report(config(tmp_path), tmp_path / "none.sqlite", path) == 1
    assert path.read_text() == written


def test_the_command_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: `doctor --report FILE` writes it, and checks nothing."""
    configured = write_config(tmp_path / "c.yaml")
    assert __main__.main(["doctor", str(configured), "--report", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["tiers"]["fast"]["kind"] == "scripted"
    assert "warnings" not in capsys.readouterr().out
