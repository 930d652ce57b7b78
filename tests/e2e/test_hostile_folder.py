"""`mlx-stack-serve serve`, started in a folder of somebody else's: no process of the server runs the folder's code."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from deployments.config.free_port import free_port
from loadtests.running import short_folder
from loadtests.stops import build_config
from tests.support.hostile_folder import fill_folder, find_run
from tests.support.serving import ends_with_family, until

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

LARGE = {"messages": [{"role": "user", "content": "word " * 200_000}], "model": "short", "max_tokens": 2}


def test_no_process_of_the_server_imports_from_the_folder_it_was_started_in(tmp_path):
    """Neither the commands, nor Ray's workers, nor the worker that parses a large body: `deployments`, `json`, `ray`
    and the rest are the installed ones. A relative path of the configuration is still one of that folder."""
    marks = tmp_path / "marks"
    (repository := tmp_path / "repository").mkdir()
    fill_folder(repository, marks)
    with short_folder() as folder:
        port = free_port()
        document = build_config(port, folder)
        document["applications"][0]["args"]["state"]["path"] = "state"
        path = repository / "serve_config.yaml"
        path.write_text(yaml.safe_dump(document))
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
        command = [str(Path(sys.executable).with_name("mlx-stack-serve")), "serve"]
        log = (folder / "out").open("wb")
        process = subprocess.Popen(command, cwd=repository, env=environ | own, stdout=log, stderr=log)
        with log, ends_with_family(process):
            url = f"http://127.0.0.1:{port}"
            until(lambda: process.poll() is not None or _is_ready(url), "the server is up", wait_s=240)
            assert process.poll() is None, (folder / "out").read_text()
            answers = [httpx.post(f"{url}/v1/chat/completions", json=LARGE, timeout=60).status_code]
            process.terminate()
            process.wait(30)
        said = (folder / "out").read_text()

    assert (answers, find_run(marks), process.returncode) == ([200], [], 0), said
    assert (repository / "state").is_dir()
    assert str(path) in said


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
