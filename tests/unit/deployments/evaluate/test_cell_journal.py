"""The journal of finished cells: what is written is there again, what broke off isn't, and plans don't mix."""

from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.config.config_errors import ConfigError
from deployments.evaluate.cell_journal import NAME, CellJournal


def write(folder, **options) -> None:
    with closing(CellJournal(folder, "p", **options)) as journal:
        journal.add("a/b/c/1", {"right": True})
        journal.note("models", {"m": 1})
        journal.add("a/b/c/2", {"right": False})


def test_finished_cells_are_there_again(tmp_path):
    """And facts; a later fact of one name replaces the earlier one."""
    write(tmp_path)
    with closing(CellJournal(tmp_path, "p")) as again:
        again.note("models", {"m": 2})
    with closing(CellJournal(tmp_path, "p")) as last:
        assert last.cells == {"a/b/c/1": {"right": True}, "a/b/c/2": {"right": False}}
        assert last.facts == {"models": {"m": 2}}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.data())
def test_a_journal_that_broke_off_keeps_its_whole_lines(tmp_path, data):
    """Wherever the machine stopped: what is left is a beginning of what was written, and it can be gone on with."""
    write(tmp_path, fresh=True)
    path = tmp_path / NAME
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with closing(CellJournal(tmp_path, "p")) as journal:
        known = set(journal.cells)
        journal.add("x/y/z/9", 9)
    with closing(CellJournal(tmp_path, "p")) as again:
        assert set(again.cells) == known | {"x/y/z/9"}
        assert known <= {"a/b/c/1", "a/b/c/2"}


def test_another_plan_is_refused_and_may_begin_anew(tmp_path):
    """Cells of two configurations are never mixed; `fresh` forgets the old ones."""
    write(tmp_path)
    with pytest.raises(ConfigError, match="--fresh"):
        CellJournal(tmp_path, "q")
    with closing(CellJournal(tmp_path, "q", fresh=True)) as journal:
        assert journal.cells == {}


@pytest.mark.parametrize(
    "damage", [b"\0\0\0\n", b"\xff\xfe\n", b'{"cell": "a/b/c/9"}\n', b'{"cell": 5, "result": 1}\n', b"[" * 9999]
)
def test_a_damaged_line_costs_its_own_cell_alone(tmp_path, damage):
    """Those behind it are there."""
    write(tmp_path)
    path = tmp_path / NAME
    plan, _, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(plan + damage.rstrip(b"\n") + b"\n" + b"".join(rest))
    with closing(CellJournal(tmp_path, "p")) as journal:
        journal.add("x/y/z/9", 9)
    with closing(CellJournal(tmp_path, "p")) as again:
        assert again.cells == {"a/b/c/2": {"right": False}, "x/y/z/9": 9}
        assert again.facts == {"models": {"m": 1}}


@pytest.mark.parametrize("text", ["name,value\n1,2\n", "something", '{"plan": "q"}\n{"cell": "a/b/c/1", "res', "[1]\n"])
def test_a_file_that_is_no_journal_of_this_plan_stays_as_it_is(tmp_path, text):
    """To the last byte, what broke off included."""
    (tmp_path / NAME).write_text(text)
    with pytest.raises(ConfigError, match="--out"):
        CellJournal(tmp_path, "p")

    assert (tmp_path / NAME).read_text() == text


@pytest.mark.parametrize("fresh", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_no_folder_of_an_evaluation(tmp_path, there, fresh):
    """Law: where a repository's `evaluation` leads elsewhere, nothing is made, taken away or written there."""
    target = tmp_path / "target"
    if there:
        target.mkdir()
        (target / NAME).write_text("")
    (tmp_path / "evaluation").symlink_to(target)

    with pytest.raises(ConfigError, match=r"symbolic link.*--out$"):
        CellJournal(tmp_path / "evaluation", "p", fresh=fresh)
    assert [path.name for path in target.glob("*")] == ([NAME] if there else [])


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_not_written_through(tmp_path, there):
    """Law: a link in the place of the journal, as a repository may hold one, is refused, and its target untouched. A
    fresh journal takes its place."""
    target = tmp_path / "target"
    if there:
        target.write_text("")
    (tmp_path / NAME).symlink_to(target)

    with pytest.raises(ConfigError, match=r"symbolic link.*--fresh"):
        CellJournal(tmp_path, "p")
    assert (target.read_text() if target.exists() else None) == ("" if there else None)
    write(tmp_path, fresh=True)
    assert not (tmp_path / NAME).is_symlink()
    assert not there or target.read_text() == ""
