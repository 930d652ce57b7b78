"""The LaunchAgent as plistlib reads it, and what launchd is told; it has not been run on macOS."""

import os
import plistlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.service.init_system import STOP_WITHIN_S, Finished, ServiceFault, read_config_of
from deployments.cli.service.launchd import LABEL, Launchd, _write_plist, bound_output
from deployments.config.config_errors import ConfigError
from tests.support.init_systems import Programs, make_plan_of

DOMAIN = f"gui/{os.getuid()}"
TARGET = f"{DOMAIN}/{LABEL}"
RUNNING = Finished(0, f"{TARGET} = {{\n\tactive count = 1\n\tstate = running\n\tpid = 7\n\tlast exit code = 0\n}}\n")
FAILED = Finished(0, f"{TARGET} = {{\n\tstate = spawn scheduled\n\tlast exit code = 1\n\tenvironment = {{\n\t}}\n}}\n")
UNKNOWN = Finished(113, "Could not find service")


def make(programs: Programs) -> Launchd:
    """One that waits for nothing."""
    return Launchd(Path("/Users/x"), programs, sleep=lambda _: None)


@given(st.text(st.characters(exclude_categories=["C"]), min_size=1))
def test_the_agent_says_what_is_run_and_how(name):
    """Whatever the path looks like; it starts at the login and after a failure, and has the time that a stop takes."""
    plan = make_plan_of(Path("/a b") / name)
    agent = plistlib.loads(_write_plist(plan, Path("/logs/x")).encode())

    assert agent["Label"] == LABEL
    assert tuple(agent["ProgramArguments"][: len(plan.command)]) == plan.command
    assert agent["ProgramArguments"][len(plan.command) :] == [
        "--environment", str(plan.environment_file), "--output", "/logs/x",
    ]  # fmt: skip
    assert agent["WorkingDirectory"] == str(plan.folder)
    assert (agent["RunAtLoad"], agent["KeepAlive"]) == (True, {"SuccessfulExit": False})
    assert agent["ExitTimeOut"] == STOP_WITHIN_S


def test_the_written_file_is_a_plist_that_says_whose_it_is(tmp_path):
    """Behind the head, so that it stays XML."""
    init = make(Programs({}))
    text = init.write(make_plan_of(tmp_path))

    assert init.path == Path(f"/Users/x/Library/LaunchAgents/{LABEL}.plist")
    assert plistlib.loads(text.encode())["Label"] == LABEL
    assert read_config_of(text) == str(tmp_path / "serve_config.yaml")


def test_without_a_login_at_the_screen_the_way_out_is_said():
    """One line; as where an agent does not end: the wait has a bound."""
    with pytest.raises(ServiceFault, match=r"no domain gui/\d+ \(Bad request\).*Log in there"):
        make(Programs({"launchctl print": Finished(125, "Bad request\n")})).check()
    with pytest.raises(ServiceFault, match="has not ended within"):
        make(Programs({"launchctl print": RUNNING})).restart()


def test_an_agent_that_is_loaded_is_loaded_anew():
    """Else launchd would go on with the old file. One that is not loaded is stopped already: no order is given."""
    unloaded = Programs({"launchctl print": UNKNOWN})
    make(unloaded).stop()
    assert unloaded.ran == [f"launchctl print {TARGET}"]
    programs = Programs({f"launchctl print {TARGET}": [RUNNING, RUNNING, UNKNOWN]})
    make(programs).start()

    assert [line for line in programs.ran if "print" not in line] == [
        f"launchctl bootout {TARGET}",
        f"launchctl enable {TARGET}",
        f"launchctl bootstrap {DOMAIN} /Users/x/Library/LaunchAgents/{LABEL}.plist",
    ]


BUSY = Finished(5, "Bootstrap failed: 5: Input/output error\n")


@pytest.mark.parametrize("busy", [1, 9, 29])
def test_a_launchd_that_still_lets_go_of_the_old_agent_is_asked_again(busy):
    """Law: EIO after `bootout` is tried again within 15 s, and what happened is said; other orders are given once."""
    programs = Programs(
        {
            f"launchctl print {TARGET}": [RUNNING, RUNNING, UNKNOWN],
            "launchctl bootstrap": [*[BUSY] * busy, Finished(0, "")],
        }
    )
    slept: list[float] = []
    agent = Launchd(Path("/Users/x"), programs, sleep=slept.append)
    agent.start()

    assert sum(line.startswith("launchctl bootstrap") for line in programs.ran) == busy + 1
    assert sum(line.startswith(("launchctl bootout", "launchctl enable")) for line in programs.ran) == 2
    assert sum(slept) <= 15
    assert f"{busy / 2:g} s" in agent.list_remarks()[0]


@pytest.mark.parametrize(("answer", "asked"), [(BUSY, 31), (Finished(78, "Function not implemented"), 1)])
def test_a_launchd_that_refuses_is_believed_at_last(answer, asked):
    """Law: EIO without end is given up after 15 s, any other error at once, each with launchd's own words."""
    programs = Programs({"launchctl print": UNKNOWN, "launchctl bootstrap": answer})
    with pytest.raises(ServiceFault, match=answer.words) as raised:
        make(programs).start()

    assert sum(line.startswith("launchctl bootstrap") for line in programs.ran) == asked
    assert ("for 15 s" in str(raised.value)) == (answer is BUSY)


def test_a_restart_drains_before_it_starts():
    """The new one is started once the old one has gone by itself."""
    programs = Programs({f"launchctl print {TARGET}": [RUNNING, RUNNING, RUNNING, FAILED]})
    make(programs).restart()
    ran = programs.ran

    assert [line for line in ran if "print" not in line] == [
        f"launchctl kill SIGTERM {TARGET}",
        f"launchctl kickstart {TARGET}",
    ]
    assert ran.index(f"launchctl kickstart {TARGET}") == len(ran) - 1
    assert "-k" not in " ".join(ran)


@pytest.mark.parametrize(("printed", "running", "words", "pid"), [
    (RUNNING, True, "running", 7), (FAILED, False, "spawn scheduled, last exit code 1", None),
    (UNKNOWN, False, "not loaded", None), (Finished(0, "something new"), False, "unknown", None),
])  # fmt: skip
def test_its_state_is_read(printed, running, words, pid):
    """As far as launchd says something that is understood."""
    state = make(Programs({"launchctl print": printed})).state()

    assert (state.running, state.words, state.pid) == (running, words, pid)


@pytest.mark.parametrize(("held", "turned"), [(8, False), (9, True)])
def test_a_log_that_is_too_large_becomes_the_older_part(tmp_path, held, turned):
    """Output goes to the new one; what was there is kept until the next turn. One that can't be written is said so, in
    one line with the path."""
    log, older = tmp_path / "x.log", tmp_path / "x.log.1"
    log.write_bytes(b"a" * held)
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        bound_output(log, bytes_max=8, outputs=(output,))
        os.write(output, b"new")
    finally:
        os.close(output)

    assert log.read_bytes() == (b"new" if turned else b"a" * held + b"new")
    assert older.exists() is turned
    with pytest.raises(ConfigError, match=r"none/x.log: can't be written"):
        bound_output(tmp_path / "none" / "x.log", outputs=())
