"""The summary as Markdown: the verdicts and the headline tables, for a README or a pull request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from deployments.evaluate.pages.wording import write_bytes, write_figure, write_share, write_spread

__all__ = ["render_summary"]


def render_summary(report: Mapping[str, Any], differences: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Render the summary."""
    machine = report["machine"]
    where = f"{machine.get('processor')}, {machine.get('cores')} cores, {write_bytes(machine.get('memory_bytes'))}"
    head = f"{report['target']}, {report['made']}, seed {report['seed']}, on {where}."
    parts = [f"# Evaluation\n\n{_quote(head)}\n"]
    if differences is not None:
        lines = [f"- {one['kind']}: {_quote(one['words'])}" for one in differences] or ["Nothing has changed."]
        parts.append("## Since the older report\n\n" + "\n".join(lines) + "\n")
    verdicts = [(name, one["verdict"], "; ".join(one["reasons"])) for name, one in report["verdicts"].items()]
    verdicts += [(name, "unavailable", why) for name, why in report["unavailable"].items()]
    calls = [
        (
            "the chain" if row["layer"] == "+ escalation" else row["model"],
            row["layer"],
            write_share(row["valid"]),
            write_share(row["right"]),
            write_figure(row["seconds_per_right"]),
        )
        for row in report["calls"]
    ]
    tasks = [(row["strategy"], write_share(row["passed"]), _list_passed(row)) for row in report["tasks"]]
    parts += [
        "## Verdict\n\n" + _table(("model", "verdict", "why"), verdicts),
        "## Tool calls\n\n" + _table(("model", "layer", "valid", "right", "s a right call"), calls),
        "## Whole tasks\n\n" + _table(("strategy", "passed", "which"), tasks),
        "## Speed and memory\n\n"
        + _table(("model", "prompt tokens", "first token", "tokens/s", "peak memory"), _list_speeds(report)),
        "## Learned chain\n\n" + _write_cascade(report["cascade"]) + "\n",
        "## Checklist\n\n"
        + "\n".join(
            f"- [{'x' if one['known'] else ' '}] {one['item']}: {_quote(one['words'])}" for one in report["checklist"]
        )
        + "\n",
    ]
    return "\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_quote, line))} |" for line in lines) + "\n"


def _quote(words: str) -> str:
    """Write words of others so that they stay words: on one line of one cell, and no HTML."""
    return escape(" ".join(words.split()), quote=False).replace("|", "/")


def _list_passed(row: Mapping[str, Any]) -> str:
    return ", ".join(name for name, one in row["fixtures"].items() if one["passed"]) or "none"


def _list_speeds(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            name,
            write_figure((row["prompt_tokens"] or {}).get("median")),
            write_spread(row["first_s"], "s"),
            write_spread(row["tokens_s"]),
            write_bytes(speed["memory"]["process_bytes"]),
        )
        for name, speed in report["speeds"].items()
        for row in speed["lengths"]
    ]


def _write_cascade(cascade: Mapping[str, Any]) -> str:
    if "chosen" not in cascade:
        return f"No other chain is proposed: {cascade['why']}."
    lines = [f"No other chain is proposed: {cascade['why']}."] if cascade["why"] else []
    for name, key in (("as configured", "default"), ("proposed", "chosen")):
        held = cascade[key]["held_out"]
        figures = f"{write_share(held['right'])} right, {write_figure(held['seconds'], 's')} a case"
        lines.append(f"- {name}: {_quote(cascade[key]['words'])}: {figures}, on held-out cases")
    return "\n".join(lines)
