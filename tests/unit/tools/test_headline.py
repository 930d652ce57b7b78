"""The headline table: what stands in it was measured, and what wasn't is a dash."""

import json

from tests.support.evaluation_cells import make_cells, make_report
from tools.headline import main, read_columns, render_table

PRINTED = """20 cases, greedy first attempt, at most 256 tokens an attempt
| layer | valid | right | attempts a case |
|---|---|---|---|
| raw model | 0 % | 0 % | 1.00 |
| + constraint | 30 % | 20 % | 3.04 |
40 cases, greedy first attempt, at most 256 tokens an attempt
| layer | valid | right | attempts a case |
|---|---|---|---|
| raw model | 2 % | 1 % | 1.00 |
| + constraint | 85 % | 70 % | 1.45 |
| + the second model | 90 % | 80 % | 1.50 |
"""


def test_a_report_has_a_column_for_each_model_and_the_chain(tmp_path):
    """With the shares that the report has."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(make_report(make_cells(24, fast_right=6, large_right=12))))
    columns = read_columns("x", path)

    assert list(columns) == ["fast", "large", "the chain"]
    assert columns["large"]["+ grammar"] == "50% (100% valid; 24 cases)"
    assert columns["fast"]["+ grammar"] == "25% (25% valid; 24 cases)"
    assert columns["the chain"]["+ escalation"] == "50% (100% valid; 24 cases)"
    assert columns["the chain"]["whole tasks"] == "2 of 2"


def test_one_model_of_a_report_can_be_named(tmp_path):
    """`NAME@TIER`."""
    path = tmp_path / "report.json"
    path.write_text(json.dumps(make_report()))

    assert list(read_columns("Small one@fast", path)) == ["Small one"]


def test_of_what_the_bench_has_printed_the_last_table_counts(tmp_path):
    """It prints one every twenty cases."""
    path = tmp_path / "log"
    path.write_text(PRINTED)

    assert read_columns("S", path)["S"] == {
        "raw": "1% (2% valid; 40 cases)",
        "+ grammar": "70% (85% valid; 40 cases)",
        "+ escalation": "80% (90% valid; 40 cases)",
    }


def test_what_was_not_run_is_a_dash():
    """And a layer that nobody ran isn't there."""
    table = render_table({"A": {"raw": "1%"}, "B": {"+ grammar": "2%"}})

    assert table == "| layer | A | B |\n| --- | --- | --- |\n| raw | 1% | – |\n| + grammar | – | 2% |\n"


def test_the_command_prints_the_table(tmp_path, capsys):
    """From several files; without any it says how."""
    (tmp_path / "log").write_text(PRINTED)

    assert main([f"S={tmp_path / 'log'}", f"T={tmp_path / 'log'}"]) == 0
    assert capsys.readouterr().out.startswith("| layer | S | T |\n")
    assert main([]) == 2


def test_what_can_t_be_read_is_one_line(tmp_path, capsys):
    """A model that isn't in the report is no column without figures."""
    (tmp_path / "report.json").write_text(json.dumps(make_report()))
    (tmp_path / "odd.json").write_text("{}")

    for given in (f"x@nobody={tmp_path / 'report.json'}", f"x={tmp_path / 'odd.json'}", f"x={tmp_path / 'none'}"):
        assert main([given]) == 2
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1)


def test_a_name_stays_in_its_cell():
    """Whatever letters it has."""
    assert render_table({"a|b": {"raw": "1%"}}).splitlines()[0] == "| layer | a/b |"
