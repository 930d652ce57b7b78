"""What a Tab offers of a running server: its own words, and none that a shell would act upon."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from deployments.__main__ import main
from deployments.cli.completion.completion_values import list_values, write_values

ANSWERS: dict[str, Any] = {
    "live": {"tiers": [{"name": "fast", "state": "ready"}, {"name": "premium", "state": "unavailable"}]},
    "sessions": {"data": [{"session": name, "requests": 2} for name in ("agent-7", "$(touch x)", "a b", "-rf", "`x`")]},
    "requests": {"data": [{"request_id": "r-1", "outcome": "client_left", "at": 0.0}]},
}
CONFIG = """
applications:
- name: mlx-stack
  import_path: deployments.app:build
  args: {tiers: {mine: {kind: scripted, script: [{answer: x}]}}, reliability: {escalation: {chain: [mine]}}}
http_options: {host: 127.0.0.1, port: 1}
"""


class Answering(BaseHTTPRequestHandler):
    """A server that knows three routes."""

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS[name]).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_server_of_the_line_is_asked(url):
    """Also where the line ends in the middle of a word, or of a quote."""
    for line in (f"mlx-stack-serve why --url {url} ", f"mlx-stack-serve why --url={url} 'r", f"x --url '{url}' "):
        assert list(list_values("tiers", line)) == ["fast", "premium"]


def test_a_client_s_word_is_offered_only_where_it_is_plain(url):
    """A session that is called like an order to the shell, or like an option, is left out."""
    assert list_values("sessions", f"--url {url}") == {"agent-7": "2 requests"}


def test_each_shell_reads_it_in_its_own_way(url):
    """bash the words alone; zsh and fish with what they are."""
    line = f"--url {url}"

    assert list(write_values("bash", "requests", line)) == ["r-1"]
    assert next(write_values("zsh", "requests", line)).startswith("r-1:client left ")
    assert next(write_values("fish", "requests", line)).startswith("r-1\tclient left ")


def test_without_a_server_tiers_come_from_the_configuration(tmp_path, capsys):
    """Nothing else does, and nobody is told of an error."""
    path = tmp_path / "serve.yaml"
    path.write_text(CONFIG)

    assert list_values("tiers", f"--config {path}") == {"mine": "scripted"}
    assert list_values("requests", f"--config {path}") == {}
    assert list_values("tiers", f"--config {tmp_path / 'none.yaml'}") == {}
    assert main(["completion", "bash", "--values", "tiers", "--line", f"--config {path}"]) == 0
    assert capsys.readouterr().out == "mine\n"
