"""What one schema and one value may cost, in steps: the same on every machine."""

from typing import Any

import pytest

from reliability.steps import OutOfSteps, Steps
from reliability.tools import BadTools, RawCall, ToolBox, build_toolbox, check_calls, id_source
from reliability.tools.check.repair import repair_arguments
from reliability.tools.schema.validator import UNBOUNDED
from tests.support.call_values import made
from tests.support.renderings import tool

IDS = id_source("bounds")


def object_of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def strings(count: int, name: str = "p", **keywords: Any) -> dict[str, Any]:
    return object_of(**{f"{name}{i}": {"type": "string", **keywords} for i in range(count)})


def forms() -> dict[str, Any]:
    inner = {"type": "array", "items": {"$ref": "#/$defs/F"}}
    words = ("and", "or", "not", "xor")
    some = [{**object_of(op={"const": op}, args=inner), "required": ["op", "args"]} for op in words]
    leaf = {**object_of(leaf={"type": "string"}), "required": ["leaf"]}
    return {**object_of(f={"$ref": "#/$defs/F"}), "$defs": {"F": {"anyOf": [*some, leaf]}}}


def nested(depth: int, leaf: Any) -> Any:
    value: Any = {"leaf": leaf}
    for _ in range(depth):
        value = {"op": "xor", "args": [value, {"leaf": "a"}]}
    return {"f": value}


def compile_cost(*parameters: Any) -> int:
    steps = Steps(UNBOUNDED)
    box = build_toolbox([tool(f"f{i}", one) for i, one in enumerate(parameters)], None, steps)
    assert isinstance(box, ToolBox), box
    return UNBOUNDED - steps.left


def judge_cost(parameters: Any, value: Any, *, valid: bool) -> int:
    steps = Steps(UNBOUNDED)
    assert bool(repair_arguments(value, made([tool("f", parameters)]).tools[0], steps).errors) is not valid
    return UNBOUNDED - steps.left


@pytest.mark.parametrize(("leaf", "valid"), [("a", True), (3, False)])
def test_a_union_costs_by_its_depth_and_not_its_power(leaf, valid):
    """Each schema and value are judged once, however many forms repeat them."""
    costs = [judge_cost(forms(), nested(depth, leaf), valid=valid) for depth in (5, 10, 20)]
    assert costs[2] < 5 * costs[0]
    assert costs[2] < 3_000


@pytest.mark.parametrize(("parameters", "value", "valid", "steps"), [
    (object_of(a={"uniqueItems": True}), {"a": [{"a": i, "b": [i]} for i in range(4_000)]}, True, 20_000),
    (object_of(a={"uniqueItems": True}), {"a": [i * (2**61 - 1) for i in range(9_000)]}, True, 10_000),
    (
        object_of(a={"items": {"enum": [f"Word{i}" for i in range(5_000)]}}),
        {"a": [f"word{i}" for i in range(5_000)]}, False, 10_000,
    ),
    (object_of(a={"items": {"type": "boolean"}}), {"a": ["true"] * 5_000}, False, 10_000),
    (object_of(a={"items": {"type": "boolean"}}), {"a": ["true"] * 60}, True, 10_000),
    (object_of(a={"items": {"type": "integer"}}), {"a": list(range(50_000))}, True, 60_000),
])  # fmt: skip
def test_judging_costs_by_the_size_of_the_value(parameters, value, valid, steps):
    """Nothing is compared with everything, and no repair judges all of it anew for each place."""
    assert judge_cost(parameters, value, valid=valid) < steps


def test_the_first_use_of_ordinary_tools_is_cheap():
    """A hundred tools of ten parameters are compiled on the loop, and cost next to nothing when they come again."""
    ordinary = [strings(3, f"only_here_{i}_", description="what it is") for i in range(100)]
    assert compile_cost(*ordinary) < 10_000
    assert compile_cost(*ordinary) < 200


@pytest.mark.parametrize(
    "parameters", [strings(9_000), object_of(**{f"x{i}": {"pattern": f"(a|b){{{i + 1}}}"} for i in range(500)})]
)
def test_large_schemas_are_no_work_for_few_steps(parameters):
    """Whoever has few steps learns that at once; with more it is compiled."""
    steps = Steps(20_000)
    with pytest.raises(OutOfSteps):
        build_toolbox([tool("f", parameters)], None, steps)
    assert isinstance(build_toolbox([tool("f", parameters)], None, Steps(20_000_000)), ToolBox)


def test_more_tools_than_may_be_are_not_compiled():
    """They are counted first."""
    steps = Steps(1_000)
    assert isinstance(build_toolbox([tool(f"f{i}", strings(50)) for i in range(2_000)], None, steps), BadTools)
    assert steps.left == 1_000


def test_the_last_steps_give_a_refusal_and_never_consent():
    """Where nobody can go on judging, the call isn't delivered."""
    box = made([tool("f", object_of(a={"items": {"type": "integer"}}))])
    raw = [RawCall(name="f", arguments={"a": list(range(500))})]
    found = check_calls(raw, box, new_id=IDS, steps=Steps(0, final=True))
    assert not found.calls
    assert [v.message for v in found.violations] == ["the arguments take longer to check than this server allows"]
    assert check_calls(raw, box, new_id=IDS, steps=Steps(5_000, final=True)).calls
