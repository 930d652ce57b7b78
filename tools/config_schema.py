"""docs/serve_config.schema.json: what `serve_config.yaml` may hold, for editors that check and complete YAML.

Ray Serve's own models give the schema of the file, this server's models that of `args`. Where Ray takes unknown keys
without a word and this server's check refuses them (`deployments/graph/serve_file.py`), the schema refuses them too.

The schema knows types, bounds and names of keys. It doesn't know the relations between keys (`mlx-stack-serve check`
does), and it is stricter in one thing: a number in quotes is no number.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema
from ray.serve.schema import ServeDeploySchema

from deployments.config.app_config import ROUTER, AppConfig, RouterConfig
from deployments.graph.serve_file import IMPORT_PATH

# Where the check refuses unknown keys, besides the sections of `args`, which say so themselves.
CLOSED = ("DeploymentSchema", "HTTPOptionsSchema", "ServeApplicationSchema")
DIALECT = "https://json-schema.org/draft/2020-12/schema"
MODE: JsonSchemaMode = "validation"


def config_schema() -> str:
    """Write the schema."""
    return json.dumps(_build_document(), indent=1, ensure_ascii=False) + "\n"


def _build_document() -> dict[str, Any]:
    models = [(model, MODE) for model in (ServeDeploySchema, AppConfig, RouterConfig)]
    references, found = models_json_schema(models)
    defs = found["$defs"]
    for name in CLOSED:
        defs[name]["additionalProperties"] = False
    defs["AppConfig"]["properties"]["tiers"]["additionalProperties"] = False
    args, patch = references[(AppConfig, MODE)], references[(RouterConfig, MODE)]
    defs["ServeApplicationSchema"]["allOf"] = [
        _build_condition("import_path", IMPORT_PATH, {"properties": {"args": args}})
    ]
    # That of the Router; a tier's may leave out anything, so it stays open.
    user_config = {"properties": {"user_config": {"if": {"type": "object"}, "then": patch}}}
    defs["DeploymentSchema"]["allOf"] = [_build_condition("name", ROUTER, user_config)]
    root = defs.pop("ServeDeploySchema") | {"additionalProperties": False, "$defs": defs}
    head = {
        "$schema": DIALECT,
        "title": "MLX Stack Serve: serve_config.yaml",
        "description": "A Ray Serve config file.",
    }
    return head | _make_readable(root) | head


def _build_condition(key: str, value: str, then: dict[str, Any]) -> dict[str, Any]:
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _make_readable(schema: Any) -> Any:
    """Drop the titles that pydantic makes of the keys' names, which an editor shows anyway; choose the schema of a
    tier by its kind, so that an editor names the wrong key in it and not only the tier; and write each description,
    which is a docstring, as one line."""
    if isinstance(schema, list):
        return [_make_readable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "discriminator" in schema:
        return _choose_by_kind(schema["discriminator"]["propertyName"], schema["discriminator"]["mapping"])
    if isinstance(words := schema.get("description"), str):
        schema = schema | {"description": " ".join(words.split())}
    return {key: _make_readable(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}


def _choose_by_kind(key: str, references: dict[str, str]) -> dict[str, Any]:
    chosen = [_build_condition(key, kind, {"$ref": reference}) for kind, reference in references.items()]
    return {"type": "object", "required": [key], "properties": {key: {"enum": list(references)}}, "allOf": chosen}
