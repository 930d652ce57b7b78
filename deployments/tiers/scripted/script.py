"""The form of a script: what a `scripted` tier may be made to answer (docs/scripted.md).

A misspelt key is an error: a test could pass for the wrong reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from deployments.config.config_errors import describe_yaml_error, find_allowed_keys
from deployments.config.whole_file import read_bounded
from deployments.config.yaml_text import load_yaml
from deployments.tiers.hosted.upstream_errors import RETRY_AFTER_S_MAX
from reliability.types import Fault, FinishReason

_SCRIPT_BYTES_MAX = 16 * 1024 * 1024
_WEIGHT_MAX = 1e9  # so that no sum of weights overflows
_VARIABLES = ("last_user", "tool_result", "turn", "tier")

# What a step does: each step does exactly one of these, of which the breaks end the attempt with a fault.
_BREAKS = ("status", "cut", "unavailable", "loading", "fault")
_ACTS = ("text", "raw", "reasoning", "refusal", "tool_call", "silence", *_BREAKS)
_ONLY_WITH_STATUS = ("retry_after_s", "message", "code", "param")


class ScriptError(ValueError):
    """A script that can't be used; the text names the rule by its number (from 1) and the key, and holds no path."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Pattern(_Strict):
    contains: str | None = None
    regex: str | None = None

    @field_validator("regex")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    def fits(self, text: str | None) -> bool:
        """Return whether there is a text and it is as described."""
        if text is None or (self.contains is not None and self.contains not in text):
            return False
        return self.regex is None or re.search(self.regex, text) is not None


_TextPattern = Annotated[
    _Pattern, BeforeValidator(lambda value: {"contains": value} if isinstance(value, str) else value)
]


class When(_Strict):
    """The conditions of a rule; all that are given must hold."""

    last_user: _TextPattern | None = None
    tool_result: _TextPattern | None = None  # of the last message, where that is a tool's result
    transcript: _TextPattern | None = None  # all texts, system prompt included
    turn: int | None = Field(default=None, ge=1)  # 1 + the number of assistant messages
    has_tools: bool | None = None
    tier: str | None = None


class Pace(_Strict):
    """How fast and in what pieces text leaves. A step's pace goes before its rule's and its script's."""

    token_delay_s: float | None = Field(default=None, ge=0)
    chunk_tokens: int | None = Field(default=None, ge=1)
    chunk_chars: int | None = Field(default=None, ge=1)


class CallSpec(_Strict):
    """A tool call. `arguments` as a text leaves verbatim, however malformed."""

    name: str
    arguments: Any = Field(default_factory=dict)
    id: str | None = None

    @field_validator("arguments")
    @classmethod
    def _text_or_object(cls, value: Any) -> Any:
        if not isinstance(value, str | Mapping):
            raise ValueError("must be an object, or the text to send")
        return value


class ScriptStep(Pace):
    """One thing that happens: something is sent, or something breaks."""

    text: str | None = None
    raw: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_call: CallSpec | None = None
    status: int | None = Field(default=None, ge=300, le=599)
    cut: Literal[True] | None = None
    silence: Literal[True] | None = None
    unavailable: str | None = None
    loading: str | Literal[True] | None = None
    fault: Fault | None = None

    delay_s: float = Field(default=0.0, ge=0)
    retry_after_s: float | None = Field(default=None, ge=0, le=RETRY_AFTER_S_MAX)
    message: str | None = None
    code: str = ""
    param: str | None = None

    @field_validator("text", "reasoning", "refusal")
    @classmethod
    def _variables_are_known(cls, value: str | None) -> str | None:
        for name in re.findall(r"\{\{(\w+)\}\}", value or ""):
            if name not in _VARIABLES:
                known = ", ".join(_VARIABLES)
                raise ValueError(f"unknown variable {{{{{name}}}}} (known: {known}); use raw for verbatim")
        return value

    @model_validator(mode="after")
    def _does_one_thing(self) -> ScriptStep:
        acts = [act for act in _ACTS if getattr(self, act) is not None]
        if len(acts) != 1:
            raise ValueError(f"a step needs exactly one of {', '.join(_ACTS)}; it has {' and '.join(acts) or 'none'}")
        stray = [key for key in _ONLY_WITH_STATUS if key in self.model_fields_set]
        if stray and not {"status", "fault"} & set(acts):
            raise ValueError(f"{stray[0]} belongs to status or fault, not to {acts[0]}")
        return self

    @property
    def breaks(self) -> bool:
        """True where this step ends the attempt with a fault."""
        return any(getattr(self, act) is not None for act in _BREAKS)


