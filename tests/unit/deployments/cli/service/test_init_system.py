"""A program is asked, and has a bound; a file is ours as long as nobody has touched it."""

import plistlib
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.cli.service import init_system
from deployments.cli.service.init_system import Finished, ForeignFile, read_config_of, read_own, run_program, sign


def test_what_it_prints_and_how_it_ends_come_back():
    """Both outputs, whatever bytes they are; its words are one line, and not a long one."""
    code = "import os, sys; os.write(1, b'a\\xff\\n'); os.write(2, b'b'); sys.exit(3)"

    assert run_program([sys.executable, "-c", code]) == Finished(3, "a\N{REPLACEMENT CHARACTER}\nb")
    words = [Finished(1, out).words for out in ("", "a\n  b\n", "x" * 999)]
    assert words == ["exit code 1", "a b", "x" * 300]


def test_one_that_isnt_there_or_does_not_end_has_failed_by_its_name(monkeypatch):
    """In one line; an order that fails so is a fault."""
    assert "no-such-program can't be run: No such file" in run_program(["no-such-program"]).words
    with pytest.raises(init_system.ServiceFault, match="`no-such-program x` failed: no-such-program can't be run"):
        init_system.give_order(run_program, "no-such-program", "x")
    monkeypatch.setattr(init_system, "ASK_S", 0.1)
    ended = run_program([sys.executable, "-c", "import threading; threading.Event().wait()"])
    assert ended.code
    assert "has not ended within 0.1 s" in ended.words


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"))
PATHS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@given(st.text(), TEXTS, PATHS, st.integers(0), st.characters(exclude_categories=["Cs", "Cc"]))
def test_a_signed_text_says_whose_it_is(foreign, text, config, at, put):
    """The mark names the configuration, whatever its path looks like; what is signed stays as it is behind the mark,
    and a change anywhere there is seen. What we haven't written, any text at all, is not ours. In XML the mark is a
    comment: a path with dashes doesn't end it, and the file is read as if there were none."""
    signed = sign(text, Path(config))
    begin = signed.index("\n") + 1
    where = begin + at % (len(signed) - begin + 1)
    xml = sign(plistlib.dumps({"a": 1}).decode(), Path(f"/a--b-->{config}"), xml=True)

    assert read_config_of(signed) == str(Path(config))
    assert signed.endswith(text)
    assert read_config_of(signed[:where] + put + signed[where:]) is None
    assert read_config_of(foreign) is None
    assert plistlib.loads(xml.encode()) == {"a": 1}
    assert read_config_of(xml) == str(Path(f"/a--b-->{config}"))


@pytest.mark.parametrize("kind", ["changed", "link", "folder", "bytes"])
def test_what_is_not_ours_is_refused(tmp_path, kind):
    """A text that was changed, a link to one of ours, a folder, bytes: each is another writer's. A file of ours is
    known again, as long as it stands there."""
    path, ours = tmp_path / "x", tmp_path / "ours"
    ours.write_text(sign("x\n", tmp_path))
    assert (read_own(path), read_own(ours)) == (None, sign("x\n", tmp_path))
    if kind == "changed":
        path.write_text(sign("x\n", tmp_path) + "# mine\n")
    elif kind == "link":
        path.symlink_to(ours)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe")

    with pytest.raises(ForeignFile, match="move it away"):
        read_own(path)
