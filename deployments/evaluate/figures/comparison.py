"""Compare two reports after a model or a library changed. Pure.

Cells that both have are compared one by one, by an exact sign test. A speed is worse if its median lost a quarter and
the spreads don't touch; a single run is shown as a change. Peak memory counts by the same quarter if both ran the same
cells of the model. A verdict to or from `tentative` is a change only: it had too few runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deployments.evaluate.figures.tables import Cell, find_sign_p

_P_MAX = 0.05
_RATIO_MAX = 1.25
RUNS_MIN = 2
RANKS = {"fit": 2, "fit with fallback": 1, "not fit": 0}
CHAIN = "auto"
_WEIGHTS = ["source", "revision", "sha256", "quantization", "context_length", "adapter"]
_MACHINE = ["processor", "cores", "system"]
DAMAGES = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def is_comparable(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Say why two reports can't be compared; empty where they can."""
    if old.get("format") != new.get("format"):
        return f"the older report has format {old.get('format')!r}, this one {new.get('format')!r}"
    if old.get("seed") != new.get("seed"):
        return f"the older report's seed is {old.get('seed')}: run with --seed {old.get('seed')}"
    try:
        compare_reports(old, old)
    except DAMAGES as error:
        return f"the older report is damaged ({type(error).__name__}: {error})"
    return ""


