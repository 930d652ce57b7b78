"""`mlx-stack-serve evaluate`: what it writes, what it says, how it ends."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from deployments.__main__ import main
from deployments.cli import evaluate as command
from deployments.evaluate import evaluation_plan
from deployments.evaluate.evaluation_plan import Settings
from deployments.evaluate.tasks.fixtures import FIXTURES
from tests.support.config_files import make_document
from tests.support.evaluation_cells import FACTS, make_cells, make_report
from tests.support.played_model import PlayedServer, say


@pytest.fixture(autouse=True)
def one_task(monkeypatch):
    """Each task runs its tests in processes; a test of verdicts has all of them."""
    monkeypatch.setattr(evaluation_plan, "FIXTURES", ("buggy_calc",))


@pytest.fixture
def server() -> Iterator[PlayedServer]:
    with PlayedServer({"m": lambda body: say("one two three")}) as played:
        yield played


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(server: PlayedServer, *more: str) -> int:
    return main(["evaluate", "--url", server.url, "--cases", "3", "--budget-minutes", "3", *more])


def test_reports_are_not_written_through_links(folder, server):
    """Law: links in the places of the reports, as a repository may hold them, are replaced, and their targets stay."""
    (folder / "evaluation").mkdir()
    for name in ("html", "json", "md"):
        (folder / name).write_text("mine")
        (folder / f"evaluation/report.{name}").symlink_to(folder / name)

    assert run(server) == 0
    assert [(folder / name).read_text() for name in ("html", "json", "md")] == ["mine"] * 3
    assert json.loads((folder / "evaluation/report.json").read_text())["verdicts"]


def test_a_server_is_evaluated_and_the_report_written(folder, server, capsys, monkeypatch):
    """Page, summary and data; the verdict on the screen. The same command again is there at once. A regression from an
    older report, in which more was right, ends it with one."""
    monkeypatch.setattr(evaluation_plan, "FIXTURES", FIXTURES)
    assert run(server) == 0
    asked = len(server.asked)
    assert run(server) == 0

    report = json.loads((folder / "evaluation/report.json").read_text())
    said = capsys.readouterr().err
    assert len(server.asked) == asked
    assert report["verdicts"]["m"]["verdict"] in said
    assert "not fit" in (folder / "evaluation/report.html").read_text()
    assert "| m | not fit |" in (folder / "evaluation/report.md").read_text()
    assert "evaluation/report.html" in said

    (folder / "old.json").write_text(json.dumps(report))
    assert run(server, "--compare", "old.json") == 0
    for key in report["outcomes"]:
        if key.startswith(("served/call", "served/task")):
            report["outcomes"][key] = True
    (folder / "old.json").write_text(json.dumps(report))
    assert run(server, "--compare", "old.json") == 1
    assert "worse: tasks of m (served): 10 → 0 of 10 good" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"), [({"seed": 9}, "--seed 9"), ({"format": 0}, "format"), ({"speeds": None}, "damaged")]
)
def test_a_report_that_can_t_be_compared_is_refused_before_anything_is_asked(folder, server, capsys, change, words):
    """Not after the minutes of an evaluation, whose report would be lost with it."""
    (folder / "old.json").write_text(json.dumps(make_report() | change))

    assert run(server, "--compare", "old.json") == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not server.asked


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *((["--compare", "nothing.json"], "--compare"), (["--url", "http://h", "--out", "/proc/nowhere"], "--out")),
        (["--model", "m"], "--model needs --url"),
        (["mine.yaml", "--model", "m", "--cloud"], "--model needs --url"),
        (["mine.yaml", "--url", "http://127.0.0.1:9"], "mine.yaml or --url, not both"),
        (["--url", ""], "--url: '' is no URL of a server"),
        (["--url", "", "--model", "m"], "--url: '' is no URL of a server"),
    ],
)
def test_a_target_that_would_be_left_out_is_refused(folder, capsys, monkeypatch, options, words):
    """Law: what is named is measured, or nothing: an option that is passed over would measure something else, for
    money, too."""
    monkeypatch.setattr(command, "run_evaluation", lambda *_: pytest.fail("something was measured"))

    assert main(["evaluate", *options]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (folder / "evaluation").exists()


@pytest.mark.parametrize("option", ["--budget-minutes", "--cases", "--at-once"])
def test_nothing_is_begun_without_time_or_cases(folder, server, capsys, option):
    """Zero is none."""
    assert run(server, option, "0") == 2
    assert option in capsys.readouterr().err
    assert not server.asked


@pytest.mark.parametrize("key", ["sk-secret\n1234567890", "ключ", "a\x01b"])
def test_a_key_that_can_t_be_sent_is_named_and_not_shown(folder, server, capsys, monkeypatch, key):
    """In one line."""
    monkeypatch.setenv("MLX_STACK_API_KEY", key)

    assert run(server) == 2
    said = capsys.readouterr().err
    assert "MLX_STACK_API_KEY" in said
    assert key.strip() not in said
    assert said.count("\n") == 1


def test_another_seed_needs_another_folder(folder, server, capsys):
    """Cells of two plans are never mixed. Nobody there is said, and nothing is written as a report."""
    with PlayedServer({}) as gone:
        pass
    assert run(gone, "--out", "other") == 1
    assert "no server" in capsys.readouterr().err
    assert not (folder / "other/report.json").exists()
    assert run(server) == 0
    assert run(server, "--seed", "2") == 2
    assert "--fresh" in capsys.readouterr().err
    assert run(server, "--seed", "2", "--fresh") == 0


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_leaves_a_report_of_what_is_there(folder, server, capsys, monkeypatch, sent):
    """And says how to go on; so do the signals that end it from elsewhere."""
    assert run(server) == 0
    (folder / "evaluation/report.html").unlink()
    # As at a terminal, whatever this very run was told to ignore.
    usual = signal.default_int_handler if sent is signal.SIGINT else signal.SIG_DFL
    before = signal.signal(sent, usual)

    def interrupt(*_: Any) -> Any:
        signal.raise_signal(sent)

    monkeypatch.setattr(command, "run_evaluation", interrupt)
    try:
        assert run(server) == 130
        assert signal.getsignal(sent) is usual
    finally:
        signal.signal(sent, before)

    assert (folder / "evaluation/report.html").exists()
    assert "goes on with it" in capsys.readouterr().err


def test_a_signal_that_is_ignored_stays_so(folder, server, monkeypatch):
    """As under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    original = command.run_evaluation

    def hang_up(*given: Any) -> Any:
        signal.raise_signal(signal.SIGHUP)
        return original(*given)

    monkeypatch.setattr(command, "run_evaluation", hang_up)
    try:
        assert run(server) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def apply(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, *more: str) -> tuple[int, str]:
    """Evaluate `mine.yaml` with cells that are there already, and answer the question."""
    path = folder / "mine.yaml"
    path.write_text("# mine\n" + yaml.safe_dump(make_document({"fast": {"kind": "mlx"}, "large": {"kind": "mlx"}})))

    def finish(target: Any, settings: Settings, journal: Any, line: Any) -> list[Any]:
        for name, value in FACTS.items():
            journal.note(name, value)
        for name, value in make_cells(fast_right=24).items():
            journal.add(name, value)
        return list(target.plan({"fast": {}, "large": {}}, settings))

    monkeypatch.setattr(command, "run_evaluation", finish)
    monkeypatch.setattr("sys.stdin.isatty", lambda: answer is not None, raising=False)
    monkeypatch.setattr("builtins.input", Mock(side_effect=[answer or EOFError]))
    return main(["evaluate", "mine.yaml", "--fresh", "--apply", *more]), path.read_text()


@pytest.mark.parametrize(
    ("answer", "more", "written"),
    [("y", [], True), ("n", [], False), ("", [], False), (None, [], False), (None, ["--yes"], True)],
)
def test_a_chain_is_applied_only_when_told_to(folder, monkeypatch, capsys, answer, more, written):
    """The difference is shown in any case; without a terminal nobody can say yes, but by `--yes`."""
    code, text = apply(folder, monkeypatch, answer, *more)

    assert code == 0
    assert "retry_strategy:" in capsys.readouterr().out
    assert ("constrain" in text) is written
    assert text.startswith("# mine\n")
