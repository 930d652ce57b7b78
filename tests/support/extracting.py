"""The tools that the tests of extraction declare, and what is found of them in a text."""

from reliability.tools import extract_calls
from tests.support.call_values import made
from tests.support.renderings import tool

SEARCH = {"properties": {"query": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["query"]}
SAVE = {
    "properties": {
        "path": {"type": "string"},
        "data": {"type": "object"},
        "tags": {"type": "array"},
        "on": {"type": "boolean"},
        "mixed": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "size": {"$ref": "#/$defs/Size"},
    },
    "$defs": {"Size": {"type": ["number", "null"]}},
}
BOX = made([tool("search", SEARCH), tool("get_time", {}), tool("save", SAVE)])
CALL = '{"name": "search", "arguments": {"query": "x"}}'


def calls(text):
    return [(call.name, call.arguments) for call in extract_calls(text, BOX).calls]


def kinds(text):
    return {repair.kind for call in extract_calls(text, BOX).calls for repair in call.repairs}
