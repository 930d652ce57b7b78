"""The evaluation's own small data set passes its floor, and its rows can fail."""

from __future__ import annotations

from tests.evals import tools_eval


def test_the_table_has_no_failure():
    """On the small set: nothing right refused, nothing delivered wrong, nothing lost."""
    cases, outputs = tools_eval.records("bfcl_cases"), tools_eval.records("malformed_tool_calls")
    cases = cases[:60]
    rows = [
        tools_eval.ground_truths(cases),
        *tools_eval.damaged_truths(cases, seeds=1),
        *tools_eval.malformed_outputs(outputs),
    ]

    assert [failure for row in rows for failure in row.failures] == []
    assert all(row.total for row in rows)
    assert rows[-3].counts["recovered"] > rows[-3].total / 2


def test_a_wrong_delivery_is_a_failure():
    """The evaluation notices a changed value and a lost call."""
    box = tools_eval.toolbox([tools_eval.tool("save", {})])
    row = tools_eval.Row("x")
    case = {"raw": "{}"}

    tools_eval._malformed(
        row,
        case,
        tools_eval.judge_native([{"name": "save", "arguments": '{"a": 1}'}], box),
        [{"name": "save", "arguments": {"a": 2}}],
    )
    tools_eval._malformed(row, case, tools_eval.judge_text("no call", box), [{"name": "save", "arguments": {}}])

    assert [failure[:5] for failure in row.failures] == ["WRONG", "LOST:"]
    assert "FAILED 2" in str(row)
