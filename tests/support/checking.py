"""Tools with a demanding schema, and the verdict on one call of them."""

import json

from reliability.tools import CheckConfig, Checked, RawCall, check_calls
from tests.support.call_values import IDS, made
from tests.support.renderings import tool

TAGS = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}, "required": ["tags"]}
DEEP = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["Celsius", "Fahrenheit"]},
        "days": {"type": "integer", "minimum": 1},
        "live": {"type": "boolean"},
        "where": TAGS,
        "either": {"oneOf": [{"type": "object", "required": ["a"]}, {"type": "boolean"}]},
        "loose": {"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "object"}]},
        "none": {"type": ["string", "null"]},
        "code": {"const": "Alpha"},
        "pick": {"anyOf": [{"enum": ["Red", "Blue"]}, {"type": "integer"}]},
        "twice": {"enum": ["one", "ONE"]},
        "flag": {"enum": [True, False]},
        "day": {"type": "string", "format": "date"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
BOX = made([tool("get_weather", DEEP), tool("get_time", {})])


def verdict(arguments, name="get_weather", box=BOX, config=None, **more) -> Checked:
    text = arguments if isinstance(arguments, str) or arguments is None else json.dumps(arguments)
    more.setdefault("new_id", IDS)
    call = RawCall(name=name, arguments=text, id="own")
    return check_calls(
        [call], box, more.pop("tool_choice", None), more.pop("parallel", None), config or CheckConfig(), **more
    )


def with_city(**more):
    return verdict({"city": "Lima", **more})
