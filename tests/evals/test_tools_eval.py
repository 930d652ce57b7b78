"""The evaluation's own small data set passes its floor, and its rows can fail."""

import json
from random import Random

from reliability.types import ToolCall
from tests.evals import texts_eval, tool_cases, tools_eval


def test_the_table_has_no_failure():
    """On the small set: nothing right refused, nothing delivered wrong, nothing lost."""
    cases, outputs = tool_cases.records("bfcl_cases"), tool_cases.records("malformed_tool_calls")
    cases = cases[:60]
    rows = [
        tools_eval.ground_truths(cases),
        *tools_eval.damaged_truths(cases, seeds=1),
        tools_eval.renamed(cases),
        tools_eval.repeated(cases, Random("pieces")),
        *tools_eval.stand_ins(),
        tools_eval.recorded_calls(tool_cases.records("agent_traces")[:20]),
        texts_eval.inline_parameters(),
        *texts_eval.malformed_outputs(outputs),
    ]

    assert [failure for row in rows for failure in row.failures] == []
    assert all(row.total for row in rows)
    assert rows[-3].counts["recovered"] > rows[-3].total / 2


def test_each_row_can_fail():
    """A call under another tool's name, a call that is lost, one call more than there should be: each is seen."""
    cases = [case for case in tool_cases.right(tool_cases.records("bfcl_cases")) if len(case["ground_truth"]) == 1][:1]
    (truth,) = cases[0]["ground_truth"]
    box = tool_cases.toolbox(cases[0]["tools"])
    row = tool_cases.Row("x")

    tools_eval._renamed(row, "id", box, truth, f"another_{truth['name']}")

    assert len(row.failures) == 2
    assert not tool_cases.same([truth_call(truth)] * 2, [truth])


def truth_call(truth):
    return ToolCall(id="a", name=truth["name"], arguments=json.dumps(truth["arguments"]))
