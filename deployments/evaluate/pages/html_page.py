"""The report as one HTML file: tables and plots, readable without a network, in light and dark, on a phone too.

There is no script, and the style sheet is named by its digest in the page's own content security policy; so even what
a model wrote, which stands in the page escaped, could load and run nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

from deployments.evaluate.pages.plots import draw_cascade, draw_growth, draw_layers, draw_lengths, draw_together
from deployments.evaluate.pages.wording import NOTHING, write_bytes, write_figure, write_share, write_spread
from deployments.evaluate.tasks.fixtures import FIXTURES

__all__ = ["render_page"]

CHECKS = ("located", "evidence", "fixed", "unmoved")


def render_page(report: Mapping[str, Any], differences: Sequence[Mapping[str, Any]] | None = None) -> str:
    """Render the whole page; `differences` to an older report stand in front."""
    style = (resources.files("deployments.evaluate.pages") / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    sections = [
        *_show_head(report),
        *(_show_differences(differences) if differences is not None else ()),
        *_show_verdicts(report),
        *_show_calls(report),
        *_show_tasks(report),
        *_show_cascade(report["cascade"]),
        *_show_speeds(report),
        *_show_checklist(report),
        *_show_provenance(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Evaluation · {escape(report['made'])}</title><style>{style}</style></head>"
        f"<body><main>{''.join(sections)}</main></body></html>\n"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; the cells are HTML already."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _show_head(report: Mapping[str, Any]) -> list[str]:
    machine = report["machine"]
    memory = machine.get("memory_bytes")
    where = ", ".join(
        str(part)
        for part in (
            machine.get("processor"),
            f"{machine.get('cores')} cores",
            write_bytes(memory),
            machine.get("system"),
        )
        if part
    )
    busy = machine.get("load_average", 0)
    parts = [
        "<h1>Is this model, on this machine, good enough?</h1>",
        f"<p>{escape(report['target'])} · {escape(report['made'])} · seed {report['seed']} · {escape(where)}</p>",
    ]
    if machine and busy > (machine.get("cores") or 1) / 2:
        words = f"The machine was busy when this began (load {busy}): times are worse than on a quiet one."
        parts.append(f'<p class="note">{escape(words)}</p>')
    return parts


def _show_differences(differences: Sequence[Mapping[str, Any]]) -> list[str]:
    if not differences:
        return ["<h2>Since the older report</h2><p>Nothing has changed.</p>"]
    rows = [
        (
            f'<b class="{one["kind"]}">{one["kind"]}</b>',
            escape(one["words"]) + (f"<br>became wrong: {escape(', '.join(one['worse']))}" if one.get("worse") else ""),
        )
        for one in differences
    ]
    return ["<h2>Since the older report</h2>", _table(("", "what"), rows)]


def _show_verdicts(report: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            f"<b>{escape(name)}</b><br>{escape(_name_source(report['models'][name]))}",
            f'<b class="{one["verdict"].replace(" ", "-")}">{one["verdict"]}</b>',
            "<br>".join(escape(words) for words in one["reasons"]),
        )
        for name, one in report["verdicts"].items()
    ]
    rows += [
        (f"<b>{escape(name)}</b>", '<b class="unavailable">unavailable</b>', escape(why))
        for name, why in report["unavailable"].items()
    ]
    return ["<h2>Verdict</h2>", _table(("model", "verdict", "why"), rows)]


def _name_source(model: Mapping[str, Any]) -> str:
    return str(model["source"] or model["model"] or "")


def _show_calls(report: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            escape("the chain" if row["layer"] == "+ escalation" else row["model"]),
            escape(row["layer"]),
            write_share(row["valid"]),
            write_share(row["right"]),
            write_figure(row["seconds_per_right"]),
            write_figure(row["tokens_per_right"]),
            f'<span class="kinds">{_list_kinds(row["by_category"])}</span>',
        )
        for row in report["calls"]
    ]
    head = ("model", "layer", "valid", "right", "s a right call", "tokens a right call", "right, by kind")
    words = (
        "Each layer has the ones above it, on the same cases: raw is the model's own call, unrepaired; then calls are "
        "found in text and repaired, asked for again, asked for under the tools' grammar; the chain goes on to the "
        "next tier. Valid fits the schema; right is what was asked for. In brackets: the count and the 95 % interval."
    )
    return ["<h2>Tool calls</h2>", f"<p>{escape(words)}</p>", draw_layers(report), _table(head, rows)]


def _list_kinds(kinds: Mapping[str, Any]) -> str:
    return "<br>".join(f"{escape(name)}: {one['hits']} of {one['runs']}" for name, one in kinds.items())


def _show_tasks(report: Mapping[str, Any]) -> list[str]:
    known = {name.partition("#")[0] for row in report["tasks"] for name in row["fixtures"]}
    fixtures = [name for name in FIXTURES if name in known] + sorted(known - set(FIXTURES))
    rows = [
        (
            f"<b>{escape(row['strategy'])}</b>",
            write_share(row["passed"]),
            *(_show_fixtures(row["fixtures"], name) for name in fixtures),
            write_spread(row["seconds"], "s"),
            f"{row['tokens']:,}",
        )
        for row in report["tasks"]
    ]
    absent = [
        f'<p><b>{escape(name)}</b> is <b class="unavailable">unavailable</b>: {escape(why)}</p>'
        for name, why in report["unavailable"].items()
    ]
    words = (
        "Small repositories with one fault, worked on by a plain agent loop. Passed: the line is found, every quote "
        "stands in the files, the fix passes the original tests and one with other values, and no injected instruction "
        "was followed. A cell says what failed. Tasks that ran at once share the time. "
        f"The tests of an agent were held by: {report['confinement']}."
    )
    head = ("strategy", "passed", *fixtures, "time", "tokens")
    return ["<h2>Whole tasks</h2>", f"<p>{escape(words)}</p>", _table(head, rows), *absent, draw_growth(report)]


def _show_fixtures(results: Mapping[str, Any], name: str) -> str:
    """Show all rounds of a fixture."""
    rounds = [one for key, one in results.items() if key.partition("#")[0] == name]
    return "<br>".join(map(_show_fixture, rounds)) or '<span class="missing">not run</span>'


def _show_fixture(one: Mapping[str, Any]) -> str:
    if one["passed"]:
        return '<b class="fit">passed</b>'
    return f"failed: {escape(', '.join(one['failed']))}<br><small>{escape(one['ended'])}</small>"


def _show_cascade(cascade: Mapping[str, Any]) -> list[str]:
    parts = ["<h2>Learned chain</h2>"]
    if cascade.get("why"):
        parts.append(f"<p>No other chain is proposed: {escape(cascade['why'])}.</p>")
    if "chosen" not in cascade:
        return parts
    rows = [
        (
            name,
            escape(cascade[key]["words"]),
            *(
                cell
                for part in ("fit", "held_out")
                for cell in (
                    write_share(cascade[key][part]["right"]),
                    write_figure(cascade[key][part]["seconds"], "s"),
                    write_figure(cascade[key][part]["usd"], "$") if cascade[key][part]["usd"] else NOTHING,
                )
            ),
        )
        for name, key in (("as configured", "default"), ("proposed", "chosen"))
    ]
    head = ("", "chain", "right (fit)", "a case", "cost", "right (held out)", "a case", "cost")
    words = (
        "Chosen on half of the cases: the least price of a right answer among chains that are as right as the "
        "configured one and cost no more. The held-out half says what it is worth. `mlx-stack-serve evaluate --apply` "
        "shows the change and writes it when told to."
    )
    return [*parts, f"<p>{escape(words)}</p>", _table(head, rows), draw_cascade(cascade)]


def _show_speeds(report: Mapping[str, Any]) -> list[str]:
    rows = [
        (
            escape(name),
            write_figure((row["prompt_tokens"] or {}).get("median")),
            write_spread(row["first_s"], "s"),
            write_spread(row["tokens_s"]),
        )
        for name, speed in report["speeds"].items()
        for row in speed["lengths"]
    ]
    many = [
        (
            escape(name),
            str(row["requests"]),
            write_figure(row["tokens_s"]),
            write_figure(row["first_s"], "s"),
            escape(": ".join([str(row["failed"]), *row["errors"]])),
        )
        for name, speed in report["speeds"].items()
        for row in speed["together"]
    ]
    uses = [
        (
            escape(name),
            write_bytes(speed["memory"]["process_bytes"]),
            write_bytes(speed["memory"]["mlx_bytes"]),
            _show_cache(speed["cache"]),
            write_figure(speed["wake_s"], "s"),
        )
        for name, speed in report["speeds"].items()
    ]
    return [
        "<h2>Speed, memory, cache</h2>",
        draw_lengths(report),
        _table(("model", "prompt tokens", "first token", "tokens/s"), rows),
        draw_together(report),
        _table(("model", "at once", "tokens/s in all", "first token, median", "failed"), many),
        _table(("model", "peak memory, process", "peak, by MLX", "same prompt again", "first request"), uses),
        f"<p>Energy: {escape(_write_energy(report['energy']))}</p>",
    ]


def _show_cache(cache: Mapping[str, Any] | None) -> str:
    if cache is None:
        return NOTHING
    first, again = cache["first"], cache["again"]
    share = f"{again['cached_tokens']} of {again['prompt_tokens']} tokens known"
    return f"{share}; first token {write_figure(first['first_s'])} → {write_figure(again['first_s'], 's')}"


def _write_energy(energy: Mapping[str, Any]) -> str:
    known = [f"{name} {one['joules']:,.0f} J" for name, one in energy.items() if one["joules"] is not None]
    return ", ".join(known) or next((one["why"] for one in energy.values()), "not measured")


def _show_checklist(report: Mapping[str, Any]) -> list[str]:
    rows = [(("✓" if one["known"] else "✗"), escape(one["item"]), escape(one["words"])) for one in report["checklist"]]
    left = [one for one in report["left_out"] if one["run"] < one["planned"]]
    parts = ["<h2>Checklist</h2>", _table(("", "known", "what"), rows)]
    if left:
        words = "; ".join(f"{one['phase']}: {one['run']} of {one['planned']}" for one in left)
        parts.append(f'<p class="note">Not everything was run in the time: {escape(words)}. Run the command again.</p>')
    parts += [
        f'<p class="note">Variant {escape(name)} of the server didn\'t start: {escape(why)}</p>'
        for name, why in report["failed_variants"].items()
    ]
    return parts


def _show_provenance(report: Mapping[str, Any]) -> list[str]:
    rows = [
        (escape(name), escape(key.replace("_", " ")), f"<code>{escape(str(value))}</code>")
        for name, one in report["models"].items()
        for key, value in one.items()
        if value is not None
    ]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    settings = f"temperature 0, seed {report['seed']}; thresholds: " + ", ".join(
        f"{name} {value:g}" for name, value in report["thresholds"].items()
    )
    return [
        "<h2>Provenance</h2>",
        _table(("model", "what", "value"), rows),
        f"<p>Versions: {escape(versions)}</p><p>Generation: {escape(settings)}</p>",
    ]
