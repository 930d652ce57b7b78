"""A GGUF source: one folder for one content, the hub's own file first, and room on disk before anything begins."""

import hashlib
import shutil
from pathlib import Path

import pytest

from deployments.models import hub, sources
from deployments.models.artifact import find_on_disk, resolve
from deployments.models.conversion import locate_model
from deployments.models.downloads import read_progress
from deployments.models.sources import CODER_SMALL, ModelSource, ModelUnavailable, parse_source
from tests.support import tiny_model as tiny

MANY = 3
FILE = "hf:org/name@main#tiny.gguf"


class Hub:
    """What the hub gives for a file: one on disk, or a refusal."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.asked = file, 0

    def fetch_file(self, source: ModelSource, *, say: object) -> Path:
        self.asked += 1
        if self.file is None:
            raise ModelUnavailable(f"{source.label} can't be fetched", again=True)
        return self.file


@pytest.fixture
def official(tmp_path: Path) -> Path:
    """The file as its maker has it."""
    path = tmp_path / "official.gguf"
    tiny.write_gguf(path)
    return path


@pytest.fixture
def known(official: Path, packages: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A source whose file is known, with copies of it in parts."""
    tiny.write_parts(packages, MANY)
    raw = official.read_bytes()
    copies = f"parts:tiny-parts-{{1..{MANY}}}=={tiny.VERSION}#*/data/*.bin"
    what = sources._KnownFile(hashlib.sha256(raw).hexdigest(), len(raw), copies)
    monkeypatch.setitem(sources._KNOWN_FILES, FILE, what)
    return FILE


def put_hub(monkeypatch: pytest.MonkeyPatch, file: Path | None) -> Hub:
    made = Hub(file)
    monkeypatch.setattr(hub, "fetch_file", made.fetch_file)
    return made


@pytest.mark.parametrize("seed", [0, 5, None])
def test_copies_stand_in_for_a_hub_that_has_it_not(known, official, tmp_path, monkeypatch, seed):
    """Law: where the hub gives the file, no copy is asked for, and the hub's cache keeps it; without the hub, or where
    its file is another than the pinned one, the copies are taken: the same bytes."""
    theirs = tmp_path / "theirs.gguf"
    if seed is not None:
        tiny.write_gguf(theirs, seed=seed)
    put_hub(monkeypatch, None if seed is None else theirs)
    said: list[str] = []
    made = resolve(parse_source(known), cache_dir=tmp_path / "c", say=said.append)
    assert (made.sha256, made.source) == (hashlib.sha256(official.read_bytes()).hexdigest(), known)
    assert any("parts" in words for words in said) is any(" % of " in words for words in said) is (seed != 0)


def test_one_content_is_one_folder(known: str, tmp_path: Path) -> None:
    """Law: the hub's file and its copies lead to the same converted folder; another pin to another."""
    source = parse_source(known)
    copies = parse_source(source.copies or "")
    assert locate_model(source, tmp_path) == locate_model(copies, tmp_path)
    assert locate_model(source, tmp_path) != locate_model(parse_source(f"{known}?sha256={'0' * 64}"), tmp_path)


@pytest.mark.parametrize(
    ("arch", "words", "again"), [(None, "can't be fetched", True), ("mamba", "'mamba' is not supported", False)]
)
def test_why_it_ended_is_left_for_who_asks(tmp_path, monkeypatch, arch, words, again):
    """Law: what nobody has pinned is had from the hub, or not at all; what can't be converted is refused once. The
    reason is where `/ready` reads it, and nothing is left."""
    file = tmp_path / "strange.gguf"
    if arch is not None:
        tiny.write_gguf(file, arch=arch)
    put_hub(monkeypatch, None if arch is None else file)
    source = parse_source("hf:org/name@main#unknown.gguf")
    with pytest.raises(ModelUnavailable, match=words) as caught:
        resolve(source, cache_dir=tmp_path / "c")
    assert caught.value.again is again
    assert find_on_disk(source, cache_dir=tmp_path / "c") is None
    assert [path for path in (tmp_path / "c" / "models").iterdir() if path.is_dir()] == []
    left = read_progress(tmp_path / "c", locate_model(source, tmp_path).name)
    assert (left.running, words in left.words) == (False, True)


def test_a_full_disk_is_said_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a model that would not fit on the disk is refused with the sizes and the way out, and nobody is asked."""
    asked = put_hub(monkeypatch, None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**9})())
    with pytest.raises(ModelUnavailable, match=r"4\.4 GB of disk are needed .* 1\.0 GB are free; make room"):
        resolve(parse_source(CODER_SMALL), cache_dir=tmp_path / "c")
    assert asked.asked == 0
