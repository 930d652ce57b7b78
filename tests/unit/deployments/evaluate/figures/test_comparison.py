"""Two reports: a planted regression is found, and noise is none."""

from __future__ import annotations

import copy

import pytest

from deployments.evaluate.figures.comparison import compare_reports, is_comparable
from tests.support.evaluation_cells import FACTS, make_cells, make_report

OLD = make_report()


def kinds(found: list[dict]) -> list[str]:
    return [one["kind"] for one in found]


def test_nothing_has_changed():
    """A report beside itself has no differences."""
    assert compare_reports(OLD, copy.deepcopy(OLD)) == []


def test_a_planted_regression_is_found():
    """A model that became worse at tool calls: named, with the cases, and first."""
    found = compare_reports(OLD, make_report(make_cells(large_right=10)))

    assert found[0]["kind"] == "worse"
    assert any("calls of large" in one["words"] and "22 → 10 of 24" in one["words"] for one in found)
    assert kinds(found) == sorted(kinds(found), key=["worse", "better", "changed"].index)


def test_an_improvement_is_one():
    """The other way round."""
    found = compare_reports(make_report(make_cells(large_right=10)), OLD)

    assert "worse" not in kinds(found)
    assert "better" in kinds(found)


def test_one_case_more_or_less_is_no_regression():
    """It is shown, as a change."""
    found = compare_reports(OLD, make_report(make_cells(large_right=21)))

    assert set(kinds(found)) == {"changed"}


def test_a_model_that_became_slower_is_found():
    """The medians apart by more than a quarter, and the spreads too."""
    found = compare_reports(OLD, make_report(make_cells(slow=2.0)))

    assert any(one["kind"] == "worse" and "first token of fast" in one["words"] for one in found)
    slower = compare_reports(OLD, make_report(make_cells(slow=1.1)))
    assert not any("first token" in one["words"] or "tokens/s" in one["words"] for one in slower)


def test_a_figure_of_one_run_is_no_regression():
    """Where nothing was repeated there is no spread to hold it against."""
    single = {key: one for key, one in make_cells().items() if "/length/" not in key or key.endswith("-0")}
    slower = {key: one for key, one in make_cells(slow=3.0).items() if "/length/" not in key or key.endswith("-0")}

    found = compare_reports(make_report(single), make_report(slower))
    assert not any("first token" in one["words"] or "tokens/s of" in one["words"] for one in found)


def test_a_verdict_that_got_worse_is_found():
    """Whatever the cells say one by one."""
    worse = copy.deepcopy(OLD)
    worse["verdicts"]["fast"]["verdict"] = "not fit"
    better = copy.deepcopy(OLD)
    better["verdicts"]["fast"]["verdict"] = "fit"
    found = compare_reports(better, worse)

    assert kinds(found) == ["worse"]
    assert found[0]["words"] == "verdict on fast: fit → not fit"


def test_models_whose_names_have_slashes_are_compared():
    """As most servers name them."""
    cells = make_cells()
    renamed = {key.replace("/large/", "/org/large:7b/"): one for key, one in cells.items()}
    worse = {key.replace("/large/", "/org/large:7b/"): one for key, one in make_cells(large_right=9).items()}
    models = {"fast": FACTS["models"]["fast"], "org/large:7b": FACTS["models"]["large"]}
    facts = FACTS | {"models": models}
    old, new = make_report(renamed, facts), make_report(worse, facts)

    assert old["verdicts"]["org/large:7b"]["verdict"] == OLD["verdicts"]["large"]["verdict"]
    assert any("calls of org/large:7b (layers)" in one["words"] for one in compare_reports(old, new))


def test_what_stands_behind_the_figures_is_named():
    """Other weights, another library: that is what to look at first."""
    models = {name: one | {"sha256": "cd" * 32} for name, one in FACTS["models"].items()}
    facts = FACTS | {"models": models, "versions": {"python": "3.11", "mlx": "2"}}
    words = [one["words"] for one in compare_reports(OLD, make_report(facts=facts))]

    assert "mlx: 1 → 2" in words
    assert any(one.startswith("fast, sha256: abab") for one in words)


@pytest.mark.parametrize(("change", "why"), [({"format": 0}, "format"), ({"seed": 9}, "--seed 9")])
def test_what_can_t_be_compared_is_refused(change, why):
    """Another seed drew other cases."""
    assert why in is_comparable(OLD | change, OLD)
    assert is_comparable(OLD, OLD) == ""
