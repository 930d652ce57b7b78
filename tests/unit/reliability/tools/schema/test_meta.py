"""The schema of schemas, against the dialect's own."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from reliability.steps import Steps
from reliability.tools import BadSchema, compile_schema
from reliability.tools.schema.validator import UNBOUNDED
from tests.unit.reliability.tools.schema.test_validator import KEYWORDS

MISTAKES = [1, -1, 1.5, "x", "", True, [], {}, [1], ["a", "a"], ["string"], {"a": 1}, {"a": ["b", "b"]}, [{}], "1x"]


def test_a_schema_is_refused_where_the_meta_schema_refuses_it():
    """One look at each keyword says what the schema of schemas says."""
    said_by_us = {"items": ([{}], ["a", "a"], [1], ["string"], []), "required": (True,), "type": ([],)}
    for key in [*sorted({*KEYWORDS} - {"$ref", "pattern"}), "$anchor", "title", "$defs", "examples", "deprecated"]:
        for wrong in MISTAKES:
            if any(wrong == other and type(wrong) is type(other) for other in said_by_us.get(key, ())):
                continue  # another draft's way to say it
            if key in ("exclusiveMinimum", "exclusiveMaximum") and wrong is True:
                continue
            if key == "type" and wrong == "":
                continue
            ours = compile_schema({key: wrong}, Steps(UNBOUNDED), arguments=False)
            assert isinstance(ours, BadSchema) != refined(key, wrong), (key, wrong)


def refined(key: str, wrong: Any) -> bool:
    try:
        Draft202012Validator.check_schema({key: wrong})
    except SchemaError:
        return False
    return True
