"""What the suites print is read as it is meant: a case that failed is never counted as one that passed."""

import json

from tests.clients.suites import Result, build_table, play_suite, read_compliance, read_features
from tests.support.plays import Seen, Send


def test_features_are_counted_and_failures_named():
    """Law: each line of JSON is a case; what is no JSON (a warning) is none."""
    lines = [json.dumps({"case": "a", "wrong": ""}), "Warning: no.", json.dumps({"case": "b", "wrong": "text is 1"})]

    assert read_features("\n".join(lines)) == (2, {"b": "text is 1"})


def test_a_compliance_test_that_did_not_pass_has_failed():
    """Law: a test that was skipped, or says no reason, is no success."""
    results = [{"id": "a", "status": "passed"}, {"id": "b", "status": "failed"}, {"id": "c", "status": "skipped"}]

    assert read_compliance("noise\n" + json.dumps({"results": results})) == (3, {"b": "?", "c": "?"})


def test_the_table_names_what_failed():
    """Law: a row says how many cases there were, and which failed."""
    rows = build_table([Result("S", "1", 2, {"b": "?"}), Result("T", "2", 3, {})]).splitlines()[2:]

    assert rows == ["| S | 1 | 2 | b |", "| T | 2 | 3 | none |"]


def test_a_tool_is_called_where_a_user_asks():
    """Law: with a tool the played model calls it with what is required, behind its result it speaks."""
    tool = {"function": {"name": "f", "parameters": {"required": ["location"]}}}
    asked = {"tools": [tool], "messages": [{"role": "user", "content": "hi"}]}
    answered = {"tools": [tool], "messages": [{"role": "tool", "content": "sunny"}]}
    told = []
    for body in (asked, answered, {"messages": asked["messages"]}):
        seen = Seen(method="POST", path="/chat/completions", headers={}, raw=json.dumps(body).encode())
        told.append(b"".join(act.data for act in play_suite(seen) if isinstance(act, Send)))

    assert [b'"name": "f"' in data for data in told] == [True, False, False]
