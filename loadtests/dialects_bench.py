"""What a dialect costs over chat completions, in CPU time of one process, without Ray and without a network.

    python -m loadtests.dialects_bench [--write]

The same conversation of an agent (twenty tools, sixty messages) is read, and the same answer is written, in each
dialect: whole with a call, and as a stream of single tokens. Each figure is the median over `ROUNDS` rounds, in turns,
so that a machine that gets slower does so for all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from deployments.api.dialect import Dialect
from deployments.app.router_parts import DIALECTS
from deployments.config.app_config import RouterConfig
from deployments.request.policy import build_expected, limits_of
from deployments.request.run_record import Run
from loadtests.table import put, stamp
from reliability.types import CallDelta, Event, Finish, FinishReason, Text, Usage

ROUNDS = 60
TURNS = 20
CHUNKS = 400
REQUEST_MS_MAX, CHUNK_US_MAX = 0.3, 15.0
PATH = {"path": {"type": "string"}, "limit": {"type": "integer"}}
SCHEMA = {"type": "object", "properties": PATH, "required": ["path"]}
TOOLS = [{"name": f"tool_{n}", "description": "Reads some lines of a file. " * 8, "schema": SCHEMA} for n in range(20)]
RESULT = "a line of a file that an agent has read\n" * 20
SYSTEM = "You are good. " * 300
FINISH = Finish(reason=FinishReason.TOOL_CALLS, usage=Usage(prompt_tokens=9000, completion_tokens=40, cached_tokens=80))
CALL = CallDelta(index=0, id="call_1", name="tool_1", arguments='{"path": "a.py"}')
WHOLE: list[Event] = [Text("I look at it. " * 20), CALL]
Written = list[dict[str, Any]]


def write_turn(n: int) -> tuple[Written, Written, Written]:
    """Write a turn as messages of a chat, as Anthropic's blocks, and as items of Responses."""
    name, arguments, call_id = "tool_1", {"path": f"file_{n}.py", "limit": n}, f"call_{n}"
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    chat = [
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": RESULT},
    ]
    use = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    blocks = [
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": RESULT}]},
    ]
    items = [
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": call_id, **function},
        {"type": "function_call_output", "call_id": call_id, "output": RESULT},
    ]
    return chat, blocks, items


def build_bodies() -> dict[str, bytes]:
    """Build the same request in each dialect."""
    first = {"role": "user", "content": "Go."}
    chat, blocks, items = ([first, *(one for n in range(TURNS) for one in write_turn(n)[kind])] for kind in range(3))
    functions = [{"name": t["name"], "description": t["description"], "parameters": t["schema"]} for t in TOOLS]
    own = [{"name": t["name"], "description": t["description"], "input_schema": t["schema"]} for t in TOOLS]
    bodies = {
        "chat": {
            "messages": [{"role": "system", "content": SYSTEM}, *chat],
            "tools": [{"type": "function", "function": f} for f in functions],
        },
        "messages": {"system": SYSTEM, "messages": blocks, "tools": own, "max_tokens": 4096},
        "responses": {
            "instructions": SYSTEM,
            "input": items,
            "tools": [{"type": "function", **f} for f in functions],
            "store": False,
        },
    }
    return {name: json.dumps({"model": "auto", "stream": True, **body}).encode() for name, body in bodies.items()}


def measure_dialects() -> list[dict[str, Any]]:
    """Measure each dialect: milliseconds to read a request, to write a whole answer, and microseconds a chunk."""
    bodies = build_bodies()
    spoken = {one.name: one for one in DIALECTS.values()}
    steps = {name: _make_steps(spoken[name], raw) for name, raw in bodies.items()}
    times: dict[str, dict[str, list[float]]] = {name: {what: [] for what in one} for name, one in steps.items()}
    for _ in range(ROUNDS):
        for name, one in steps.items():
            for what, step in one.items():
                begun = time.perf_counter()
                step()
                times[name][what].append(time.perf_counter() - begun)
    medians = {name: {what: statistics.median(found) for what, found in one.items()} for name, one in times.items()}
    return [
        {
            "dialect": name,
            "read_ms": found["read"] * 1e3,
            "write_ms": found["write"] * 1e3,
            "chunk_us": found["stream"] / CHUNKS * 1e6,
        }
        for name, found in medians.items()
    ]


def _make_steps(spoken: Dialect, raw: bytes) -> dict[str, Callable[[], object]]:
    def read() -> Any:
        return spoken.parse(raw, {"x-session-id": "s"}, request_id="r", tokens_max=4096, timeout_s=60.0)

    call = read()
    config = RouterConfig()
    run = Run(
        request=call.request,
        expected=build_expected(config, call.request, call.toolbox),
        chain=("fast",),
        limits=limits_of(config),
        deadline_ns=0,
        prompt_bytes=len(raw),
        tier="fast",
    )

    def write() -> None:
        answer = spoken.collector(call, run)
        answer.take(WHOLE)
        answer.body("fast", FINISH)

    def stream() -> None:
        writer = spoken.writer(call, run)
        for _ in range(CHUNKS):
            writer.chunks("fast", [Text(" word")])
        writer.last("fast", FINISH, {})

    return {"read": read, "write": write, "stream": stream}


def build_table(rows: list[dict[str, Any]]) -> str:
    """Build the table, with what each costs over chat completions."""
    chat = rows[0]
    lines = [
        "| dialect | read, ms | write whole, ms | over chat, ms a request | a chunk, µs | over chat, µs |",
        "|---" * 6 + "|",
    ]
    for row in rows:
        more = row["read_ms"] + row["write_ms"] - chat["read_ms"] - chat["write_ms"]
        chunk = row["chunk_us"] - chat["chunk_us"]
        cells = [row["dialect"], f"{row['read_ms']:.2f}", f"{row['write_ms']:.3f}", f"{more:.2f}"]
        lines.append("| " + " | ".join([*cells, f"{row['chunk_us']:.1f}", f"{chunk:.1f}"]) + " |")
    return "\n".join(lines)


def is_met(rows: list[dict[str, Any]]) -> bool:
    """Return whether every dialect is within its bars over chat completions."""
    chat = rows[0]
    dear = chat["read_ms"] + chat["write_ms"] + REQUEST_MS_MAX
    return all(
        row["read_ms"] + row["write_ms"] <= dear and row["chunk_us"] <= chat["chunk_us"] + CHUNK_US_MAX for row in rows
    )


def main() -> int:
    """Print the table; 0 only where the bars are met."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.dialects_bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into loadtests/README.md")
    given = parser.parse_args()
    rows = measure_dialects()
    table = build_table(rows)
    print(table)
    if given.write:
        put("dialects", f"{stamp('python -m loadtests.dialects_bench')}\n\n{table}")
    return 0 if is_met(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
