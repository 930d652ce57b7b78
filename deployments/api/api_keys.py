"""API keys: where they are configured, and what the server keeps of them.

    server.api_keys_file   a YAML list of {name, sha256, admin: false, allow_cloud: true, tokens_per_hour: null}
    server.api_keys_env    an environment variable, NAME:KEY[:admin][:local-only] separated by commas

The server keeps digests only: a key is drawn from 256 random bits, so SHA-256 needs no salt. Invariant: an error names
the source and the entry's number, and no piece of a line that may be a key.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from deployments.config.app_config import ServerConfig
from deployments.config.config_errors import ConfigError, describe_yaml_error
from deployments.config.whole_file import read_bounded
from deployments.config.yaml_text import load_yaml
from deployments.running.own_folder import find_strangers
from reliability.config import Section

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
# What every key of `new_key` begins with: clients expect `sk-`, and what looks for leaked keys knows it.
_PREFIX = "sk-mss-"
_KEY_BYTES = 32
_KEY_CHARS_MIN = 24
# The characters of a bearer token (RFC 6750), so that neither `,` nor `:` can stand in a key.
KEY = re.compile(rf"[A-Za-z0-9._~+/=-]{{{_KEY_CHARS_MIN},256}}")
_KEYS_MAX = 1000
FILE_BYTES_MAX = 1_048_576
MAKE_ONE = "make one: mlx-stack-serve key NAME"
_FLAGS = ("admin", "local-only")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """One key, as its digest. `at` says where it was configured; `tokens_per_hour` None means no budget of its own."""

    name: str
    sha256: bytes = field(repr=False)
    admin: bool = False
    allow_cloud: bool = True
    tokens_per_hour: int | None = None
    at: str = field(default="", compare=False)


class _Entry(Section):
    name: str = Field(pattern=rf"^{NAME.pattern}$")
    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    admin: bool = Field(default=False, strict=True)
    allow_cloud: bool = Field(default=True, strict=True)
    tokens_per_hour: int | None = Field(default=None, ge=1, strict=True)


def new_key() -> str:
    """Make a new random key."""
    return _PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def digest(key: str) -> bytes:
    """Return what is kept of a key, and compared. Any text has one."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def entry_line(key: ApiKey) -> str:
    """Write the file's entry for a key, on one line. The quotes keep YAML from reading a name as a number or a yes."""
    flags = (", admin: true" if key.admin else "") + ("" if key.allow_cloud else ", allow_cloud: false")
    return f'- {{name: "{key.name}", sha256: "{key.sha256.hex()}"{flags}}}'


def load_keys(server: ServerConfig, environ: Mapping[str, str]) -> tuple[ApiKey, ...]:
    """Load all keys that the configuration names. Raises `ConfigError`: one line that repeats nothing that may be a
    key."""
    keys: list[ApiKey] = []
    if server.api_keys_file is not None:
        keys += _read_file(Path(server.api_keys_file))
    variable = server.api_keys_env
    value = environ.get(variable, "")
    if value.strip():
        keys += [_parse_words(entry.strip(), f"{variable}: entry {i}") for i, entry in enumerate(value.split(","), 1)]
    return _check_keys(keys)


def parse_file(text: str, at: str) -> tuple[ApiKey, ...]:
    """Parse the keys in the text of a file; `at` names it in errors. Raises `ConfigError`: as `load_keys`."""
    try:
        document = load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{at}: is not YAML: {describe_yaml_error(error)}") from None
    if document is None or document == []:
        return ()
    if not isinstance(document, list):
        raise ConfigError(f"{at}: a list of entries is needed: - {{name: NAME, sha256: DIGEST}}")
    return _check_keys([_parse_entry(entry, f"{at}: entry {i}") for i, entry in enumerate(document, 1)])


def _read_file(path: Path) -> tuple[ApiKey, ...]:
    at = "server.api_keys_file"
    try:
        path = path.expanduser()
        text = read_bounded(path, FILE_BYTES_MAX)
        fault = find_strangers(path.absolute() / "anything")
    except OSError as error:
        raise ConfigError(f"{at}: can't be read: {error.strerror}") from None
    except RuntimeError:  # `~` of nobody on this machine
        raise ConfigError(f"{at}: can't be read: its home directory isn't known") from None
    except ValueError:
        raise ConfigError(f"{at}: can't be read: no file can have that name") from None
    if fault:
        raise ConfigError(f"{at}: others may write to it, and so let themselves in: {fault}")
    try:
        keys = parse_file(text.decode("utf-8"), at)
    except UnicodeDecodeError:
        raise ConfigError(f"{at}: is not UTF-8 text") from None
    if not keys:
        raise ConfigError(f"{at}: holds no keys; {MAKE_ONE}")
    return keys


def _parse_entry(entry: Any, at: str) -> ApiKey:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{at}: a mapping with name and sha256 is needed")
    try:
        known = _Entry.model_validate(dict(entry))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        words = f"{first['loc'][0]}: {first['msg']}"
        if first["type"] == "extra_forbidden" or first["loc"][0] not in _Entry.model_fields:
            # It isn't repeated, since it may be a key.
            words = f"unknown field; allowed here: {', '.join(sorted(_Entry.model_fields))}"
        raise ConfigError(f"{at}: {words}") from None
    _refuse_key_as_name(known.name, at)
    return ApiKey(**known.model_dump() | {"sha256": bytes.fromhex(known.sha256)}, at=at)


def _parse_words(entry: str, at: str) -> ApiKey:
    name, *rest = entry.split(":")
    if not rest:
        raise ConfigError(f"{at}: NAME:KEY, NAME:KEY:admin or NAME:KEY:local-only is needed")
    key, *flags = rest
    if not NAME.fullmatch(name):
        raise ConfigError(f"{at}: the name must have 1 to 64 letters, digits, dots, underscores or dashes")
    _refuse_key_as_name(name, at)
    if not KEY.fullmatch(key):
        raise ConfigError(f"{at}: the key must have {_KEY_CHARS_MIN} to 256 letters, digits or -._~+/=; {MAKE_ONE}")
    if len(set(flags)) != len(flags) or not set(flags) <= set(_FLAGS):
        raise ConfigError(f"{at}: unknown or repeated flag after the key; allowed here: {', '.join(_FLAGS)}")
    return ApiKey(name=name, sha256=digest(key), admin="admin" in flags, allow_cloud="local-only" not in flags, at=at)


def _refuse_key_as_name(name: str, at: str) -> None:
    if name.startswith("sk-"):
        raise ConfigError(f"{at}: the name looks like a key; the name stands first")


def _check_keys(keys: Sequence[ApiKey]) -> tuple[ApiKey, ...]:
    if len(keys) > _KEYS_MAX:
        raise ConfigError(f"{keys[_KEYS_MAX].at}: over {_KEYS_MAX} keys")
    names: dict[str, str] = {}
    digests: dict[bytes, str] = {}
    for key in keys:
        if key.name in names:
            raise ConfigError(f"{key.at}: has the same name as {names[key.name]}")
        if key.sha256 in digests:
            raise ConfigError(f"{key.at}: has the same key as {digests[key.sha256]}")
        names[key.name] = digests[key.sha256] = key.at
    return tuple(keys)
