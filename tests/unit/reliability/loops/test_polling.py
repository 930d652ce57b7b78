"""Who may repeat itself, by its name."""

from __future__ import annotations

import pytest

from reliability.loops.polling import polls_by_name


@pytest.mark.parametrize(
    "name",
    [
        "job_poll",
        "waitForCI",
        "sleep",
        "get_result",
        "BashOutput",
        "scroll_down",
        "next_page",
        "mcp_ci_job_status",
    ],
)
def test_pollers_by_name(name: str) -> None:
    """A name that says wait, poll, page or a job's status is a poller's."""
    assert polls_by_name(name)


@pytest.mark.parametrize("name", ["get_flight_status", "read_file", "bash", "result", "pool", "", "waiter_info"])
def test_no_pollers_by_name(name: str) -> None:
    """A name that only looks like it is not."""
    assert not polls_by_name(name)


def test_declared_pollers() -> None:
    """A declaration is a name, or a name with a star at one end."""
    assert polls_by_name("check_ci", ("check_ci",))
    assert polls_by_name("check_ci", ("check_*",))
    assert polls_by_name("check_ci", ("*_ci",))
    assert not polls_by_name("check_ci", ("check", "ci_*"))
