"""BFCL's cases of one turn: the right calls, or none where none is wanted. No shipped calibration was fitted on any of
them; `--cases` is the count for each category."""

from __future__ import annotations

import json
from typing import Any

from bfcl_data import Entry, build_tools, check_calls, draw_unseen
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
    given = Given.parse()
    run_cases(given, draw_unseen(CATEGORIES, given.cases), run_entry)


if __name__ == "__main__":
    main()