class _UsageSpec(_Strict):
    prompt_tokens: int | None = Field(default=None, ge=0)
    completion_tokens: int | None = Field(default=None, ge=0)
    cached_tokens: int = Field(default=0, ge=0)
    reasoning_tokens: int | None = Field(default=None, ge=0)


def _as_steps(value: Any) -> Any:
    if isinstance(value, str):
        return [{"text": value}]
    return [value] if isinstance(value, Mapping) else value


class Rule(Pace):
    """When to answer, and what."""

    answer: Annotated[list[ScriptStep], BeforeValidator(_as_steps)]
    when: When = When()
    times: int | None = Field(default=None, ge=1)
    weight: float | None = Field(default=None, gt=0, le=_WEIGHT_MAX)
    start_delay_s: float = Field(default=0.0, ge=0)
    cut_after_tokens: int | None = Field(default=None, ge=0)
    finish: FinishReason | None = None
    usage: _UsageSpec = _UsageSpec()
    no_usage: bool = False


class Script(Pace):
    """A whole script. `unavailable` and `loading` are the tier's own state, for every request."""

    rules: list[Rule] = Field(default_factory=list)
    unavailable: str | None = None
    loading: str | None = None
    draw_by: Literal["content", "order"] = "content"


def load_script(source: str | Path | list[dict[str, Any]] | Mapping[str, Any]) -> Script:
    """Read and check a script: a YAML, JSON or JSONL file, or what could stand in one. Raises ScriptError."""
    raw = _read_file(Path(source)) if isinstance(source, str | Path) else source
    top = {"rules": raw} if isinstance(raw, list) else raw
    if not isinstance(top, Mapping):
        raise ScriptError("a script is a list of rules, or an object with rules")
    rules = top.get("rules", [])
    if not isinstance(rules, list):
        raise ScriptError("rules: must be a list")
    checked = [_check(Rule, rule, f"rule {number}") for number, rule in enumerate(rules, start=1)]
    return _check(Script, {**top, "rules": checked}, "script")


def _read_file(path: Path) -> Any:
    try:
        text = read_bounded(path, _SCRIPT_BYTES_MAX).decode("utf-8")
    except OSError as error:
        raise ScriptError(f"script {path.name} can't be read: {error.strerror}") from None
    except ValueError:  # also a path that no file can have
        raise ScriptError(f"script {path.name!r} is not a UTF-8 file") from None
    return _parse_lines(text, path.name) if path.suffix == ".jsonl" else _parse_yaml(text, path.name)


def _parse_lines(text: str, name: str) -> list[Any]:
    rules = []
    for number, line in enumerate((line for line in text.split("\n") if line.strip()), start=1):
        try:
            rules.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise ScriptError(f"script {name}, rule {number}: not JSON: {error}") from None
    return rules


def _parse_yaml(text: str, name: str) -> Any:
    try:
        return load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ScriptError(f"script {name} is not YAML: {describe_yaml_error(error)}") from None


_Model = TypeVar("_Model", bound=BaseModel)


def _check(model: type[_Model], value: Any, where: str) -> _Model:
    try:
        return model.model_validate(value)
    except ValidationError as errors:
        # A misspelt key first: what it was meant to be is then missing as well.
        first = min(errors.errors(), key=lambda error: error["type"] != "extra_forbidden")
    keys = [str(part + 1) if isinstance(part, int) else str(part) for part in first["loc"]]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = f"unknown key (allowed: {', '.join(find_allowed_keys(model, first['loc'][:-1]))})"
    raise ScriptError(": ".join(part for part in (where, ".".join(keys), message) if part))
