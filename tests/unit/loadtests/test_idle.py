"""What an idle server costs: which process is which, and how windows are counted."""

import os

import pytest

from loadtests.idle import Counted, Idle, count_growth, find_kind, judge, measure_between, read_processes


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("ray::ServeReplica:mlx-stack:fast ", "replica fast"),
        ("ray::ServeReplica:mlx-stack:Router.perform_graceful_shutdown ", "replica Router"),
        ("ray::ServeController.listen_for_change ", "ServeController"),
        ("ray::MemoryPressure ", "MemoryPressure"),
        ("ray::IDLE ", "IDLE"),
        ("/x/ray/core/src/ray/gcs/gcs_server --log_dir=/tmp ", "GCS"),
        ("/x/python -u /x/ray/_private/log_monitor.py --session-dir=/x ", "log monitor"),
        ("/x/python -u /x/ray/autoscaler/_private/monitor.py --logs-dir=/x ", "autoscaler monitor"),
        ("/x/python /x/ray/dashboard/dashboard.py --host=127.0.0.1 ", "dashboard"),
        ("/x/python -m deployments.running.session_leader /tmp ", "session leader"),
        ("bash ", "other"),
    ],
)
def test_a_process_is_known_by_its_command(command, kind):
    """Law: each of Ray's and of ours has a kind of its own."""
    assert find_kind(command) == kind


def test_a_window_counts_what_was_spent_in_it():
    """Law: shares of a core and wake-ups a second, by kind; a process that began counts from zero, and one that ended
    takes nothing away."""
    before = {1: Counted("GCS", 10.0, 1000), 2: Counted("worker", 5.0, 500)}
    after = {1: Counted("GCS", 13.0, 1600), 3: Counted("worker", 1.0, 60)}
    measured = measure_between(before, after, 10.0)

    assert measured["kinds"] == {"GCS": (30.0, 60.0), "worker": (10.0, 6.0)}
    assert (measured["cpu"], measured["wakes"]) == (40.0, 66.0)


def test_logs_that_begin_anew_count_what_they_hold():
    """Law: growth is what was written since; a rotated file counts whole, one that is gone not at all."""
    assert count_growth({"a": 10, "b": 100, "gone": 7}, {"a": 15, "b": 30, "new": 4}) == 5 + 30 + 4


def test_the_bars_are_shares_of_the_same_windows():
    """Law: each window is compared with the other side's same window, and the median is held against the bar."""

    def side(cpu: list[float], memory: float) -> Idle:
        many = len(cpu)
        return Idle(
            cpu_percent=cpu, wakes=[100.0] * many, processes=[9] * many, memory_mib=[memory] * many,
            model_mib=[0.0] * many, log_bytes=[1e6] * many, first_ms=20.0, warm_ms=[20.0],
        )  # fmt: skip

    figures = {figure.what: figure for figure in judge(side([5, 50, 6], 110), side([10, 100, 10], 100))}

    assert figures["CPU"].measured == 0.5
    assert figures["CPU"].met
    assert figures["memory without the model"].met
    assert not next(iter(judge(side([7], 1), side([10], 1)))).met


def test_this_very_process_is_found():
    """Law: a side is its process and all that descend from it."""
    assert os.getpid() in read_processes(os.getpid())
