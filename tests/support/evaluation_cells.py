"""Cells of an evaluation, made up: what the tables, verdicts and pages of a report are tried on."""

from collections.abc import Mapping
from typing import Any

from deployments.config.app_config import load
from deployments.evaluate.calls.call_cases import CATEGORIES, draw_cases
from deployments.evaluate.evaluation_plan import PlanPhase, Settings, plan_variants
from deployments.evaluate.report_data import build_report

CONFIG = load(
    {
        "tiers": {"fast": {"kind": "mlx"}, "large": {"kind": "mlx"}},
        "reliability": {"escalation": {"chain": ["fast", "large"]}},
    }
)
MODEL = {"kind": "mlx", "source": "path:small", "sha256": "ab" * 32, "context_length": 4096, "versions": {"mlx": "1"}}
FACTS: dict[str, Any] = {
    "models": {"fast": MODEL, "large": MODEL | {"source": "path:large"}},
    "unavailable": {"premium": "no key: export OPENROUTER_API_KEY"},
    "machine": {"processor": "P", "cores": 2, "memory_bytes": 8_000_000_000, "system": "Linux", "load_average": 0.1},
    "versions": {"python": "3.11", "mlx": "1"},
    "confinement": "no network by unshare",
    "memory/layers": {"process": {"fast": 700_000_000, "all": 2_000_000_000}, "mlx": {"fast": 600_000_000}},
    "warm/layers": {"fast": {"seconds": 1.0, "error": ""}},
}
LAYERS = ("raw", "repair", "retries", "grammar")


Cell = dict[str, Any]


def call_cell(number: int, *, layer: str | None, right: bool, seconds: float = 1.0, tier: str = "fast") -> Cell:
    """A tool-call cell: delivered by a layer, or not at all."""
    count = {"raw": 1, "repair": 1, "retries": 2, "grammar": 3, None: 3}[layer]
    attempt = {"tier": tier, "ran": True, "flaw": None, "fault": None, "seconds": seconds / count, "tokens": 100}
    delivered = {"valid": layer is not None, "right": right, "layer": layer, "tier": tier, "seconds": seconds}
    return delivered | {
        "category": CATEGORIES[number % len(CATEGORIES)], "features": draw_cases(1, number + 1)[number].features,
        "tokens": 100 * count, "cost_usd": None, "attempts": [attempt] * count, "calls": [["f", "{}"]] if layer else [],
        "error": "" if layer else "400 invalid_answer",
    }  # fmt: skip


def task_cell(*, passed: bool, steps: int = 3) -> dict[str, Any]:
    step = {"prompt_tokens": 500, "completion_tokens": 40, "cached_tokens": 400, "tokens": 540, "seconds": 2.0}
    checks = dict.fromkeys(("passed", "located", "evidence", "fixed", "unmoved"), passed)
    taken = [step | {"prompt_tokens": 500 * (number + 1), "tier": "fast"} for number in range(steps)]
    ended = "diagnosed" if passed else "<script>alert(1)</script>"
    told = {"checks": checks, "ended": ended, "diagnosis": None, "seconds": 6.0, "tokens": 540 * steps, "steps": taken}
    return told | {"calls": [], "refused_paths": 0, "errors": []}


def speed_cell(tokens: int, first_s: float, tokens_s: float) -> dict[str, Any]:
    """A length that was measured."""
    figures = {"prompt_tokens": tokens, "completion_tokens": 24, "cached_tokens": 0, "seconds": 3.0, "error": ""}
    return figures | {"first_s": first_s, "tokens_s": tokens_s}


def make_cells(cases: int = 24, *, fast_right: int = 6, large_right: int = 22, slow: float = 1.0) -> dict[str, Any]:
    """Cells of two tiers: `fast` is right in the first cases, `large` in nearly all and ten times as dear."""
    cells: dict[str, Any] = {"none/task/rules/buggy_calc": task_cell(passed=True, steps=0)}
    for number in range(cases):
        good = number < fast_right
        cells[f"layers/call/fast/{number}"] = call_cell(number, layer=LAYERS[number % 4] if good else None, right=good)
        held = call_cell(number, layer="grammar" if good else None, right=good, seconds=0.5)
        cells[f"constrain/call/fast/{number}"] = held
        large = {"layer": "repair", "right": number < large_right, "tier": "large"}
        cells[f"layers/call/large/{number}"] = call_cell(number, **large, seconds=10.0)
        cells[f"chain/call/auto/{number}"] = call_cell(number, **large, seconds=11.0)
    for name in ("buggy_calc", "lost_page_repo"):
        cells[f"layers/task/fast/{name}"] = task_cell(passed=False)
        cells[f"chain/task/auto/{name}"] = task_cell(passed=True)
    for model, factor in (("fast", 1.0), ("large", 4.0)):
        for repeat in range(3):
            for tokens in (64, 1024):
                at = f"layers/length/{model}/{tokens}-{repeat}"
                cells[at] = speed_cell(tokens, slow * factor * tokens / 1000 + repeat / 100, 20 / factor / slow)
        together = {"seconds": 3.0, "tokens_s": 30.0, "first_s": 1.0, "first_s_max": 2.0, "failed": 0, "errors": []}
        cells[f"layers/together/{model}/8"] = together
    cells["layers/cache/fast/twice"] = {"first": speed_cell(256, 0.4, 20), "again": speed_cell(256, 0.1, 20)}
    return cells


def hesitant_cells(count: int, *, told: bool = True) -> dict[str, Any]:
    """`fast` is right in half of the cases, and hesitates where it isn't; `large` is always right and takes longer."""
    cells = make_cells(count, fast_right=0)
    for number in range(count):
        cells.pop(f"constrain/call/fast/{number}")
        right = number * 7 % 5 % 2 == 0
        small = call_cell(number, layer="raw", right=right)
        small["attempts"][-1]["signs"] = {"most_unsure": 0.1 if right else 2.0} if told else None
        cells[f"layers/call/fast/{number}"] = small
        cells[f"layers/call/large/{number}"] = call_cell(number, layer="raw", right=True, seconds=4.0)
    return cells


def make_report(cells: Mapping[str, Any] | None = None, facts: Mapping[str, Any] = FACTS) -> dict[str, Any]:
    settings = Settings(seed=1, cases=24, budget_minutes=1)
    phases: list[PlanPhase] = plan_variants(["fast", "large"], {}, settings, chain=True, constrained=["fast"])
    cells = make_cells() if cells is None else cells
    target, made = "the configuration mine.yaml", "2026-11-24 12:00 UTC"
    return build_report(cells, facts, phases, settings, CONFIG, target=target, made=made)
