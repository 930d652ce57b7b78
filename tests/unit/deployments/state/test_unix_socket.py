"""The Unix socket of the state actor: a real one, with the same answers as any other way, and closed to others."""

import asyncio
import errno
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.config.config_errors import ConfigError
from deployments.state import unix_socket
from deployments.state.link import Link, StateUnavailable
from deployments.state.records import Reply, ReportItem, StateLimits, StateStep
from deployments.state.unix_socket import SocketActor, StepListener, _Question, _refuse_foreigner, find_socket_folder
from reliability.admission.request import Grant
from tests.support.incarnations import ask, life, settled, tight

REAL_TIME = True  # sockets wait for nobody's clock


class Far:
    """What Ray would be: it says what it was asked."""

    async def call(self, method: str, *args: Any) -> Any:
        return method, args

    def close(self) -> None:
        pass


@contextmanager
def door(step: Any) -> Iterator[str]:
    """The path of a door that answers by `step`; short, as sockets need it."""
    with TemporaryDirectory(prefix="ms-", dir="/tmp") as folder:
        opened = StepListener(Path(folder) / "s", step)
        try:
            yield str(opened.path)
        finally:
            opened.close()


def echo(step: StateStep, limits: StateLimits | None = None) -> Reply | None:
    """An actor that says by its answer which step it was."""
    return None if limits is None else Reply(watched=step.number % 2 == 1)


def numbered(number: int, **more: Any) -> StateStep:
    return StateStep(client="c", number=number, config="d", **more)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99), st.booleans()), min_size=1, max_size=5))
def test_what_is_asked_is_answered_in_order(asked):
    """One call after another on one connection; what is no step goes the far way."""

    async def go(path: str) -> list[Any]:
        actor = SocketActor(Far(), path)
        answers = [await actor.call("step", numbered(n), *([tight(9)] if full else [])) for n, full in asked]
        assert await actor.call("budget", 1) == ("budget", (1,))
        actor.close()
        return answers

    with door(echo) as path:
        assert asyncio.run(go(path)) == [Reply(watched=n % 2 == 1) if full else None for n, full in asked]


async def test_an_exception_comes_over_in_words_and_the_connection_stays():
    """The caller hears what the method raised, and its next call is answered."""

    def step(given: StateStep, limits: StateLimits | None) -> Reply:
        if given.number < 0:
            raise ValueError(f"{given.number} is negative")
        return Reply()

    with door(step) as path:
        actor = SocketActor(Far(), path)
        with pytest.raises(StateUnavailable, match="ValueError: -1 is negative"):
            await actor.call("step", numbered(-1))
        assert await actor.call("step", numbered(2)) == Reply()


async def test_a_door_that_can_not_open_now_opens_later(monkeypatch):
    """Law: an actor that is out of files for a moment lets the next Router in. It never did again: each step waited for
    its time, and budgets held nobody back, until the actor was started anew."""
    failed = []

    class Short(socket.socket):
        def accept(self):
            if not failed:
                failed.append(OSError(errno.EMFILE, "Too many open files"))
                raise failed[0]
            return super().accept()

    monkeypatch.setattr(unix_socket, "_PAUSE_S", 0.0)
    monkeypatch.setattr(unix_socket.socket, "socket", Short)
    with door(echo) as path:
        async with asyncio.timeout(60):
            assert await SocketActor(Far(), path).call("step", numbered(1), tight(9)) == Reply(watched=True)
    assert failed


async def test_an_answer_that_nobody_waits_for_is_no_others():
    """A call that is cancelled takes its connection along: the next one gets its own answer."""
    begun, go_on = Event(), Event()

    def step(given: StateStep, limits: StateLimits | None) -> Reply:
        if given.number == 1:
            begun.set()
            go_on.wait(10)
        return Reply(watched=given.number == 2)

    with door(step) as path:
        actor = SocketActor(Far(), path)
        late = asyncio.create_task(actor.call("step", numbered(1)))
        await asyncio.to_thread(begun.wait, 10)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        assert await actor.call("step", numbered(2)) == Reply(watched=True)
        go_on.set()


async def test_a_step_that_the_types_do_not_promise_goes_through_ray():
    """Neither what can't be encoded nor what the other side refuses is sent again and again: Ray carries it."""
    unfit = [numbered(1, items=(ReportItem(key="k", session="s", report={"x": object()}),)), numbered(1.5)]

    with door(echo) as path:
        actor = SocketActor(Far(), path)
        for step in unfit:
            assert await actor.call("step", step) == ("step", (step,))
        assert await actor.call("step", numbered(2)) is None