def compare_reports(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the differences, the worse ones first. Each is `worse`, `better`, or neither."""
    found = [*_compare_outcomes(old, new), *_compare_verdicts(old, new)]
    for model, before in old["speeds"].items():
        if after := new["speeds"].get(model):
            found += [*_compare_speeds(model, before, after), *_compare_throughputs(model, before, after)]
            if _list_run(old, model) == _list_run(new, model):
                found += _compare_memory(model, before["memory"], after["memory"])
    found += _compare_facts(old, new)
    order = {"worse": 0, "better": 1, "changed": 2}
    return sorted(found, key=lambda one: order[one["kind"]])


def _compare_outcomes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    groups: dict[str, list[tuple[str, bool, bool]]] = {}
    for key, before in old["outcomes"].items():
        if key in new["outcomes"]:
            cell = Cell.read_key(key)
            group = f"{cell.kind}s of {cell.model} ({cell.variant})"
            groups.setdefault(group, []).append((cell.name, bool(before), bool(new["outcomes"][key])))
    if old["outcomes"] and not groups:
        yield {"kind": "changed", "words": "no call and no task of the older report was run: none is compared"}
    for group, cells in groups.items():
        worse = [name for name, before, after in cells if before and not after]
        better = [name for name, before, after in cells if after and not before]
        if not worse and not better:
            continue
        kind, p = _judge_signs(len(worse), len(better))
        were, are = sum(before for _, before, _ in cells), sum(after for *_, after in cells)
        words = f"{group}: {were} → {are} of {len(cells)} good"
        words += f"; {len(worse)} became wrong, {len(better)} right (p = {p:.3f})"
        yield {"kind": kind, "words": words, "worse": worse[:20], "better": better[:20]}


def _judge_signs(worse: int, better: int) -> tuple[str, float]:
    """Judge how many became worse and better, by the sign test; also return how likely chance is."""
    p_worse, p_better = find_sign_p(worse, better), find_sign_p(better, worse)
    kind = "worse" if p_worse <= _P_MAX else "better" if p_better <= _P_MAX else "changed"
    return kind, min(p_worse, p_better)


def _compare_speeds(model: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    now = {row["length"]: row for row in new["lengths"]}
    for before in old["lengths"]:
        if after := now.get(before["length"]):
            at = f"{model} at about {before['length']} prompt tokens"
            yield from _compare_figure(f"first token of {at}, s", before["first_s"], after["first_s"], less=True)
            yield from _compare_figure(f"tokens/s of {at}", before["tokens_s"], after["tokens_s"], less=False)


def _compare_figure(
    name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, less: bool
) -> Iterator[dict[str, Any]]:
    if not before or not after or not before["median"] or not after["median"]:
        return
    apart = after["min"] > before["max"] or after["max"] < before["min"]
    if apart and min(before["runs"], after["runs"]) >= RUNS_MIN and _is_far(before["median"], after["median"]):
        kind = "worse" if (after["median"] > before["median"]) is less else "better"
        yield {"kind": kind, "words": f"{name}: {before['median']:.2f} → {after['median']:.2f}"}


def _is_far(before: float, after: float) -> bool:
    """Tell whether a figure is another one by more than `_RATIO_MAX`, in either direction."""
    return not 1 / _RATIO_MAX <= after / before <= _RATIO_MAX


def _compare_throughputs(model: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Compare what became of requests that came at once: how many failed, and the tokens a second of all."""
    now = {row["requests"]: row for row in new["together"]}
    pairs = [(row, now[row["requests"]]) for row in old["together"] if row["requests"] in now]
    more = sum(max(0, after["failed"] - before["failed"]) for before, after in pairs)
    fewer = sum(max(0, before["failed"] - after["failed"]) for before, after in pairs)
    if more or fewer:
        kind, _ = _judge_signs(more, fewer)
        yield {"kind": kind, "words": f"requests at once on {model}: {more} more failed, {fewer} fewer"}
    for before, after in pairs:
        if before["tokens_s"] > 0 and _is_far(before["tokens_s"], after["tokens_s"]):
            words = f"tokens/s of {model}, {before['requests']} at once, in one run"
            yield {"kind": "changed", "words": f"{words}: {before['tokens_s']:.2f} → {after['tokens_s']:.2f}"}


def _compare_memory(model: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, words in (("process_bytes", "process"), ("mlx_bytes", "by MLX")):
        before, after = old[name], new[name]
        if before and after and _is_far(before, after):
            kind = "worse" if after > before else "better"
            figures = f"{before / 1e9:.2f} → {after / 1e9:.2f} GB"
            yield {"kind": kind, "words": f"peak memory of {model}, {words}: {figures}"}


def _list_run(report: Mapping[str, Any], model: str) -> tuple[set[str], set[int], set[int]]:
    """List what a report has run that a model's peak of memory may come from."""
    speed = report["speeds"][model]
    keys = {key for key in report["outcomes"] if Cell.read_key(key).model in (model, CHAIN)}
    return keys, {row["length"] for row in speed["lengths"]}, {row["requests"] for row in speed["together"]}


def _compare_verdicts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, why in (new.get("failed_variants") or {}).items():
        if name not in (old.get("failed_variants") or {}):
            yield {"kind": "worse", "words": f"variant {name} of the server doesn't start any more: {why}"}
    for model, before in old["verdicts"].items():
        after = new["verdicts"].get(model)
        if after is None and model in (new.get("unavailable") or {}):
            yield {"kind": "worse", "words": f"{model} can't be asked any more: {new['unavailable'][model]}"}
        elif after is None:
            yield {"kind": "changed", "words": f"{model} is not in the new report"}
        elif after["verdict"] != before["verdict"]:
            kind, ranks = "changed", [RANKS.get(one["verdict"]) for one in (before, after)]
            if ranks[0] is not None and ranks[1] is not None:
                kind = "worse" if ranks[1] < ranks[0] else "better"
            yield {"kind": kind, "words": f"verdict on {model}: {before['verdict']} → {after['verdict']}"}


def _compare_facts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """List what stands behind the figures and isn't the same: versions, weights, machine."""
    versions = sorted({*old["versions"], *new["versions"]})
    both = sorted({*old["models"]} & {*new["models"]})
    facts = [
        ("", versions, old["versions"], new["versions"]),
        *((f"{model}, ", _WEIGHTS, old["models"][model], new["models"][model]) for model in both),
        ("", _MACHINE, old["machine"], new["machine"]),
    ]
    for of, names, before, after in facts:
        for name in names:
            if before.get(name) != after.get(name):
                yield {"kind": "changed", "words": f"{of}{name}: {before.get(name)} → {after.get(name)}"}
