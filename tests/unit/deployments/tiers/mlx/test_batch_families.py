"""Architectures of mlx-lm in a batch: the log-probability of every drawn token is plain mlx-lm's."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest

from tests.support.family_rig import Asked, add, begin, measure, run
from tests.support.random_models import build_family

ROUNDING = 0.002
PREFILLED_ALONE = ("nemotron_h", "rwkv7", "baichuan_m1")
ALONE = ("minimax_m3_vl", "afm7", "gpt_bigcode", "llama4", "deepseek_v41", "gemma2")
TOGETHER = ("llama", "qwen3", "qwen3_next", "gemma3_text", "granitemoehybrid", "lfm2")
SEEDS = range(3)


def assert_right(model: Any, asked: list[Asked], near_ties: bool = False) -> None:
    """`near_ties`: of the tokens that attention chooses, or the experts; rounding decides those."""
    for one in asked:
        apart = measure(model, one)
        assert (statistics.median(apart) if near_ties else max(apart)) <= ROUNDING, (one.prompt, apart)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [*PREFILLED_ALONE, *ALONE, *TOGETHER])
def test_whatever_is_asked_together_each_gets_what_is_its_own(name: str, seed: int) -> None:
    """Prompts of any length that come at any time, then the next turn of some of them, and others that begin alike."""
    dice, model = random.Random(seed), build_family(name, seed)
    batch = begin(model)

    def draw(tokens: int) -> list[int]:
        return [dice.randrange(4, 120) for _ in range(tokens)]

    def ask(prompts: list[list[int]]) -> list[Asked]:
        asked = []
        for prompt in prompts:
            asked.append(add(batch, prompt, dice.randint(2, 9), [len(prompt) // 2]))
            for _ in range(dice.choice([0, 0, 1, 3])):
                batch.step()
        run(batch)
        return asked

    first = ask([draw(dice.choice([1, 2, 5, 12, 30, 60])) for _ in range(4)])
    turns = [[*one.prompt, *one.tokens, *draw(dice.randint(1, 9))] for one in first[:2]]
    edits = [[*one.prompt[: len(one.prompt) * 2 // 3], *draw(4)] for one in first[2:]]
    assert_right(model, first + ask(turns + edits), near_ties=name == "minimax_m3_vl")
