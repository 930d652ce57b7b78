"""Answers under a JSON schema: BFCL's cases of one call, asked as `response_format`, since what they accept is known.
Valid is an answer that is JSON by the schema; right one with the values that BFCL accepts."""

from __future__ import annotations

import json
from typing import Any

from bfcl_data import Entry, build_tools, check_calls, draw_unseen
from jsonschema import Draft202012Validator
from kept_rows import Asked, Given, Row, run_cases

CATEGORIES = ("simple_python", "live_simple")
SAYS = "Answer with one JSON object: the arguments of the function `{name}` ({what}) for what the user asks."


async def run_entry(asked: Asked, client: Any, case: tuple[str, Entry]) -> Row:
    """Ask once, and judge the answer."""
    category, entry = case
    tool = build_tools(entry["function"])[0]
    function = tool["function"]
    said = {"role": "system", "content": SAYS.format(name=function["name"], what=function.get("description", ""))}
    asks = {"type": "json_schema", "json_schema": {"name": "arguments", "schema": function["parameters"]}}
    message = await asked.ask(client, [said, *entry["question"][0]], response_format=asks)
    row: Row = {"kind": category, "valid": False, "right": False}
    try:
        given = json.loads(message.get("content") or "")
    except ValueError as error:
        return row | {"wrong": f"no JSON: {error}"}
    if error := next(Draft202012Validator(function["parameters"]).iter_errors(given), None):
        return row | {"wrong": f"not by the schema: {error.message[:300]}"}
    wrong = check_calls(entry, category, [{function["name"]: given}])
    return row | {"valid": True, "right": not wrong, "wrong": wrong}


def main() -> None:
    """Run the drawn cases."""
    given = Given.parse()
    run_cases(given, draw_unseen(CATEGORIES, given.cases), run_entry)


if __name__ == "__main__":
    main()
