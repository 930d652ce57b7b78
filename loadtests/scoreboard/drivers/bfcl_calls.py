"""BFCL's cases of one turn: the right calls, or none where none is wanted. Cases that the shipped calibrations were
fitted on are left out; `--cases` is the count for each category."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bfcl_data import Entry, build_tools, check_calls, draw_entries
from kept_rows import Asked, Given, Row, read_calls, run_cases

CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel",
    "live_simple",
    "live_multiple",
    "irrelevance",
    "live_irrelevance",
)
FITTED = Path(__file__).parents[2] / "confidence.jsonl"


def read_fitted() -> frozenset[str]:
    """Read which cases the calibrations were fitted on."""
    return frozenset(json.loads(line)["id"] for line in FITTED.read_text(encoding="utf-8").splitlines())


async def run_entry(asked: Asked, client: Any, case: tuple[str, Entry]) -> Row:
    """Ask once, and judge the calls."""
    category, entry = case
    message = await asked.ask(client, entry["question"][0], tools=build_tools(entry["function"]))
    calls = read_calls(message)
    row: Row = {"kind": category, "calls": len(calls)}
    if "ground_truth" not in entry:
        answered = bool(message.get("content"))
        return row | {"right": not calls and answered, "wrong": "" if answered or calls else "no answer"}
    try:
        given = [{name: json.loads(arguments)} for name, arguments in calls]
    except ValueError as error:
        return row | {"right": False, "wrong": f"arguments: {error}"}
    wrong = check_calls(entry, category, given) if given else "no call"
    return row | {"right": not wrong, "wrong": wrong}


def main() -> None:
    """Run the drawn cases of all categories in turn."""
    given, left_out = Given.parse(), read_fitted()
    drawn = [(kind, draw_entries(kind, given.cases, left_out)) for kind in CATEGORIES]
    run_cases(given, [(one["id"], (kind, one)) for kind, entries in drawn for one in entries], run_entry)


if __name__ == "__main__":
    main()
