"""Two reports side by side: what became better or worse after a model or a library was changed. Pure.

What both have run (the same seed draws the same cases) is compared cell by cell: how many became right, how many wrong,
and how likely that is by chance (`find_sign_p`). A speed counts as worse when its median has lost a quarter and the two
spreads don't touch; a figure of one run has no spread, and says nothing. A verdict that got worse is always one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deployments.evaluate.figures.cell import Cell
from deployments.evaluate.figures.shares import find_sign_p

__all__ = ["compare_reports", "is_comparable"]

P_MAX = 0.05
RATIO_MAX = 1.25
RUNS_MIN = 2
RANKS = {"fit": 3, "fit with fallback": 2, "tentative": 1, "not fit": 0}


def is_comparable(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Say why two reports can't be compared; empty where they can."""
    if old.get("format") != new.get("format"):
        return f"the older report has format {old.get('format')!r}, this one {new.get('format')!r}"
    if old.get("seed") != new.get("seed"):
        return f"the older report's seed is {old.get('seed')}: run with --seed {old.get('seed')}"
    return ""


def compare_reports(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the differences, the worse ones first. Each is `worse`, `better`, or neither."""
    found = [*_compare_outcomes(old, new), *_compare_speeds(old, new), *_compare_verdicts(old, new)]
    found += _compare_facts(old, new)
    order = {"worse": 0, "better": 1, "changed": 2}
    return sorted(found, key=lambda one: order[one["kind"]])


def _compare_outcomes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Compare the cells that both have, by variant, kind and model."""
    groups: dict[str, list[tuple[str, bool, bool]]] = {}
    for key, before in old["outcomes"].items():
        if key in new["outcomes"]:
            cell = Cell.read_key(key)
            group = f"{cell.kind}s of {cell.model} ({cell.variant})"
            groups.setdefault(group, []).append((cell.name, before, new["outcomes"][key]))
    for group, cells in groups.items():
        worse = [name for name, before, after in cells if before and not after]
        better = [name for name, before, after in cells if after and not before]
        if not worse and not better:
            continue
        p_worse, p_better = find_sign_p(len(worse), len(better)), find_sign_p(len(better), len(worse))
        kind = "worse" if p_worse <= P_MAX else "better" if p_better <= P_MAX else "changed"
        were, are = sum(before for _, before, _ in cells), sum(after for *_, after in cells)
        words = (
            f"{group}: {were} → {are} of {len(cells)} good; "
            f"{len(worse)} became wrong, {len(better)} right (p = {min(p_worse, p_better):.3f})"
        )
        yield {"kind": kind, "words": words, "worse": worse[:20], "better": better[:20]}


def _compare_speeds(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for model, speed in old["speeds"].items():
        now = {row["length"]: row for row in (new["speeds"].get(model) or {}).get("lengths") or ()}
        for before in speed["lengths"]:
            after = now.get(before["length"])
            if after is None:
                continue
            at = f"{model} at about {before['length']} prompt tokens"
            yield from _compare_figure(f"first token of {at}, s", before["first_s"], after["first_s"], less=True)
            yield from _compare_figure(f"tokens/s of {at}", before["tokens_s"], after["tokens_s"], less=False)


def _compare_figure(
    name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, *, less: bool
) -> Iterator[dict[str, Any]]:
    if not before or not after or not before["median"] or not after["median"]:
        return
    ratio = after["median"] / before["median"]
    apart = after["min"] > before["max"] or after["max"] < before["min"]
    if apart and min(before["runs"], after["runs"]) >= RUNS_MIN and not 1 / RATIO_MAX <= ratio <= RATIO_MAX:
        kind = "worse" if (ratio > 1) is less else "better"
        yield {"kind": kind, "words": f"{name}: {before['median']:.2f} → {after['median']:.2f}"}


def _compare_verdicts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for model, before in old["verdicts"].items():
        after = new["verdicts"].get(model)
        if after is None:
            yield {"kind": "changed", "words": f"{model} is not in the new report"}
        elif after["verdict"] != before["verdict"]:
            kind = "worse" if RANKS[after["verdict"]] < RANKS[before["verdict"]] else "better"
            yield {"kind": kind, "words": f"verdict on {model}: {before['verdict']} → {after['verdict']}"}


def _compare_facts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """List what stands behind the figures and isn't the same: versions, weights, machine."""
    for name in sorted({*old["versions"], *new["versions"]}):
        before, after = old["versions"].get(name), new["versions"].get(name)
        if before != after:
            yield {"kind": "changed", "words": f"{name}: {before} → {after}"}
    for model in sorted({*old["models"]} & {*new["models"]}):
        for name in ("source", "revision", "sha256", "quantization", "context_length", "adapter"):
            before, after = old["models"][model].get(name), new["models"][model].get(name)
            if before != after:
                yield {"kind": "changed", "words": f"{model}, {name}: {before} → {after}"}
    for name in ("processor", "cores", "system"):
        before, after = old["machine"].get(name), new["machine"].get(name)
        if before != after:
            yield {"kind": "changed", "words": f"{name}: {before} → {after}"}
