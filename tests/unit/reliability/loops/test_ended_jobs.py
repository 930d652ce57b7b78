"""What says that a job isn't there or has ended, and what only says so of a part of it."""

from itertools import product

import pytest

from reliability.loops.ended_jobs import tells_end

ENDS = (
    "{} completed", "{} failed", "{}: finished", "{} has already exited", "{} was cancelled", "{} terminated.",
    "{} not found", "{} is no longer running", "{} is not running",
)  # fmt: skip
NAMES = ("job build", "task-1", "Task t1", "agent a", "worker: child process", "Deployment d")
LIVES = (
    "{} is running", "{}: running", "{} running.", "{} still running", "{} queued", "{} pending", "{} is restarting",
    "{} respawning", "{}: waiting for a slot", "{} compiling: 40%", "{} in progress",
)  # fmt: skip
DEAD = (
    "", "Exit code: 1", "Error: out of memory", "failed while running tests", "nothing is running",
    "no other job is running", "the server isn't running", "running migrations failed", "100% of the tests ran",
    "it failed at 40%",
)  # fmt: skip


@pytest.mark.parametrize("between", [". ", "\n", "; ", ", "])
def test_what_ended_is_not_waited_for_unless_a_part_of_it_lives(between: str) -> None:
    """Law: over ways to end, names and states: a job that has ended beside one that goes on, or begins again, is waited
    for, in either order; beside an error, a denial or nothing it has ended."""
    for end, name, live in product(ENDS, NAMES, LIVES):
        ended, lives = end.format(name), live.format("job test")
        assert not tells_end(ended + between + lives, by_state=True), (ended, lives)
        assert not tells_end(lives + between + ended, by_state=True), (lives, ended)
    for end, name, dead in product(ENDS, NAMES, DEAD):
        assert tells_end(end.format(name) + between + dead, by_state=False), (end, name, dead)


QUIET = (
    "No {} available", "no {} available yet.", "No {} assigned", "No {} due",
    '{{"status": "empty", "message": "No {} ready"}}',
)  # fmt: skip
WANTED = (
    "{}_id is required", "Error: '{}_id' is required.", "the parameter is required", "{} id is required for polling",
)  # fmt: skip
LINES = (
    "npm WARN react@17 is required by foo@1.2\n> compiling ...", "openssl is required by libcurl",
    "Java 17 is required", "a restart is required",
)  # fmt: skip


@pytest.mark.parametrize("job", ["task", "job", "run", "command"])
def test_who_has_nothing_to_do_yet_waits(job: str) -> None:
    """Law: a queue without work is no job that is gone, and neither is a line of a build that names what it requires; a
    job that nobody knows is, and so is a call without its id."""
    assert [text for text in QUIET if tells_end(text.format(job), by_state=True)] == []
    assert [text for text in LINES if tells_end(text, by_state=True)] == []
    named = ("no such {}", "No {} found", "no {} with id 7", "No running {}", "There is no {} x", "Unknown {} 7")
    assert [text for text in (*WANTED, *named) if not tells_end(text.format(job), by_state=False)] == []


@pytest.mark.parametrize("said", ["status: completed", '{"state": "failed"}', "<status>finished</status>"])
def test_a_state_ends_only_what_is_asked_for_by_it(said: str) -> None:
    """Law: a final state ends a poll that asks for a state, and no other; a log that is longer has ended nothing."""
    assert tells_end(said, by_state=True)
    assert not tells_end(said, by_state=False)
    assert not tells_end("Job 7 failed\n" + "line of a log\n" * 40, by_state=False)
