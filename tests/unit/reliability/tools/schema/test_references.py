"""Where the references of a schema lead."""

from __future__ import annotations

import json

import pytest

from reliability.tools import BadTools, build_toolbox
from reliability.tools.schema.references import check_references
from reliability.tools.schema.validator import Validator
from tests.support.renderings import tool


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"$ref": "https://remote/schema.json"}, "only references inside the schema"),
        ({"$ref": "#/$defs/B"}, "'#/$defs/B' leads nowhere"),
        ({"$ref": "#/$defs/B", "$defs": {"B": {"anyOf": [{"$ref": "#/$defs/B"}]}}}, "leads back to itself"),
    ],
)
def test_bad_references_are_told_apart(parameters, said):
    """The client is told what is wrong with a reference: where it leads, found out without following it."""
    bad = build_toolbox([tool("a", parameters)])

    assert isinstance(bad, BadTools)
    assert said in bad.message


def test_references_are_those_of_the_document():
    """An anchor, a pointer with escapes, and the root."""
    parts = {"p": {"$ref": "#/$defs/a~1b"}, "q": {"$ref": "#here"}, "r": {"$ref": "#"}}
    schema = {"$defs": {"a/b": {"$anchor": "here", "type": "string"}}, "properties": parts}
    check_references(schema)

    assert Validator(schema).is_valid({"p": "x", "q": "y", "r": {"p": "z"}})
    assert not Validator(schema).is_valid({"r": {"r": {"q": 1}}})
    assert json.loads(json.dumps(schema)) == schema
