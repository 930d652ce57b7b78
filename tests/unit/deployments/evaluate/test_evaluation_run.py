"""An evaluation, whole, on a server that plays its models: what is run, what is kept, and what is gone on with."""

import contextlib
import io
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deployments.evaluate import evaluation_plan, evaluation_run
from deployments.evaluate.asking import chat_client
from deployments.evaluate.calls.call_cases import draw_cases
from deployments.evaluate.cell_journal import CellJournal
from deployments.evaluate.evaluation_plan import Settings
from deployments.evaluate.evaluation_run import ProgressLine, _copy_answered, run_evaluation
from deployments.evaluate.evaluation_target import UrlTarget
from deployments.evaluate.figures.tables import Cell
from deployments.evaluate.tasks.fixtures import FIXTURES
from tests.support import played_model
from tests.support.evaluation_cells import call_cell
from tests.support.played_model import PlayedServer, call, say

CASES = draw_cases(1, 3)


@pytest.fixture(autouse=True)
def one_task(monkeypatch):
    """Each task runs its tests in processes; one test has all of them."""
    monkeypatch.setattr(evaluation_plan, "FIXTURES", ("buggy_calc",))


def know(body: Mapping[str, Any]) -> dict[str, Any]:
    """A model that knows every case of the seed, and nothing else."""
    for case in CASES:
        if case.tool and list(case.messages) == body["messages"]:
            return call(case.tool, **{key: values[0] for key, values in case.arguments.items() if values[0] != ""})
    return say("I don't know.")


def run(
    server: PlayedServer, folder: Path, minutes: float = 5.0, at_once: int = 1
) -> tuple[CellJournal, io.StringIO, list[Any]]:
    out = io.StringIO()
    settings = Settings(seed=1, cases=3, budget_minutes=minutes, at_once=at_once)
    journal = CellJournal(folder, "p")
    try:
        phases = run_evaluation(UrlTarget(server.url, "", [], cloud=False), settings, journal, ProgressLine(60, out))
    finally:
        journal.close()
    return journal, out, phases


def test_every_cell_is_run_once_and_kept(tmp_path, monkeypatch):
    """The rules, the calls, the tasks and the speeds of each model; progress says which."""
    monkeypatch.setattr(evaluation_plan, "FIXTURES", FIXTURES)
    with PlayedServer({"m": know}) as server:
        journal, out, phases = run(server, tmp_path)
        asked = len(server.asked)
        again, *_ = run(server, tmp_path)

        assert len(server.asked) == asked  # all of it was there already
    cells = [cell for phase in phases for cell in phase.cells]
    assert list(journal.cells) == [cell.key for cell in cells]
    assert again.cells == journal.cells
    assert all(journal.cells[f"served/call/m/{number}"]["right"] for number in range(3))
    assert journal.cells["none/task/rules/buggy_calc"]["checks"]["passed"]
    assert "[0/" in out.getvalue()
    assert "m · case 2" in out.getvalue()


def test_what_ctrl_c_left_is_gone_on_with(tmp_path):
    """No finished cell is asked again."""
    with PlayedServer({"m": know}) as server:
        original = CellJournal.add

        def add(journal: CellJournal, cell: str, result: Any) -> None:
            original(journal, cell, result)
            if cell == "served/call/m/1":
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(CellJournal, "add", add)
            with pytest.raises(KeyboardInterrupt):
                run(server, tmp_path)
        with contextlib.closing(CellJournal(tmp_path, "p")) as journal:
            before = set(journal.cells)
        finished, *_ = run(server, tmp_path)
        contents = [body["messages"] for body, _ in server.asked if not body.get("stream")]

    assert before < set(finished.cells)
    assert [contents.count(list(case.messages)) for case in CASES] == [1, 1, 1]


def test_no_speed_is_measured_by_a_prompt_that_an_earlier_evaluation_has_sent(tmp_path):
    """A server that runs on still has it in its cache: what it takes to read isn't seen any more."""
    with PlayedServer({"m": know}) as server:
        prompts = []
        for name in ("a", "b"):
            run(server, tmp_path / name)
            prompts.append({body["messages"][0]["content"] for body, _ in server.asked if body.get("stream")})
            server.asked.clear()

    assert prompts[0] & prompts[1] == {"Say hello."}  # what wakes it
    assert len(prompts[0]) > 10


def test_a_model_that_is_late_is_left_out_of_its_phase(tmp_path):
    """And asked nothing more there; the other one goes on. Late cells aren't kept."""
    late = (504, {"error": {"message": "late", "code": "deadline_exceeded"}})
    plays = {"m": know, "slow": lambda body: late if body.get("tools") else say("one two three")}
    with PlayedServer(plays) as server:
        journal, *_ = run(server, tmp_path)
        tried = [body for body, _ in server.asked if body["model"] == "slow" and body.get("tools")]

    assert len(tried) == 2  # one of the phase of calls, one of the phase of tasks
    assert not any("/slow/" in key and ("call" in key or "task" in key) for key in journal.cells)
    assert sum("/m/" in key for key in journal.cells) > 10


