"""`serve_config.yaml` as a file: read, and held against the graph that it describes.

Ray Serve accepts a misspelt key without a word, and finds an unknown deployment only after the start.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from ray.serve.config import ProxyLocation
from ray.serve.schema import DeploymentSchema, HTTPOptionsSchema, ServeApplicationSchema, ServeDeploySchema

from deployments.config.app_config import ROUTER, AppConfig, RouterConfig, ServerConfig, load
from deployments.config.config_errors import ConfigError, describe_yaml_error
from deployments.config.whole_file import read_bounded
from deployments.config.yaml_text import load_yaml
from deployments.graph.reconfigure import patch_router, patch_tier

IMPORT_PATH = "deployments.app:build"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """The file's typed `args`, and where the server will listen. `server`: as the Router's `user_config` patches it.
    `app`: the application's name; `prefix`: its place on the server."""

    args: AppConfig
    server: ServerConfig
    http: HTTPOptionsSchema
    app: str
    prefix: str

    @property
    def host(self) -> str:
        return str(self.http.host)

    @property
    def port(self) -> int:
        return int(self.http.port)

    @property
    def tls(self) -> bool:
        """Whether it speaks HTTPS."""
        return bool(self.http.ssl_certfile)

    @property
    def url(self) -> str:
        """Where a client on this machine finds it, without `/v1`."""
        host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        shown = f"[{host}]" if ":" in host else host
        return f"http{'s' if self.tls else ''}://{shown}:{self.port}{self.http.root_path.rstrip('/')}{self.prefix}"


def read_file(path: Path) -> ConfigFile:
    """Read and check the file. Raises ConfigError: one line that names the key, or says why the file can't be read."""
    document = _read_document(path)
    _check_keys(document)
    ours = [a for a in document["applications"] if a.get("import_path") == IMPORT_PATH]
    if len(ours) != 1:
        raise ConfigError(f"applications: exactly one with import_path {IMPORT_PATH} is needed, found {len(ours)}")
    config = load(ours[0].get("args") or {})
    server = _check_deployments(config, ours[0].get("deployments") or [])
    schema = _parse_schema(document)
    http = schema.http_options
    if not 0 < http.port < 65_536:
        raise ConfigError(f"http_options.port: {http.port} is no port: take one from 1024 to 65535")
    app = next(a for a in schema.applications if a.import_path == IMPORT_PATH)
    if schema.proxy_location == ProxyLocation.Disabled:
        raise ConfigError("proxy_location: Disabled: nobody would listen; HeadOnly is usual")
    if not (app.route_prefix or "").startswith("/"):
        raise ConfigError("applications.route_prefix: a path from the root is needed: / is usual")
    return ConfigFile(args=config, server=server, http=http, app=app.name, prefix=(app.route_prefix or "").rstrip("/"))


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = load_yaml(read_bounded(path).decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError("is not UTF-8") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a ValueError is a date that doesn't exist
        raise ConfigError(f"is not YAML: {describe_yaml_error(error)}") from None
    if not isinstance(document, Mapping) or not isinstance(document.get("applications"), list):
        raise ConfigError("applications: a list is needed (this is a Ray Serve config file)")
    return dict(document)


def _check_keys(document: Mapping[str, Any]) -> None:
    _refuse_unknown_keys("", document, ServeDeploySchema)
    options = document.get("http_options", {})
    _refuse_unknown_keys("http_options", options, HTTPOptionsSchema)  # a misspelt TLS key: API keys in clear
    for i, application in enumerate(document["applications"]):
        at = f"applications.{i}"
        _refuse_unknown_keys(at, application, ServeApplicationSchema)
        deployments = application.get("deployments") or []
        if not isinstance(deployments, list):
            raise ConfigError(f"{at}.deployments: a list is needed")
        for j, deployment in enumerate(deployments):
            _refuse_unknown_keys(f"{at}.deployments.{j}", deployment, DeploymentSchema)


def _parse_schema(document: Mapping[str, Any]) -> ServeDeploySchema:
    """Parse the file by the rules of Ray Serve, which would go on without an application that it cannot import."""
    try:
        schema = ServeDeploySchema.model_validate({"http_options": {}, **document})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        words = " ".join(first["msg"].removeprefix("Value error, ").split())
        raise ConfigError(": ".join(filter(None, (path, words)))) from None
    for i, app in enumerate(schema.applications):
        module, found = app.import_path.partition(":")[0], None
        with contextlib.suppress(ImportError, ValueError):
            found = importlib.util.find_spec(module)
        if found is None:
            raise ConfigError(f"applications.{i}.import_path: there is no module {module!r}")
    return schema


def _refuse_unknown_keys(at: str, section: Any, schema: Any) -> None:
    if not isinstance(section, Mapping):
        raise ConfigError(f"{at}: a mapping is needed")
    allowed = schema.model_fields
    for key in section:
        if key not in allowed:
            path = f"{at}.{key}" if at else key
            raise ConfigError(f"{path}: unknown key; allowed here: {', '.join(sorted(allowed))}")


def _check_deployments(config: AppConfig, deployments: list[Mapping[str, Any]]) -> ServerConfig:
    """Check that each override names a deployment, and that its `user_config` fits. Return the patched `server`."""
    names = (ROUTER, *config.tiers)
    server = config.server
    for i, deployment in enumerate(deployments):
        at = f"deployments.{i}"
        name = deployment.get("name")
        if name not in names:
            raise ConfigError(f"{at}.name: there is no deployment {name!r}; deployments: {', '.join(names)}")
        try:
            change = deployment.get("user_config") or {}
            if not isinstance(change, Mapping):
                raise ConfigError("a mapping is needed")
            if name == ROUTER:
                base = RouterConfig(reliability=config.reliability, server=config.server)
                server = patch_router(base, change, config.tiers).server
            else:
                patch_tier(config.tiers[str(name)], change)
        except ValueError as error:
            raise ConfigError(f"{at}.user_config: {error}") from None
    return server
