"""The unit, as systemd itself reads it, and what its manager is told."""

import fnmatch
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.service.init_system import STOP_WITHIN_S, Finished, ServiceFault, read_config_of
from deployments.cli.service.systemd import LINGER, NO_SANDBOX, UNIT, Systemd, _write_unit
from deployments.running.session_leader import STOP_S
from deployments.running.supervisor import _KILL_S
from tests.support.init_systems import Programs, make_plan_of

NAMES = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/") | st.just(" "), min_size=1)
NEEDS_SYSTEMD = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine"
)


def unquote(words: str) -> list[str]:
    """Words as systemd.syntax(7) splits them, with the specifier `%%` expanded."""
    found, quoted, begun, text, rest = [], False, False, "", iter(words)
    for one in rest:
        if one == "\\":
            text, begun = text + next(rest), True
        elif one == '"':
            quoted, begun = not quoted, True
        elif one == " " and not quoted:
            found += [text] if begun else []
            text, begun = "", False
        else:
            text, begun = text + one, True
    return [word.replace("%%", "%") for word in [*found, *([text] if begun else [])]]


def lines_of(unit: str) -> dict[str, str]:
    """The keys of a unit, each with its last value."""
    return dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)


@given(name=NAMES, value=NAMES)
def test_a_path_reaches_the_program_as_it_is(name, value):
    """Spaces, quotes, dollar signs, per cent signs and backslashes in a path or a value are what they are."""
    plan = make_plan_of(Path("/a b") / name, environment={"HF_HOME": value})
    unit = lines_of(_write_unit(plan, backoff=True, sandbox=True))

    assert unit["ExecStart"][0] == ":"
    assert tuple(unquote(unit["ExecStart"][1:])) == plan.command
    assert unquote(unit["Environment"]) == [f"HF_HOME={value}"]
    assert unquote(unit["ReadWritePaths"]) == [f"-{plan.writable[0]}"]


def test_the_file_with_keys_is_no_pattern():
    """systemd takes its name for one: of brackets it would find no file, and pass over it without a word."""
    plan = replace(make_plan_of(Path("/x")), environment_file=Path("/home/[me]/a*b?/service.env"))
    name = lines_of(_write_unit(plan, backoff=True, sandbox=True))["EnvironmentFile"].removeprefix("-")

    assert fnmatch.fnmatchcase("/home/[me]/a*b?/service.env", name)
    assert not fnmatch.fnmatchcase("/home/m/axbx/service.env", name)


@NEEDS_SYSTEMD
@pytest.mark.parametrize("sandbox", [True, False])
def test_systemd_finds_no_fault_in_the_unit(tmp_path, sandbox):
    """`systemd-analyze verify` has nothing to say: every key is known, every value can be read. It would find a key
    that systemd doesn't know."""
    folder, path = tmp_path / "a $HOME %h 'x' \"y\"", tmp_path / UNIT
    folder.mkdir()

    def verify(text: str) -> tuple[int, str]:
        path.write_text(text)
        command = ["systemd-analyze", "verify", "--user", "--man=no", str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={"XDG_RUNTIME_DIR": str(tmp_path)}
        )
        return done.returncode, "".join(line for line in done.stderr.splitlines() if UNIT in line)

    plan = replace(make_plan_of(folder), python=shutil.which("true") or "")
    unit = _write_unit(plan, backoff=False, sandbox=sandbox)
    assert verify(unit) == (0, "")
    assert "KilMode" in verify(unit.replace("KillMode", "KilMode"))[1]


def test_a_stop_has_the_time_that_the_supervisor_takes():
    """systemd kills nobody who is still at an orderly end."""
    unit = lines_of(_write_unit(make_plan_of(Path("/x")), backoff=True, sandbox=True))

    assert int(unit["TimeoutStopSec"]) == STOP_WITHIN_S > STOP_S + _KILL_S
    assert unit["KillMode"] == "mixed"