def test_one_cell_that_doesn_t_end_leaves_time_for_the_others(tmp_path, monkeypatch):
    """Of a small budget, too: a model that is slow at long prompts is asked the short ones."""
    monkeypatch.setattr(chat_client, "GRACE_S", 0.0)
    monkeypatch.setattr(evaluation_run, "CELL_S", evaluation_run.CELL_S | dict.fromkeys(("length", "cache"), 0.5))
    ended = threading.Event()

    def dawdle(body: Mapping[str, Any]) -> Any:
        if body.get("stream") and len(body["messages"][0]["content"]) > 2_000:
            ended.wait(60)
        return know(body) if body.get("tools") else say("one two three")

    with PlayedServer({"m": dawdle}) as server:
        journal, *_ = run(server, tmp_path, minutes=1.0)
        ended.set()

    assert not any("/length/m/1024" in key for key in journal.cells)
    assert all(journal.cells[f"served/call/m/{number}"]["right"] for number in range(3))


def test_cells_that_run_at_once_share_the_time(tmp_path):
    """Their seconds add up to what passed, not to what each of them waited."""
    meeting = threading.Barrier(3, timeout=30)

    def meet(body: Mapping[str, Any]) -> Any:
        if any(list(case.messages) == body["messages"] for case in CASES):
            meeting.wait()
        return know(body)

    with PlayedServer({"org/m": meet}) as server:
        began_s = time.monotonic()
        journal, *_ = run(server, tmp_path, at_once=8)
        passed_s = time.monotonic() - began_s
    cells = [journal.cells[f"served/call/org/m/{number}"] for number in range(3)]

    assert sum(one["seconds"] for one in cells) < sum(one["latency_s"] for one in cells)
    assert sum(one["seconds"] for one in cells) <= passed_s + len(cells) * 0.0005  # each is rounded to a millisecond
    assert all(one["right"] for one in cells)


def test_what_was_answered_at_once_is_not_asked_again_another_way(tmp_path):
    """How it would have been asked again made no difference; what was asked again, is."""
    journal = CellJournal(tmp_path, "p")
    journal.add("layers/call/m/0", call_cell(0, layer="repair", right=True))
    journal.add("layers/call/m/1", call_cell(1, layer="grammar", right=True))
    _copy_answered(journal, [Cell(variant="constrain", kind="call", model="m", name=str(n)) for n in range(3)])
    journal.close()

    assert journal.cells["constrain/call/m/0"] == journal.cells["layers/call/m/0"]
    assert not {"constrain/call/m/1", "constrain/call/m/2"} & set(journal.cells)


@pytest.mark.parametrize("others", [{}, {"m": know}])
def test_a_model_that_can_t_be_asked_is_unavailable_with_its_reason(tmp_path, others):
    """It is no failure of the model's, and has no cells; where none can be asked, there is the floor all the same."""
    with PlayedServer(others | {"dead": lambda body: (401, {"error": {"message": "no key"}})}) as server:
        journal, _, phases = run(server, tmp_path)

    assert journal.facts["unavailable"] == {"dead": "401: no key"}
    assert {cell.model for phase in phases for cell in phase.cells} == {"rules", *others}
    assert not any("/dead/" in key for key in journal.cells)
    assert journal.cells["none/task/rules/buggy_calc"]["checks"]["passed"]


def test_without_time_nothing_is_begun(tmp_path):
    """The budget is one. A server that starts later clears what was said of it: what failed once, and didn't the next
    time, isn't in the report."""
    journal = CellJournal(tmp_path, "p")
    journal.note("failed/served", "it didn't start")
    journal.close()
    with PlayedServer({"m": know}) as server:
        journal, _, phases = run(server, tmp_path, minutes=1e-9)

    assert not any(key.startswith("served/") for key in journal.cells)
    assert sum(len(phase.cells) for phase in phases) > 10
    assert journal.facts["failed/served"] == ""


@pytest.mark.parametrize("usage", [{"completion_tokens": 9}, None])
def test_a_server_that_counts_no_tokens_is_evaluated(tmp_path, usage, monkeypatch):
    """What isn't known of it is no figure."""
    monkeypatch.setattr(played_model, "USAGE", usage)
    with PlayedServer({"модель": know}) as server:
        journal, *_ = run(server, tmp_path)

    assert all(journal.cells[f"served/call/модель/{number}"]["right"] for number in range(3))
    assert "served/task/модель/buggy_calc" in journal.cells


def test_a_server_that_went_away_says_nothing_of_its_model(tmp_path):
    """What was asked of nobody is no wrong answer, and is asked when it is there again."""

    def leave(body: Mapping[str, Any]) -> Any:
        if body.get("tools"):
            server.socket.close()  # nobody is let in any more
            return 429, {"error": {"message": "too many"}}
        return say("one two three")

    with PlayedServer({"m": leave}) as server:
        journal, *_ = run(server, tmp_path)

    assert not any("/call/m/" in key or "/task/m/" in key for key in journal.cells)
