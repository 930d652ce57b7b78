"""Who may repeat itself, by its name."""

import json

import pytest

from reliability.loops import Result, SeenCall
from reliability.loops.polling import is_poll, polls_by_name


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


@pytest.mark.parametrize(
    ("command", "polls"),
    [
        ("docker compose ps", True),
        ("cd /srv && docker compose ps", True),
        ("cd /srv; sudo docker-compose -f prod.yml ps", True),
        ('cd "/srv/my app" && docker ps', True),
        ("KUBECONFIG=/etc/k8s kubectl get pods", True),
        ("A='b c' B=1 time kubectl -n shop get pods", True),
        ("aws ec2 describe-instances", True),
        ("aws --region eu-west-1 --output json ec2 describe-instances", True),
        ("systemctl --user status backup", True),
        ("ssh build01 docker ps", True),
        ("ssh -p 2222 -o BatchMode=yes me@build01 'systemctl is-active app'", True),
        ("timeout 30 docker --context prod logs app", True),
        ("cd /srv && make", False),
        ("cd /srv && docker run app", False),
        ("DEBUG=1 python app.py", False),
        ("ssh build01 make", False),
        ("systemctl --user restart backup", False),
        ("aws --region eu-west-1 s3 cp a b", False),
        ("A=1 " * 2_000 + "make", False),
    ],
)
def test_a_command_that_asks_is_a_poll_wherever_it_runs(command: str, polls: bool) -> None:
    """What stands before it, and its own options, say nothing of what it does."""
    assert is_poll(SeenCall("bash", json.dumps({"command": command})), None) is polls


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("queued", True),
        ("Building", True),
        ('"starting"\n', True),
        ("ACCEPTED", True),
        ("in progress...", True),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1234 (apt-get)", True),
        ("    Blocking waiting for file lock on build directory", True),
        ("Error: Error acquiring the state lock\n\nError message: resource temporarily locked", True),
        ("failing", False),
        ("missing", False),
        ("done", False),
        ("building 7 is closed", False),
        ("The door is locked.", False),
    ],
)
def test_a_result_that_says_wait_is_a_polls(said: str, waits: bool) -> None:
    """One word that tells how a job stands, and a lock that somebody else holds."""
    assert is_poll(SeenCall("bash", '{"command": "make"}'), Result(said)) is waits
