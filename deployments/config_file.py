"""`serve_config.yaml` as a file: read, and held against the graph that it describes.

Ray Serve accepts a misspelt key at the top, in an application and in a deployment without a word, and finds a
deployment name that doesn't exist only after the start. Both are found here, before anything is started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from ray.serve.schema import DeploymentSchema, HTTPOptionsSchema, ServeApplicationSchema, ServeDeploySchema

from deployments.config import ROUTER, AppConfig, ConfigError, RouterConfig, check_names, load, patch

__all__ = ["ConfigFile", "read_file"]

IMPORT_PATH = "deployments.app:build"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The file's typed `args`, and where the server will listen."""

    args: AppConfig
    host: str
    port: int


def read_file(path: Path) -> ConfigFile:
    """Read and check the file.

    Raises:
        ConfigError: one line that names the key, or says why the file can't be read.
    """
    document = _document(path)
    _known_keys(document)
    ours = [a for a in document["applications"] if a.get("import_path") == IMPORT_PATH]
    if len(ours) != 1:
        raise ConfigError(f"applications: exactly one with import_path {IMPORT_PATH} is needed, found {len(ours)}")
    config = load(ours[0].get("args") or {})
    _check_deployments(config, ours[0].get("deployments") or [])
    http = HTTPOptionsSchema.model_validate(document.get("http_options") or {})
    return ConfigFile(args=config, host=http.host, port=http.port)


def _document(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, Mapping) or not isinstance(document.get("applications"), list):
        raise ConfigError("applications: a list is needed (this is a Ray Serve config file)")
    return dict(document)


def _known_keys(document: Mapping[str, Any]) -> None:
    _known("", document, ServeDeploySchema)
    for i, application in enumerate(document["applications"]):
        at = f"applications.{i}."
        if not isinstance(application, Mapping):
            raise ConfigError(f"{at[:-1]}: a mapping is needed")
        _known(at, application, ServeApplicationSchema)
        for j, deployment in enumerate(application.get("deployments") or []):
            _known(f"{at}deployments.{j}.", deployment, DeploymentSchema)


def _known(at: str, section: Mapping[str, Any], schema: Any) -> None:
    allowed = schema.model_fields
    for key in section:
        if key not in allowed:
            raise ConfigError(f"{at}{key}: unknown key; allowed here: {', '.join(sorted(allowed))}")


def _check_deployments(config: AppConfig, deployments: list[Mapping[str, Any]]) -> None:
    """Each override must name a deployment of the graph, and its `user_config` must be a patch that fits."""
    names = (ROUTER, *config.tiers)
    for i, deployment in enumerate(deployments):
        at = f"deployments.{i}"
        name = deployment.get("name")
        if name not in names:
            raise ConfigError(f"{at}.name: there is no deployment {name!r}; deployments: {', '.join(names)}")
        try:
            _check_user_config(config, str(name), deployment.get("user_config") or {})
        except ValueError as error:
            raise ConfigError(f"{at}.user_config: {error}") from None


def _check_user_config(config: AppConfig, name: str, change: Mapping[str, Any]) -> None:
    if name == ROUTER:
        base = RouterConfig(reliability=config.reliability, server=config.server)
        check_names(patch(base, change), tuple(config.tiers))
    else:
        patch(config.tiers[name], change)
