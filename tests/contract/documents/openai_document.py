"""OpenAI's own description of its API, reduced to what this server sends, and made strict.

`openai.json.xz` holds the JSON schemas of answers, events and errors from OpenAI's OpenAPI document: https://github.com/
openai/openai-openapi, version 2.3.0, commit f85dbe2 of 2026-08-21, MIT License, Copyright (c) OpenAI (https://openai.com).
The texts of the document are left out. `python -m tests.contract.documents.openai_document FILE` makes it anew from the
document's `openapi.json`.

In one place the document's schema says otherwise than its own examples, OpenAI's API and Open Responses: until a
response is complete its `usage` is null (`reduce`).
"""

import json
import lzma
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FILE = Path(__file__).parent / "openai.json.xz"
ROOTS = (
    *("CreateChatCompletionResponse", "CreateChatCompletionStreamResponse", "Response", "ResponseStreamEvent"),
    *("ResponseItemList", "TokenCountsResource", "ListModelsResponse", "Model", "ErrorResponse"),
    *("CreateCompletionResponse", "CreateEmbeddingResponse"),
)
# Keywords that are texts for a reader, or for a generator of code.
TEXTS = ("description", "title", "example", "examples", "default", "deprecated", "discriminator", "format", "x-")
AT = "#/components/schemas/"


def find_faults(name: str, value: Any) -> list[str]:
    """Find where a value isn't what the schema of this name says."""
    return [line for error in _build_validator(name).iter_errors(value) for line in _explain(error)]


def _explain(error: Any) -> Iterator[str]:
    """Explain an error by what is wrong in the choice that the value comes nearest to."""
    if not error.context:
        yield f"{error.json_path}: {error.message[:300]}"
        return
    choices: dict[Any, list[Any]] = {}
    for inner in error.context:
        choices.setdefault(inner.schema_path[0], []).append(inner)
    for inner in min(choices.values(), key=lambda errors: (any(_is_of_other_kind(e) for e in errors), len(errors))):
        yield from _explain(inner)


def _is_of_other_kind(error: Any) -> bool:
    return error.validator in ("const", "enum", "type") and (not error.path or error.path[-1] in ("type", "object"))


@cache
def _build_validator(name: str) -> Draft202012Validator:
    schemas = json.loads(lzma.decompress(FILE.read_bytes()))
    return Draft202012Validator({"$ref": AT + name, "components": {"schemas": schemas}})


def reduce(document: dict[str, Any]) -> dict[str, Any]:
    """Reduce the document to the schemas that `ROOTS` need."""
    schemas, wanted, kept = document["components"]["schemas"], list(ROOTS), dict[str, Any]()
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept[name] = _strip(schemas[name])
            wanted += re.findall(rf'"{re.escape(AT)}([^"]+)"', json.dumps(kept[name]))
    *_, own = kept["Response"]["allOf"]
    own["properties"]["usage"] = {"anyOf": [own["properties"]["usage"], {"type": "null"}]}
    return dict(sorted(kept.items()))


def _strip(value: Any, *, names: bool = False) -> Any:
    """Strip the texts, and write `nullable`, a word of OpenAPI 3.0, as a JSON schema has it. `names`: the keys are
    names of properties."""
    if isinstance(value, list):
        return [_strip(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: inner for key, inner in value.items() if names or not key.startswith(TEXTS)}
    nullable = not names and kept.pop("nullable", False) is True
    schema = {key: _strip(inner, names=not names and key == "properties") for key, inner in kept.items()}
    return {"anyOf": [schema, {"type": "null"}]} if nullable else schema


if __name__ == "__main__":
    reduced = reduce(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    FILE.write_bytes(lzma.compress(json.dumps(reduced, separators=(",", ":")).encode(), preset=9))
