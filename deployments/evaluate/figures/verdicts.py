"""The verdict on each tier, against the thresholds of `evaluate` in the configuration (docs/evaluation.md). Pure.

A share meets a threshold if all of its interval is above it, and misses it if all is below. Under `RUNS_MIN` runs
nothing is concluded: the interval of 0 of 1 ends at 79 %, and a model that is right in 80 % misses one case in five.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MET, MISSED, UNCLEAR = "met", "missed", "unclear"
Thresholds = Mapping[str, float]
RUNS_MIN = 5
GRAMMAR, ESCALATION, SERVED = "+ grammar", "+ escalation", "as served"


def judge_tiers(
    models: Sequence[str],
    calls: Sequence[Mapping[str, Any]],
    tasks: Sequence[Mapping[str, Any]],
    speeds: Mapping[str, Mapping[str, Any]],
    thresholds: Thresholds,
    head: str | None,
) -> dict[str, dict[str, Any]]:
    """Judge every model. `head`: the tier at which the measured chain begins."""
    by_layer = {(row["model"], row["layer"]): row for row in calls}
    alone = {row["model"]: row for row in tasks if row["variant"] in ("layers", "served")}
    chain_calls = next((row for row in calls if row["layer"] == ESCALATION), None)
    chain_tasks = next((row for row in tasks if row["variant"] == "chain"), None)
    found = {}
    for model in models:
        row = by_layer.get((model, GRAMMAR)) or by_layer.get((model, SERVED))
        quality = _hold_quality(row, alone.get(model), thresholds)
        speed = _hold_speed(speeds.get(model) or {}, thresholds)
        behind = _hold_quality(chain_calls, chain_tasks, thresholds) if model == head and chain_calls else None
        found[model] = _conclude(quality, speed, behind)
    return found


def _hold_quality(
    calls: Mapping[str, Any] | None, tasks: Mapping[str, Any] | None, thresholds: Thresholds
) -> list[dict[str, Any]]:
    return [
        _hold_share("tasks passed", tasks["passed"] if tasks else None, thresholds["tasks_passed_min"]),
        _hold_share("right tool calls", calls["right"] if calls else None, thresholds["calls_right_min"]),
    ]


def _hold_share(name: str, share: Mapping[str, Any] | None, least: float) -> dict[str, Any]:
    if share is None or not share["runs"]:
        return {"name": name, "outcome": UNCLEAR, "words": f"{name}: no runs (needed: {least:.0%})"}
    outcome = MET if share["low"] >= least else MISSED if share["high"] < least else UNCLEAR
    if share["runs"] < RUNS_MIN:
        outcome = UNCLEAR
    between = f"between {share['low']:.0%} and {share['high']:.0%}"
    words = f"{name}: {share['hits']} of {share['runs']}, {between} (needed: {least:.0%})"
    return {"name": name, "outcome": outcome, "words": words}


def _hold_speed(speed: Mapping[str, Any], thresholds: Thresholds) -> list[dict[str, Any]]:
    tokens = thresholds["prompt_tokens"]
    lengths = [row for row in speed.get("lengths") or () if row["prompt_tokens"]]
    near = min(lengths, key=lambda row: abs(row["prompt_tokens"]["median"] - tokens), default=None)
    if near is None or near["prompt_tokens"]["median"] < tokens / 2:
        words = f"a prompt of about {tokens:.0f} tokens was not measured"
        return [{"name": name, "outcome": UNCLEAR, "words": f"{name}: {words}"} for name in ("first token", "tokens/s")]
    at = f"at {near['prompt_tokens']['median']:.0f} prompt tokens"
    return [
        _hold_figure("first token", near["first_s"], "s", thresholds["first_token_s_max"], most=True, at=at),
        _hold_figure("tokens/s", near["tokens_s"], "", thresholds["tokens_s_min"], most=False, at=at),
    ]


def _hold_figure(
    name: str, spread: Mapping[str, Any] | None, unit: str, bound: float, *, most: bool, at: str
) -> dict[str, Any]:
    if spread is None:
        return {"name": name, "outcome": UNCLEAR, "words": f"{name}: not measured"}
    good = spread["median"] <= bound if most else spread["median"] >= bound
    side = "at most" if most else "at least"
    words = f"{name}: {spread['median']:.2f} {unit} {at}, {spread['min']:.2f} to {spread['max']:.2f} ({side} {bound:g})"
    return {"name": name, "outcome": MET if good else MISSED, "words": " ".join(words.split())}


def _conclude(
    quality: Sequence[dict[str, Any]], speed: Sequence[dict[str, Any]], behind: Sequence[dict[str, Any]] | None
) -> dict[str, Any]:
    def has(criteria: Sequence[Mapping[str, Any]], outcome: str) -> bool:
        return any(one["outcome"] == outcome for one in criteria)

    criteria = [*quality, *speed]
    if not has(criteria, MISSED):
        verdict = "tentative" if has(criteria, UNCLEAR) else "fit"
    elif behind is not None and not has(speed, MISSED) and not has(behind, MISSED):
        verdict = "tentative" if has([*speed, *behind], UNCLEAR) else "fit with fallback"
    else:
        verdict = "not fit"
    telling = {"fit": MET, "tentative": UNCLEAR, "fit with fallback": MISSED, "not fit": MISSED}[verdict]
    shown = [one for one in criteria if one["outcome"] == telling] or criteria
    reasons = [one["words"] for one in shown]
    if behind is not None and verdict != "fit":
        reasons += [f"with the chain, {one['words']}" for one in behind]
    return {"verdict": verdict, "reasons": reasons, "criteria": criteria}