@settings(max_examples=60, deadline=None)
@given(
    st.binary(max_size=300)
    | st.binary(max_size=60).map(lambda end: unix_socket._QUESTION.encode(_Question(numbered(1)))[:-5] + end)
)
def test_bad_bytes_are_refused_and_the_door_stays_open(frame):
    """Whatever a frame holds, the answer is a refusal in words, or it was a step; the next frame is answered."""
    with door(echo) as path, socket.socket(socket.AF_UNIX) as router:
        router.settimeout(10)
        router.connect(path)
        for sent in (frame, unix_socket._QUESTION.encode(_Question(numbered(2)))):
            router.sendall(struct.pack(">I", len(sent)) + sent)
            (size,) = struct.unpack(">I", router.recv(4, socket.MSG_WAITALL))
            answer = unix_socket._ANSWER.decode(router.recv(size, socket.MSG_WAITALL))
            assert answer.refused.startswith("this is no _Question") or not answer.refused
    assert not answer.refused


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_shown_out_at_both_ends(tmp_path, caplog):
    """Even where modes are wide open: the actor reads nothing of a foreigner, and a Router sends nothing to one."""
    with door(echo) as path:
        for opened in (Path(path), Path(path).parent):
            opened.chmod(0o777)
        foreign = path + "-theirs"
        asks, answers = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:  # another user, with a socket of its own in the folder
            try:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX) as peer, socket.socket(socket.AF_UNIX) as trap:
                    peer.settimeout(10)
                    peer.connect(path)
                    os.write(answers[1], b"%d" % len(peer.recv(100)))
                    trap.bind(foreign)
                    os.chmod(foreign, 0o777)
                    trap.listen()
                    os.write(answers[1], b"!")
                    os.read(asks[0], 1)
                    caught, _ = trap.accept()
                    caught.settimeout(10)
                    os.write(answers[1], b"%d" % len(caught.recv(100)))
            finally:
                os._exit(0)
        assert os.read(answers[0], 1) == b"0"  # closed, without a byte
        assert os.read(answers[0], 1) == b"!"
        with pytest.raises(PermissionError, match="belongs to user 65534"):
            asyncio.run(SocketActor(Far(), foreign).call("step", numbered(1)))
        os.write(asks[1], b"x")
        assert os.read(answers[0], 1) == b"0"
        os.waitpid(child, 0)


def test_the_socket_lies_where_only_its_owner_gets(tmp_path):
    """In the run's folder, else in the folder of all runs; a folder that others reach is refused."""
    assert find_socket_folder({"MLX_STACK_RUN": str(tmp_path / "run")}) == tmp_path / "run"
    alone = find_socket_folder({"RAY_TMPDIR": str(tmp_path)})
    assert alone == tmp_path / f"ms-{os.geteuid()}"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run", alone)} == {0o700}
    alone.chmod(0o750)
    with pytest.raises(ConfigError, match="other users can reach it"):
        find_socket_folder({"RAY_TMPDIR": str(tmp_path)})


async def test_who_is_gone_is_an_error_at_once():
    """Neither a door that is closed nor one that never was lets a caller wait."""
    with door(echo) as path:
        pass
    for gone in (path, path + "-never"):
        with pytest.raises((OSError, EOFError)):
            await SocketActor(Far(), gone).call("step", numbered(1))


async def test_only_the_owner_may_enter_and_an_old_socket_gives_way():
    """A path that is left of an earlier life is taken over."""
    with TemporaryDirectory(prefix="ms-", dir="/tmp") as folder:
        path = Path(folder) / "s"
        first, second = StepListener(path, lambda *_: None), StepListener(path, echo)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await SocketActor(Far(), str(path)).call("step", numbered(1), tight(9)) == Reply(watched=True)
        first.close()
        second.close()


def test_a_frame_has_a_bound():
    """Who announces more than that is shown out before anything is read."""
    with door(echo) as path, socket.socket(socket.AF_UNIX) as router:
        router.settimeout(10)
        router.connect(path)
        router.sendall(struct.pack(">I", unix_socket._FRAME_BYTES_MAX + 1))
        assert router.recv(1) == b""


async def test_a_link_works_over_it_beside_other_calls(tmp_path):
    """Two Routers near and questions from elsewhere at once: each ask gets its grant, and the books are those of one
    after another."""
    actor = life(tmp_path)

    async def find() -> SocketActor:
        return SocketActor(Far(), path)

    async def one(link: Link) -> None:
        answer = await link.admit(ask())
        assert isinstance(answer.decision, Grant)
        await asyncio.to_thread(actor.budget, "k", "s")
        link.put(settled(answer.decision, 7), flush=True)

    with door(actor.step) as path:
        links = [Link(find, tight(10**6)) for _ in range(2)]
        for link in links:
            await link.start(10.0)
        await asyncio.gather(*(one(link) for link in links for _ in range(100)))
        for link in links:
            await link.close()

    assert actor.stats()["grants"] == 0
    assert actor.budget("k", "s")["spent_tokens"] == 200 * 7


def test_another_users_process_is_not(monkeypatch):
    """The error names both."""
    mine = os.geteuid()
    monkeypatch.setattr(unix_socket.os, "geteuid", lambda: mine + 1)
    here, there = socket.socketpair(socket.AF_UNIX)
    with here, there, pytest.raises(PermissionError, match=f"belongs to user {mine}, not to user {mine + 1}"):
        _refuse_foreigner(here)


class Mac:
    """A socket of macOS, as its headers describe it: `xucred` is a version, the user, a count, 16 groups."""

    def __init__(self, version: int, user: int) -> None:
        self.answer = struct.pack("=IIh2x16I", version, user, 1, *range(16))

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert (level, option) == (0, 1)
        assert size == len(self.answer)
        return self.answer


def test_macos_says_it_in_its_own_way(monkeypatch):
    """The same answers; another version of the struct is no answer."""
    monkeypatch.setattr(sys, "platform", "darwin")
    _refuse_foreigner(Mac(0, os.geteuid()))
    with pytest.raises(PermissionError, match="belongs to user"):
        _refuse_foreigner(Mac(0, os.geteuid() + 1))
    with pytest.raises(PermissionError, match="version 1"):
        _refuse_foreigner(Mac(1, os.geteuid()))
