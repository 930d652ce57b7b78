"""The service under a real user manager of systemd: installed, killed, started again, restarted, and gone.

The manager runs in a mount namespace of its own, with a /run of its own, and in control groups of its own: it takes
over all processes of the one that it finds itself in. So it needs root's rights. What it runs is a small program in the
server's place: a minute of Ray's start shows nothing more of the unit.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MANAGER = Path("/usr/lib/systemd/systemd")
# It stands where `python -m deployments serve` does: notes its start, and on SIGTERM its end.
PROGRAM = """\
import pathlib, signal, sys
notes = pathlib.Path(__file__).with_name("notes")
def note(words):
    with notes.open("a") as file: file.write(words + "\\n")
def drain(*_):
    note("drained"); sys.exit(0)
signal.signal(signal.SIGTERM, drain)
note("started")
signal.pause()
"""
DRIVER = """\
import os, pathlib, signal, sys, time
from dataclasses import replace
from deployments.config.whole_file import write_whole
from deployments.cli.service.systemd import UNIT, Systemd
from tests.support.init_systems import make_plan_of

folder = pathlib.Path(sys.argv[1])

def until(condition, what):
    ends_s = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < ends_s, what
        time.sleep(0.05)
    return found

def noted():
    path = folder / "notes"
    return path.read_text().split() if path.exists() else []

init = Systemd(pathlib.Path.home(), os.environ)
until(lambda: init._run(["systemctl", "--user", "show", "--property=Version"]).code == 0, "no manager")
init.check()
plan = replace(make_plan_of(folder), python=str(folder / "python"), writable=(folder,))
unit = init.write(plan)
assert ("ProtectSystem" in unit) is init._can_sandbox()
# Not fifteen seconds: systemd before 254 waits as long each time.
init.path.parent.mkdir(parents=True, exist_ok=True)
write_whole(init.path, unit.replace("RestartSec=15", "RestartSec=1"), 0o644)
init.start()
until(lambda: noted() == ["started"], "not started")
first = init.state()
assert first.running and first.at_login and first.pid, first
os.kill(first.pid, signal.SIGKILL)
until(lambda: noted() == ["started", "started"], "not started again")
again = init.state()
assert again.pid != first.pid and again.restarts == 1, again
init.restart()
until(lambda: noted() == ["started", "started", "drained", "started"], "not drained and started")
init.stop()
assert noted()[-1] == "drained", noted()
stopped = init.state()
assert not stopped.running and not stopped.at_login, stopped
init.path.unlink()
init.forget()
print("all of it")
"""
SCRIPT = """\
set -e
for root in $4; do mkdir "$root/ms-service-$$"; echo $$ > "$root/ms-service-$$/cgroup.procs"; done
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
"$0" --user & manager=$!
"$1" -c "$2" "$3" && code=0 || code=$?
kill "$manager"; wait "$manager" || true
for root in $4; do
  echo $$ > "$root/cgroup.procs"
  find "$root/ms-service-$$" -depth -type d -exec rmdir {} \\;
done
exit "$code"
"""


def find_groups() -> list[str]:
    """The hierarchies in which systemd keeps its groups: of cgroup v2, or of the two kinds beside each other."""
    roots = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"))
    return [str(root) for root in roots if (root / "cgroup.procs").exists()]


def find_hindrance() -> str:
    """Why no user manager can be run here; "" where one can."""
    if not sys.platform.startswith("linux") or not MANAGER.exists() or shutil.which("unshare") is None:
        return "systemd or unshare is not on this machine"
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        return "a mount namespace needs root here"
    if not find_groups() or not all(os.access(root, os.W_OK) for root in find_groups()):
        return "control groups can't be made here"
    return ""


@pytest.mark.skipif(bool(find_hindrance()), reason=find_hindrance())
def test_a_service_lives_as_it_should(tmp_path):
    """Started, started again after a kill, drained by a restart and by the end; then neither running nor enabled."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    # In Python's place: whatever it is asked to run, it is the program.
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{program}"\n')
    (tmp_path / "python").chmod(0o755)
    environ = {
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}",
    }
    command = ["unshare", "-m", "bash", "-c", SCRIPT, str(MANAGER), sys.executable, DRIVER, str(tmp_path)]
    command.append(" ".join(find_groups()))
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)

    assert done.stdout.strip().endswith("all of it"), done.stdout + done.stderr
    assert done.returncode == 0
    assert not [left for root in find_groups() for left in Path(root).glob("ms-service-*")]
