"""BFCL's conversations of several turns, with functions or parameters missing at first: calls are executed by BFCL's
own classes, and its checker compares the state behind each turn. A step limit as there: 20 a turn."""

from __future__ import annotations

import json
from typing import Any

from bfcl_data import Entry, build_tools, draw_entries
from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC, MAXIMUM_STEP_LIMIT
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import (
    multi_turn_checker,
    multi_turn_irrelevance_checker,
)
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
from kept_rows import Asked, Given, Row, read_calls, run_cases

CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param")


async def run_conversation(asked: Asked, client: Any, entry: Entry) -> Row:
    """Play all turns, and judge the state behind each."""
    functions, messages, turns = list(entry["function"]), [], []
    for number, said in enumerate(entry["question"]):
        if added := entry.get("missed_function", {}).get(str(number)):
            functions += added
            messages.append({"role": "user", "content": DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC})
        messages += said
        turns.append(await _run_turn(asked, client, entry, functions, messages))
    category = entry["id"].rsplit("_", 1)[0]
    name = f"seed{asked.seed}"
    checked = multi_turn_checker(turns, entry["ground_truth"], entry, category, name)
    if checked["valid"]:
        checked = multi_turn_irrelevance_checker(turns, entry["ground_truth"])
    wrong = "" if checked["valid"] else str(checked.get("error_message", checked))[:500]
    calls = sum(len(step) for turn in turns for step in turn)
    return {"kind": category, "right": not wrong, "wrong": wrong, "calls": calls}


async def _run_turn(asked: Asked, client: Any, entry: Entry, functions: list[Entry], messages: list[Row]) -> list[Any]:
    """Let the model call until it doesn't; return the steps of the turn, each a list of calls as Python writes them."""
    declared = {function["name"] for function in functions}
    steps: list[list[str]] = []
    for _ in range(MAXIMUM_STEP_LIMIT):
        message = await asked.ask(client, messages, tools=build_tools(functions))
        messages.append(message)
        calls = message.get("tool_calls") or []
        if not calls:
            break
        written = [_write_call(name, arguments, declared) for name, arguments in read_calls(message)]
        results, _ = execute_multi_turn_func_call(
            [call for call in written if call],
            entry["initial_config"],
            entry["involved_classes"],
            f"seed{asked.seed}",
            entry["id"],
        )
        answers = iter(results)
        for call, text in zip(calls, written, strict=True):
            content = next(answers) if text else "Error: no such function, or arguments that are no JSON object."
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        steps.append([call for call in written if call])
    return steps


def _write_call(name: str, arguments: str, declared: set[str]) -> str:
    """Write a call of a declared function as Python, since BFCL evaluates it; nothing where it can't be called."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return ""
    if name not in declared or not isinstance(given, dict) or not all(key.isidentifier() for key in given):
        return ""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"


def main() -> None:
    """Run the drawn conversations, one of each category in turn."""
    given = Given.parse()
    drawn = [draw_entries(category, given.cases) for category in CATEGORIES]
    run_cases(given, [(one["id"], one) for entries in zip(*drawn, strict=True) for one in entries], run_conversation)


if __name__ == "__main__":
    main()
