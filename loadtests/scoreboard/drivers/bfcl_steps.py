"""Single steps of BFCL's conversations of several turns, as cases for `loadtests.confidence`, a line of JSON each.

Of each conversation one step is drawn. What comes before it is the ground truth, executed by BFCL's own classes. Right
is what may come next: the next call, or some of the next ones in their order; behind a turn's last one, words.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
from typing import Any

from bfcl_data import SEED, Entry, build_tools, draw_entries
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

CATEGORY = "multi_turn_base"
DONE = "Done."


def build_step(entry: Entry, steps: int) -> Entry:
    """Build the case behind so many steps of the ground truth; each turn ends with a step in words."""
    functions = {function["name"]: function for function in entry["function"]}
    messages: list[Entry] = []
    for said, turn in zip(entry["question"], entry["ground_truth"], strict=True):
        messages += said
        calls = [_read_call(text, functions) for text in turn]
        for number, (text, call) in enumerate(zip(turn, calls, strict=True)):
            if steps == 0:
                return _build_case(entry, messages, calls[number:])
            results, _ = execute_multi_turn_func_call(
                [text], entry["initial_config"], entry["involved_classes"], "steps", entry["id"]
            )
            name, own = f"call_{len(messages)}", {"name": call["name"], "arguments": json.dumps(call["arguments"])}
            written = {"id": name, "type": "function", "function": own}
            messages.append({"role": "assistant", "content": None, "tool_calls": [written]})
            messages.append({"role": "tool", "tool_call_id": name, "content": results[0]})
            steps -= 1
        if steps == 0:
            return _build_case(entry, messages, [])
        messages.append({"role": "assistant", "content": DONE})
        steps -= 1
    raise ValueError("a conversation has no such step")


def _build_case(entry: Entry, messages: list[Entry], calls: list[Entry]) -> Entry:
    functions = {function["name"]: function for function in entry["function"]}
    return {
        "id": entry["id"],
        "category": CATEGORY,
        "messages": messages,
        "tools": build_tools(entry["function"]),
        "ground_truth": calls,
        "acceptable": [_accept(call, functions[call["name"]]) for call in calls],
    }


def _accept(call: Entry, function: Entry) -> Entry:
    """Accept the values of the call, and where it leaves one out, the function's default or nothing."""
    allowed: dict[str, list[Any]] = {key: [value] for key, value in call["arguments"].items()}
    for key, schema in function["parameters"]["properties"].items():
        if key not in allowed and key not in function["parameters"].get("required", ()):
            allowed[key] = [schema.get("default"), ""]
    return {"name": call["name"], "arguments": allowed}


def _read_call(text: str, functions: dict[str, Entry]) -> Entry:
    """Read a call as Python writes it."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    names = list(functions[name]["parameters"]["properties"])
    given = dict(zip(names, map(ast.literal_eval, call.args), strict=False))
    given |= {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
    return {"name": name, "arguments": given}


def main() -> None:
    """Print the drawn steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, required=True)
    for entry in draw_entries(CATEGORY, parser.parse_args().cases):
        count = sum(len(turn) + 1 for turn in entry["ground_truth"])
        step = random.Random(f"{SEED} {entry['id']}").randrange(count)
        print(json.dumps(build_step(entry, step)))


if __name__ == "__main__":
    main()
