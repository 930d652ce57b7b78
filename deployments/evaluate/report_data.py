"""Build the report as data from cells and facts: all that page, summary and `--compare` use. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.config.app_config import AppConfig, EvaluateConfig
from deployments.evaluate.evaluation_plan import PlanPhase, Settings
from deployments.evaluate.figures.cascade import learn_chain
from deployments.evaluate.figures.confidence import describe_confidence
from deployments.evaluate.figures.tables import list_speeds, tabulate_calls, tabulate_tasks
from deployments.evaluate.figures.verdicts import judge_tiers

FORMAT = 1
_PROVENANCE = (
    *("kind", "source", "model", "revision", "sha256", "quantization", "context_length", "adapter"),
    *("versions", "warning", "batched_as_alone"),
)


def build_report(
    cells: Mapping[str, Mapping[str, Any]],
    facts: Mapping[str, Any],
    phases: Sequence[PlanPhase],
    settings: Settings,
    config: AppConfig | None,
    *,
    target: str,
    made: str,
) -> dict[str, Any]:
    """Build the report. `config`: of a server of our own; `target`: what was evaluated, in words."""
    models = facts.get("models") or {}
    chain = [name for name in config.reliability.escalation.chain if name in models] if config else []
    thresholds = (config.evaluate if config else EvaluateConfig()).model_dump()
    planned = [(cell.variant, cell.model) for phase in phases for cell in phase.cells if cell.kind == "task"]
    calls, tasks, speeds = tabulate_calls(cells), tabulate_tasks(cells, planned), list_speeds(cells, facts)
    verdicts = judge_tiers(list(models), calls, tasks, speeds, thresholds, chain[0] if chain else None)
    confidence = {name: describe_confidence(cells, name) for name in models}
    report: dict[str, Any] = {
        "format": FORMAT,
        "made": made,
        "target": target,
        "seed": settings.seed,
        "cases": settings.cases,
        "chain": chain,
        "thresholds": thresholds,
        "machine": facts.get("machine") or {},
        "versions": facts.get("versions") or {},
        "confinement": facts.get("confinement") or "",
        "models": {name: {key: entry.get(key) for key in _PROVENANCE} for name, entry in models.items()},
        "unavailable": facts.get("unavailable") or {},
        "failed_variants": {k.partition("/")[2]: v for k, v in facts.items() if k.startswith("failed/") and v},
        "calls": calls,
        "tasks": tasks,
        "speeds": speeds,
        "verdicts": verdicts,
        "cascade": {"proposal": None, "why": "there is no chain"},
        "confidence": confidence,
        "left_out": [
            {"phase": phase.title, "planned": len(phase.cells), "run": sum(cell.key in cells for cell in phase.cells)}
            for phase in phases
        ],
        "outcomes": _list_outcomes(cells),
    }
    if config and len(chain) > 1:
        escalation = config.reliability.escalation
        report["cascade"] = learn_chain(cells, chain, escalation.start_at, escalation.confidence.min)
        _add_calibrations(report)
    return report | {"checklist": _write_checklist(report)}


def _add_calibrations(report: Mapping[str, Any]) -> None:
    """Add to a proposal that holds calls in doubt what tells them, where the models came without."""
    proposal = report["cascade"]["proposal"] or {}
    change = proposal.get("reliability", {}).get("escalation", {}).get("confidence")
    fitted = {}
    for name, one in report["confidence"].items():
        if one["source"] == "fitted" and report["models"][name]["sha256"]:
            fitted[report["models"][name]["sha256"]] = one["calibration"]
    if change and change["min"] and fitted:
        change["calibrations"] = fitted


def _list_outcomes(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, bool]:
    """List whether each call is right, and each task passed, by the cell's key."""
    good = {}
    for key, result in cells.items():
        if key.split("/")[1] in ("call", "task"):
            good[key] = bool(result["checks"]["passed"] if "checks" in result else result["right"])
    return good


def _write_checklist(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Write what should be known of a local model before it is relied on, and whether it is."""
    speeds, chain = report["speeds"].values(), report["chain"]
    lengths = [row["prompt_tokens"]["median"] for one in speeds for row in one["lengths"] if row["prompt_tokens"]]
    runs = sum(row["passed"]["runs"] for row in report["tasks"] if row["model"] != "rules")
    pinned = [name for name, one in report["models"].items() if one["sha256"]]
    elsewhere = [name for name, one in report["models"].items() if one["kind"] in ("hosted", "scripted")]
    memory = [name for name, one in report["speeds"].items() if one["memory"]["process_bytes"]]
    together = max((row["requests"] for one in speeds for row in one["together"]), default=0)
    hosted = [name for name, one in report["models"].items() if one["kind"] == "hosted"]
    as_real = bool(lengths) and max(lengths) >= report["thresholds"]["prompt_tokens"] / 2
    all_pinned = set(report["models"]) <= {*pinned, *elsewhere}
    update = (
        "keep this report: `evaluate --compare` holds the next one against it; roll back by the source and revision"
    )
    fallback = f"chain: {' → '.join(chain)}" if chain else "none: a server without a chain"
    items = [
        ("pass rate on whole tasks", bool(runs), f"{runs} tasks run by models"),
        ("prompt lengths as in real work", as_real, f"up to {max(lengths, default=0):.0f} tokens measured"),
        ("peak memory", len(memory) == len(report["models"]), f"known for {', '.join(memory) or 'none'}"),
        ("time to the first token", bool(lengths), f"{len(lengths)} lengths measured"),
        ("throughput under concurrency", together >= 8, f"up to {together} requests at once"),
        ("provenance", all_pinned, f"digest of the weights known for {', '.join(pinned) or 'none'}"),
        ("update and rollback", True, f"{update} above"),
        ("fallback", len(chain) > 1 or bool(hosted), fallback),
    ]
    return [{"item": item, "known": known, "words": words} for item, known, words in items]
