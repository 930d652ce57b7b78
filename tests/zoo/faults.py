"""Faults of mlx-lm that the engine can't hide, each with a check on plain mlx-lm.

A family that isn't batched for a fault, or is excused by it, is so for as long as the fault is there. A check says by
how much mlx-lm differs from itself; where that is rounding, the fault is mended, and the exception has to go.
"""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.zoo.rig import compare, make_prompt, read

SHORT, LONG = make_prompt(9, "short"), make_prompt(80, "long")
TOKENS = 12


def cut_prompt(model: Any) -> float:
    """Read a prompt at once and in chunks."""
    whole = read(model, LONG, len(LONG))
    return float(np.abs(read(model, LONG, len(LONG), chunk=24) - whole).max() / whole.std())


def batch_prompts(model: Any, groups: list[list[list[int]]]) -> float:
    """Batch these prompts. Those of a group are prefilled together, once all before them decode."""
    module: Any = importlib.import_module("mlx_lm.generate")
    made = module.BatchGenerator(model, prefill_step_size=512)
    prompts: dict[int, list[int]] = {}
    drawn: dict[int, list[Any]] = {}
    for group in [*groups, []]:
        prompts |= dict(zip(made.insert(group, max_tokens=[TOKENS] * len(group)), group, strict=True))
        while len(drawn) < len(prompts) or (not group and any(len(rows) < TOKENS for rows in drawn.values())):
            for one in made.next()[1]:
                drawn.setdefault(one.uid, []).append(one)
    return max(
        compare(model, prompts[uid], [one.token for one in rows], [one.logprobs for one in rows])
        for uid, rows in drawn.items()
    )


FAULTS: dict[str, Callable[[Any], float]] = {
    "padding": partial(batch_prompts, groups=[[SHORT, LONG[:20]]]),
    "neighbors": partial(batch_prompts, groups=[[LONG], [LONG[40:]]]),
    "chunks": cut_prompt,
}


def measure(fault: str, model: Any) -> float:
    """Return by how much plain mlx-lm differs from itself; no end of it where it raises."""
    try:
        return FAULTS[fault](model)
    except ValueError:
        return float("inf")
