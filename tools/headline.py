"""`python -m tools.headline NAME=FILE ...`: the Markdown table of layers and models, for the README.

A FILE is the `report.json` of an evaluation, or what `loadtests.layers_bench` has printed (its last table counts). Of a
report the NAME says which of its models: `SmolLM2-135M@fast=report.json`; without `@` each of its models has a column,
and its chain. A cell is the share of right calls, with the valid ones behind it and how many cases there were. What
wasn't run is a dash: no figure of the README is written by hand.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LAYERS = ("raw", "+ repair", "+ retries", "+ grammar", "grammar at once", "+ escalation", "as served")
TASKS, BARE_TASKS = "whole tasks", "whole tasks, without the server's checks"
# What the bench calls them.
BENCH = {"raw model": "raw", "+ constraint": "+ grammar", "+ the second model": "+ escalation"}
NOTHING = "–"
Column = Mapping[str, str]


def read_columns(name: str, path: Path) -> dict[str, Column]:
    """Read a file; return its columns by the name that each is to have."""
    text = path.read_text(encoding="utf-8")
    if not text.lstrip().startswith("{"):
        return {name: _read_bench(text)}
    report = json.loads(text)
    wanted, _, tier = name.partition("@")
    if tier and tier not in report["models"]:
        raise ValueError(f"there is no model {tier!r} in it: {', '.join(report['models'])}")
    if tier:
        return {wanted: _read_model(report, tier)}
    columns = {model: _read_model(report, model) for model in report["models"]}
    return columns | {"the chain": chain} if (chain := _read_model(report, "auto")) else columns


def _read_model(report: Mapping[str, Any], model: str) -> Column:
    cells = {
        row["layer"]: f"{row['right']['share']:.0%} ({row['valid']['share']:.0%} valid; {row['right']['runs']} cases)"
        for row in report["calls"]
        if row["model"] == model and row["right"]["runs"]
    }
    for row in report["tasks"]:
        if row["model"] == model and row["passed"]["runs"]:
            kind = BARE_TASKS if row["variant"] == "unchecked" else TASKS
            cells[kind] = f"{row['passed']['hits']} of {row['passed']['runs']}"
    return cells


def _read_bench(text: str) -> Column:
    """Read the last table that the bench has printed."""
    cases, cells = "", {}
    for line in text.splitlines():
        if counted := re.match(r"(\d+) cases,", line):
            cases = counted[1]
        parts = [part.strip() for part in line.strip("|").split("|")]
        if len(parts) == 4 and parts[1].endswith("%"):
            layer, valid, right, _ = parts
            cells[BENCH.get(layer, layer)] = f"{right} ({valid} valid; {cases} cases)".replace(" %", "%")
    return cells


def render_table(columns: Mapping[str, Column]) -> str:
    """Render the table; a layer that nobody has run has no row."""
    known = {layer for column in columns.values() for layer in column}
    ordered = [layer for layer in (*LAYERS, TASKS, BARE_TASKS) if layer in known]
    ordered += sorted(known - set(ordered))
    lines: list[Sequence[str]] = [["layer", *columns], ["---"] * (len(columns) + 1)]
    lines += [[layer, *(column.get(layer, NOTHING) for column in columns.values())] for layer in ordered]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def main(arguments: Sequence[str]) -> int:
    """Print the table of the files that are named."""
    if not arguments or not all("=" in argument for argument in arguments):
        print("python -m tools.headline NAME[@TIER]=FILE ...", file=sys.stderr)
        return 2
    columns: dict[str, Column] = {}
    for argument in arguments:
        name, _, path = argument.partition("=")
        try:
            columns |= read_columns(name, Path(path))
        except (OSError, ValueError, LookupError, TypeError) as error:
            print(f"{path}: can't be read as a report: {error}", file=sys.stderr)
            return 2
    print(render_table(columns), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
