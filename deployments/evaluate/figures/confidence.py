"""How well the signs of a model's calls tell right ones from wrong ones, and the calibration that says so. Pure.

A calibration is a logistic model whose weights are held small. What is said of it comes from cases that it was not
fitted on: the calls are parted into folds, and each fold is estimated by the fit of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deployments.evaluate.calls.call_cases import NO_TOOL
from deployments.evaluate.figures.tables import Cells, select_cells
from reliability.confidence import Calibration

# The signs of a call, or of several in one answer, and whether they were right.
Point = tuple[Mapping[str, float], bool]

# So few calls of either kind tell nothing.
EACH_MIN = 20
FOLDS, BINS, ROUNDS = 5, 5, 30
HELD = 5.0  # how strongly weights are held at 0, in calls


def estimate_calls(cells: Cells, tier: str, is_fitted: Callable[[int], bool]) -> dict[int, float]:
    """Estimate, by the number of the case, how likely a tier's calls were right: as its server did, where the model has
    a calibration; else by a fit on the cases of `is_fitted`, each of which is estimated by a fit without it. Nothing
    where neither can be had."""
    calls = _read_calls(cells, tier)
    shipped = {number: likely for number, (_, likely, _) in calls.items() if likely is not None}
    known = {number: point for number, (point, _, _) in calls.items() if is_fitted(number)}
    points = list(known.values())
    if shipped or not are_enough(points):
        return shipped
    fitted, unseen = fit_calibration(points), dict(zip(known, estimate_unseen(points), strict=True))
    return {number: unseen.get(number, fitted.estimate(signs)) for number, ((signs, _), _, _) in calls.items()}


def describe_confidence(cells: Cells, tier: str) -> dict[str, Any]:
    """Describe how well a tier's signs tell; `calibration`: a fitted one, where the model has none; `why`: no fit."""
    calls = _read_calls(cells, tier).values()
    shipped = [(likely, right) for (_, right), likely, _ in calls if likely is not None]
    if shipped:
        return {"source": "shipped"} | judge_confidence([one for one, _ in shipped], [right for _, right in shipped])
    points = [point for point, _, _ in calls]
    hits = [right for _, right in points]
    if not are_enough(points):
        why = f"{sum(hits)} right and {hits.count(False)} wrong calls tell too little; {EACH_MIN} of each are needed"
        return {"source": None, "why": why}
    judged = judge_confidence(estimate_unseen(points), hits)
    calibration = {"right": _write_fit(points)}
    unwanted = [(signs, category == NO_TOOL) for (signs, _), _, category in calls]
    if are_enough(unwanted):
        calibration["unwanted"] = _write_fit(unwanted)
    return {"source": "fitted", "calibration": calibration} | judged


def _write_fit(points: Sequence[Point]) -> dict[str, Any]:
    fitted = fit_calibration(points)
    return {"base": fitted.base, "weights": dict(fitted.weights), "share": fitted.share}


def _read_calls(cells: Cells, tier: str) -> dict[int, tuple[Point, float | None, str]]:
    """Read, by case number: signs and whether it was right; how likely the server thought it to be; its category."""
    found = {}
    for name, result in select_cells(cells, "layers", "call").get(tier, {}).items():
        good = [one for one in result["attempts"] or () if not one.get("flaw") and not one.get("fault")]
        if result["calls"] and good and good[-1].get("signs"):
            found[int(name)] = (good[-1]["signs"], result["right"]), good[-1].get("confidence"), result["category"]
    return found


def fit_calibration(points: Sequence[Point]) -> Calibration:
    """Fit a calibration by Newton's method on signs of equal spread."""
    names = sorted({name for signs, _ in points for name in signs})
    table = np.array([[signs.get(name, 0.0) for name in names] for signs, _ in points])
    right = np.array([float(hit) for _, hit in points])
    middle, spread = table.mean(axis=0), table.std(axis=0)
    spread[spread < 1e-9] = 1.0
    rows = np.hstack([(table - middle) / spread, np.ones((len(points), 1))])
    held = np.full(rows.shape[1], HELD)
    held[-1] = 1e-3
    weights = np.zeros(rows.shape[1])
    for _ in range(ROUNDS):
        likely = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (likely - right) + held * weights
        bend = (rows.T * (likely * (1 - likely))) @ rows + np.diag(held)
        weights -= np.linalg.solve(bend, slope)
    plain = weights[:-1] / spread
    base = float(weights[-1] - plain @ middle)
    each = {name: round(float(one), 4) for name, one in zip(names, plain, strict=True)}
    return Calibration(base=round(base, 4), weights=each, share=round(float(right.mean()), 3))


def estimate_unseen(points: Sequence[Point]) -> list[float]:
    """Estimate how likely each call is right, by a fit that has not seen it."""
    likely = [0.0] * len(points)
    for fold in range(FOLDS):
        fitted = fit_calibration([point for at, point in enumerate(points) if at % FOLDS != fold])
        for at in range(fold, len(points), FOLDS):
            likely[at] = fitted.estimate(points[at][0])
    return likely


def are_enough(points: Sequence[Point]) -> bool:
    """Tell whether there are enough right and wrong calls for a fit."""
    hits = sum(right for _, right in points)
    return min(hits, len(points) - hits) >= EACH_MIN


def judge_confidence(likely: Sequence[float], right: Sequence[bool]) -> dict[str, Any]:
    """Judge estimates by what was right. `auroc`: how often a right call was thought likelier than a wrong one;
    `error`: how far the estimates are from the shares that were right, over bins of as many calls each (expected
    calibration error)."""
    bins, ordered = [], sorted(zip(likely, right, strict=True))
    for number in range(BINS):
        part = ordered[number * len(ordered) // BINS : (number + 1) * len(ordered) // BINS]
        if part:
            estimated = sum(one for one, _ in part) / len(part)
            bins.append({"likely": estimated, "right": sum(hit for _, hit in part) / len(part), "calls": len(part)})
    error = sum(abs(one["likely"] - one["right"]) * one["calls"] for one in bins) / max(1, len(ordered))
    judged = {"calls": len(likely), "right": sum(right), "auroc": _find_auroc(likely, right)}
    return judged | {"error": error, "bins": bins}


def _find_auroc(likely: Sequence[float], right: Sequence[bool]) -> float | None:
    """Return the share of (right, wrong) pairs whose right call was thought likelier, ties half; None without pairs."""
    hits = [one for one, hit in zip(likely, right, strict=True) if hit]
    misses = [one for one, hit in zip(likely, right, strict=True) if not hit]
    if not hits or not misses:
        return None
    won = sum((hit > miss) + (hit == miss) / 2 for hit in hits for miss in misses)
    return won / (len(hits) * len(misses))
