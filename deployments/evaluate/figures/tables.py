"""The cells of an evaluation, shares with Wilson's 95 % interval, and the tables of the report. Pure.

A layer's row counts what was delivered up to that layer, with its attempts until there: a model's layers are cuts
through the same runs. `+ escalation` is the chain, on runs of its own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deployments.evaluate.calls.call_run import GRAMMAR_FROM, LAYERS

_Z95 = 1.959963984540054


def _find_interval(hits: int, runs: int) -> tuple[float, float]:
    """Return Wilson's interval of a share; all of it where there are no runs."""
    if runs <= 0:
        return 0.0, 1.0
    share, spread = hits / runs, _Z95**2 / runs
    middle = (share + spread / 2) / (1 + spread)
    half = _Z95 / (1 + spread) * math.sqrt(share * (1 - share) / runs + spread / (4 * runs))
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    # At the ends the formula is exact but for rounding.
    return (0.0 if hits == 0 else low), (1.0 if hits == runs else high)


def describe_share(hits: int, runs: int) -> dict[str, Any]:
    """Describe a share: how many of how many, and between what it lies."""
    low, high = _find_interval(hits, runs)
    return {"hits": hits, "runs": runs, "share": hits / runs if runs else None, "low": low, "high": high}


def describe_spread(values: Sequence[float]) -> dict[str, Any] | None:
    """Describe a measurement: median, smallest, largest; None where there is none."""
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "runs": len(values)}


def find_sign_p(worse: int, better: int) -> float:
    """Return the chance that as many of the changed ones became worse, if nothing has changed (one-sided)."""
    changed = worse + better
    return sum(math.comb(changed, k) for k in range(worse, changed + 1)) / 2**changed if changed else 1.0