@pytest.mark.parametrize(
    ("version", "known"), [("systemd 252 (x)", False), ("systemd 254 (x)", True), ("what?", False)]
)
def test_the_delay_grows_where_systemd_knows_how(tmp_path, version, known):
    """An older one would complain about the keys, and gets one fixed delay."""
    init = Systemd(tmp_path, {}, Programs({"systemctl --version": Finished(0, version)}))
    text = init.write(make_plan_of(tmp_path))

    assert ("RestartMaxDelaySec" in text) is known
    assert ("RestartSec=15" in text) is not known
    assert read_config_of(text) == str(tmp_path / "serve_config.yaml")


@pytest.mark.parametrize(("allowed", "lingers"), [(True, "yes\n"), (False, "no\n"), (False, "")])
def test_the_sandbox_is_there_where_it_can_be(tmp_path, allowed, lingers):
    """It is tried before it is written; where the system refuses it, its user hears that there is none. What lingering
    is for is said only to whom it doesn't hold already."""
    answers = {"systemd-run": Finished(0 if allowed else 226, ""), "loginctl": Finished(0, lingers)}
    init = Systemd(tmp_path, {}, Programs(answers))

    assert ("ProtectSystem=strict" in init.write(make_plan_of(tmp_path))) is allowed
    assert (NO_SANDBOX in init.list_remarks()) is not allowed
    assert (LINGER in init.list_remarks()) is (lingers != "yes\n")


def test_where_there_is_no_manager_the_way_out_is_said(tmp_path):
    """One line, with systemd's own words in it; also where the programs themselves aren't there."""
    init = Systemd(tmp_path, {}, Programs({"systemctl": Finished(1, "Failed to connect\nto bus")}))
    with pytest.raises(ServiceFault, match=r"Failed to connect to bus.*loginctl enable-linger"):
        init.check()
    with pytest.raises(ServiceFault, match="no systemd user manager"):
        init.state()
    with pytest.raises(ServiceFault, match=r"`systemctl --user restart .*` failed: Failed to connect to bus"):
        init.restart()
    init = Systemd(tmp_path, {}, lambda command: Finished(127, f"{command[0]} can't be run: No such file or directory"))
    with pytest.raises(ServiceFault, match=r"systemctl can't be run.*without systemd start `mlx-stack-serve serve`"):
        init.check()
    assert "PrivateUsers" not in init.write(make_plan_of(tmp_path))
    assert LINGER in init.list_remarks()


def test_the_orders_in_their_order(tmp_path):
    """The manager reads the unit before it starts it, and once it is gone again."""
    programs = Programs({})
    init = Systemd(tmp_path, {"XDG_CONFIG_HOME": str(tmp_path / "c")}, programs)
    for order in (init.start, init.restart, init.stop, init.forget):
        order()

    assert init.path == tmp_path / "c" / "systemd" / "user" / UNIT
    assert [line.removeprefix("systemctl --user ") for line in programs.ran] == [
        *("daemon-reload", f"enable {UNIT}", f"restart {UNIT}", f"restart {UNIT}"),
        *(f"disable --now {UNIT}", "daemon-reload", f"reset-failed {UNIT}"),
    ]


@pytest.mark.parametrize(("shown", "running", "words", "pid"), [
    ("ActiveState=active\nSubState=running\nMainPID=7\nNRestarts=2\nUnitFileState=enabled\nResult=success", True,
     "active (running)", 7),
    ("ActiveState=activating\nSubState=auto-restart\nMainPID=0\nNRestarts=1\nResult=exit-code", False,
     "activating (auto-restart), exit-code", None),
    ("", False, "unknown (unknown)", None),
])  # fmt: skip
def test_its_state_is_read(tmp_path, shown, running, words, pid):
    """Whatever systemd leaves out."""
    state = Systemd(tmp_path, {}, Programs({"systemctl --user show": Finished(0, shown)})).state()

    assert (state.running, state.words, state.pid) == (running, words, pid)
    assert state.at_login is ("enabled" in shown)
