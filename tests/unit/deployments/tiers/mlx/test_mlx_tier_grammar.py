"""The tier `mlx` under a grammar, with the real default model: what is demanded is there, whole and valid."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from deployments.tiers.mlx.grammar.masker import CLOSED_NOTE
from deployments.tiers.mlx.mlx_tier import MlxTier
from reliability.tools import RawCall, build_toolbox, check_calls, id_source
from reliability.types import Event, Finish, FinishReason
from tests.evals.tool_cases import FIXTURES
from tests.support.tier_asking import answer, ask, calls_of, text_of

pytestmark = pytest.mark.model

PATIENCE_S = 600.0
CASES = [json.loads(line) for line in (FIXTURES / "bfcl_cases.jsonl").read_text(encoding="utf-8").splitlines()]
# `simple_python_375` of the Berkeley Function-Calling Leaderboard: SmolLM2 writes "items" for ever.
ITEMS = {"type": "array", "items": {"type": "string"}, "description": "List of items to be priced."}
QUANTITIES = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "Quantity of each item corresponding to the items list.",
}
STORE = {
    "type": "string",
    "description": "The store location for specific pricing (optional). Default to all if not specified.",
}
PRICES = {
    "name": "walmart_check_price",
    "description": "Calculate total price for given items and their quantities at Walmart.",
    "parameters": {
        "type": "object",
        "properties": {"items": ITEMS, "quantities": QUANTITIES, "store_location": STORE},
        "required": ["items", "quantities"],
    },
}
CHANT = {"id": "chant", "tools": [{"type": "function", "function": PRICES}]}
PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "people": {"type": "integer", "minimum": 0, "maximum": 99_000_000},
        "sights": {"type": "array", "items": {"enum": ["Tour", "Museum", "Café"]}, "maxItems": 2},
    },
    "required": ["city", "people"],
}


def said(tier: MlxTier, *requests: Any) -> list[list[Event]]:
    async def all_of_them() -> list[list[Event]]:
        return list(await asyncio.gather(*(answer(tier, request) for request in requests)))

    return asyncio.run(all_of_them())


def request(text: str = "Tell me about Paris, as JSON.", **fields: Any) -> Any:
    return ask(text, **{"temperature": 0.0, "max_tokens": 160, "timeout_s": PATIENCE_S, **fields})


def json_answer(schema: Mapping[str, Any], **fields: Any) -> Any:
    return request(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, **fields)


def reason_of(events: list[Event]) -> FinishReason:
    last = events[-1]
    assert isinstance(last, Finish), last
    return last.reason


def schema_violations(case: Mapping[str, Any], events: list[Event]) -> list[str]:
    """What the schemas of the case's tools have against the calls."""
    box = build_toolbox(case["tools"])
    calls = [RawCall(name=name or "", arguments=arguments, id=id) for id, name, arguments in calls_of(events)]
    checked = check_calls(calls, box, new_id=id_source("x"))
    wrong = [f"{v.path} {v.message}" for v in checked.violations if v.kind.value not in ("empty", "placeholder")]
    return wrong if calls else [f"no call: {events}"]


class TestCalls:
    @pytest.mark.parametrize(
        ("cases", "fields"), [(CASES, {"tool_choice": "required"}), (CASES[:2], {"constrained": True})]
    )
    def test_every_case_gets_a_valid_call(self, tier: MlxTier, cases: list[Any], fields: dict[str, Any]) -> None:
        """Law: a weak model under a grammar gives valid calls to every case, side by side in one batch."""
        asked = [request("Say hello.", max_tokens=200, tools=tuple(case["tools"]), **fields) for case in cases]
        for case, events in zip(cases, said(tier, *asked), strict=True):
            assert reason_of(events) is FinishReason.TOOL_CALLS, case["id"]
            assert schema_violations(case, events) == [], case["id"]

    def test_a_recorded_chant_is_led_out_of_its_string(self, tier: MlxTier) -> None:
        """Law: a demanded call that turns in circles up to its limit is closed there, and says so, instead of cut."""
        text = "Check the total price for three pumpkins and two dozen eggs at Walmart."
        tools = tuple(CHANT["tools"])
        (events,) = said(tier, request(text, tools=tools, tool_choice="required", max_tokens=256))
        assert (reason_of(events), events[-1].notes) == (FinishReason.TOOL_CALLS, (CLOSED_NOTE,))
        assert schema_violations(CHANT, events) == []


class TestJson:
    def test_the_answer_satisfies_the_schema(self, tier: MlxTier) -> None:
        """Law: with a response format the answer ends by itself and is what the schema says, sampled or not."""
        warm = {"temperature": 1.2, "seed": 5}
        for events in said(tier, json_answer(PLACE), json_answer(PLACE, **warm), json_answer(PLACE, top_p=0.5, **warm)):
            assert reason_of(events) is FinishReason.STOP
            jsonschema.validate(json.loads(text_of(events)), PLACE)