Cells = Mapping[str, Mapping[str, Any]]
CHECKS = ("located", "evidence", "fixed", "unmoved")
WORDS = {"raw": "raw", "repair": "+ repair", "retries": "+ retries", "grammar": "+ grammar"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing to do. `name` is a case's number, a fixture's name, or a length and its repetition."""

    variant: str
    kind: str
    model: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.variant}/{self.kind}/{self.model}/{self.name}"

    @classmethod
    def read_key(cls, key: str) -> Cell:
        """Read a key. Only a model's name has slashes, as many as it likes."""
        variant, kind, rest = key.split("/", 2)
        model, _, name = rest.rpartition("/")
        return cls(variant, kind, model, name)


def select_cells(cells: Cells, variant: str, kind: str) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the results of one kind in one variant, by model and by name."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for key, result in cells.items():
        cell = Cell.read_key(key)
        if (cell.variant, cell.kind) == (variant, kind):
            found.setdefault(cell.model, {})[cell.name] = result
    return found


def tabulate_calls(cells: Cells) -> list[dict[str, Any]]:
    """Tabulate tool calls: a row for each model and layer, and one for the chain."""
    rows, hasty = [], select_cells(cells, "constrain", "call")
    for model, results in select_cells(cells, "layers", "call").items():
        rows += [_count_layer(model, WORDS[layer], results.values(), layer) for layer in LAYERS]
        if hasty.get(model, {}).keys() >= results.keys():  # of some of the cases it would be no share of them
            rows.append(_count_layer(model, "grammar at once", hasty[model].values()))
    for variant, words in (("chain", "+ escalation"), ("served", "as served")):
        for model, results in select_cells(cells, variant, "call").items():
            rows.append(_count_layer(model, words, results.values()))
    return rows


def _reach(one: Mapping[str, Any], layer: str | None) -> tuple[bool, float, int]:
    """Tell whether a valid answer was delivered up to a layer (None: by all of them), and what it took until there."""
    attempts = [attempt for attempt in one["attempts"] or () if attempt["ran"]]
    if layer is None or not attempts:
        return one["valid"], one["seconds"], one["tokens"]
    valid = one["valid"] and one["layer"] in LAYERS[: LAYERS.index(layer) + 1]
    until = attempts[: {"raw": 1, "repair": 1, "retries": GRAMMAR_FROM}.get(layer)]
    return valid, sum(attempt["seconds"] for attempt in until), sum(attempt["tokens"] for attempt in until)


def _count_layer(
    model: str, words: str, results: Collection[Mapping[str, Any]], layer: str | None = None
) -> dict[str, Any]:
    reached = [_reach(one, layer) for one in results]
    right = [one["right"] and valid for one, (valid, _, _) in zip(results, reached, strict=True)]
    seconds, tokens = sum(s for _, s, _ in reached), sum(t for _, _, t in reached)
    by_category: dict[str, list[bool]] = {}
    for one, hit in sorted(zip(results, right, strict=True), key=lambda pair: str(pair[0]["category"])):
        by_category.setdefault(one["category"], []).append(hit)
    return {
        "model": model,
        "layer": words,
        "valid": describe_share(sum(valid for valid, _, _ in reached), len(results)),
        "right": describe_share(sum(right), len(results)),
        "seconds_per_case": seconds / len(results) if results else None,
        "seconds_per_right": seconds / sum(right) if sum(right) else None,
        "tokens_per_right": tokens / sum(right) if sum(right) else None,
        "by_category": {name: describe_share(sum(hits), len(hits)) for name, hits in by_category.items()},
    }


# How a strategy is called, by its variant, in the order of the rows.
_TASK_WORDS = dict.fromkeys(("none", "unchecked", "layers", "served", "chain"), "{model}")
_TASK_WORDS |= {"unchecked": "{model}, unchecked", "chain": "chain"}


def tabulate_tasks(cells: Cells, planned: Iterable[tuple[str, str]] = ()) -> list[dict[str, Any]]:
    """Tabulate tasks by strategy; `planned`: (variant, model) pairs that have a row without a finished task."""
    rows, planned = [], list(planned)
    for variant, words in _TASK_WORDS.items():
        nothing: dict[str, dict[str, Mapping[str, Any]]] = {model: {} for of, model in planned if of == variant}
        for model, results in (nothing | select_cells(cells, variant, "task")).items():
            passed = [one["checks"]["passed"] for one in results.values()]
            rows.append(
                {
                    "strategy": words.format(model=model),
                    "model": model,
                    "variant": variant,
                    "passed": describe_share(sum(passed), len(passed)),
                    "checks": {name: sum(one["checks"][name] for one in results.values()) for name in CHECKS},
                    "fixtures": {name: _describe_task(one) for name, one in results.items()},
                    "seconds": describe_spread([one["seconds"] for one in results.values()]),
                    "tokens": sum(one["tokens"] for one in results.values()),
                }
            )
    return rows


def _describe_task(one: Mapping[str, Any]) -> dict[str, Any]:
    failed = [name for name in CHECKS if not one["checks"][name]]
    return {"passed": one["checks"]["passed"], "failed": failed, "ended": one["ended"], "errors": one["errors"][:2]}


def list_speeds(cells: Cells, facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """List the speeds and the memory of each model."""
    variant = "served" if any(key.startswith("served/") for key in cells) else "layers"
    lengths, caches, together = (select_cells(cells, variant, kind) for kind in ("length", "cache", "together"))
    found = {}
    for model in facts.get("models") or {}:
        loads = {int(name): dict(one) for name, one in together.get(model, {}).items()}
        found[model] = {
            "lengths": _list_lengths(lengths.get(model, {})),
            "together": [{"requests": count} | one for count, one in sorted(loads.items())],
            "cache": caches.get(model, {}).get("twice"),
            "memory": _find_memory(facts, model),
            "wake_s": ((facts.get(f"warm/{variant}") or {}).get(model) or {}).get("seconds"),
        }
    return found


def _list_lengths(results: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    by_length: dict[int, list[Mapping[str, Any]]] = {}
    for name, one in results.items():
        if not one["error"]:
            by_length.setdefault(int(name.partition("-")[0]), []).append(one)
    return [
        {
            "length": length,
            "prompt_tokens": describe_spread([one["prompt_tokens"] for one in ones]),
            "first_s": describe_spread([one["first_s"] for one in ones if one["first_s"] is not None]),
            "tokens_s": describe_spread([one["tokens_s"] for one in ones if one["tokens_s"] is not None]),
        }
        for length, ones in sorted(by_length.items())
    ]


def _find_memory(facts: Mapping[str, Any], model: str) -> dict[str, int | None]:
    """Find the peaks over all variants: of the replica's process, and what MLX has counted."""
    known = [value for name, value in facts.items() if name.startswith("memory/")]
    return {
        f"{of}_bytes": max((value[of][model] for value in known if model in value[of]), default=None)
        for of in ("process", "mlx")
    }
