"""Models of the hub: what is said where it can't be reached, and that what only looks asks nobody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import tiny_model
from tests.support.repository import ROOT

IMPORTS = "from deployments.models.artifact import *\nfrom deployments.models.sources import *\n"
RESOLVE = "try: resolve(parse_source('hf:org/name@main'))\nexcept ModelUnavailable as error: print(error.again, error)"
LOOK = "print(getattr(find_on_disk(parse_source('hf:org/name@main')), 'revision', None))"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def run_with_hub(code: str, hub: socket.socket, cache: Path) -> str:
    """Run code in a process whose hub is that socket; what it prints."""
    env = {**os.environ, "HF_ENDPOINT": f"http://127.0.0.1:{hub.getsockname()[1]}"}
    env |= {"HF_HOME": str(cache), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", IMPORTS + code]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True).stdout


def put_into_cache(cache: Path) -> None:
    """Write the model `org/name` as the hub's client keeps it."""
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
