"""`mlx-stack-serve evaluate` on servers of its own: the report, the learned chain, and what the chain is worth applied.

The tiers are scripted: `cheap` knows the cases with one tool and writes calls of no tool for all others; `dear` knows
all of them and takes ten times as long.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployments.__main__ import main
from deployments.evaluate.asking.chat_client import ChatClient
from deployments.evaluate.calls.call_cases import CallCase, draw_cases
from deployments.evaluate.calls.call_run import run_case
from deployments.evaluate.evaluation_target import _patch_variant, read_config, run_server
from deployments.evaluate.figures.cascade import _is_fitted
from loadtests.running import short_folder
from tests.support.config_files import make_document

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

# Of this seed no two cases ask in the same words.
SEED, CASES = 14, 24
CHEAP_S, DEAR_S = 0.1, 1.0
DRAWN = draw_cases(SEED, CASES)
NONSENSE = {"name": "no_such_tool", "arguments": {}}


def write_rule(case: CallCase, *, delay_s: float) -> dict[str, Any]:
    arguments = {key: values[0] for key, values in case.arguments.items() if values[0] != ""}
    call = {"name": case.tool, "arguments": arguments}
    when: dict[str, Any] = {"last_user": case.messages[-1]["content"], "has_tools": True}
    if "order_id" in arguments:
        when["transcript"] = arguments["order_id"]
    words = {"text": "None of these tools is for that."}
    return {"when": when, "start_delay_s": delay_s, "answer": [{"tool_call": call} if case.tool else words]}


def write_config(folder: Path) -> Path:
    # Asked again, with other words at the end, it does no better.
    wrong = {"when": {"has_tools": True}, "start_delay_s": CHEAP_S, "answer": [{"tool_call": NONSENSE}]}
    tiers = {
        "cheap": [*(write_rule(case, delay_s=CHEAP_S) for case in DRAWN if len(case.tools) == 1), wrong],
        "dear": [write_rule(case, delay_s=DEAR_S) for case in DRAWN],
    }
    made = make_document({name: {"kind": "scripted", "script": rules} for name, rules in tiers.items()})
    path = folder / "mine.yaml"
    path.write_text("# mine\n" + yaml.safe_dump({"applications": made["applications"]}))
    return path


@pytest.fixture(scope="module")
def evaluated():
    """The configuration and the report of one evaluation, whose proposal was applied."""
    with short_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.setenv("RAY_AUTH_MODE", "token")  # which the other tests do without, and a server never
        path = write_config(folder)
        size = ["--seed", str(SEED), "--cases", str(CASES), "--budget-minutes", "30"]
        assert main(["evaluate", str(path), "--out", str(folder / "out"), *size, "--apply", "--yes"]) == 0
        yield path, json.loads((folder / "out/report.json").read_text())


def test_the_layers_and_the_chain_are_told_apart(evaluated):
    """`cheap` alone is right in a third, `dear` in all, and the chain too."""
    rows = {(row["model"], row["layer"]): row["right"] for row in evaluated[1]["calls"]}
    few = sum(len(case.tools) == 1 for case in DRAWN)

    assert rows["cheap", "+ grammar"]["hits"] == few
    assert rows["dear", "raw"]["hits"] == CASES
    assert rows["auto", "+ escalation"]["hits"] == CASES
    assert evaluated[1]["failed_variants"] == {}


def test_the_floor_and_every_strategy_have_a_row(evaluated):
    """Scripted tiers that only talk pass nothing; the rules pass the calculator."""
    rows = {row["strategy"]: row for row in evaluated[1]["tasks"]}

    assert rows["rules"]["fixtures"]["buggy_calc"]["passed"]
    assert set(rows) == {"rules", "cheap", "dear", "chain", "cheap, unchecked", "dear, unchecked"}
    assert all(row["passed"]["hits"] == 0 for name, row in rows.items() if name != "rules")


def test_memory_and_speeds_were_measured(evaluated):
    """Of each tier, on the way."""
    for speed in evaluated[1]["speeds"].values():
        assert speed["memory"]["process_bytes"] > 10_000_000
        assert [row["requests"] for row in speed["together"]] == [1, 2, 4, 8]
        assert len(speed["lengths"]) >= 3


def test_the_applied_chain_is_as_right_for_less_on_cases_that_it_was_not_fitted_on(evaluated):
    """As the report says of the held-out half, and as a server with the written file does, beside what the chain of the
    old file had taken for the same cases."""
    path, report = evaluated
    proposal, worth = report["cascade"]["proposal"], report["cascade"]
    assert proposal
    assert worth["chosen"]["held_out"]["right"]["hits"] >= worth["default"]["held_out"]["right"]["hits"]
    assert worth["chosen"]["held_out"]["seconds"] < worth["default"]["held_out"]["seconds"]
    assert path.read_text().startswith("# mine\n")

    held = [case for number, case in enumerate(DRAWN) if not _is_fitted(number)]
    with run_server(path, _patch_variant(read_config(path), "chain")) as (url, _):
        client = ChatClient(url)
        found = [run_case(client, "auto", case, seed=SEED, within_s=60, hasty=False) for case in held]
    attempts = [len(one["attempts"]) for one in found]

    assert [one["right"] for one in found] == [True] * len(held)
    assert attempts == [1] * len(held)  # nobody was asked in vain
