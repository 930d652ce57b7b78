"""The tables of docs/configuration.md: every key of `args`, from the pydantic models.

    AppConfig ──sections()──▶ (path, model, keys) ──table()──▶ one Markdown table a section

Type and bounds are read from the JSON schema that pydantic makes of the models, the default from
the field, the meaning from its `description`. A tier's keys are listed once where all kinds have
them, then by kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from deployments.config.app_config import AppConfig
from deployments.config.tier_config import KINDS, TierBase

TYPES = {"integer": "whole number", "boolean": "true or false", "string": "text", "null": "null", "object": "mapping"}
PLURALS = {"string": "texts", "object": "mappings"}
# A text that YAML takes for one without quotes.
PLAIN = re.compile(r"[A-Za-z_][\w./-]*")


@dataclass(frozen=True)
class Section:
    """One section of the configuration: its path, what it is, and its keys."""

    path: str
    words: str
    model: type[BaseModel]
    keys: tuple[str, ...]


def config_tables() -> str:
    """Write all tables, each below its heading."""
    return "\n\n".join(f"### {s.path}\n\n{s.words}\n\n{_render_table(s)}" for s in sections())


def sections() -> Iterator[Section]:
    """List the sections: first the tiers, then the others in the order of the models."""
    common = tuple(TierBase.model_fields)
    yield Section("`tiers.NAME`", _describe(TierBase) + " `kind` says which keys it has besides.", TierBase, common)
    for kind, model in KINDS.items():
        own = tuple(key for key in model.model_fields if key not in common)
        yield Section(f"`tiers.NAME` with `kind: {kind}`", _describe(model), model, own)
    for key, field in AppConfig.model_fields.items():
        if key != "tiers":
            yield from _find_below(key, section_of(field.annotation))


def _find_below(path: str, model: Any) -> Iterator[Section]:
    nested = {key: found for key, field in model.model_fields.items() if (found := section_of(field.annotation))}
    keys = tuple(key for key in model.model_fields if key not in nested)
    if keys:
        yield Section(f"`{path}`", _describe(model), model, keys)
    for key, inner in nested.items():
        yield from _find_below(f"{path}.{key}", inner)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Find the section in an annotation such as `Timeouts`; None where a value is meant."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _describe(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _render_table(section: Section) -> str:
    schema = section.model.model_json_schema()
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in section.keys:
        field = section.model.model_fields[key]
        default = field.get_default(call_default_factory=True)
        kind = type_words(_without_null(schema["properties"][key], default), schema.get("$defs", {}))
        rows.append(f"| `{key}` | {kind} | {_describe_default(default)} | {_escape_cell(field.description)} |")
    return "\n".join(rows)


def _escape_cell(words: str | None) -> str:
    return " ".join((words or "").split()).replace("|", "\\|")


def _without_null(schema: dict[str, Any], default: Any) -> dict[str, Any]:
    """Leave null out where it means the same as a key that isn't set."""
    if default is not None or "anyOf" not in schema:
        return schema
    return schema | {"anyOf": [choice for choice in schema["anyOf"] if choice.get("type") != "null"]}


def type_words(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """Describe what may stand there, in words."""
    if "$ref" in schema:
        return type_words(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        return _join_choices([type_words(choice, defs) for choice in schema["anyOf"]])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return _join_choices([f"`{value}`" for value in schema["enum"]])
    if schema["type"] == "array":
        items, words = schema["items"], type_words(schema["items"], defs)
        plural = PLURALS["object"] if words == TYPES["object"] else PLURALS.get(items.get("type"), words)
        return f"list of {plural}"
    if schema.get("additionalProperties", False) == {"type": "string"}:
        return "mapping of texts"
    return " ".join(filter(None, (TYPES.get(schema["type"], schema["type"]), _describe_bounds(schema))))


def _describe_bounds(schema: Mapping[str, Any]) -> str:
    low, over, high = (schema.get(key) for key in ("minimum", "exclusiveMinimum", "maximum"))
    if low is not None:
        return f"from {_yaml(low)} to {_yaml(high)}" if high is not None else f"from {_yaml(low)} on"
    above = f"over {_yaml(over)}" if over is not None else ""
    return " and ".join(filter(None, (above, f"up to {_yaml(high)}" if high is not None else "")))


def _join_choices(choices: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))


def _describe_default(default: Any) -> str:
    if default is PydanticUndefined:
        return "needed"
    if default is None:
        return "not set"
    return f"`{_yaml(default)}`"


def _yaml(value: Any) -> str:
    """Write a value as it stands in the file."""
    if isinstance(value, (list, tuple, frozenset)):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    plain = isinstance(value, str) and PLAIN.fullmatch(value)
    return str(value) if plain else json.dumps(value)
