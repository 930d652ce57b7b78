"""Configuration files, as small as they may be."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

TIERS: dict[str, Any] = {"fast": {"kind": "scripted", "script": [{"answer": "hi"}]}}


def make_document(tiers: Mapping[str, Any] = TIERS, http: Mapping[str, Any] | None = None, **args: Any) -> Any:
    """A configuration of these tiers, in the order of the chain, with these `http_options`."""
    args = {"tiers": copy.deepcopy(dict(tiers)), "reliability": {"escalation": {"chain": list(tiers)}}} | args
    app = {"name": "a", "route_prefix": "/", "import_path": "deployments.app:build", "args": args}
    return {"http_options": {"host": "127.0.0.1"} | dict(http or {}), "applications": [app]}


def write_config(
    path: Path, tiers: Mapping[str, Any] = TIERS, http: Mapping[str, Any] | None = None, **args: Any
) -> Path:
    path.write_text(yaml.safe_dump(make_document(tiers, http, **args)))
    return path
