"""The process that fetches behind a server: begun once, and never where the hub is switched off."""

import sys

import pytest

from deployments.running.background_fetch import BackgroundFetch, is_offline


@pytest.mark.parametrize(
    ("environ", "offline"),
    [
        ({}, False),
        ({"HF_HUB_OFFLINE": "0"}, False),
        ({"HF_HUB_OFFLINE": ""}, False),
        ({"HF_HUB_OFFLINE": "true"}, True),
    ],
)
def test_the_hubs_own_switch_is_read_as_the_hub_reads_it(environ, offline):
    """One variable says for the hub, its copies and this server that nothing is fetched unasked."""
    assert is_offline(environ) is offline


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


def test_offline_nothing_is_begun():
    """With HF_HUB_OFFLINE=1 there is no process at all: tests and air-gapped machines pay nothing."""
    fetch = BackgroundFetch("c.yaml", {"HF_HUB_OFFLINE": "1"}, ["/nowhere/no-such-program"])
    fetch.start()
    assert not fetch.running
