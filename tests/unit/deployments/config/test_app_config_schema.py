"""docs/serve_config.schema.json says of a file what the server's own check says, as far as a schema can."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from deployments.config.app_config import AppConfig, load
from deployments.config.config_errors import ConfigError
from tests.support.repository import ROOT
from tests.unit.deployments.config.test_app_config_effects import all_keys
from tools.docs import SCHEMA

Document = dict[str, Any]
WHOLE = json.loads(SCHEMA.read_text(encoding="utf-8"))
FILE = Draft202012Validator(WHOLE)
ARGS = Draft202012Validator({"$defs": WHOLE["$defs"], "$ref": "#/$defs/AppConfig"})
SHIPPED = ROOT / "serve_config.yaml"
FILES = [SHIPPED, *sorted((ROOT / "deployments/examples").glob("*.yaml"))]
VALUES = (0, -1, 1, 3, 0.5, 10**15, "x", "", "auto", True, False, [], ["x"], [1], {}, {"x": "y"}, {"x": 1})
# What pydantic reads one type as another; a schema doesn't.
LAX = (bool, int, float)


def shipped() -> Document:
    return yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))


def args() -> Document:
    """A configuration with a tier of each kind, without anything that could contradict another key."""
    kinds = {"mlx": {}, "hosted": {"base_url": "http://127.0.0.1:1/v1", "model": "m"}, "scripted": {"script": []}}
    tiers = {kind: {"kind": kind, **keys} for kind, keys in kinds.items()}
    return {"tiers": tiers, "reliability": {"escalation": {"chain": ["mlx"]}}}


def put(document: Document, path: str, value: Any) -> Document:
    """The document with one key set."""
    changed = copy.deepcopy(document)
    *way, last = path.split(".")
    here = changed
    for name in way:
        here = here.setdefault(name, {})
    here[last] = value
    return changed


def test_it_is_a_schema():
    """Of the dialect that it names."""
    Draft202012Validator.check_schema(WHOLE)


@pytest.mark.parametrize(
    "path", [SHIPPED, *sorted((ROOT / "deployments/examples").glob("*.yaml"))], ids=lambda p: p.stem
)
def test_it_takes_every_file_of_the_project(path):
    """The shipped configuration and the examples."""
    FILE.validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_the_shipped_file_names_it():
    """An editor finds the schema by the file's first line."""
    first = SHIPPED.read_text(encoding="utf-8").splitlines()[0]

    assert first == f"# yaml-language-server: $schema={SCHEMA.relative_to(ROOT)}"


def test_it_takes_every_default():
    """A person who writes a default down has changed nothing."""
    ARGS.validate(AppConfig.model_validate(args()).model_dump(mode="json"))


def mistakes() -> Iterator[tuple[str, Document]]:
    """The shipped file with an unknown key in each of its sections."""
    app = ("applications", 0)
    ours = (*app, "args")
    sections = [(), ("http_options",), app, (*app, "deployments", 0), (*app, "deployments", 0, "user_config"), ours]
    sections += [(*ours, key) for key in ("reliability", "server", "state")]
    sections += [(*ours, "tiers", "fast"), (*ours, "reliability", "escalation", "cloud_fallback")]
    for way in sections:
        document = shipped()
        here: Any = document
        for name in way:
            here = here[name]
        here["bogus"] = 1
        yield ".".join(map(str, way)) or "top", document


@pytest.mark.parametrize(("at", "document"), list(mistakes()), ids=[at for at, _ in mistakes()])
def test_an_unknown_key_is_named(at, document):
    """In every section, and the message is about that key."""
    (error,) = FILE.iter_errors(document)

    assert "'bogus' was unexpected" in error.message


@pytest.mark.parametrize("key", sorted(all_keys()))
def test_it_judges_each_key_as_the_server_does(key):
    """What the schema refuses the server refuses, unless it reads the value as one of another type; and where the
    server finds a wrong type or bound in this key, so does the schema."""
    for value in VALUES:
        document = put(args(), key, value)
        by_schema = not list(ARGS.iter_errors(document))
        by_server, words = judged(document)
        if not by_schema and by_server:
            assert read_otherwise(document, key, value), (key, value)
        if by_schema and not by_server:
            assert not words.startswith(f"{key}: Input should"), (key, value, words)


def judged(document: Document) -> tuple[bool, str]:
    """Whether the server takes it; else its words."""
    try:
        load(document)
    except ConfigError as error:
        return False, str(error)
    return True, ""


def read_otherwise(document: Document, key: str, value: Any) -> bool:
    """Whether the server has made a value of another type of it."""
    here: Any = load(document).model_dump(mode="json")
    for name in key.split("."):
        here = here[name]
    return type(here) is not type(value) and isinstance(value, LAX)
