"""Looking on: who looks sees what others run, and nobody is asked to show anything while nobody looks."""

from collections.abc import Callable

import pytest

from deployments.state import watching
from deployments.state.records import StateStep
from tests.support.incarnations import Driver, done, life


@pytest.fixture
def wait(monkeypatch) -> Callable[[float], None]:
    """Time passes by hand."""
    now = [1000.0]
    monkeypatch.setattr(watching.time, "monotonic", lambda: now[0])

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    return pass_by


def test_routers_hear_that_somebody_looks_as_long_as_they_do(tmp_path, wait):
    """The reply to any step says so, a heartbeat's too, up to `LOOK_S` after the last look."""
    driver = Driver(life(tmp_path))
    driver.step()
    beat = StateStep(client="c", number=99, config=driver.limits.digest)
    assert not driver.actor.step(beat).watched

    driver.actor.look("a", None)
    assert driver.actor.step(beat).watched
    wait(watching._LOOK_S)
    assert not driver.actor.step(beat).watched


def test_who_looks_sees_what_others_run(tmp_path, wait):
    """Not what it runs itself, of each Router so many rows, and of one that is gone nothing after `SHARE_S`."""
    actor = life(tmp_path)
    actor.share_running("a", [{"request_id": "mine"}])
    actor.share_running("b", [{"request_id": str(number)} for number in range(1000)])

    seen = [row["request_id"] for row in actor.look("a", 0)["running"]]
    assert seen == [str(number) for number in range(watching._SHARED_MAX)]
    wait(watching._SHARE_S)
    assert actor.look("a", 0)["running"] == []


def test_what_ended_is_seen_once(tmp_path):
    """The first look says where to go on from, each further one what came since."""
    driver = Driver(life(tmp_path))
    driver.put(done("before"))
    first = driver.actor.look("a", None)
    driver.put(done("r1"), done("r2"))
    then = driver.actor.look("a", first["newest"])

    assert first["finished"] == []
    assert [one["request_id"] for one in then["finished"]] == ["r2", "r1"]
    assert driver.actor.look("a", then["newest"])["finished"] == []


def test_the_secret_outlives_the_actor(tmp_path):
    """Cookies count on after a restart: it is made once, and kept."""
    first = life(tmp_path)
    secret = first.get_page_secret()

    assert len(secret) == 64
    assert first.get_page_secret() == life(tmp_path).get_page_secret() == secret
