"""The plan: each cell once, each model as often as the others, and shares of the time that add up."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.evaluation_plan import Settings, plan_served, plan_variants
from deployments.evaluate.tasks.fixtures import FIXTURES

models = st.lists(st.sampled_from(["fast", "standard", "longctx"]), unique=True, min_size=1)


@given(models, st.integers(1, 20), st.integers(0, 40_000))
def test_a_cell_stands_once_and_phases_end_in_order(names, cases, context):
    """Its key names it; what comes later may use what is left, and the last phase all of it."""
    settings = Settings(cases=cases)
    contexts = dict.fromkeys(names, context)
    plans = [
        plan_variants(names, contexts, settings, chain=len(names) > 1, constrained=names[:1]),
        plan_served(names, contexts, settings),
    ]
    for phases in plans:
        keys = [cell.key for phase in phases for cell in phase.cells]
        until = [phase.until for phase in phases if phase.variant != "none"]

        assert len(keys) == len(set(keys))
        assert until == sorted(until)
        assert until[-1] == 1.0


@given(models, st.integers(1, 20), st.integers(0, 200))
def test_any_number_of_first_cells_goes_round_the_models(names, cases, count):
    """So whenever the time runs out, none has been asked two more times than another."""
    phases = plan_variants(names, {}, Settings(cases=cases), chain=False, constrained=[])
    for phase in phases:
        if phase.title.startswith(("tool calls, each", "tasks, each")):
            counts = Counter(cell.model for cell in phase.cells[:count])
            assert max(counts.values(), default=0) - min((counts[name] for name in names), default=0) <= 1


def test_lengths_fit_the_context():
    """No prompt is planned that the model can't take, and the longest that it can is."""
    phases = plan_variants(["m"], {"m": 4096}, Settings(), chain=False, constrained=[])
    lengths = {int(c.name.partition("-")[0]) for phase in phases for c in phase.cells if c.kind == "length"}

    assert max(lengths) == 2048
    assert sum(cell.kind == "task" for phase in phases for cell in phase.cells) == 5 * len(FIXTURES)
