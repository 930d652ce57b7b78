"""Function-calling cases: drawn alike from one seed, and each with an answer that is valid and right."""

import json
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from deployments.evaluate.calls.call_cases import CATEGORIES, TOOLS, draw_cases
from deployments.evaluate.calls.call_run import _are_valid, are_right
from reliability.tools import ToolBox, build_toolbox

seeds = st.integers(0, 10_000)


@given(seeds, st.integers(1, 30), st.integers(1, 30))
def test_a_longer_sample_begins_with_the_shorter_one(seed, few, many):
    """The same seed draws the same cases, however many are drawn."""
    few, many = sorted((few, many))

    assert draw_cases(seed, many)[:few] == draw_cases(seed, few)


@given(seeds)
def test_the_right_call_of_each_case_is_valid_and_right(seed):
    """By the tools' own schemas, which the server takes, with the first of the values that count; and a wrong value is
    not right."""
    assert isinstance(build_toolbox(list(TOOLS.values())), ToolBox)
    for case in (one for one in draw_cases(seed, 12) if one.tool):
        arguments = {key: values[0] for key, values in case.arguments.items() if values[0] != ""}
        wanted = [{"name": case.tool, "arguments": case.arguments}]
        spoiled = {key: "elsewhere" if isinstance(value, str) else value for key, value in arguments.items()}

        assert _are_valid([(case.tool, json.dumps(arguments))], case.tools)
        assert are_right([(case.tool, json.dumps(arguments))], wanted)
        if spoiled != arguments:
            assert not are_right([(case.tool, json.dumps(spoiled))], wanted)


@given(seeds)
def test_the_categories_take_turns(seed):
    """Any number of first cases holds about as many of each; several tools are more than one. Where no tool is wanted
    none fits: the request is one of those that a tool is for, and that tool isn't there."""
    cases = draw_cases(seed, 15)
    counts = Counter(case.category for case in cases)

    assert max(counts.values()) - min(counts.values()) <= 1
    assert set(counts) == set(CATEGORIES)
    assert all(len(case.tools) > 2 for case in cases if case.category == "several tools")
    assert all(case.features["messages"] > 4 for case in cases if case.category == "conversation")
    for case in cases:
        names = [tool["function"]["name"] for tool in case.tools]
        assert len(set(names)) == len(names)
        assert (case.tool in names) == (case.category != "no tool")
