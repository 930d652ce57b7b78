"""The effects of the keys that say who may ask: `server.api_keys_file`, `server.api_keys_env`, `server.allow_open`,
`server.cors_origins`."""

import tempfile
from pathlib import Path

import pytest

from deployments.api.access import access_for
from deployments.api.api_keys import ApiKey, digest, entry_line
from deployments.config.config_errors import ConfigError
from deployments.errors import ApiError
from tests.support.small_config import config_of

SECRET = "effect-key-0123456789abcdef"
SENT = {"authorization": f"Bearer {SECRET}"}


def api_keys_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.yaml"
        path.write_text(entry_line(ApiKey(name="filed", sha256=digest(SECRET))))
        access = access_for(config_of("server.api_keys_file", str(path)).server, {})
    assert access.caller(SENT).name == "filed"
    with pytest.raises(ApiError):
        access.caller({})
    assert access_for(config_of().server, {}).caller({}).admin


def api_keys_env() -> None:
    environ = {"OTHER_KEYS": f"other:{SECRET}"}
    assert access_for(config_of("server.api_keys_env", "OTHER_KEYS").server, environ).caller(SENT).name == "other"
    assert access_for(config_of().server, environ).caller(SENT).name == ""


def allow_open() -> None:
    access_for(config_of("server.allow_open", True).server, {}).refuse_host("0.0.0.0")
    with pytest.raises(ConfigError, match="is not loopback"):
        access_for(config_of().server, {}).refuse_host("0.0.0.0")


def cors_origins() -> None:
    page = "https://app.example.com"
    allowed = access_for(config_of("server.cors_origins", [page]).server, {})
    allowed.guard("127.0.0.1", {"origin": page})
    assert allowed.lets_read(page)
    with pytest.raises(ApiError, match=r"server\.cors_origins"):
        access_for(config_of().server, {}).guard("127.0.0.1", {"origin": page})
