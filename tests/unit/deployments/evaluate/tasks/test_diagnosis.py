"""The diagnosis: the one form in which every strategy hands in."""

import json

import pytest

from deployments.evaluate.tasks.diagnosis import SCHEMA, read_diagnosis
from reliability.steps import Steps
from reliability.tools import Compiled, compile_schema

GOOD = {
    "root_cause": "wrong sign",
    "file": "calc.py",
    "line": 6,
    "evidence": ["return a - b"],
    "confidence": 0.5,
    "fix_old": "return a - b",
    "fix_new": "return a + b",
}


@pytest.mark.parametrize("given", [GOOD, json.dumps(GOOD), GOOD | {"confidence": 1}])
def test_a_diagnosis_is_read(given):
    """As an object, or as its JSON."""
    found = read_diagnosis(given)

    assert found is not None
    assert found["line"] == 6


@pytest.mark.parametrize(
    "given",
    [
        *(None, "", "no JSON", "[]", 3, {}, {key: value for key, value in GOOD.items() if key != "fix_new"}),
        *(GOOD | wrong for wrong in ({"line": "6"}, {"evidence": []}, {"confidence": 2}, {"more": 1})),
        *(GOOD | wrong for wrong in ({"line": True}, {"line": 6.5}, {"confidence": -0.1}, {"confidence": "high"})),
        *(json.dumps(GOOD | {"confidence": value}) for value in (float("nan"), float("inf"))),
    ],
)
def test_what_is_none_is_none(given):
    """A field that is missing, wrong or too many."""
    assert read_diagnosis(given) is None


def test_a_line_is_a_whole_number():
    """As JSON may write one, too."""
    found = read_diagnosis(GOOD | {"line": 6.0})

    assert found is not None
    assert isinstance(found["line"], int)


def test_the_server_takes_the_schema():
    """It is one that a grammar can be made of."""
    assert isinstance(compile_schema(SCHEMA, Steps(1_000_000), arguments=True), Compiled)
