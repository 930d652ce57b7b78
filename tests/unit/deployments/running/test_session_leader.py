"""A wait that a signal ends, or a child's end: nobody looks again and again."""

import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.running import session_leader
from deployments.running.folder import RunFolder
from deployments.running.session_leader import _REFRESH_S, _BoundedLog, _SessionLeader, drain, tail, wake_on_signals

PATIENCE_S = 30.0


def test_a_signal_and_a_child_s_end_wake_the_selector() -> None:
    """Law: each ends a wait that has no other reason to end, with its handler run; drained, it waits again."""
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    try:
        with selectors.DefaultSelector() as waiting, wake_on_signals(waiting) as woken:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert [key.fileobj for key, _ in waiting.select(PATIENCE_S)] == [woken]
            assert came == [signal.SIGUSR1]
            drain(woken)
            assert waiting.select(0) == []
            with subprocess.Popen([sys.executable, "-c", ""]) as child:
                assert [key.fileobj for key, _ in waiting.select(PATIENCE_S)] == [woken]
                child.wait(PATIENCE_S)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("raised", [None, ValueError])
def test_all_is_as_before_afterwards(raised: type[Exception] | None) -> None:
    """Law: the handler of a child's end and the file that signals are written to are put back, also after an error."""
    handler = signal.getsignal(signal.SIGCHLD)
    with selectors.DefaultSelector() as waiting:
        try:
            with wake_on_signals(waiting):
                if raised is not None:
                    raise raised
        except ValueError:
            pass
        assert not waiting.get_map()
    assert signal.getsignal(signal.SIGCHLD) == handler
    assert signal.set_wakeup_fd(-1) == -1


def test_a_run_s_files_look_used_by_wall_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Law: they are touched once `_REFRESH_S` have passed on the wall clock, which goes on while the machine sleeps."""
    run = RunFolder.create(tmp_path / "ms", 8000)
    os.utime(run.path, (1, 1))
    leader = _SessionLeader(run, 0, 0, _BoundedLog(tmp_path / "log"))
    leader._refresh()
    assert run.path.stat().st_mtime == 1
    monkeypatch.setattr(session_leader, "time", SimpleNamespace(time=lambda: time.time() + _REFRESH_S))
    leader._refresh()
    assert run.path.stat().st_mtime > 1


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=40))
def test_two_parts_hold_the_newest_and_no_more(tmp_path_factory, lines):
    """Each of the two is at most a part's size, and together they are the end of what was written."""
    folder = tmp_path_factory.mktemp("log")
    before, session_leader._PART_BYTES_MAX = session_leader._PART_BYTES_MAX, 64
    try:
        log = _BoundedLog(folder / "logs" / "x.log")
        for line in lines:
            log.write(line)
    finally:
        session_leader._PART_BYTES_MAX = before
    parts = [folder / "logs" / "x.log.1", folder / "logs" / "x.log"]
    held = b"".join(part.read_bytes() for part in parts if part.exists())

    assert all(part.stat().st_size <= 64 for part in parts if part.exists())
    assert b"".join(lines).endswith(held)
    assert len(held) >= min(len(b"".join(lines)), 24)


def test_only_its_owner_reads_it_and_it_ends_no_server(tmp_path):
    """Requests' ids and sessions' digests stand in it, and whatever bytes. A log that can't be written is a log."""
    path = tmp_path / "logs" / "x.log"
    _BoundedLog(path).write(b"a" * 100_000 + b"two\xff\n")
    assert path.stat().st_mode & 0o077 == 0
    assert tail(path).endswith("two\N{REPLACEMENT CHARACTER}\n")

    (tmp_path / "file").write_text("a file is in the way")
    _BoundedLog(tmp_path / "file" / "x.log").write(b"x")
    assert tail(tmp_path / "file" / "x.log") == ""
