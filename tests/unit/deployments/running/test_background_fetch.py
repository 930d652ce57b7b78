"""The process that fetches behind a server: begun once, and never where the hub is switched off."""

import contextlib
import sys

import pytest

from deployments.running.background_fetch import BackgroundFetch


@pytest.mark.parametrize(("switch", "offline"), [(None, False), ("0", False), ("", False), ("true", True), ("1", True)])
def test_offline_nothing_is_begun(switch, offline):
    """The hub's own switch, as the hub reads it, says that nothing is fetched unasked: there is no process at all."""
    environ = {} if switch is None else {"HF_HUB_OFFLINE": switch}
    fetch = BackgroundFetch("c.yaml", environ, ["/nowhere/no-such-program"])
    with contextlib.nullcontext() if offline else pytest.raises(FileNotFoundError):
        fetch.start()
    assert not fetch.running


def test_it_is_begun_once(tmp_path):
    """However often a tier is found ready, one process is started, and it is seen to end."""
    trace = tmp_path / "trace"
    command = [sys.executable, "-c", f"open({str(trace)!r}, 'a').write('x')"]
    fetch = BackgroundFetch("c.yaml", {}, command)
    assert not fetch.running
    for _ in range(3):
        fetch.start()
    fetch._process.wait(60)
    assert not fetch.running
    assert trace.read_text() == "x"
