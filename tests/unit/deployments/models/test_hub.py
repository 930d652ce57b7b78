"""Models of the hub: what is said where it can't be reached, and that what only looks asks nobody."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deployments.models import hub
from deployments.models.hub import _BrokenOff, _count_arrived, _fetch_files, _HubFile
from deployments.models.sources import parse_source
from tests.support import tiny_model
from tests.support.fake_hub import COMMIT, NAME, FakeHub, hash_content
from tests.support.repository import ROOT

IMPORTS = "from deployments.models.artifact import *\nfrom deployments.models.sources import *\n"
RESOLVE = "try: resolve(parse_source('hf:org/name@main'))\nexcept ModelUnavailable as error: print(error.again, error)"
LOOK = "print(getattr(find_on_disk(parse_source('hf:org/name@main')), 'revision', None))"


def run_with_hub(code: str, hub: socket.socket, cache: Path) -> str:
    """Run code in a process whose hub is that socket; what it prints."""
    env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}"}
    env |= {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", IMPORTS + code]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True).stdout


def put_into_cache(cache: Path) -> None:
    repository = cache / "hub" / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    tiny_model.write_folder(repository / "snapshots" / COMMIT)


def test_no_network_is_one_clear_error(tmp_path: Path) -> None:
    """Without a hub the error comes in bounded time, names the fix and can be tried again."""
    with socket.socket() as nobody:  # bound, but not listening: every connection is refused
        nobody.bind(("127.0.0.1", 0))
        began_s = time.monotonic()
        said = run_with_hub(RESOLVE, nobody, tmp_path)

    assert time.monotonic() - began_s < 60
    assert said.startswith("True hf:org/name@main is not in the local hub cache")
    assert "hf download org/name --revision main" in said
    assert "model: path:DIR" in said


@pytest.mark.parametrize("is_here", [False, True])
def test_a_look_asks_nobody(tmp_path: Path, is_here: bool) -> None:
    """Who only wants to know whether a model is on disk finds it there or not, and the hub hears nothing of it."""
    if is_here:
        put_into_cache(tmp_path)
    with socket.socket() as hub:
        hub.bind(("127.0.0.1", 0))
        hub.listen()
        hub.setblocking(False)
        said = run_with_hub(LOOK, hub, tmp_path)
        with pytest.raises(BlockingIOError):
            hub.accept()

    assert said == f"{COMMIT if is_here else None}\n"


FETCH = """
import signal
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, also where the tests run behind one
from deployments.models import hub
from deployments.models.downloads import read_progress
from deployments.models.presence import look
from deployments.models.catalog import ModelChoice as Choice
source = parse_source(SOURCE)
choice = Choice(source.text, '', 'background')
print(look('standard', choice, cache_dir=Path(CACHE)).state)
found = resolve(source, cache_dir=Path(CACHE), say=lambda words: print(words, flush=True))
print(found.revision, found.weight_bytes, look('standard', choice, cache_dir=Path(CACHE)).state)
print(read_progress(Path(CACHE), hub.name_fetch(source)))
hub._ask_hub = None
assert resolve(source, cache_dir=Path(CACHE)) == found
print('asked no more')
"""


@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_a_fetch_that_is_ended_continues(tmp_path: Path, way: signal.Signals) -> None:
    """Law: Ctrl-C, or a kill, in the middle of a file loses nothing that has arrived: the next process fetches the rest
    only, and then the model is here for each process. Of a pinned commit the hub is then asked no more."""
    folder = tiny_model.write_folder(tmp_path / "made")
    content = os.urandom(3 << 20)  # enough for several pieces, and not looked into
    files = {file.name: file.read_bytes() for file in folder.iterdir()} | {"model-2.safetensors": content}
    sizes = {name: len(files[name]) for name in ("model.safetensors", "model-2.safetensors")}
    size_bytes = sum(sizes.values())
    start = f"CACHE = {str(tmp_path / 'own')!r}\nSOURCE = 'hf:org/name@{COMMIT}'\n"
    with FakeHub(files, set(sizes)) as served:
        env = {**os.environ, "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-c", IMPORTS + start + FETCH]
        served.breaks_after, served.stalls = 2 << 20, True
        with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as fetching:
            shares = (line for line in fetching.stdout if re.match(r"[1-9]\d* % of", line))
            assert next(shares)
            fetching.send_signal(way)
        assert fetching.returncode != 0
        arrived = sum(file.stat().st_size for file in (tmp_path / "hf").rglob("blobs/*"))  # whole files and begun ones
        assert arrived > 0
        served.breaks_after, served.stalls, served.served_bytes = None, False, 0
        asked = subprocess.run(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=100, check=True)
        assert served.served_bytes <= size_bytes - arrived
    said = asked.stdout.splitlines()
    assert said[0] == "missing"
    assert said[-3:] == [f"{COMMIT} {size_bytes} here", "None", "asked no more"]


def test_a_snapshot_without_all_its_weights_is_not_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: a snapshot that lacks a file which its index names isn't here."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    put_into_cache(tmp_path)
    folder = tmp_path / "hub" / "models--org--name" / "snapshots" / COMMIT
    assert hub.find_complete(parse_source("hf:org/name@main")) == folder
    assert hub.find_complete(parse_source(f"hf:org/name@{COMMIT}")) == folder
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model.safetensors", "b": "two"}}')
    assert hub.find_complete(parse_source("hf:org/name@main")) is None
    assert hub.find_complete(parse_source("hf:org/other@main")) is None


CONTENT = bytes(range(256)) * 400


def file_of(hub: FakeHub, name: str = "model.safetensors", sha256: str = hash_content(CONTENT)) -> _HubFile:
    return _HubFile(url=f"{hub.url}/{NAME}/resolve/{COMMIT}/{name}", sha256=sha256, size_bytes=len(CONTENT))


def test_what_has_arrived_is_not_fetched_again(tmp_path: Path) -> None:
    """Law: over connections that break again and again, each byte is fetched once, and the whole is right."""
    with FakeHub({"model.safetensors": CONTENT}, {"model.safetensors"}) as hub:
        hub.breaks_after = 30_000
        _fetch_files([file_of(hub)], tmp_path, {})
        assert hub.served_bytes == len(CONTENT)
        _fetch_files([file_of(hub)], tmp_path, {})
        assert hub.served_bytes == len(CONTENT)
    assert [file.name for file in tmp_path.iterdir()] == [hash_content(CONTENT)]
    assert (tmp_path / hash_content(CONTENT)).read_bytes() == CONTENT


def test_a_fetch_without_progress_ends_and_keeps_what_it_has(tmp_path: Path) -> None:
    """Law: a hub that sends no more ends the fetch in bounded tries, with the figures, and loses nothing."""
    with FakeHub({"model.safetensors": CONTENT}, {"model.safetensors"}) as hub:
        part = tmp_path / f"{hash_content(CONTENT)}.mlx-stack-serve.incomplete"
        part.write_bytes(CONTENT[:50_000])
        hub.breaks_after = 0
        with pytest.raises(_BrokenOff, match="50000 of 102400 bytes have arrived, and stay"):
            _fetch_files([file_of(hub)], tmp_path, {})
        assert _count_arrived([file_of(hub)], tmp_path) == 50_000
        hub.breaks_after = None
        _fetch_files([file_of(hub)], tmp_path, {})
        assert hub.served_bytes == len(CONTENT) - 50_000


def test_a_wrong_content_is_never_used(tmp_path: Path) -> None:
    """Law: bytes whose sha256 isn't the hub's are deleted and not named as the file."""
    with FakeHub({"model.safetensors": CONTENT}, {"model.safetensors"}) as hub:
        with pytest.raises(_BrokenOff, match="isn't what the hub says"):
            _fetch_files([file_of(hub, sha256="0" * 64)], tmp_path, {})
        assert not list(tmp_path.iterdir())
        with pytest.raises(_BrokenOff, match="the hub answers 404"):
            _fetch_files([file_of(hub, "absent")], tmp_path, {})
