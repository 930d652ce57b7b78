"""What a server does wrong is a failure of the load test, and stands in its own figures: nothing is lost in between."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from deployments.config.free_port import free_port
from tests.support.loopback import LoopbackHandler, LoopbackServer
from tests.support.repository import ROOT

PIECE = {"choices": [{"delta": {"content": "hello"}, "finish_reason": None}]}
FAULT = {"error": {"code": "internal_error"}}
REPORT = {"mlx_stack": {"tier": "fast", "attempts": [{"ran": True}, {"ran": False}, {"ran": True}]}}
STREAMS = {
    "broken JSON": [b'data: {"choices": [\n\n', b"data: [DONE]\n\n"],
    "just stops": [b"data: " + json.dumps(PIECE).encode() + b"\n\n"],
    "no choices": [b"data: [1]\n\n", b"data: [DONE]\n\n"],
    "half of it": [b"data: " + json.dumps(PIECE).encode() + b"\n\n", b"data: [DONE]\n\n"],
    "error frame": [b"data: " + json.dumps(FAULT).encode() + b"\n\n"],
    "error frame with a report": [b"data: " + json.dumps(FAULT | REPORT).encode() + b"\n\n"],
    "refused": [json.dumps(FAULT).encode()],
}
WHOLE = {
    "broken JSON": b"{",
    "just stops": b"",
    "no choices": b'{"choices": []}',
    "half of it": b'{"choices": [{"message": {"tool_calls": [{"type": "function"}]}}]}',
    "error frame": json.dumps(FAULT).encode(),
    "error frame with a report": json.dumps(FAULT).encode(),
    "refused": json.dumps(FAULT).encode(),
}
ENOUGH = 16
WAIT_S = 60.0


class WrongServer(LoopbackServer):
    """Answers each request wrongly, and reports two upstream calls; `silent`: not at all. `enough`: there were `ENOUGH`
    requests."""

    def __init__(self, how: str) -> None:
        super().__init__(_Wrong)
        self.how, self.numbers = how, count(1)
        self.over, self.enough = threading.Event(), threading.Event()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        super().__exit__()


class _Wrong(LoopbackHandler):
    def post(self) -> None:
        how = self.server.how
        if next(self.server.numbers) >= ENOUGH:
            self.server.enough.set()
        body = json.loads(self.read_body())
        if how == "silent":
            self.server.over.wait(WAIT_S)
            return
        headers = {} if "report" in how else {"x-mlx-stack-attempts": "2"}
        data = b"".join(STREAMS[how]) if body["stream"] else WHOLE[how]
        self.reply(data, 502 if how == "refused" else 200, headers)


def load(url: str, path: Path, *users: str, until: threading.Event | None = None) -> tuple[int, dict[str, Any], str]:
    """Run these users for three seconds, or until something has come; return locust's exit code, the figures, and what
    it wrote of errors."""
    with start_locust(url, path, *users, "--run-time", f"{WAIT_S if until else 3:.0f}s") as process:
        if until is not None:
            assert until.wait(WAIT_S)
            process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_S)
    return process.returncode, json.loads(path.read_text(encoding="utf-8")), errors


@contextmanager
def start_locust(url: str, path: Path, *options: str, hung_s: float = 30) -> Iterator[subprocess.Popen[str]]:
    """Start Locust with four users; it ends with the block."""
    command = [sys.executable, "-m", "locust", "-f", str(ROOT / "loadtests" / "locustfile.py"), "--headless"]
    command += ["--host", url, "--users", "4", "--spawn-rate", "4", "--figures", str(path), *options]
    environment = os.environ | {"MLX_STACK_LOAD_PACE_S": "0.3", "MLX_STACK_LOAD_HUNG_S": str(hung_s)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def totals(figures: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(row["outcome"], row["how"]): row["count"] for row in figures["rows"] if row["kind"] == "total"}


def test_a_server_that_is_not_there(tmp_path):
    """Streamed or not, each request is a failure and an outcome, and no user dies of it."""
    code, figures, errors = load(f"http://127.0.0.1:{free_port()}", tmp_path / "f.json", "Agent", "Leaver")

    assert code == 1
    assert totals(figures).keys() == {("no answer", "stream"), ("no answer", "whole")}
    assert all(row["requests"] == row["failures"] > 0 for row in figures["requests"])
    assert {row["name"] for row in figures["requests"]} == {"Agent stream", "Agent whole", "Leaver stream"}
    assert "AttributeError" not in errors


def test_a_server_that_says_nothing(tmp_path):
    """What is open at the end is counted, and a run in which nothing was answered is no success."""
    with WrongServer("silent") as server:
        code, figures, errors = load(server.url, tmp_path / "f.json", "Agent", "Leaver")

    assert code == 1
    assert figures["counts"]["open_at_end"] > 0
    assert "nothing was answered" in errors


EACH_TIME = ("just stops", "error frame with a report")
HOWS = [how if how in EACH_TIME else pytest.param(how, marks=pytest.mark.further) for how in STREAMS]


@pytest.mark.parametrize("how", HOWS)
def test_what_is_no_answer_is_a_failure(tmp_path, how):
    """Streamed or not: each is a failure and an outcome, none counts as answered, its upstream calls are counted."""
    with WrongServer(how) as server:
        code, figures, _ = load(server.url, tmp_path / "f.json", "Agent", until=server.enough)
    found = totals(figures)

    assert code == 1
    assert {asked for _, asked in found} == {"stream", "whole"}
    assert not [outcome for outcome, _ in found if "answered" in outcome]
    assert all(row["requests"] == row["failures"] > 0 for row in figures["requests"])
    assert sum(found.values()) == sum(row["requests"] for row in figures["requests"])
    assert figures["calls_per_request"] == 2


def test_who_leaves_has_an_outcome(tmp_path):
    """A stream that was left at its first text is a row and no failure, and its upstream calls are counted."""
    with WrongServer("just stops") as server:
        code, figures, _ = load(server.url, tmp_path / "f.json", "Leaver", until=server.enough)

    assert code == 0
    assert totals(figures) == {("left", "stream"): figures["counts"]["left"]}
    assert figures["calls_per_request"] == 2


def test_a_run_that_is_interrupted(tmp_path):
    """What is open then is counted too, and fails where it was open for long."""
    path = tmp_path / "f.json"
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(WAIT_S)
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        with start_locust(url, path, "Agent", hung_s=0) as process, mute.accept()[0]:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT_S)
    figures = json.loads(path.read_text(encoding="utf-8"))

    assert process.returncode == 1
    assert figures["counts"]["open_at_end"] == sum(row["failures"] for row in figures["requests"]) > 0


def test_no_turn_dies_in_silence(tmp_path):
    """What goes wrong in a user itself, as with a host that is no URL, is a failure of the run."""
    code, figures, errors = load("nowhere", tmp_path / "f.json", "Agent")

    assert code == 1
    assert [row["name"] for row in figures["requests"]] == ["Agent died"]
    assert "Invalid URL" in errors
