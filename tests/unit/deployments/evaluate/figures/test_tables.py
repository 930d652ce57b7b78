"""The tables: layers are cuts through the same runs, and what wasn't run isn't counted."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.figures import tables
from deployments.evaluate.figures.tables import Cell, _find_interval, describe_spread, find_sign_p, tabulate_calls
from tests.support.evaluation_cells import FACTS, LAYERS, call_cell, make_cells, speed_cell, task_cell

layers = st.sampled_from([*LAYERS, None])


@given(st.text(min_size=1), st.sampled_from(["3", "1024-0", "buggy_calc#2"]))
def test_a_cells_key_is_read_back(model, name):
    """Most servers name their models with slashes."""
    cell = Cell(variant="served", kind="call", model=model, name=name)

    assert Cell.read_key(cell.key) == cell


@given(st.lists(st.tuples(layers, st.booleans()), min_size=1, max_size=30))
def test_each_layer_adds_to_the_one_before(answers):
    """More is delivered, never less, and it takes more; the last layer has all that was delivered at all. Each case is
    of one kind."""
    cells = {
        f"layers/call/m/{number}": call_cell(number, layer=layer, right=right and layer is not None)
        for number, (layer, right) in enumerate(answers)
    }
    rows = tabulate_calls(cells)

    assert [row["layer"] for row in rows] == ["raw", "+ repair", "+ retries", "+ grammar"]
    for one, other in pairwise(rows):
        assert one["valid"]["hits"] <= other["valid"]["hits"]
        assert one["right"]["hits"] <= other["right"]["hits"]
        assert one["seconds_per_case"] <= other["seconds_per_case"] + 1e-9
    assert rows[-1]["valid"]["hits"] == sum(layer is not None for layer, _ in answers)
    for row in rows:
        assert row["right"]["hits"] <= row["valid"]["hits"]
        assert sum(one["runs"] for one in row["by_category"].values()) == len(answers)
        assert sum(one["hits"] for one in row["by_category"].values()) == row["right"]["hits"]


def test_each_variant_has_its_row():
    """The chain, the grammar at once, and a server as it is. Without a right answer there is no price of one."""
    cells = make_cells() | {"served/call/x/0": call_cell(0, layer="raw", right=True)}
    found = {(row["model"], row["layer"]) for row in tabulate_calls(cells)}

    assert {("auto", "+ escalation"), ("fast", "grammar at once"), ("x", "as served"), ("large", "raw")} <= found
    (row, *_) = tabulate_calls({"layers/call/m/0": call_cell(0, layer=None, right=False)})

    assert (row["seconds_per_right"], row["tokens_per_right"]) == (None, None)


def test_tasks_are_rows_by_strategy():
    """With what failed. What was planned and not finished has a row with no runs: it isn't hidden, and isn't
    counted."""
    cells = make_cells() | {"unchecked/task/fast/buggy_calc": task_cell(passed=False)}
    rows = {row["strategy"]: row for row in tables.tabulate_tasks(cells)}

    assert set(rows) == {"rules", "fast", "fast, unchecked", "chain"}
    assert rows["chain"]["passed"]["hits"] == 2
    assert rows["fast"]["fixtures"]["buggy_calc"]["failed"] == ["located", "evidence", "fixed", "unmoved"]
    planned = tables.tabulate_tasks({}, [("layers", "slow"), ("layers", "slow"), ("chain", "auto")])
    shown = [(row["strategy"], row["passed"]["runs"], row["fixtures"]) for row in planned]
    assert shown == [("slow", 0, {}), ("chain", 0, {})]


def test_speeds_are_medians_with_spread():
    """By length and by model; a run that failed isn't one."""
    cells = make_cells() | {"layers/length/fast/1024-9": speed_cell(1024, 99.0, 1.0) | {"error": "timeout"}}
    fast = tables.list_speeds(cells, FACTS)["fast"]

    assert [row["prompt_tokens"]["median"] for row in fast["lengths"]] == [64, 1024]
    assert fast["lengths"][1]["first_s"] == {"median": 1.034, "min": 1.024, "max": 1.044, "runs": 3}
    assert fast["memory"] == {"process_bytes": 700_000_000, "mlx_bytes": 600_000_000}
    assert fast["wake_s"] == 1.0
    assert tables.list_speeds({}, FACTS)["large"]["lengths"] == []


runs = st.integers(1, 2_000)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [
        *((0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (1, 1, 0.2065, 1.0)),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilsons_interval_is_that_of_the_books(hits, count, low, high):
    """The last one is the example of Newcombe, 1998."""
    assert _find_interval(hits, count) == pytest.approx((low, high), abs=5e-5)


@given(runs.flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_share_and_stays_within_all(pair):
    """And more runs of the same share make it no wider. The interval of the misses is the mirror of that of the
    hits."""
    hits, count = pair
    low, high = _find_interval(hits, count)
    closer = _find_interval(4 * hits, 4 * count)

    assert 0 <= low <= hits / count <= high <= 1
    assert closer[1] - closer[0] <= high - low + 1e-12
    assert _find_interval(count - hits, count) == pytest.approx((1 - high, 1 - low))


def test_no_runs_say_nothing_and_a_spread_is_median_least_and_most():
    """The interval is everything, and there is no share; a spread is as measured, without a model of the noise."""
    assert tables.describe_share(0, 0) == {"hits": 0, "runs": 0, "share": None, "low": 0.0, "high": 1.0}
    assert describe_spread([]) is None
    assert describe_spread([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0, "runs": 3}


@given(st.integers(0, 60), st.integers(0, 60))
def test_chance_is_one_of_both_sides(worse, better):
    """A difference can't be unlikely in both directions, and nothing changed is what chance does always. Five of five
    is more than chance, and four of four isn't, at 5 %."""
    p = find_sign_p(worse, better)

    assert 0 < p <= 1
    assert p + find_sign_p(better, worse) > 0.999999
    assert (find_sign_p(5, 0), find_sign_p(4, 0), find_sign_p(0, 0)) == (1 / 32, 1 / 16, 1.0)
