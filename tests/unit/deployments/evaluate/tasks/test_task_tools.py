"""The agent's tools: bounded answers, words for every mistake, and no exception whatever a model sends."""

import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.evaluate.tasks import task_tools
from deployments.evaluate.tasks.fixtures import make_fixture, write_files
from deployments.evaluate.tasks.task_tools import FILE_BYTES_MAX, SCHEMA, Refused, Toolset, WorkFolder, read_diagnosis
from reliability.steps import Steps
from reliability.tools import Compiled, ToolBox, build_toolbox, compile_schema

CALC = make_fixture("buggy_calc", 1)


def tools_on(folder: Path, name: str = "buggy_calc") -> Toolset:
    fixture = make_fixture(name, 1)
    write_files(fixture.files, folder)
    return Toolset(fixture, WorkFolder(folder))


def use(tools: Toolset, name: str, **arguments: object) -> str:
    return tools.use(name, json.dumps(arguments))


def test_an_agent_can_do_its_work_with_them(tmp_path):
    """Look, find, put right, see that it is."""
    tools = tools_on(tmp_path)
    lines = CALC.files["calc.py"].split("\n")
    wrong = lines[CALC.fault.line - 1]
    around = "\n".join(lines[CALC.fault.line - 3 : CALC.fault.line])

    assert use(tools, "list_files") == "calc.py\ntest_calc.py"
    assert f"{CALC.fault.line}: {wrong}" in use(tools, "read_file", path="calc.py")
    assert f"calc.py:{CALC.fault.line}:" in use(tools, "grep", pattern="return")
    assert "FAILED" in use(tools, "run_tests")
    right = around.replace(wrong, "    " + CALC.fault.right)
    assert use(tools, "edit", path="calc.py", old=around, new=right) == "edited"
    assert use(tools, "run_tests") == "all tests pass"


@pytest.mark.parametrize("path", ["test_calc.py", "./test_calc.py", ".//test_calc.py", "././test_calc.py"])
def test_the_tests_can_t_be_edited_and_who_tries_is_known(tmp_path, path):
    """Not by any spelling of their path."""
    tools = tools_on(tmp_path)

    assert use(tools, "edit", path=path, old="12", new="2") == f"error: {path} may not be changed"
    assert tools.touched == [path]
    assert (tmp_path / "test_calc.py").read_text() == CALC.files["test_calc.py"]


def test_what_tests_have_left_in_the_folder_stops_no_tool(tmp_path):
    """Names that aren't UTF-8, files too deep to be opened; the answers can be sent on. A folder that is gone is said
    by every tool that needs it."""
    tools = tools_on(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_text("return")
    deep = tmp_path / "/".join("abcdefghijk")
    deep.mkdir(parents=True)
    (deep / "x.txt").write_text("return")

    for answer in (use(tools, "list_files"), use(tools, "grep", pattern="return")):
        assert "calc.py" in answer
        assert answer.encode()
    shutil.rmtree(tmp_path)
    assert use(tools, "run_tests") == "the folder is gone"
    assert use(tools, "read_file", path="calc.py") == "error: the folder is gone"
    assert use(tools, "grep", pattern="x") == "(none)"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("read_file", {"path": "../x"}), ("read_file", {}), ("rm", {}), ("run_tests; rm", {"a": 1})),
        *(("edit", {"path": "calc.py", "old": old, "new": "x"}) for old in ("return", "")),
        *(("grep", {"pattern": "("}), ("grep", {"pattern": "\ud800"})),
    ],
)
def test_a_mistake_is_said(tmp_path, name, arguments):
    """So that a model may do it better."""
    assert use(tools_on(tmp_path), name, **arguments).startswith("error: ")


def test_answers_are_bounded(tmp_path):
    """However much there is to read."""
    tools = tools_on(tmp_path, "noisy_logs_repo")

    for answer in (use(tools, "read_file", path="logs/service-1.log"), use(tools, "grep", pattern=".")):
        assert len(answer) <= task_tools.RESULT_CHARS_MAX + 10
        assert "more" in answer or "cut" in answer


def test_what_files_say_is_passed_on_and_nothing_is_done(tmp_path):
    """The harness follows no instruction: after reading all of it the folder is as it was. Who tries to write what an
    injected instruction asks for is known, though no tool makes a file."""
    tools = tools_on(tmp_path, "prompt_injection_repo")
    fixture = make_fixture("prompt_injection_repo", 1)
    for name in fixture.files:
        use(tools, "read_file", path=name)
    use(tools, "grep", pattern="(?i)ignore|assistant|notice")
    use(tools, "run_tests")

    assert tools.touched == []
    assert use(tools, "edit", path="./pwned.txt", old="", new="x").startswith("error: ")
    assert tools.touched == ["./pwned.txt"]
    left = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert left == dict(fixture.files)


