"""The evaluation's own small data set passes its floor, and its rows can fail."""

from __future__ import annotations

import json
from random import Random

from reliability.types import ToolCall
from tests.evals import tools_eval


def test_the_table_has_no_failure():
    """On the small set: nothing right refused, nothing delivered wrong, nothing lost."""
    cases, outputs = tools_eval.records("bfcl_cases"), tools_eval.records("malformed_tool_calls")
    cases = cases[:60]
    rows = [
        tools_eval.ground_truths(cases),
        *tools_eval.damaged_truths(cases, seeds=1),
        tools_eval.renamed(cases),
        tools_eval.repeated(cases, Random("pieces")),
        *tools_eval.stand_ins(),
        tools_eval.recorded_calls(tools_eval.records("agent_traces")[:20]),
        tools_eval.inline_parameters(),
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


def test_each_row_can_fail():
    """A call under another tool's name, a call that is lost, one call more than there should be: each is seen."""
    cases = [case for case in tools_eval.right(tools_eval.records("bfcl_cases")) if len(case["ground_truth"]) == 1][:1]
    (truth,) = cases[0]["ground_truth"]
    box = tools_eval.toolbox(cases[0]["tools"])
    row = tools_eval.Row("x")

    tools_eval._renamed(row, "id", box, truth, f"another_{truth['name']}")
    tools_eval._inline(row, tools_eval.judge_text("no call", box), "a\n", "a\n")

    assert len(row.failures) == 3
    assert not tools_eval.same([truth_call(truth)] * 2, [truth])


def truth_call(truth):
    return ToolCall(id="a", name=truth["name"], arguments=json.dumps(truth["arguments"]))


def test_every_family_is_read_and_none_acts_in_a_thought():
    """All samples are right, whole and streamed; the row of prose has none of them."""
    rows = [*tools_eval.written_formats(), tools_eval.prose()]

    assert [failure for row in rows for failure in row.failures] == []
    assert rows[0].total > 400
    assert rows[1].total > 300


def test_a_family_that_leaks_is_a_failure():
    """The evaluation notices a call that left as text, and one that was only thought."""
    row = tools_eval.Row("x")
    case = {"family": "f", "text": "t"}
    calls = [("save", {})]
    tools_eval._written(row, case, [tools_eval.Outcome([], False, "t")] * 3, calls)
    tools_eval._written(row, case, [tools_eval.Outcome(calls, False, "")] * 3, [])
    tools_eval._written(row, case, [tools_eval.Outcome(calls, False, ""), tools_eval.Outcome([], False, "t")], calls)

    assert [failure.split(":")[0] for failure in row.failures] == ["LEAKED", "WRONG", "STREAMED OTHERWISE"]
