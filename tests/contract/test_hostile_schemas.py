"""What of a schema is refused on arrival, and what isn't checked and said so. What it costs others is `test_on_ray`'s,
whose server has processes of its own."""

from typing import Any

import pytest

from tests.support import scripts
from tests.support.http_asking import ask, report_of, user
from tests.support.schema_attacks import RULES, object_of, strings, tools
from tests.support.serving import Deploy, Server


@pytest.fixture(scope="module")
def server(deploy: Deploy) -> Server:
    args = scripts.args(scripts.TWO)
    args["tiers"]["fast"]["script"][:0] = RULES
    return deploy(args, "refused-schemas")


def test_what_isnt_checked_is_said_in_the_report(server):
    """A pattern that no linear engine has is not asserted; the call leaves, with a note."""
    schema = object_of(q={"type": "string", "pattern": "(a)\\1"})
    outcome = ask(server, user("<bounded-repeats>"), model="fast", stream=False, tools=tools(schema))

    assert outcome.calls == [("f", {"q": "a" * 56 + "!"})]
    (note,) = report_of(server, outcome)["notes"]
    assert note == "not checked in the arguments of f: /properties/q/pattern: the pattern refers back to a group"


def doubling(levels: int) -> dict[str, Any]:
    parts = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{levels}": {"type": "object"}}}


@pytest.mark.parametrize(
    ("schema", "place", "said"),
    [
        ({"$ref": "https://example.com/s.json"}, ".$ref", "only references inside the schema"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, ".properties.a.$ref", "leads nowhere"),
        (doubling(30), "", "references multiply"),
        ({"type": "strange"}, ".type", "is no valid JSON Schema"),
        ({"properties": {"a": {"pattern": "("}}}, ".properties.a.pattern", "is no regular expression"),
        (strings(30_000), "", "larger or deeper"),
    ],
)
def test_an_answers_schema_is_refused_by_its_place(server, schema, place, said):
    """`response_format` is held to the bounds of a tool's schema, on arrival, whatever the tier."""
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    outcome = ask(server, user("hello"), model="standard", stream=False, response_format=wanted)

    assert (outcome.status, outcome.error["code"]) == (400, "invalid_request")
    assert outcome.error["param"].startswith("response_format.json_schema.schema" + place)
    assert said in outcome.error["message"]


def test_a_good_answers_schema_passes(server):
    """As it did: the schema goes to the tier as it came."""
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": object_of(leaf={"type": "string"})},
    }

    assert ask(server, user("hello"), model="standard", stream=False, response_format=wanted).status == 200