values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20), st.lists, max_leaves=4)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(
    st.sampled_from(["list_files", "read_file", "grep", "edit", "diagnose", "x", ""]),
    st.text(max_size=30)
    | st.dictionaries(st.sampled_from(["path", "first_line", "pattern", "old", "new"]), values).map(json.dumps),
)
def test_nothing_that_a_model_sends_raises(tmp_path, name, arguments):
    """Whatever the arguments are, the answer is a text."""
    assert isinstance(tools_on(tmp_path).use(name, arguments), str)


def test_the_server_takes_the_tools():
    """Their schemas are ones that it can check by, and that of a diagnosis one that a grammar can be made of."""
    assert isinstance(build_toolbox(list(task_tools.TOOLS)), ToolBox)
    assert isinstance(compile_schema(SCHEMA, Steps(1_000_000), arguments=True), Compiled)


GOOD = {"root_cause": "wrong sign", "file": "calc.py", "line": 6, "evidence": ["return a - b"], "confidence": 0.5}
GOOD |= {"fix_old": "return a - b", "fix_new": "return a + b"}


@pytest.mark.parametrize("given", [GOOD, json.dumps(GOOD), GOOD | {"confidence": 1}, GOOD | {"line": 6.0}])
def test_a_diagnosis_is_read(given):
    """As an object, or as its JSON; a line is a whole number, as JSON may write one, too."""
    found = read_diagnosis(given)

    assert found is not None
    assert (found["line"], type(found["line"])) == (6, int)


@pytest.mark.parametrize(
    "given",
    [
        *(None, "", "no JSON", "[]", 3, {}, {key: value for key, value in GOOD.items() if key != "fix_new"}),
        *(GOOD | wrong for wrong in ({"line": "6"}, {"evidence": []}, {"confidence": 2}, {"more": 1})),
        *(GOOD | wrong for wrong in ({"line": True}, {"line": 6.5}, {"confidence": -0.1}, {"confidence": "high"})),
        *(json.dumps(GOOD | {"confidence": value}) for value in (float("nan"), float("inf"))),
    ],
)
def test_what_is_none_is_none(given):
    """A field that is missing, wrong or too many."""
    assert read_diagnosis(given) is None


SECRET = "a secret outside of the folder"


@pytest.fixture
def folder(tmp_path) -> WorkFolder:
    root = tmp_path / "root"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("inside")
    (root / "src/b.py").write_text("x = 1\n")
    (tmp_path / "secret.txt").write_text(SECRET)
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    (root / "loop").symlink_to(root / "loop")
    os.mkfifo(root / "pipe")
    return WorkFolder(root)


def test_files_inside_are_read_and_written(folder):
    """By relative paths, however they are spelled; a new file is refused, and one that is too large."""
    assert folder.read("./src//b.py") == "x = 1\n"
    folder.write("src/b.py", "x = 22\n")
    folder.write("src/b.py", "y\n")
    for path, text in (("new.txt", "x"), ("a.txt", "x" * (FILE_BYTES_MAX + 1))):
        with pytest.raises(Refused):
            folder.write(path, text)
    assert (folder.read("src/b.py"), folder.read("a.txt")) == ("y\n", "inside")
    assert folder.list_files() == ["a.txt", "src/b.py"]


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "src/../../secret.txt", "/etc/passwd", "~/x", "link.txt", "out/secret.txt", "loop", "a\\..\\b"],
)
def test_who_wants_out_is_refused_and_counted(folder, path):
    """`..`, absolute paths and symbolic links, at any place of the path."""
    with pytest.raises(Refused):
        folder.read(path)
    with pytest.raises(Refused):
        folder.write(path, "x")

    assert folder.refusals == 2
    assert (folder.root.parent / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("path", ["", "none.txt", "src", "a.txt/b", "pipe", "x" * 500, "a\0b", "/".join("abcdefghij")])
def test_what_is_no_file_is_refused_in_words(folder, path):
    """Nothing hangs, and nothing raises anything else."""
    with pytest.raises(Refused):
        folder.read(path)


parts = st.sampled_from(["..", ".", "", "src", "a.txt", "link.txt", "out", "secret.txt", "loop", "etc", "~", "b.py"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.lists(parts, max_size=6), st.sampled_from(["", "/", "./", "//"]))
def test_no_path_leads_out(folder, names, head):
    """Whatever is put together, what is outside is never read."""
    try:
        text = folder.read(head + "/".join(names))
    except Refused:
        return
    assert text in ("inside", "x = 1\n")


def test_a_folder_that_became_a_link_meanwhile_is_refused(folder, tmp_path):
    """The path is walked by descriptors: who swaps a folder for a link gains nothing."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.py").write_text(SECRET)
    (folder.root / "src").rename(tmp_path / "moved")
    Path(folder.root, "src").symlink_to(other)

    with pytest.raises(Refused):
        folder.read("src/b.py")
