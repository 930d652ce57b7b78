"""The rows that read texts pass their floor on the small set, and can fail."""

from tests.evals import texts_eval, tool_cases


def test_a_wrong_delivery_is_a_failure():
    """The evaluation notices a changed value and a lost call."""
    box = tool_cases.toolbox([texts_eval.tool("save", {})])
    row = tool_cases.Row("x")
    case = {"raw": "{}"}

    texts_eval._malformed(
        row,
        case,
        tool_cases.judge_native([{"name": "save", "arguments": '{"a": 1}'}], box),
        [{"name": "save", "arguments": {"a": 2}}],
    )
    texts_eval._malformed(row, case, tool_cases.judge_text("no call", box), [{"name": "save", "arguments": {}}])

    assert [failure[:5] for failure in row.failures] == ["WRONG", "LOST:"]
    assert "FAILED 2" in str(row)

    before = len(row.failures)
    texts_eval._inline(row, tool_cases.judge_text("no call", box), "a\n", "a\n")
    assert len(row.failures) == before + 1


def test_every_family_is_read_and_none_acts_in_a_thought():
    """All samples are right, whole and streamed; the row of prose has none of them."""
    rows = [*texts_eval.written_formats(), texts_eval.prose()]

    assert [failure for row in rows for failure in row.failures] == []
    assert rows[0].total > 400
    assert rows[1].total > 300


def test_a_family_that_leaks_is_a_failure():
    """The evaluation notices a call that left as text, and one that was only thought."""
    row = tool_cases.Row("x")
    case = {"family": "f", "text": "t"}
    calls = [("save", {})]
    texts_eval._written(row, case, [texts_eval.Outcome([], False, "t")] * 3, calls)
    texts_eval._written(row, case, [texts_eval.Outcome(calls, False, "")] * 3, [])
    texts_eval._written(row, case, [texts_eval.Outcome(calls, False, ""), texts_eval.Outcome([], False, "t")], calls)

    assert [failure.split(":")[0] for failure in row.failures] == ["LEAKED", "WRONG", "STREAMED OTHERWISE"]
