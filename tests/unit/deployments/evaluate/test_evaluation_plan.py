"""The plan: each cell once, each model as often as the others, and shares of the time that add up."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.evaluation_plan import PhaseSchedule, Settings, plan_served, plan_variants
from deployments.evaluate.figures.tables import Cell
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
    for phase in plan_variants(names, {}, Settings(cases=cases), chain=False, constrained=[]):
        if phase.title.startswith(("tool calls, each", "tasks, each")):
            counts = Counter(cell.model for cell in phase.cells[:count])
            assert max(counts.values(), default=0) - min((counts[name] for name in names), default=0) <= 1


def test_lengths_fit_the_context():
    """No prompt is planned that the model can't take, and the longest that it can is."""
    phases = plan_variants(["m"], {"m": 4096}, Settings(), chain=False, constrained=[])
    lengths = {int(c.name.partition("-")[0]) for phase in phases for c in phase.cells if c.kind == "length"}

    assert max(lengths) == 2048
    assert sum(cell.kind == "task" for phase in phases for cell in phase.cells) == 5 * len(FIXTURES)


def make_cells(models: dict[str, int]) -> list[Cell]:
    most = max(models.values(), default=0)
    return [
        Cell(variant="v", kind="call", model=model, name=str(number))
        for number in range(most)
        for model, count in models.items()
        if number < count
    ]


def play(schedule: PhaseSchedule, paces: dict[str, float], left_s: float) -> list[list[Cell]]:
    """Run until nothing is drawn; a batch takes as long as its cells one after the other."""
    batches = []
    while batch := schedule.draw(left_s):
        seconds = len(batch) * paces[batch[0].model]
        batches.append(batch)
        schedule.settle(batch, [], seconds)
        left_s -= seconds
    return batches


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 12), min_size=1), st.integers(1, 8), st.booleans())
def test_with_time_enough_every_cell_is_drawn_once(counts, batch_max, by_time):
    """In batches of one model, none larger than it may be, and in the order of the plan."""
    cells = make_cells(counts)
    schedule = PhaseSchedule(cells, {}, batch_max=batch_max, by_time=by_time)
    batches = play(schedule, {"a": 1.0, "b": 3.0, "c": 9.0}, 1e9)

    assert sorted(cell.key for batch in batches for cell in batch) == sorted(cell.key for cell in cells)
    for batch in batches:
        assert len(batch) <= batch_max
        assert len({cell.model for cell in batch}) == 1
    for model in counts:
        drawn = [cell.name for batch in batches for cell in batch if cell.model == model]
        assert drawn == sorted(drawn, key=int)


def test_by_count_nobody_is_ahead_and_by_time_a_slow_model_leaves_the_others_theirs():
    """By count one cell in turn, whatever each takes; by time in 100 s, of which a cell of the slow one takes 20, the
    fast one gets all of its cells."""
    schedule = PhaseSchedule(make_cells({"a": 3, "b": 3}), {}, batch_max=1, by_time=False)
    assert [batch[0].model for batch in play(schedule, {"a": 1.0, "b": 50.0}, 1e9)] == list("ababab")
    schedule = PhaseSchedule(make_cells({"slow": 10, "fast": 10}), {}, batch_max=1, by_time=True)
    drawn = [batch[0].model for batch in play(schedule, {"slow": 20.0, "fast": 1.0}, 100.0)]

    assert (drawn.count("fast"), drawn.count("slow")) == (10, 4)


@pytest.mark.parametrize(
    ("count", "guess_s", "pace_s", "left_s", "batches"),
    [(20, 10.0, 10.0, 105.0, [8, 2]), (3, 1_000.0, 60.0, 100.0, [1])],
)
def test_a_batch_is_as_large_as_the_time_allows(count, guess_s, pace_s, left_s, batches):
    """By the pace that is known; what doesn't fit is not begun. What is only thought to take too long is tried once: a
    guess is no reason to leave a part of the report empty."""
    schedule = PhaseSchedule(make_cells({"m": count}), {"m": guess_s}, batch_max=8, by_time=True)

    assert [len(batch) for batch in play(schedule, {"m": pace_s}, left_s)] == batches


def test_late_cells_come_back_in_half_and_late_alone_is_the_end():
    """Those that finished are kept; the model is named."""
    schedule = PhaseSchedule(make_cells({"m": 4}), {}, batch_max=4, by_time=False)
    first = schedule.draw(100.0)
    schedule.settle(first, first[1:], 10.0)
    second = schedule.draw(90.0)

    assert [cell.name for cell in second] == ["1", "2"]
    schedule.settle(second, second, 10.0)
    third = schedule.draw(80.0)
    assert [cell.name for cell in third] == ["1"]
    assert schedule.late == set()
    schedule.settle(third, third, 10.0)
    assert schedule.draw(70.0) == []
    assert schedule.late == {"m"}
