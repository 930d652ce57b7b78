"""What is made once, though several processes want it and any of them may die."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deployments.models import cache_folder as store
from tests.support.repository import ROOT

BUILDER = """
import sys
from pathlib import Path
from deployments.models.cache_folder import make_once

def build(folder):
    (folder / "part").write_text("x")
    print("building", flush=True)
    sys.stdin.readline()
    (folder / "whole").write_text("x")

make_once(Path(sys.argv[1]), "thing", build, say=lambda words: print(words, flush=True))
print("done", flush=True)
"""


def builder(parent: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(parent)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def line(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip()


class TestMadeOnce:
    def test_two_processes_build_once(self, tmp_path: Path) -> None:
        """Law: of two processes that start at once one builds; the other waits and builds nothing."""
        first = builder(tmp_path)
        assert line(first) == "building"
        second = builder(tmp_path)
        assert line(second) == "waiting for another process that is preparing the same thing"
        assert not (tmp_path / "thing").exists()
        assert first.communicate("go\n", timeout=60)[0] == "done\n"
        assert second.communicate(timeout=60)[0] == "done\n"
        assert sorted(path.name for path in (tmp_path / "thing").iterdir()) == ["part", "whole"]

    def test_a_killed_builder_leaves_nothing_that_counts(self, tmp_path: Path) -> None:
        """Law: after kill -9 in the middle there is no thing, and the next builder starts afresh and tidies up."""
        killed = builder(tmp_path)
        assert line(killed) == "building"
        killed.send_signal(signal.SIGKILL)
        killed.wait(60)
        assert not (tmp_path / "thing").exists()
        made = store.make_once(tmp_path, "thing", lambda folder: (folder / "whole").touch())
        assert [path.name for path in made.iterdir()] == ["whole"]
        assert list(tmp_path.glob(".thing.part-*")) == []

    def test_what_was_left_is_removed_whatever_its_name(self, tmp_path: Path) -> None:
        """Law: a name is no pattern: the next builder removes what is left under that name, and under no other."""
        left, other = tmp_path / ".m[12]*.part-x", tmp_path / ".m1*.part-x"
        left.mkdir()
        other.mkdir()
        store.make_once(tmp_path, "m[12]*", lambda folder: (folder / "whole").touch())
        assert (left.exists(), other.exists()) == (False, True)


def test_what_a_stranger_may_have_made_is_never_returned(tmp_path: Path) -> None:
    """Law: a folder that stands under the right name in a place where everybody may write is refused, complete or not,
    and nothing is built there: native code is loaded from it."""
    parent = tmp_path / "shared"
    (parent / "thing").mkdir(parents=True)
    parent.chmod(0o777)

    for name in ("thing", "other"):
        with pytest.raises(OSError, match="everybody can write into"):
            store.make_once(parent, name, lambda folder: pytest.fail("it was built"))
    assert [path.name for path in parent.iterdir()] == ["thing"]
