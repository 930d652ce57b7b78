"""Two reports: a planted regression is found, and noise is none."""

import copy

import pytest

from deployments.evaluate.figures.comparison import compare_reports, is_comparable
from tests.support.evaluation_cells import FACTS, make_cells, make_report

OLD = make_report()


def kinds(found: list[dict]) -> list[str]:
    return [one["kind"] for one in found]


def test_a_planted_regression_is_found():
    """A model that became worse at tool calls: named, with the cases, and first; the other way round it is better. A
    report beside itself has no differences, and one case more or less is shown, as a change."""
    assert compare_reports(OLD, copy.deepcopy(OLD)) == []
    assert set(kinds(compare_reports(OLD, make_report(make_cells(large_right=21))))) == {"changed"}
    found = compare_reports(OLD, make_report(make_cells(large_right=10)))

    assert found[0]["kind"] == "worse"
    assert any("calls of large" in one["words"] and "22 → 10 of 24" in one["words"] for one in found)
    assert kinds(found) == sorted(kinds(found), key=["worse", "better", "changed"].index)
    found = compare_reports(make_report(make_cells(large_right=10)), OLD)
    assert "worse" not in kinds(found)
    assert "better" in kinds(found)


def test_a_model_that_became_slower_is_found():
    """The medians apart by more than a quarter, and the spreads too. Where nothing was repeated there is no spread to
    hold it against."""
    found = compare_reports(OLD, make_report(make_cells(slow=2.0)))

    assert any(one["kind"] == "worse" and "first token of fast" in one["words"] for one in found)
    slower = compare_reports(OLD, make_report(make_cells(slow=1.1)))
    single, long = make_cells(), make_cells(slow=3.0)
    for cells in (single, long):
        for key in [key for key in cells if "/length/" in key and not key.endswith("-0")]:
            cells.pop(key)
    for found in (slower, compare_reports(make_report(single), make_report(long))):
        assert not any("first token" in one["words"] or "tokens/s of" in one["words"] for one in found)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        *(("fit", "not fit", "worse"), ("not fit", "fit with fallback", "better"), ("fit", "tentative", "changed")),
        *(("not fit", "tentative", "changed"), ("tentative", "not fit", "changed")),
    ],
)
def test_a_verdict_that_got_worse_is_found(before, after, kind):
    """Whatever the cells say one by one. A shorter run, or one case more or less, is no regression by its verdict."""
    old, new = copy.deepcopy(OLD), copy.deepcopy(OLD)
    old["verdicts"]["fast"]["verdict"], new["verdicts"]["fast"]["verdict"] = before, after

    assert compare_reports(old, new) == [{"kind": kind, "words": f"verdict on fast: {before} → {after}"}]


def test_a_model_or_a_variant_that_can_t_be_asked_any_more_is_found():
    """With the reason; one that nobody wanted to ask has only gone. Of a variant the cells are missing, and nothing
    else would say so."""
    facts = FACTS | {"models": {"fast": FACTS["models"]["fast"]}, "unavailable": {"large": "no such weights"}}
    cells = {key: one for key, one in make_cells().items() if "/large/" not in key}
    lost = compare_reports(OLD, make_report(cells, facts))
    gone = compare_reports(OLD, make_report(cells, facts | {"unavailable": {}}))

    assert lost[0] == {"kind": "worse", "words": "large can't be asked any more: no such weights"}
    assert "worse" not in kinds(gone)
    failed = compare_reports(OLD, make_report(facts=FACTS | {"failed/chain": "no room"}))
    assert failed[0] == {"kind": "worse", "words": "variant chain of the server doesn't start any more: no room"}


def test_a_peak_of_memory_that_grew_is_found():
    """By a quarter, where both ran the same; what ran more may need more."""
    memory = {"process": {"fast": 1_000_000_000}, "mlx": {"fast": 660_000_000}}
    facts = FACTS | {"memory/layers": memory}
    more = make_report(make_cells(cases=27), facts)

    assert [(one["kind"], one["words"]) for one in compare_reports(OLD, make_report(facts=facts))] == [
        ("worse", "peak memory of fast, process: 0.70 → 1.00 GB")
    ]
    assert not any("memory" in one["words"] for one in compare_reports(OLD, more))


def test_requests_that_fail_together_are_found():
    """Eight of eight; a throughput of one run is shown, and says nothing."""
    failing = {"failed": 8, "tokens_s": 0.0, "first_s": None, "errors": ["500"]}
    cells = {key: one | failing if "/together/fast" in key else one for key, one in make_cells().items()}
    found = compare_reports(OLD, make_report(cells))

    assert [one["kind"] for one in found] == ["worse", "changed"]
    assert "8 more failed" in found[0]["words"]
    slow = {key: one | {"tokens_s": 9.0} if "/together/fast" in key else one for key, one in make_cells().items()}
    assert kinds(compare_reports(OLD, make_report(slow))) == ["changed"]


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
    """Other weights, another library: that is what to look at first; and that two reports share nothing, of a server by
    its URL and of a configuration, say."""
    models = {name: one | {"sha256": "cd" * 32} for name, one in FACTS["models"].items()}
    facts = FACTS | {"models": models, "versions": {"python": "3.11", "mlx": "2"}}
    words = [one["words"] for one in compare_reports(OLD, make_report(facts=facts))]

    assert "mlx: 1 → 2" in words
    assert any(one.startswith("fast, sha256: abab") for one in words)
    assert any("none is compared" in one["words"] for one in compare_reports(OLD, OLD | {"outcomes": {}}))


@pytest.mark.parametrize(("change", "why"), [({"format": 0}, "format"), ({"seed": 9}, "--seed 9")])
def test_what_can_t_be_compared_is_refused(change, why):
    """Another seed drew other cases."""
    assert why in is_comparable(OLD | change, OLD)
    assert is_comparable(OLD, OLD) == ""


@pytest.mark.parametrize("part", ["outcomes", "speeds", "verdicts", "versions", "models", "machine"])
@pytest.mark.parametrize("value", [None, 3, "x", [1]])
def test_a_damaged_report_is_refused(part, value):
    """Whichever part of it is missing, or another thing."""
    assert "damaged" in is_comparable(OLD | {part: value}, OLD)
    assert "damaged" in is_comparable({name: one for name, one in OLD.items() if name != part}, OLD)
