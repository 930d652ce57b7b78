"""What all tests share: Ray's environment, and the rule that only loopback is spoken to."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
from typing import Any

import pytest
from hypothesis import settings

from tests.serving import deploy, serve_port, state_folder  # noqa: F401

# How long a law takes is a benchmark's business; on a busy machine a deadline would only make tests fail.
settings.register_profile("laws", deadline=None)
settings.load_profile("laws")

# Ray reads these when it is imported, here and in every process that it starts.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# The key of the upstream that plays OpenRouter; replicas inherit the environment that Ray was started in.
CLOUD_KEY_ENV = "MLX_STACK_TEST_KEY"
os.environ[CLOUD_KEY_ENV] = "sk-or-secret-0123456789"

# Journals of servers that name no folder; gone with the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ms-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
# Whoever runs the tests may have keys of their own.
os.environ.pop("MLX_STACK_API_KEYS", None)


# The files that take longest, by minutes: they begin first, so that no process waits for another at the end.
LONGEST = ("e2e/test_stops.py", "contract/test_mlx_kill.py", "e2e/test_default_server.py", "memory/test_nodes.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the session's Ray is run with the others that do, a file in one process."""
    for item in items:
        if "serve_port" in getattr(item, "fixturenames", ()):
            item.add_marker("ray")
    items.sort(key=lambda item: not item.nodeid.removeprefix("tests/").startswith(LONGEST))


LOOPBACK = ("127.", "localhost", "::1", "")


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that speaks to another machine fails, instead of passing where there happens to be a network."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0])
            if not host.startswith(LOOPBACK) and host not in own_addresses():
                raise AssertionError(f"a test connects to {host}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def own_addresses() -> set[str]:
    """This machine's own addresses: Ray's processes speak to each other over them."""
    import psutil

    return {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
