"""Processes for large work: what they do, what ends them, and that nothing of them is left."""

import asyncio
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from deployments.errors import ApiError
from deployments.work import turns
from deployments.work import worker_pool as rooms
from deployments.work.turns import Asker
from deployments.work.worker_pool import (
    STEPS_INLINE,
    STEPS_LARGE,
    Busy,
    Elsewhere,
    JobTooLong,
    Workers,
    _Lost,
    make_judgement,
)
from reliability.steps import OutOfSteps, Steps
from tests.support import jobs
from tests.support.repository import ROOT
from tests.support.serving import until
from tests.support.staging import staged

ENDLESS = ("(a{1,2}){50}b", "a" * 60)


def children() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [one for one in found if "deployments.work.worker" in " ".join(one.cmdline())]


def over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def run(scenario, **options):
    async def whole():
        workers = Workers(**options)
        try:
            return await scenario(workers)
        finally:
            await workers.close()

    result = asyncio.run(whole())
    assert children() == []
    return result


def with_workers(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return staged(functools.partial(run, **options), parts=1)


@with_workers()
async def test_a_job_brings_what_it_returns_and_what_it_raises(workers):
    """The result, or the very error; the same process does the next one."""
    assert await workers.run(jobs.join, "a", b="b") == "a/b"
    with pytest.raises(ApiError, match="too few") as refused:
        await workers.run(jobs.refuse, "tools")
    assert (refused.value.code, refused.value.param, refused.value.retry_after_s) == ("invalid_tools", "tools", 7.5)
    with pytest.raises(RuntimeError, match="ValueError: invalid literal"):
        await workers.run(jobs.fail, "x")
    assert len({await workers.run(jobs.find_pid) for _ in range(5)}) == 1
    assert len(await workers.run(jobs.make_bytes, 5_000_000)) == 5_000_000


@with_workers()
async def test_a_call_that_can_not_be_carried_gives_its_place_back(workers):
    """It is the caller's mistake at once, and the next job is done."""
    for _ in range(3):
        with pytest.raises(TypeError):
            await workers.run(jobs.join, "a", object())
    assert await workers.run(jobs.join, "a", "b") == "a/b"


@with_workers(count=1, job_s=0.5)
async def test_a_job_without_an_end_is_ended(workers):
    """Even where C code holds the interpreter; the loop goes on meanwhile, and so does the next job."""
    await workers.run(jobs.find_pid)
    began, beats = time.monotonic(), 0
    job = asyncio.create_task(workers.run(jobs.search, *ENDLESS))
    while not job.done():
        await asyncio.sleep(0.01)
        beats += 1
    with pytest.raises(JobTooLong):
        await job
    assert 0.4 < time.monotonic() - began < 3.0
    assert beats > 10
    assert await workers.run(jobs.join, "a", "b") == "a/b"


@with_workers(count=1, job_s=0.2)
async def test_only_its_own_computing_makes_a_job_too_long(workers, monkeypatch):
    """Law: on a machine whose cores others use a job may take longer; after `DONE_S` the client hears that the server
    is busy, never that its request is too large."""
    await workers.run(jobs.wait, 0.3)
    with monkeypatch.context() as patched:
        patched.setattr(rooms, "_DONE_S", 0.1)
        with pytest.raises(Busy):
            await workers.run(jobs.wait, 10.0)
    assert await workers.run(jobs.join, "a", "b") == "a/b"


def test_no_more_wait_than_may(monkeypatch):
    """Who is one too many hears it at once; the others are served in their order."""
    monkeypatch.setattr(turns, "_WAITING_MAX", 3)

    async def scenario(workers):
        asked = [asyncio.create_task(workers.run(jobs.join, str(i), "x")) for i in range(6)]
        return await asyncio.gather(*asked, return_exceptions=True)

    found = run(scenario, count=1)
    assert found[:4] == ["0/x", "1/x", "2/x", "3/x"]
    assert [type(one) for one in found[4:]] == [Busy, Busy]


@with_workers(count=1)
async def test_a_worker_that_does_not_start_in_time_refuses_its_job(workers, monkeypatch):
    """Law: where no process is up in time, the client is told that the server is busy; the place is free again."""
    with monkeypatch.context() as patched:
        patched.setattr(rooms, "_START_S", 0.0)
        with pytest.raises(Busy):
            await workers.run(jobs.join, "a", "b")
    assert await workers.run(jobs.join, "a", "b") == "a/b"


@with_workers(count=1)
async def test_a_caller_that_leaves_gives_its_place_back(workers):
    """Running or waiting: the worker stays, and the next job is done."""
    running = asyncio.create_task(workers.run(jobs.wait, 0.2))
    waiting = asyncio.create_task(workers.run(jobs.wait, 0.2))
    await asyncio.sleep(0)
    for task in (waiting, running):
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert await workers.run(jobs.join, "a", "b") == "a/b"


@with_workers(count=1)
async def test_a_worker_that_dies_is_replaced(workers):
    """A job is done once more; where that kills the next worker too, it is lost."""
    first = await workers.run(jobs.find_pid)
    os.kill(first, signal.SIGKILL)
    process = psutil.Process(first)
    await asyncio.to_thread(until, lambda: over(process), "it is gone")
    assert await workers.run(jobs.find_pid) != first
    with pytest.raises(_Lost):
        await workers.run(jobs.end, 1)


@with_workers(count=1)
async def test_a_worker_inherits_no_secret_and_no_signal(workers, monkeypatch):
    """No key of the environment; the terminal's signals are its parent's to hear."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-secret")
    process = psutil.Process(await workers.run(jobs.find_pid))
    assert "sk-secret" not in str(process.environ())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    assert await workers.run(jobs.find_pid) == process.pid


PARENT = """
import asyncio, sys
from deployments.work.worker_pool import Workers
from tests.support import jobs
async def main():
    workers = Workers(job_s=2.0)
    print(await workers.run(jobs.find_pid), flush=True)
    if sys.argv[1] == "busy":
        await workers.run(jobs.search, "(a{1,2}){50}b", "a" * 60)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("state", ["idle", "busy"])
def test_no_worker_outlives_its_router(state):
    """Killed without a word: an idle worker ends at once, a busy one by its alarm."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, state], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    if state == "busy":
        until(lambda: worker.cpu_times().user > 0.3, "the worker is busy")
    parent.kill()
    parent.wait()
    parent.stdout.close()

    until(lambda: over(worker), "the worker ends", 60.0)  # after 2 s of a core, which others share


def question(size: int, *, steps: Steps | None = None) -> Any:
    """Costs so many steps; who must answer in the end and can't, refuses."""
    try:
        if steps is not None:
            steps.spend(size)
    except OutOfSteps:
        if steps is not None and steps.final:
            return "refused"
        raise
    return "judged"


def judged(size: int, elsewhere: Elsewhere | None, left_s: float = 5.0) -> tuple[Any, list[str]]:
    places: list[str] = []

    async def here(work: Callable[[], Any]) -> Any:
        places.append("here")
        return work()

    async def there(*args: Any, **named: Any) -> Any:
        places.append("there")
        assert elsewhere is not None
        return await elsewhere(*args, **named)

    def asked(**named: Any) -> Any:
        return question(size, **named)

    return asyncio.run(make_judgement(asked, here, there if elsewhere else None, left_s)), places


def failing(error: Exception) -> Elsewhere:
    async def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


async def work(asked: Callable[..., Any], **named: Any) -> Any:
    return asked(**named)


async def hang(*_: Any, **__: Any) -> Any:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("size", "elsewhere", "answer", "places"),
    [
        (STEPS_INLINE, work, "judged", ["here"]),
        (STEPS_INLINE + 1, work, "judged", ["here", "there"]),
        (STEPS_LARGE, work, "judged", ["here", "there"]),
        (STEPS_LARGE + 1, work, "refused", ["here", "there"]),
        (STEPS_INLINE + 1, failing(_Lost("died")), "refused", ["here", "there"]),
        (STEPS_INLINE + 1, failing(JobTooLong("9 s")), "refused", ["here", "there"]),
        (STEPS_LARGE + 1, None, "judged", ["here"]),
    ],
)
def test_what_is_large_is_judged_elsewhere(size: int, elsewhere: Any, answer: str, places: list[str]) -> None:
    """Law: what is small never leaves the loop; what is too large for a worker as well, and what no worker could judge,
    is refused. Without workers every question is judged here."""
    assert judged(size, elsewhere) == (answer, places)


@pytest.mark.parametrize(
    ("elsewhere", "left_s", "error"),
    [(failing(Busy("many wait")), 5.0, Busy), (hang, -1.0, TimeoutError), (hang, 0.01, TimeoutError)],
)
def test_a_busy_server_says_nothing_of_an_answer(elsewhere: Any, left_s: float, error: type[Exception]) -> None:
    """Law: where the workers have no turn for it, a call is neither good nor bad; one that doesn't answer is waited for
    as long as there is time."""
    with pytest.raises(error):
        judged(STEPS_INLINE + 1, elsewhere, left_s)


def test_a_job_is_done_in_its_askers_turn(monkeypatch) -> None:
    """Law: with one worker, a key's third job waits for another key's first, and all turns are given back."""
    monkeypatch.setattr(turns, "_WAIT_S", 60.0)  # others, too, may want the cores

    async def scenario(workers):
        done: list[str] = []

        async def ask(key: str) -> None:
            done.append(await workers.run(jobs.join, key, "x", asker=Asker(key)))

        await asyncio.gather(*(ask(key) for key in "aaab"))
        assert await workers.run(jobs.join, "c", "x") == "c/x"
        return done

    assert run(scenario, count=1) == ["a/x", "a/x", "b/x", "a/x"]
