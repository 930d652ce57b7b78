"""What all tests share: Ray's environment, and the rule that only loopback is spoken to."""

import asyncio
import atexit
import functools
import gc
import importlib
import inspect
import os
import shutil
import socket
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from hypothesis import settings

from tests.support.serving import deploy, deploy_on_ray, serve_port, state_folder  # noqa: F401

# How long a law takes is a benchmark's business; on a busy machine a deadline would only make tests fail. `quick` is
# what `make test` tries of each law, also where the law asks for more, the same each time, so it is red by a change
# and not by chance; the mutants and `make nightly` try all, anew each time.
settings.register_profile("laws", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=10, derandomize=True)
settings.load_profile("laws")

# Ray reads these when it is imported, here and in every process that it starts.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")
# As `serve.env` has it: by itself Ray gives its workers what others leave of the cores.
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# The key of the upstream that plays OpenRouter; replicas inherit the environment that Ray was started in.
CLOUD_KEY_ENV, UPSTREAM_KEY = "MLX_STACK_TEST_KEY", "sk-or-secret-0123456789"
os.environ[CLOUD_KEY_ENV] = UPSTREAM_KEY

# Journals of servers that name no folder; gone with the tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ms-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
# Whoever runs the tests may have keys of their own.
os.environ.pop("MLX_STACK_API_KEYS", None)


# httpx reads the world's certificates for each client, which takes longer than a request. Nobody speaks TLS here.
for _client in (httpx, httpx2):
    _client._transports.default.create_ssl_context = functools.cache(_client.create_ssl_context)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--on-ray`: what runs in one process otherwise runs on Ray (make nightly)."""
    parser.addoption("--on-ray", action="store_true", help="run the contract tests on Ray")


# The marks of stages of `make test` and `make nightly`, by what they ask for. To import the files that have nothing for
# a stage takes longer than a start of Ray.
STAGES = {
    "ray or model": ("mark.ray", "mark.model"),
    "ray": ("mark.ray",),
    "model and not ray": ("mark.model",),
    "nightly": ("mark.nightly",),
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A stage reads the files that name its marks."""
    marks = STAGES.get(config.option.markexpr)
    if marks is None or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    return not any(mark in text for mark in marks) or None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What collecting makes stays to the end: no search for garbage looks at it, then or later."""
    gc.disable()
    try:
        _import_in_turns(session.config)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def _import_in_turns(config: pytest.Config) -> None:
    """Of several processes each imports another part of the tests first: in a new clone the others find it compiled."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if not worker or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(
        path for path in config.rootpath.glob("tests/**/test_*.py") if not pytest_ignore_collect(path, config)
    )
    begin = len(files) * int(worker.removeprefix("gw")) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    for path in files[begin:] + files[:begin]:
        importlib.import_module(".".join(path.relative_to(config.rootpath).with_suffix("").parts))


# The files that take longest: they begin first, in this order, so that no process waits for another at the end.
LONGEST = (
    "contract/test_on_ray.py", "e2e/", "contract/test_kill", "contract/test_sleeping.py",
    "unit/deployments/memory/", "contract/test_serve.py", "clients/test_sdks.py", "contract/test_control_room.py",
    "contract/test_fault_matrix.py", "unit/deployments/listener/test_slow_clients.py",
    "unit/reliability/tools/test_formats.py", "contract/test_tier_health.py", "contract/test_dialects.py",
    "contract/test_", "unit/deployments/tiers/", "unit/deployments/cli/", "unit/deployments/evaluate/", "zoo/",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whatever uses Ray says so, what needs the larger models is left out, and the longest files begin."""
    quick = config.getoption("--hypothesis-profile") == "quick"
    for item in items:
        if quick:
            _bound_examples(item)
        if "serve_port" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("ray"):
            raise pytest.UsageError(f"{item.nodeid} uses Ray and hasn't the mark `ray`")
    if quick:
        items[:] = [item for item in items if not item.get_closest_marker("further")]
    if config.option.markexpr != "nightly":
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=lambda item: _place(item.nodeid.removeprefix("tests/")))


def _bound_examples(item: pytest.Item) -> None:
    """A law that asks for more examples than its profile has gets the profile's."""
    machine = getattr(item, "cls", None)
    if isinstance(getattr(machine, "settings", None), settings):
        machine.settings = _bound(machine.settings)
    law = getattr(item, "obj", None)
    law = getattr(law, "__func__", law)
    own = getattr(law, "_hypothesis_internal_use_settings", None)
    if own is not None:
        law._hypothesis_internal_use_settings = _bound(own)


def _bound(asked: settings) -> settings:
    return settings(asked, max_examples=min(asked.max_examples, settings.default.max_examples))


def _place(nodeid: str) -> int:
    return next((place for place, long in enumerate(LONGEST) if nodeid.startswith(long)), len(LONGEST))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An async test runs in a loop of its own, unless it names another runner."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or pyfuncitem.get_closest_marker("anyio"):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


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
