"""RaggedBatch and their caches are changed together: what a row holds is what its record says."""

import random
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.tiers.mlx.cpu.step import build_step
from deployments.tiers.mlx.decoding.ragged_batch import ActiveSequence, Computer, RaggedBatch, _process
from deployments.tiers.mlx.sampling import Guarded
from tests.support.kernels import only_here
from tests.support.random_models import build_model


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=only_here)])
def computers(request: pytest.FixtureRequest) -> tuple[Any, Computer | None]:
    """A model, and what computes its steps at once; without it MLX does."""
    model = build_model("biases", 200)
    return model, build_step(model) if request.param else None


def build_row(uid: int, tokens: list[int]) -> ActiveSequence:
    return ActiveSequence(uid=uid, prompt=[1], ends=[1], max_tokens=9, tokens=tokens, sampler=None, processors=())


def test_a_row_is_plain_again_behind_its_processors() -> None:
    """Law: one that is over leaves the row, so that its steps are drafted and drawn as if it had never been; one that
    has failed stays, for the sequence's end to name."""
    row, logits = build_row(1, [1]), mx.zeros((1, 5))
    row.processors = [Guarded(lambda tokens, _: None), Guarded(lambda tokens, logits: logits + (tokens.size < 3))]
    assert _process(row, mx.array([2]), logits)[0, 0].item() == 1
    assert [len(row.processors), row.plain] == [1, False]
    row.processors = [Guarded(lambda tokens, _: None)]
    assert _process(row, mx.array([2]), logits) is logits
    assert row.plain
    row.processors = [Guarded(lambda tokens, _: 1 // 0)]
    _process(row, mx.array([2]), logits)
    assert [row.plain, row.failed] == [False, True]


def check(model: Any, rows: RaggedBatch) -> None:
    if not rows:
        return
    logits = rows.read(mx.array([[7]] * len(rows)))
    for place, row in enumerate(rows.rows):
        assert mx.allclose(logits[place, 0], model(mx.array([[*row.tokens, 7]]))[0, -1], atol=1e-4).item()
    rows.advance([0] * len(rows))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
def test_moved_kept_and_read_they_hold_what_they_say(computers, seed):
    """Any order of coming, going over to another batch, leaving and growing; and what was kept of a row on the way has
    few places to spare, and is still what it was, whatever was written behind it."""
    from mlx_lm.models.cache import make_prompt_cache

    (model, step), dice, kept = computers, random.Random(seed), []
    here, there = (RaggedBatch(model, step) for _ in range(2))
    for uid in range(8):
        tokens, cache = [dice.randrange(200) for _ in range(dice.randint(0, 40))], make_prompt_cache(model)
        if tokens:
            model(mx.array([tokens]), cache=cache)
        here.add(build_row(uid, tokens), cache)
        if dice.random() < 0.5:
            grown = [[dice.randrange(200) for _ in range(2)] for _ in here.rows]
            here.read(mx.array(grown), None if dice.random() < 0.5 else ())
            counts = [dice.randint(0, 2) for _ in here.rows]
            here.advance(counts)
            for row, line, count in zip(here.rows, grown, counts, strict=True):
                row.tokens += line[:count]
        if dice.random() < 0.4:
            here.move(sorted(dice.sample(range(len(here)), dice.randint(0, len(here)))), there)
        if there and dice.random() < 0.4:
            there.keep(sorted(dice.sample(range(len(there)), dice.randint(0, len(there)))))
        if here and dice.random() < 0.4:
            place = dice.randrange(len(here))
            kept.append((here.extract(place), list(here.rows[place].tokens)))
            assert all(one.empty() or one.keys.shape[2] <= 1.125 * one.offset for one in kept[-1][0])
        check(model, here)
        check(model, there)
        for rows in (here, there):
            assert rows.lengths.values == [len(row.tokens) for row in rows.rows]
    for cache, tokens in kept:
        logits = model(mx.array([[7]]), cache=cache)[0, -1]
        assert mx.allclose(logits, model(mx.array([[*tokens, 7]]))[0, -1], atol=1e-4).item()
