"""Reports that are kept: whole ones, not too many, and nothing else on this machine."""

import json
import os
import signal
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate import kept_reports
from deployments.evaluate.kept_reports import NAME, keep_report, list_kept, read_kept
from tests.support.evaluation_cells import make_cells, make_report
from tests.support.repository import ROOT

REPORT = make_report(make_cells(fast_right=24))


def keep(folder, page: str = "<p>ü</p>", **changes) -> str:
    """Keep one; its name."""
    return keep_report(folder, REPORT | changes, page, "# sum").name


def test_a_kept_report_is_listed_and_read(tmp_path):
    """Its three parts to the letter, and what it was of; only its owner can look into the folder."""
    folder = tmp_path / "state" / "evaluations"
    name = keep(folder, made="2026-11-24 08:15 UTC", target="the server at X")
    (one,) = list_kept(folder)

    assert (one.name, one.made, one.target) == (name, "2026-11-24 08:15 UTC", "the server at X")
    assert dict(one.verdicts) == {tier: row["verdict"] for tier, row in REPORT["verdicts"].items()}
    assert read_kept(folder, name, "report.html") == "<p>ü</p>".encode()
    assert read_kept(folder, name, "report.md") == b"# sum"
    assert json.loads(read_kept(folder, name, "report.json") or b"")["seed"] == REPORT["seed"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / name).stat().st_mode) == 0o700


def test_the_oldest_go(tmp_path, monkeypatch):
    """As many stay as are listed, the newest first. Half a report is none."""
    monkeypatch.setattr(kept_reports, "KEPT_MAX", 3)
    old = [f"20200101-00000{number}-aaaaaaaa" for number in range(4)]
    for name in old:
        (tmp_path / name).mkdir()
        (tmp_path / name / "summary.json").write_text('{"made": "x", "target": "y", "verdicts": {}}')
    new = keep(tmp_path)

    assert [one.name for one in list_kept(tmp_path)] == [new, old[3], old[2]]
    with pytest.raises(UnicodeEncodeError):
        keep(tmp_path, page="\ud800")
    assert sorted(os.listdir(tmp_path)) == sorted([new, old[3], old[2]])


WRITE = """
import os, signal, sys
from pathlib import Path
from deployments.config.whole_file import lock_folder
from deployments.evaluate import kept_reports
from tests.unit.deployments.evaluate.test_kept_reports import REPORT
Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
kept_reports.keep_report(Path(sys.argv[1]), REPORT, "page", "summary")
"""


def test_what_a_killed_writer_has_left_goes(tmp_path):
    """Killed before its report had its name: with the next report."""
    done = subprocess.run([sys.executable, "-c", WRITE, str(tmp_path)], cwd=ROOT, check=False)
    (left,) = os.listdir(tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert left.startswith(".")

    name = keep(tmp_path)
    assert os.listdir(tmp_path) == [name]


@given(
    st.text() | st.sampled_from(["..", ".", "", "../x", "/etc", "20200101-000000-aaaaaaaa/..", "20200101-000000-aa\n"])
)
def test_a_name_that_is_none_leads_nowhere(tmp_path_factory, name):
    """Not to a folder above, nor to any other."""
    folder = tmp_path_factory.mktemp("kept") / "evaluations"
    folder.mkdir()
    for place in (folder, folder.parent):
        (place / "report.html").write_text("secret")
        (place / "summary.json").write_text('{"made": "x", "target": "y", "verdicts": {}}')

    assert NAME.fullmatch(name) is None
    assert list_kept(folder) == []
    assert read_kept(folder, name, "report.html") is None


@pytest.mark.parametrize(
    "part", ["summary.json", "..", "../../secret", "/etc/passwd", "report.html/", "", "REPORT.HTML"]
)
def test_only_the_parts_of_a_report_are_read(tmp_path, part):
    """Whatever else lies there."""
    name = keep(tmp_path)
    (tmp_path / "secret").write_text("secret")

    assert read_kept(tmp_path, name, part) is None


@pytest.mark.parametrize("kind", ["link to a file", "link to a folder", "pipe", "folder", "too large"])
def test_what_is_no_file_of_ours_is_not_read(tmp_path, monkeypatch, kind):
    """A link, a pipe that would never end, a folder, a file over its bound: none, and nobody waits."""
    folder = tmp_path / "evaluations"
    name = keep(folder)
    path, secret = folder / name / "report.html", tmp_path / "secret"
    secret.mkdir()
    (secret / "report.html").write_text("secret")
    path.unlink()
    if kind == "link to a file":
        path.symlink_to(secret / "report.html")
    elif kind == "link to a folder":
        name = "20200101-000000-aaaaaaaa"
        (folder / name).symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        monkeypatch.setattr(kept_reports, "PART_BYTES_MAX", 3)
        path.write_text("1234")

    assert read_kept(folder, name, "report.html") is None


@given(st.binary(max_size=200) | st.sampled_from([b"[]", b"{}", b'{"verdicts": 1}', b"[" * 9999, b"null"]))
def test_a_summary_that_cant_be_read_is_left_out(tmp_path_factory, raw):
    """The others are listed all the same."""
    folder = tmp_path_factory.mktemp("kept")
    broken = folder / "20200101-000000-aaaaaaaa"
    broken.mkdir()
    (broken / "summary.json").write_bytes(raw)
    name = keep(folder)

    assert [one.name for one in list_kept(folder)] == [name]
